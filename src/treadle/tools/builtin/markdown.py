"""HTML as Markdown: what a reader would read, without the rest.

Forgiving: real pages close nothing and nest anything. Scripts, styles, forms and navigation are
left out; headings, lists, links, code and tables stay. Pages are hostile: the work is in proportion
to the page, and there is a limit to it. Pure; `web_fetch` stands above, `markup.py` below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from urllib.parse import urljoin

from treadle.tools.builtin.markup import Begin, End, Words, pieces

LEFT_OUT = frozenset({
    "script", "style", "noscript", "template", "svg", "canvas", "iframe", "object", "head",
    "nav", "footer", "form", "button", "select", "dialog",
})  # fmt: skip
BLOCKS = frozenset({
    "p", "div", "section", "article", "main", "header", "aside", "figure", "figcaption",
    "address", "details", "summary", "dl", "dt", "dd", "ul", "ol", "table", "body", "html",
    "hr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote",
})  # fmt: skip
MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*", "code": "`", "kbd": "`", "del": "~~"}
HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
MOST_DEPTH = 400
MOST_INDENT = 20
MOST_HTML = 1_500_000
MOST_PIECES = 250_000
MOST_TEXT = 1_500_000
MOST_ADDRESS = 2_000
MOST_TITLE = 300
LOOKS = 1_000  # so many pieces from one look at whether anybody still waits to the next
CUT = "(the page was cut: it is too large)"


def to_markdown(html: str, base: str = "", *, stopped: Callable[[], bool] = lambda: False) -> str:
    """The readable part of a page. Never an error, whatever it is given.

    Of one that is too large the beginning, with a word that it is cut. `stopped` is asked now and
    then: once it says so, nobody wants the rest.
    """
    writer = _Writer(base)
    is_cut = len(html) > MOST_HTML
    for number, piece in enumerate(pieces(html[:MOST_HTML])):
        if number > MOST_PIECES or writer.size > MOST_TEXT or (not number % LOOKS and stopped()):
            is_cut = True
            break
        match piece:
            case Words(text):
                writer.words(text)
            case Begin(name, attributes):
                writer.begin(name, attributes)
            case End(name):
                writer.end(name)
    text = writer.text()
    return f"{text[:MOST_TEXT]}\n\n{CUT}" if is_cut else text


class _Writer:
    def __init__(self, base: str) -> None:
        self._base = base if len(base) <= MOST_ADDRESS else ""
        self._out: list[str] = []
        self.size = 0  # of all that was ever put out
        self._left_out = ""  # the tag that hides what is in it, and how often it is open
        self._left_out_depth = 0
        self._title = ""
        self._in_title = False
        self._lists: list[int | None] = []  # the next number, None for bullets
        self._item_at = -1  # an item of a list has just begun here
        self._link: tuple[str, int] | None = None
        self._quotes = 0
        self._pre = 0
        self._rows: list[list[str]] | None = None
        self._cell_at: int | None = None

    def text(self) -> str:
        self._end_table()
        body = "\n".join(line.rstrip() for line in "".join(self._out).split("\n"))
        body = re.sub(r"\n{3,}", "\n\n", body).strip()
        title = " ".join(self._title.split())
        return f"# {title}\n\n{body}" if title and not body.startswith("# ") else body

    def _put(self, text: str) -> None:
        self._out.append(text)
        self.size += len(text)

    # --- what the parser finds -----------------------------------------------------------

    def begin(self, tag: str, given: Mapping[str, str]) -> None:
        if tag == "title" and not self._title:
            self._in_title = True
        if tag == "body" and self._left_out == "head":
            self._left_out = ""  # a head need not be closed
        if self._hides(tag):
            return
        if tag in HEADINGS:
            self._block()
            self._put("#" * int(tag[1]) + " ")
        elif tag == "pre":
            self._begin_pre(given)
        elif tag == "a":
            self._end_link()  # one in another is none of HTML's
            self._link = (given.get("href", ""), len(self._out))
        elif tag == "img" and given.get("alt", "").strip():
            self._put(f"[image: {' '.join(given['alt'].split())}]")
        elif tag in MARKS and not self._pre:
            self._put(MARKS[tag])
        else:
            self._begin(tag)

    def _hides(self, tag: str) -> bool:
        """Whether this tag is left out, or stands in one that is."""
        if not self._left_out and tag in LEFT_OUT:
            self._left_out, self._left_out_depth = tag, 0
        if tag == self._left_out:
            self._left_out_depth += 1
        return bool(self._left_out)

    def _begin(self, tag: str) -> None:
        if tag in ("ul", "ol"):
            if not self._lists:
                self._block()
            if len(self._lists) < MOST_DEPTH:
                self._lists.append(1 if tag == "ol" else None)
        elif tag == "li":
            self._item()
        elif tag == "br":
            self._out.append("\n")
        elif tag == "hr":
            self._block()
            self._out.append("---")
            self._block()
        elif tag == "blockquote":
            self._block()
            self._quotes += 1
            self._out.append("> ")
        elif tag == "table":
            self._block()
            self._end_table()  # one in another: what was of the outer one stays, as a table
            self._rows = []
        elif tag == "tr" and self._rows is not None:
            self._end_cell()
            self._rows.append([])
        elif tag in ("td", "th") and self._rows is not None:
            self._end_cell()
            self._rows = self._rows or [[]]
            self._link, self._cell_at = None, len(self._out)
        elif tag in BLOCKS or tag in ("tr", "td", "th"):
            self._block()

    def end(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._left_out:
            if tag == self._left_out:
                self._left_out_depth -= 1
            if not self._left_out_depth:
                self._left_out = ""
            return
        if tag == "a":
            self._end_link()
        elif tag == "pre" and self._pre:
            self._pre -= 1
            self._put("\n```\n\n")
        elif tag in MARKS and not self._pre:
            self._put(MARKS[tag])
        elif tag in ("ul", "ol"):
            if self._lists:
                self._lists.pop()
            if not self._lists:
                self._block()
        elif tag in ("td", "th", "tr"):
            self._end_cell()
        elif tag == "table":
            self._end_table()
        elif tag == "blockquote":
            self._quotes = max(0, self._quotes - 1)
            self._block()
        elif tag in BLOCKS:
            self._block()

    def words(self, text: str) -> None:
        if self._in_title:
            self._title = (self._title + text)[:MOST_TITLE]
        if self._left_out or self._in_title:
            return
        if self._pre:
            self._put(text)
            return
        words = re.sub(r"\s+", " ", text)
        if words == " " and (not self._out or self._out[-1].endswith(("\n", " "))):
            return
        if self._out and self._out[-1].endswith(("\n", " ")):
            words = words.lstrip()
        self._put(words)

    # --- parts ---------------------------------------------------------------------------

    def _block(self) -> None:
        if self._cell_at is not None:
            self._put(" ")
        elif self._out and not self._out[-1].endswith("\n\n"):
            # A paragraph inside a list item belongs to the item.
            if self._lists and len(self._out) == self._item_at:
                return
            self._put("\n" if self._lists else "\n\n")
            if self._quotes:
                self._put("> ")

    def _item(self) -> None:
        depth = max(0, len(self._lists) - 1)
        number = self._lists[-1] if self._lists else None
        mark = "- " if number is None else f"{number}. "
        if number is not None:
            self._lists[-1] = number + 1
        if self._out and not self._out[-1].endswith("\n"):
            self._put("\n")
        self._put("  " * min(depth, MOST_INDENT) + mark)
        self._item_at = len(self._out)

    def _begin_pre(self, given: Mapping[str, str]) -> None:
        self._block()
        language = re.search(r"(?:language|lang|highlight)-(\w{1,30})", given.get("class", ""))
        self._put(f"```{language.group(1) if language else ''}\n")
        self._pre += 1

    def _end_link(self) -> None:
        if self._link is None:
            return
        target, start = self._link
        self._link = None
        said = "".join(self._out[start:])
        label = " ".join(said.split())
        if not label or not target or target.startswith(("#", "javascript:", "data:")):
            return
        if "\n" in said.strip() or len(target) > MOST_ADDRESS:
            return  # a link around whole blocks: its text says more than its address
        try:
            whole = urljoin(self._base, target.strip())
        except ValueError:
            return
        del self._out[start:]
        self._put(f"{' ' if said.startswith(' ') else ''}[{label}]({whole})")

    def _end_cell(self) -> None:
        if self._cell_at is None or not self._rows:
            return
        self._link = None
        cell = " ".join("".join(self._out[self._cell_at :]).split()).replace("|", "\\|")
        del self._out[self._cell_at :]
        self._cell_at = None
        self._rows[-1].append(cell)

    def _end_table(self) -> None:
        if self._rows is None:
            return
        self._end_cell()
        rows = [row for row in self._rows if any(row)]
        self._rows = None
        if not rows:
            return
        # Only the first row has to be as wide as the widest: Markdown fills up the others.
        width = max(len(row) for row in rows)
        rows[0] += [""] * (width - len(rows[0]))
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines.insert(1, "|" + " --- |" * width)
        self._put("\n".join(lines))
        self._put("\n\n")

"""HTML as Markdown, by the standard library's parser: what a reader would read, without the rest.

Forgiving: real pages close nothing and nest anything. Scripts, styles, forms and navigation are
left out; headings, lists, links, code and tables stay. Pure; `web_fetch` stands above.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

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
MOST_DEPTH = 400
MOST_INDENT = 20


def to_markdown(html: str, base: str = "") -> str:
    """The readable part of a page. Never an error, whatever it is given."""
    writer = _Writer(base)
    writer.feed(html)
    writer.close()
    return writer.text()


class _Writer(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self._base = base
        self._out: list[str] = []
        self._left_out: list[str] = []
        self._title: list[str] = []
        self._in_title = False
        self._lists: list[int | None] = []  # the next number, None for bullets
        self._links: list[tuple[str, int]] = []
        self._quotes = 0
        self._pre = 0
        self._rows: list[list[str]] | None = None
        self._cell_at: int | None = None

    def text(self) -> str:
        self._end_table()
        body = "\n".join(line.rstrip() for line in "".join(self._out).split("\n"))
        body = re.sub(r"\n{3,}", "\n\n", body).strip()
        title = " ".join("".join(self._title).split())
        has_heading = re.match(r"# ", body) is not None
        return f"# {title}\n\n{body}" if title and not has_heading else body

    # --- what the parser finds -----------------------------------------------------------

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and not self._title:
            self._in_title = True
        if tag in LEFT_OUT and len(self._left_out) < MOST_DEPTH:
            self._left_out.append(tag)
        if self._left_out:
            return
        given = {name: value or "" for name, value in attrs}
        if tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self._block()
            self._out.append("#" * int(tag[1]) + " ")
        elif tag == "pre":
            self._begin_pre(given)
        elif tag == "a":
            self._links.append((given.get("href", ""), len(self._out)))
        elif tag == "img" and given.get("alt", "").strip():
            self._out.append(f"[image: {' '.join(given['alt'].split())}]")
        elif tag in MARKS and not self._pre:
            self._out.append(MARKS[tag])
        else:
            self._begin(tag)

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
            self._rows = []
        elif tag == "tr" and self._rows is not None:
            self._end_cell()
            self._rows.append([])
        elif tag in ("td", "th") and self._rows is not None:
            self._end_cell()
            self._rows = self._rows or [[]]
            self._cell_at = len(self._out)
        elif tag in BLOCKS:
            self._block()

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._left_out:
            if tag in self._left_out:
                while self._left_out.pop() != tag:
                    pass
            return
        if tag == "a" and self._links:
            self._end_link(*self._links.pop())
        elif tag == "pre" and self._pre:
            self._pre -= 1
            self._out.append("\n```\n\n")
        elif tag in MARKS and not self._pre:
            self._out.append(MARKS[tag])
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

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
        if self._left_out or self._in_title:
            return
        if self._pre:
            self._out.append(data)
            return
        words = re.sub(r"\s+", " ", data)
        if words == " " and (not self._out or self._out[-1].endswith(("\n", " "))):
            return
        if self._out and self._out[-1].endswith(("\n", "- ", "> ")):
            words = words.lstrip()
        self._out.append(words)

    # --- parts ---------------------------------------------------------------------------

    def _block(self) -> None:
        if self._cell_at is not None:
            self._out.append(" ")
        elif self._out and not self._out[-1].endswith("\n\n"):
            # A paragraph inside a list item belongs to the item.
            if self._lists and re.search(r"(?:- |\d+\. )$", self._out[-1]):
                return
            self._out.append("\n" if self._lists else "\n\n")
            if self._quotes:
                self._out.append("> ")

    def _item(self) -> None:
        depth = max(0, len(self._lists) - 1)
        number = self._lists[-1] if self._lists else None
        mark = "- " if number is None else f"{number}. "
        if number is not None:
            self._lists[-1] = number + 1
        if self._out and not self._out[-1].endswith("\n"):
            self._out.append("\n")
        self._out.append("  " * min(depth, MOST_INDENT) + mark)

    def _begin_pre(self, given: dict[str, str]) -> None:
        self._block()
        language = re.search(r"(?:language|lang|highlight)-(\w+)", given.get("class", ""))
        self._out.append(f"```{language.group(1) if language else ''}\n")
        self._pre += 1

    def _end_link(self, target: str, start: int) -> None:
        label = " ".join("".join(self._out[start:]).split())
        if not label or not target or target.startswith(("#", "javascript:", "data:")):
            return
        if "\n" in "".join(self._out[start:]).strip():
            return  # a link around whole blocks: its text says more than its address
        blank = " " if self._out[start].startswith(" ") else ""
        try:
            whole = urljoin(self._base, target.strip())
        except ValueError:
            return
        self._out[start:] = [f"{blank}[{label}]({whole})"]

    def _end_cell(self) -> None:
        if self._cell_at is None or not self._rows:
            return
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
        width = max(len(row) for row in rows)
        padded = [row + [""] * (width - len(row)) for row in rows]
        lines = [f"| {' | '.join(row)} |" for row in padded]
        lines.insert(1, "|" + " --- |" * width)
        self._out += ["\n".join(lines), "\n\n"]

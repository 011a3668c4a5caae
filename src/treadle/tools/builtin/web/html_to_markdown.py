"""HTML as Markdown: the readable part of a page.

Lenient: real pages do not close or nest tags correctly. Scripts, styles, forms and navigation are
left out; headings, lists, links, code and tables stay. Pages may be hostile: the work is
proportional to the page and limited. Pure; used by `web_fetch`, uses `html_tokens.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import urljoin

from treadle.tools.builtin.web.html_tokens import EndTag, HtmlText, StartTag, tokenize_html

SKIPPED_TAGS = frozenset({
    "script", "style", "noscript", "template", "svg", "canvas", "iframe", "object", "head",
    "nav", "footer", "form", "button", "select", "dialog",
})  # fmt: skip
BLOCK_TAGS = frozenset({
    "p", "div", "section", "article", "main", "header", "aside", "figure", "figcaption",
    "address", "details", "summary", "dl", "dt", "dd", "ul", "ol", "table", "body", "html",
    "hr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote",
})  # fmt: skip
INLINE_MARKS = {
    "strong": "**", "b": "**", "em": "*", "i": "*", "code": "`", "kbd": "`", "del": "~~"
}  # fmt: skip
HEADING_TAGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
MAX_LIST_DEPTH = 400
MAX_INDENT = 20
MAX_HTML_CHARS = 1_500_000
MAX_TOKENS = 250_000
MAX_TEXT_CHARS = 1_500_000
MAX_URL_CHARS = 2_000
MAX_TITLE_CHARS = 300
CANCEL_CHECK_INTERVAL = 1_000  # tokens


class MarkdownText(NamedTuple):
    """Markdown, and whether it is only the beginning of a page that is too large."""

    text: str
    is_truncated: bool


def html_to_markdown(
    html: str, base_url: str = "", *, is_cancelled: Callable[[], bool] = lambda: False
) -> MarkdownText:
    """The readable part of a page. Never raises. Stops soon after `is_cancelled` returns True."""
    writer = _MarkdownWriter(base_url)
    is_truncated = len(html) > MAX_HTML_CHARS
    for number, token in enumerate(tokenize_html(html[:MAX_HTML_CHARS])):
        is_too_long = number > MAX_TOKENS or writer.size > MAX_TEXT_CHARS
        if is_too_long or (not number % CANCEL_CHECK_INTERVAL and is_cancelled()):
            is_truncated = True
            break
        match token:
            case HtmlText(text):
                writer.add_text(text)
            case StartTag(name, attributes):
                writer.start_tag(name, attributes)
            case EndTag(name):
                writer.end_tag(name)
    text = writer.finish()
    return MarkdownText(text[:MAX_TEXT_CHARS] if is_truncated else text, is_truncated)


class _MarkdownWriter:
    def __init__(self, base_url: str) -> None:
        self._base_url = base_url if len(base_url) <= MAX_URL_CHARS else ""
        self._out: list[str] = []
        self.size = 0  # characters written so far
        self._skipped_tag = ""  # the open tag whose content is left out, and its nesting depth
        self._skipped_depth = 0
        self._title = ""
        self._in_title = False
        self._lists: list[int | None] = []  # the next number, None for bullets
        self._item_at = -1  # where the last list item began
        self._link: tuple[str, int] | None = None
        self._quotes = 0
        self._pre = 0
        self._rows: list[list[str]] | None = None
        self._cell_at: int | None = None

    def finish(self) -> str:
        self._end_table()
        body = "\n".join(line.rstrip() for line in "".join(self._out).split("\n"))
        body = re.sub(r"\n{3,}", "\n\n", body).strip()
        title = " ".join(self._title.split())
        return f"# {title}\n\n{body}" if title and not body.startswith("# ") else body

    def _write(self, text: str) -> None:
        self._out.append(text)
        self.size += len(text)

    # --- tokens --------------------------------------------------------------------------

    def start_tag(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "title" and not self._title:
            self._in_title = True
        if tag == "body" and self._skipped_tag == "head":
            self._skipped_tag = ""  # a head need not be closed
        if self._enter_skipped(tag):
            return
        if tag in HEADING_TAGS:
            self._start_block()
            self._write("#" * int(tag[1]) + " ")
        elif tag == "pre":
            self._start_pre(attributes)
        elif tag == "a":
            self._end_link()  # links do not nest in HTML
            self._link = (attributes.get("href", ""), len(self._out))
        elif tag == "img" and attributes.get("alt", "").strip():
            self._write(f"[image: {' '.join(attributes['alt'].split())}]")
        elif tag in INLINE_MARKS and not self._pre:
            self._write(INLINE_MARKS[tag])
        else:
            self._start_structure(tag)

    def _enter_skipped(self, tag: str) -> bool:
        """Whether this tag is left out, or is inside one that is."""
        if not self._skipped_tag and tag in SKIPPED_TAGS:
            self._skipped_tag, self._skipped_depth = tag, 0
        if tag == self._skipped_tag:
            self._skipped_depth += 1
        return bool(self._skipped_tag)

    def _start_structure(self, tag: str) -> None:
        if tag in ("ul", "ol"):
            if not self._lists:
                self._start_block()
            if len(self._lists) < MAX_LIST_DEPTH:
                self._lists.append(1 if tag == "ol" else None)
        elif tag == "li":
            self._start_item()
        elif tag == "br":
            self._out.append("\n")
        elif tag == "hr":
            self._start_block()
            self._out.append("---")
            self._start_block()
        elif tag == "blockquote":
            self._start_block()
            self._quotes += 1
            self._out.append("> ")
        elif tag == "table":
            self._start_block()
            self._end_table()  # a nested table: write the outer one up to here
            self._rows = []
        elif tag == "tr" and self._rows is not None:
            self._end_cell()
            self._rows.append([])
        elif tag in ("td", "th") and self._rows is not None:
            self._end_cell()
            self._rows = self._rows or [[]]
            self._link, self._cell_at = None, len(self._out)
        elif tag in BLOCK_TAGS or tag in ("tr", "td", "th"):
            self._start_block()

    def end_tag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._skipped_tag:
            if tag == self._skipped_tag:
                self._skipped_depth -= 1
            if not self._skipped_depth:
                self._skipped_tag = ""
            return
        if tag == "a":
            self._end_link()
        elif tag == "pre" and self._pre:
            self._pre -= 1
            self._write("\n```\n\n")
        elif tag in INLINE_MARKS and not self._pre:
            self._write(INLINE_MARKS[tag])
        elif tag in ("ul", "ol"):
            if self._lists:
                self._lists.pop()
            if not self._lists:
                self._start_block()
        elif tag in ("td", "th", "tr"):
            self._end_cell()
        elif tag == "table":
            self._end_table()
        elif tag == "blockquote":
            self._quotes = max(0, self._quotes - 1)
            self._start_block()
        elif tag in BLOCK_TAGS:
            self._start_block()

    def add_text(self, text: str) -> None:
        if self._in_title:
            self._title = (self._title + text)[:MAX_TITLE_CHARS]
        if self._skipped_tag or self._in_title:
            return
        if self._pre:
            self._write(text)
            return
        words = re.sub(r"\s+", " ", text)
        if words == " " and (not self._out or self._out[-1].endswith(("\n", " "))):
            return
        if self._out and self._out[-1].endswith(("\n", " ")):
            words = words.lstrip()
        self._write(words)

    # --- parts ---------------------------------------------------------------------------

    def _start_block(self) -> None:
        if self._cell_at is not None:
            self._write(" ")
        elif self._out and not self._out[-1].endswith("\n\n"):
            # A paragraph inside a list item belongs to the item.
            if self._lists and len(self._out) == self._item_at:
                return
            self._write("\n" if self._lists else "\n\n")
            if self._quotes:
                self._write("> ")

    def _start_item(self) -> None:
        depth = max(0, len(self._lists) - 1)
        number = self._lists[-1] if self._lists else None
        mark = "- " if number is None else f"{number}. "
        if number is not None:
            self._lists[-1] = number + 1
        if self._out and not self._out[-1].endswith("\n"):
            self._write("\n")
        self._write("  " * min(depth, MAX_INDENT) + mark)
        self._item_at = len(self._out)

    def _start_pre(self, attributes: Mapping[str, str]) -> None:
        self._start_block()
        language = re.search(r"(?:language|lang|highlight)-(\w{1,30})", attributes.get("class", ""))
        self._write(f"```{language.group(1) if language else ''}\n")
        self._pre += 1

    def _end_link(self) -> None:
        if self._link is None:
            return
        target, start = self._link
        self._link = None
        inner = "".join(self._out[start:])
        label = " ".join(inner.split())
        if not label or not target or target.startswith(("#", "javascript:", "data:")):
            return
        if "\n" in inner.strip() or len(target) > MAX_URL_CHARS:
            return  # a link around whole blocks: keep the text, drop the address
        try:
            whole = urljoin(self._base_url, target.strip())
        except ValueError:
            return
        del self._out[start:]
        self._write(f"{' ' if inner.startswith(' ') else ''}[{label}]({whole})")

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
        # Only the first row must be as wide as the widest: Markdown fills the others.
        width = max(len(row) for row in rows)
        rows[0] += [""] * (width - len(rows[0]))
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines.insert(1, "|" + " --- |" * width)
        self._write("\n".join(lines))
        self._write("\n\n")

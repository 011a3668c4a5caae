"""Markdown as lines for a terminal: calm, dense, and only as wide as it may be.

Blocks arrive small (prose.py), so a block is parsed and laid out anew whenever it grows. No
borders: headings are bold, code is coloured, tables are columns. Lines are rich Texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console
from rich.style import Style
from rich.text import Text

from treadle.apps.tui.palette import Palette
from treadle.core.terminal import UNSEEN, sign

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode
    from pygments.lexer import Lexer  # type: ignore[import-untyped]  # it ships no types

CONSOLE = Console(file=StringIO(), width=80, force_terminal=False)
LEAST_WIDTH = 4


def lines(source: str, width: int, palette: Palette) -> list[Text]:
    """A piece of Markdown. One that goes on inside a list keeps its indentation."""
    width = max(width, LEAST_WIDTH)
    indent = _indentation(source)
    room = max(width - indent, LEAST_WIDTH)
    tree = _parse(source if not indent else _dedented(source, indent))
    found: list[Text] = []
    for number, node in enumerate(tree.children):
        if number and not _is_tight(node):
            found.append(Text())
        found += _block(node, room, palette)
    return _prefixed(found, " " * indent) if indent else found


def wrapped(text: Text, width: int) -> list[Text]:
    """A text in lines that fit."""
    return list(text.wrap(CONSOLE, max(width, 1), tab_size=4)) or [Text()]


def safe(line: Text) -> Text:
    """Nothing that a model or a tool wrote may move the cursor or speak to the terminal."""
    if not line.plain.isprintable():
        line.plain = visible(line.plain)
    return line


def visible(text: str) -> str:
    """Control characters and marks of direction as signs that can be seen, one for one."""
    return UNSEEN.sub(_one_sign, text)


def _one_sign(found: re.Match[str]) -> str:
    shown = sign(found[0])
    return shown if len(shown) == 1 else "\ufffd"


def lead(text: str, style: Style | None = None) -> Text:
    """What stands before a line; its style does not reach the rest."""
    return Text().append(text, style)


def coloured(source: str, language: str, palette: Palette) -> list[Text]:
    """Lines of code; too many of them, or an unknown language, and they stay as they are."""
    source = source.expandtabs(4)
    lexer = _lexer(language) if language else None
    if lexer is None or len(source) > 20_000:
        return [Text(line) for line in source.split("\n")]
    text = Text()
    for kind, value in lexer.get_tokens(source):
        text.append(value, _token_style(str(kind), palette))
    return list(text.split("\n", allow_blank=True))[: source.count("\n") + 1]


# ------------------------------------------------------------------ blocks


def _block(node: SyntaxTreeNode, width: int, palette: Palette) -> list[Text]:
    match node.type:
        case "paragraph":
            return wrapped(_inline(node, palette), width)
        case "heading":
            style = palette.accent + palette.bold if node.tag in ("h1", "h2") else palette.bold
            text = _inline(node, palette)
            text.stylize(style)
            return wrapped(text, width)
        case "bullet_list" | "ordered_list":
            return _list(node, width, palette)
        case "blockquote":
            inside = [line for child in node.children for line in _block(child, width - 2, palette)]
            return _prefixed(inside, "▏ ", palette.faint)
        case "fence" | "code_block":
            return coloured(node.content.rstrip("\n"), _language(node.info), palette)
        case "hr":
            return [Text("─" * min(width, 24), palette.faint)]
        case "table":
            return list(_table(node, width, palette))
    return wrapped(Text(node.content.rstrip(), palette.faint), width)


def _list(node: SyntaxTreeNode, width: int, palette: Palette) -> list[Text]:
    found: list[Text] = []
    start = int(str(node.attrs.get("start", 1)))
    for number, item in enumerate(node.children):
        mark = f"{start + number}. " if node.type == "ordered_list" else "• "
        room = max(width - len(mark), LEAST_WIDTH)
        inside = [line for child in item.children for line in _block(child, room, palette)]
        head = lead(mark, palette.faint)
        for position, line in enumerate(inside or [Text()]):
            found.append((head if not position else Text(" " * len(mark))) + line)
    return found


def _table(node: SyntaxTreeNode, width: int, palette: Palette) -> Iterator[Text]:
    rows = [
        [_inline(cell, palette) for cell in row.children]
        for part in node.children
        for row in part.children
    ]
    count = max(map(len, rows))
    widths = [max(r[c].cell_len if c < len(r) else 0 for r in rows) for c in range(count)]
    _fit(widths, width - 2 * (count - 1))
    for number, row in enumerate(rows):
        cells = [wrapped(cell, room) for cell, room in zip(row, widths, strict=False)]
        for height in range(max(map(len, cells), default=0)):
            line = Text()
            for cell, room in zip(cells, widths, strict=False):
                part = cell[height] if height < len(cell) else Text()
                line += part + " " * (room - part.cell_len + 2)
            if not number:
                line.stylize(palette.bold)
            line.rstrip()
            line.truncate(width)
            yield line
        if not number:
            yield Text("  ".join("─" * room for room in widths)[:width], palette.faint)


def _fit(widths: list[int], room: int) -> None:
    """Take from the widest until all fit; nobody goes below a few cells."""
    while sum(widths) > room and max(widths) > LEAST_WIDTH:
        widest = widths.index(max(widths))
        widths[widest] -= 1


# ------------------------------------------------------------------ inside a line


def _inline(node: SyntaxTreeNode, palette: Palette) -> Text:
    text = Text()
    for child in node.children:
        _add(child, text, palette, Style.null())
    return text


def _add(node: SyntaxTreeNode, text: Text, palette: Palette, style: Style) -> None:
    match node.type:
        case "text" | "html_inline":
            text.append(node.content, style)
            return
        case "code_inline":
            text.append(node.content, style + palette.code)
            return
        case "softbreak":
            text.append(" ", style)
            return
        case "hardbreak":
            text.append("\n", style)
            return
        case "image":
            text.append(f"[image: {node.content}]", style + palette.faint)
            return
        case "strong":
            style += palette.bold
        case "em":
            style += Style(italic=True)
        case "s":
            style += Style(strike=True)
    before = len(text)
    for child in node.children:
        _add(child, text, palette, style)
    if node.type == "link":
        target = str(node.attrs.get("href", ""))
        said = text.plain[before:]
        text.stylize(palette.accent, before)
        if target and target.removeprefix("mailto:") != said:
            text.append(f" ({target})", palette.faint)


# ------------------------------------------------------------------ parsing and code


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # Indented text is a list that goes on, far more often than code.
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("code")


def _parse(source: str) -> SyntaxTreeNode:
    from markdown_it.tree import SyntaxTreeNode

    return SyntaxTreeNode(_parser().parse(source))


def _is_tight(node: SyntaxTreeNode) -> bool:
    """A list directly under its sentence needs no empty line."""
    return node.type in ("bullet_list", "ordered_list", "table", "hr")


def _indentation(source: str) -> int:
    depths = [len(line) - len(line.lstrip(" ")) for line in source.split("\n") if line.strip()]
    return min(depths, default=0)


def _dedented(source: str, indent: int) -> str:
    return "\n".join(line[indent:] for line in source.split("\n"))


def _prefixed(found: Sequence[Text], prefix: str, style: Style | None = None) -> list[Text]:
    return [lead(prefix, style) + line for line in found]


def _language(info: str) -> str:
    return info.split()[0] if info.strip() else ""


@cache
def _lexer(language: str) -> Lexer | None:
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        return get_lexer_by_name(language.lower(), stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


_ROLES = (
    ("Token.Comment", "comment"),
    ("Token.Keyword", "keyword"),
    ("Token.Literal.String", "string"),
    ("Token.String", "string"),
    ("Token.Literal.Number", "number"),
    ("Token.Name.Function", "function"),
    ("Token.Name.Class", "function"),
    ("Token.Name.Tag", "function"),
    ("Token.Name.Decorator", "number"),
    ("Token.Name.Builtin", "function"),
    ("Token.Operator.Word", "keyword"),
)


@cache
def _role(kind: str) -> str:
    return next((role for prefix, role in _ROLES if kind.startswith(prefix)), "plain")


def _token_style(kind: str, palette: Palette) -> Style:
    style: Style = getattr(palette, _role(kind))
    return style

"""Renders Markdown as lines for a terminal, no wider than the given width.

Blocks are small (state/markdown_stream.py), so a block is rendered again whenever it grows. No
borders: headings are bold, code is coloured, tables are columns. Lines are rich Texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console
from rich.style import Style
from rich.text import Text

from treadle.apps.conversation.block_text import replace_controls
from treadle.apps.tui.render.links import is_safe_link, mark_links
from treadle.apps.tui.render.palette import Palette

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode
    from pygments.lexer import Lexer  # type: ignore[import-untyped]  # it ships no types

CONSOLE = Console(file=StringIO(), width=80, force_terminal=False)
MIN_WIDTH = 4
_TIGHT_BLOCKS = ("bullet_list", "ordered_list", "table", "hr")  # no blank line before them


def render_markdown(source: str, width: int, palette: Palette) -> list[Text]:
    """The lines of a piece of Markdown; a piece from inside a list keeps its indentation."""
    width = max(width, MIN_WIDTH)
    depths = [len(line) - len(line.lstrip(" ")) for line in source.split("\n") if line.strip()]
    indent = min(depths, default=0)
    room = max(width - indent, MIN_WIDTH)
    tree = _parse("\n".join(line[indent:] for line in source.split("\n")))
    lines: list[Text] = []
    before = ""
    for node in tree.children:
        is_tight = node.type in _TIGHT_BLOCKS and not (before == "heading" and node.type == "table")
        if before and not is_tight:
            lines.append(Text())
        before = node.type
        lines += _render_block(node, room, palette)
    return _add_prefix(lines, " " * indent) if indent else lines


def wrap_text(text: Text, width: int) -> list[Text]:
    """A text in lines that fit the width."""
    return list(text.wrap(CONSOLE, max(width, 1), tab_size=4)) or [Text()]


def make_printable(line: Text) -> Text:
    """Text from a model or a tool must not move the cursor or control the terminal."""
    if not line.plain.isprintable():
        line.plain = replace_controls(line.plain).replace("\t", " ")
    return line


def styled_prefix(text: str, style: Style | None = None) -> Text:
    """The beginning of a line; its style does not apply to the text appended to it."""
    return Text().append(text, style)


def highlight_code(source: str, language: str, palette: Palette) -> list[Text]:
    """Lines of code, without colours if the code is long or the language unknown."""
    source = source.expandtabs(4)
    lexer = _find_lexer(language) if language else None
    if lexer is None or len(source) > 20_000:
        return [Text(line) for line in source.split("\n")]
    text = Text()
    for kind, value in lexer.get_tokens(source):
        text.append(value, palette.get_style(_find_role(str(kind))))
    return list(text.split("\n", allow_blank=True))[: source.count("\n") + 1]


# ------------------------------------------------------------------ blocks


def _render_block(node: SyntaxTreeNode, width: int, palette: Palette) -> list[Text]:
    match node.type:
        case "paragraph":
            return wrap_text(_render_inline(node, palette), width)
        case "heading":
            style = palette.accent + palette.bold if node.tag in ("h1", "h2") else palette.bold
            if node.tag == "h1":
                style += Style(underline=True)
            text = _render_inline(node, palette)
            text.stylize(style)
            return wrap_text(text, width)
        case "bullet_list" | "ordered_list":
            return _render_list(node, width, palette)
        case "blockquote":
            return _add_prefix(_render_children(node, width - 2, palette), "▏ ", palette.faint)
        case "fence" | "code_block":
            return highlight_code(
                node.content.rstrip("\n"), (node.info.split() or [""])[0], palette
            )
        case "hr":
            return [Text("─" * min(width, 24), palette.faint)]
        case "table":
            return list(_render_table(node, width, palette))
    return wrap_text(Text(node.content.rstrip(), palette.faint), width)


def _render_children(node: SyntaxTreeNode, width: int, palette: Palette) -> list[Text]:
    return [line for child in node.children for line in _render_block(child, width, palette)]


def _render_list(node: SyntaxTreeNode, width: int, palette: Palette) -> list[Text]:
    lines: list[Text] = []
    start = int(str(node.attrs.get("start", 1)))
    for number, item in enumerate(node.children):
        mark = f"{start + number}. " if node.type == "ordered_list" else "• "
        room = max(width - len(mark), MIN_WIDTH)
        inside = _render_children(item, room, palette)
        head = styled_prefix(mark, palette.faint)
        for position, line in enumerate(inside or [Text()]):
            lines.append((head if not position else Text(" " * len(mark))) + line)
    return lines


# Halves of the free space that are before the text of a cell, by its alignment.
_LEFT_SHARES = {"text-align:center": 1, "text-align:right": 2}


def _render_table(node: SyntaxTreeNode, width: int, palette: Palette) -> Iterator[Text]:
    table_rows = [row for part in node.children for row in part.children]
    rows = [[_render_inline(cell, palette) for cell in row.children] for row in table_rows]
    alignments = [str(cell.attrs.get("style", "")) for cell in table_rows[0].children]
    count = max(map(len, rows))
    widths = [max(r[c].cell_len if c < len(r) else 0 for r in rows) for c in range(count)]
    _shrink_columns(widths, width - 2 * (count - 1))
    for number, row in enumerate(rows):
        cells = [wrap_text(cell, room) for cell, room in zip(row, widths, strict=False)]
        for height in range(max(map(len, cells), default=0)):
            line = Text()
            for cell, room, style in zip(cells, widths, alignments, strict=False):
                part = cell[height] if height < len(cell) else Text()
                space = room - part.cell_len
                before = _LEFT_SHARES.get(style, 0) * space // 2
                line += Text(" " * before) + part + " " * (space - before + 2)
            if not number:
                line.stylize(palette.bold)
            line.rstrip()
            line.truncate(width)
            yield line
        if not number:
            yield Text("  ".join("─" * room for room in widths)[:width], palette.faint)


def _shrink_columns(widths: list[int], total: int) -> None:
    """Shrink the widest column until all fit, but none below MIN_WIDTH."""
    while sum(widths) > total and max(widths) > MIN_WIDTH:
        widths[widths.index(max(widths))] -= 1


# ------------------------------------------------------------------ inside a line


def _render_inline(node: SyntaxTreeNode, palette: Palette) -> Text:
    text = Text()
    for child in node.children:
        _append_inline(child, text, palette, Style.null())
    return mark_links(text)


def _append_inline(node: SyntaxTreeNode, text: Text, palette: Palette, style: Style) -> None:
    match node.type:
        case "text" | "html_inline":
            text.append(node.content, style)
        case "code_inline":
            text.append(node.content, style + palette.code)
        case "softbreak":
            text.append(" ", style)
        case "hardbreak":
            text.append("\n", style)
        case "image":
            text.append(f"[image: {node.content}]", style + palette.faint)
        case _:
            _append_children(node, text, palette, style)


def _append_children(node: SyntaxTreeNode, text: Text, palette: Palette, style: Style) -> None:
    match node.type:
        case "strong":
            style += palette.bold
        case "em":
            style += Style(italic=True)
        case "s":
            style += Style(strike=True)
    before = len(text)
    for child in node.children:
        _append_inline(child, text, palette, style)
    if node.type == "link":
        target = str(node.attrs.get("href", ""))
        label = text.plain[before:]
        text.stylize(palette.accent, before)
        if is_safe_link(target):
            text.stylize(Style(link=target), before)
        if target and target.removeprefix("mailto:") != label:
            text.append(f" ({target})", palette.faint)


# ------------------------------------------------------------------ parsing and code


@cache
def _make_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # Indented text continues a list far more often than it is code.
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("code")


def _parse(source: str) -> SyntaxTreeNode:
    from markdown_it.tree import SyntaxTreeNode

    return SyntaxTreeNode(_make_parser().parse(source))


def _add_prefix(rows: Sequence[Text], prefix: str, style: Style | None = None) -> list[Text]:
    return [styled_prefix(prefix, style) + line for line in rows]


@cache
def find_language(path: str) -> str:
    """The language of a file by its name, as `highlight_code` takes it; "" if it is not known."""
    from pygments.lexers import (  # type: ignore[import-untyped]
        find_lexer_class_for_filename,
    )

    lexer = find_lexer_class_for_filename(path.rpartition("/")[2]) if path else None
    return lexer.aliases[0] if lexer is not None and lexer.aliases else ""


def _find_lexer(language: str) -> Lexer | None:
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        return get_lexer_by_name(language.lower(), stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


_TOKEN_ROLES = (
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
def _find_role(token_type: str) -> str:
    return next((role for prefix, role in _TOKEN_ROLES if token_type.startswith(prefix)), "plain")

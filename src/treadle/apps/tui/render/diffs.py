"""A unified diff as lines for a terminal: line numbers, signs, and optional colour."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from rich.cells import chop_cells
from rich.text import Text

from treadle.apps.conversation.diff_rows import DiffRow, parse_diff
from treadle.apps.tui.render.markdown import find_language, highlight_code, styled_prefix
from treadle.apps.tui.render.palette import Palette
from treadle.lib.text.text import plural

_NEW_FILE = re.compile(r"^(?:\+\+\+ b|--- a)/(.+?)(?:\t.*)?$", re.MULTILINE)
_CONTEXT_ROW, _CHANGED_ROW = re.compile(r" *\d+   "), re.compile(r" *\d+ [+-] ")


def render_diff(
    text: str,
    width: int,
    palette: Palette,
    max_lines: int = 0,
    *,
    highlights: bool = False,
    wraps: bool = False,
) -> list[Text]:
    """The diff in lines; a long line is truncated, or continued below if `wraps`. With `max_lines`
    the rest is counted. `highlights`: with the colours of the language, by the names of the
    files."""
    colours = _highlight_rows(text, palette) if highlights and palette.name != "none" else {}
    rows = list(_render_rows(text, width, palette, colours, wraps))
    if not max_lines or len(rows) <= max_lines:
        return rows
    rest = plural(len(rows) - max_lines, "more line")
    return [*rows[:max_lines], Text(f"… {rest}", palette.faint)]


def find_first_change(rows: Sequence[Text]) -> int:
    """The place of the first changed line among the rows of a diff, if only context is above it;
    else 0."""
    for place, row in enumerate(rows):
        if _CHANGED_ROW.match(row.plain):
            return place
        if not _CONTEXT_ROW.match(row.plain):
            break
    return 0


def _highlight_rows(text: str, palette: Palette) -> dict[int, Text]:
    """The rows of code in their colours, by their places in the diff. Both sides of each file are
    coloured as a whole, since a text may go over several lines."""
    named = _NEW_FILE.search(text)
    sides: dict[tuple[str, bool], list[DiffRow]] = {}
    name = named[1] if named is not None else ""
    for row in parse_diff(text):
        if row.kind == "file":
            name = row.text
        elif row.kind in ("add", "del", "same"):
            sides.setdefault((name, row.kind != "del"), []).append(row)
    coloured: dict[int, Text] = {}
    for (path, _), rows in sides.items():
        source = "\n".join(row.text for row in rows)
        lines = highlight_code(source, find_language(path), palette)
        if len(lines) == len(rows):
            coloured |= {row.place: line for row, line in zip(rows, lines, strict=True)}
    return coloured


def _render_rows(
    text: str, width: int, palette: Palette, colours: Mapping[int, Text], wraps: bool
) -> Iterator[Text]:
    for row in parse_diff(text):
        code = colours.get(row.place) or Text(row.text.expandtabs(4))
        match row.kind:
            case "hunk":
                if row.new > 1:
                    yield Text("   ⋮", palette.faint)
            case "file":
                yield Text(row.text, palette.bold)
            case "cut":
                yield Text(row.text, palette.faint)
            case "add":
                yield from _render_row(row.new, "+", code, width, palette, "added", wraps)
            case "del":
                yield from _render_row(row.old, "-", code, width, palette, "removed", wraps)
            case _:
                yield from _render_row(row.new, " ", code, width, palette, "plain", wraps)


def _render_row(
    number: int, sign: str, code: Text, width: int, palette: Palette, role: str, wraps: bool
) -> Iterator[Text]:
    prefix = styled_prefix(f"{number:>4} ", palette.faint)
    room = max(width - prefix.cell_len, 4)
    for at, part in enumerate(_split_cells(code, room - 2) if wraps else [code]):
        body = Text(f"{' ' if at else sign} ", palette.get_style(role)).append_text(part)
        body.truncate(room, overflow="ellipsis", pad=role != "plain")
        yield (Text(" " * prefix.cell_len) if at else prefix) + body


def _split_cells(code: Text, room: int) -> list[Text]:
    """The code in parts that fit, with all spaces: what stands far to the right is seen."""
    if code.cell_len <= room:
        return [code]
    ends = accumulate(map(len, chop_cells(code.plain, max(room, 2))))
    return [part for part in code.divide(ends) if part.plain]

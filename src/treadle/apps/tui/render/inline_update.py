"""What the inline mode writes to the terminal: finished lines, and below them the app.

The finished lines stay in the terminal's own scrollback; the app is written again below them. Rows
end where their text ends, so that a narrower terminal does not wrap blanks.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.style import Style
from textual._compositor import CompositorUpdate
from textual.strip import Strip

CLEAR_LINE, CLEAR_BELOW = "\x1b[K", "\x1b[J"


class ScrollbackUpdate(CompositorUpdate):
    """Written with the cursor at the first row of the app, and leaves it there."""

    def __init__(self, finished: Sequence[Strip], rows: Sequence[Strip]) -> None:
        self._finished = finished
        self._rows = rows

    def render_segments(self, console: Console) -> str:
        lines = [strip.render(console) + CLEAR_LINE for strip in (*self._finished, *self._rows)]
        back = f"\x1b[{len(self._rows) - 1}A" if len(self._rows) > 1 else ""
        return "\r\n".join(lines) + CLEAR_BELOW + back + "\r"


def trim_strip(strip: Strip) -> Strip:
    """Without the blanks at the end that cannot be seen."""
    end = 0
    position = 0
    for segment in strip:
        has_look = _is_visible_blank(segment.style)
        text = segment.text if has_look else segment.text.rstrip(" ")
        position += segment.cell_length
        if text:
            end = position - (len(segment.text) - len(text))
    return strip.crop(0, end)


def _is_visible_blank(style: Style | None) -> bool:
    return style is not None and bool(style.reverse or style.underline)


def count_rows_above(widths: Sequence[int], cursor: tuple[int, int], new_width: int) -> int:
    """How far the cursor is below the first row of the app after a resize: rows that do not fit any
    more are wrapped by the terminal. `widths` are those of the rows."""
    width = max(new_width, 1)
    x, y = cursor
    above = sum(max(1, -(-one // width)) for one in widths[:y])
    return above + x // width

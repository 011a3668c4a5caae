"""Writes a frame of the full screen with few bytes: only the cells that differ from the last one.

Lines that moved are scrolled by the terminal, the blank end of a line is erased. Textual draws all
lines again and again while a reply streams. Used by screen.py and inline_painter.py;
`benchmarks/terminal_bytes.py` measures it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from rich.cells import get_character_cell_size
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate
from textual.screen import Screen
from textual.strip import Strip

Cell = tuple[str, Style | None]  # "" follows a character of two columns
PaintedRow = tuple[Cell, ...]
MIN_MOVED_ROWS = 3  # fewer are written again
_RESET = "\x1b[0m"


class FramePainter:
    """Knows what is on the screen; `reset` if that is not sure any more."""

    def __init__(self) -> None:
        self._shown: list[PaintedRow] = []

    def reset(self) -> None:
        self._shown = []

    def paint(self, strips: Sequence[Strip], color_system: ColorSystem | None) -> str:
        """The bytes that make the screen show these lines."""
        return self._paint_rows([to_cells(strip) for strip in strips], color_system)

    def can_paint(self, changes: ChopsUpdate, height: int) -> bool:
        """Whether the rest of a changed line is known."""
        return len(self._shown) == height and all(y < height for y, _, _ in changes.spans)

    def paint_parts(self, changes: ChopsUpdate, color_system: ColorSystem | None) -> str:
        """The bytes for the parts of lines that Textual has drawn again."""
        rows = list(self._shown)
        for place in {y for y, _, _ in changes.spans}:
            parts = zip(changes.chops[place].items(), changes.chop_ends[place], strict=True)
            cells = list(rows[place])
            for (start, strip), end in parts:
                if strip is not None:
                    _replace(cells, start, end, to_cells(strip))
            rows[place] = _trim(cells)
        return self._paint_rows(rows, color_system)

    def _paint_rows(self, rows: list[PaintedRow], color_system: ColorSystem | None) -> str:
        out: list[str] = []
        if len(rows) != len(self._shown):
            out.append(f"{_RESET}\x1b[2J")
            self._shown = [()] * len(rows)
        elif _count_different(rows, self._shown) >= MIN_MOVED_ROWS:
            out += self._scroll(rows)
        for place, (new, old) in enumerate(zip(rows, self._shown, strict=True)):
            if new != old:
                start, text = paint_changes(new, old, color_system)
                out.append(f"\x1b[{place + 1};{start + 1}H{text}")
        self._shown = rows
        return "".join(out)

    def _scroll(self, rows: Sequence[PaintedRow]) -> list[str]:
        """Let the terminal move the lines that are now at another place, if these are many."""
        places = {row: place for place, row in enumerate(self._shown) if row}
        moves = [(place, places[row] - place) for place, row in enumerate(rows) if row in places]
        counts = Counter(move for _, move in moves if move)
        if not counts:
            return []
        move, count = counts.most_common(1)[0]
        moved = [place for place, one in moves if one == move]
        top, bottom = min(moved[0], moved[0] + move), max(moved[-1], moved[-1] + move)
        staying = sum(top <= place <= bottom and one == 0 for place, one in moves)
        if count - staying < MIN_MOVED_ROWS:
            return []
        shown, size = self._shown[top : bottom + 1], abs(move)
        empty: list[PaintedRow] = [()] * size
        self._shown[top : bottom + 1] = (
            [*shown[size:], *empty] if move > 0 else [*empty, *shown[:-size]]
        )
        verb = "S" if move > 0 else "T"
        return [f"{_RESET}\x1b[{top + 1};{bottom + 1}r\x1b[{size}{verb}\x1b[r"]


def _count_different(rows: Sequence[PaintedRow], others: Sequence[PaintedRow]) -> int:
    return sum(row != other for row, other in zip(rows, others, strict=True))


class PaintedFrame(CompositorUpdate):
    """A frame in place of Textual's own: drawn by the painter when it is written."""

    def __init__(
        self, painter: FramePainter, screen: Screen[object], changes: ChopsUpdate | None
    ) -> None:
        """`changes`: what Textual has drawn, if that is not the whole screen."""
        self._painter = painter
        self._screen = screen
        self._changes = changes

    def render_segments(self, console: Console) -> str:
        size = self._screen.outer_size
        if self._changes is not None and self._painter.can_paint(self._changes, size.height):
            return self._painter.paint_parts(self._changes, console._color_system)
        strips = self._screen._compositor.render_strips(size)
        return self._painter.paint(strips[: size.height], console._color_system)


def to_cells(strip: Strip) -> PaintedRow:
    """The cells of a line, without the blank ones at its end."""
    cells: list[Cell] = []
    for text, style, control in strip:
        if control:
            continue
        shown = _simplify(style) if style else None
        if text.isascii():
            cells += [(character, shown) for character in text]
            continue
        for character in text:
            width = get_character_cell_size(character)
            if width == 0 and cells:  # it belongs to the one before
                cells[-1] = cells[-1][0] + character, cells[-1][1]
            elif width:
                cells += [(character, shown), ("", shown)][:width]
    return _trim(cells)


def _replace(cells: list[Cell], start: int, end: int, new: PaintedRow) -> None:
    """Of a character of two columns that is cut in half, the other half is blank."""
    blank: Cell = (" ", None)
    cells += [blank] * (end - len(cells))
    if start and not cells[start][0]:
        cells[start - 1] = blank
    if end < len(cells) and not cells[end][0]:
        cells[end] = blank
    cells[start:end] = [*new, *[blank] * (end - start - len(new))]


def _trim(cells: list[Cell]) -> PaintedRow:
    """Without the blank cells at the end."""
    while cells and cells[-1][0] == " " and _is_plain(cells[-1][1]):
        cells.pop()
    return tuple(cells)


@lru_cache(maxsize=1024)
def _simplify(style: Style) -> Style | None:
    """What is seen of a style: without the colours that the terminal has by itself, and without
    the places that Textual notes in it."""
    color, background = style.color, style.bgcolor
    seen = Style(
        color=None if color is None or color.is_default else color,
        bgcolor=None if background is None or background.is_default else background,
        bold=style.bold or None,
        dim=style.dim or None,
        italic=style.italic or None,
        underline=style.underline or None,
        reverse=style.reverse or None,
        strike=style.strike or None,
        link=style.link,
    )
    return seen or None


def _is_plain(style: Style | None) -> bool:
    """Whether a space in this style is an empty cell of the terminal."""
    if style is None:
        return True
    has_marks = style.reverse or style.underline or style.strike or style.link
    return style.bgcolor is None and not has_marks


def paint_changes(
    new: PaintedRow, old: PaintedRow, color_system: ColorSystem | None
) -> tuple[int, str]:
    """The part of a line that differs, and its column; the end is erased if it was longer."""
    start, shared = 0, min(len(new), len(old))
    while start < shared and new[start] == old[start]:
        start += 1
    while start and start < len(new) and not new[start][0]:
        start -= 1  # not in the middle of a character
    if start == len(new) and start and old[start:] and not old[start][0]:
        start -= 1
    end = len(new)
    if len(new) == len(old):
        while end > start and new[end - 1] == old[end - 1] and new[end - 1][0].isascii():
            end -= 1
    parts: list[str] = []
    begun = start
    while begun < end:
        style, stop = new[begun][1], begun + 1
        while stop < end and new[stop][1] == style:
            stop += 1
        text = "".join(cell[0] for cell in new[begun:stop])
        parts.append(style.render(text, color_system=color_system) if style else text)
        begun = stop
    if len(old) > len(new):
        parts.append("\x1b[K")
    return start, "".join(parts)

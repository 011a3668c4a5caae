"""Writes a frame of the inline app with few bytes: below what is printed, relative to the cursor.

Rows that stay are moved by the terminal (insert and delete line), others are written where they
differ. No absolute rows: the app does not know where on the terminal it is. Used by inline.py; the
cells are those of painter.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from rich.color import ColorSystem
from textual.strip import Strip

from treadle.apps.tui.terminal.painter import PaintedRow, paint_changes, to_cells


class InlinePainter:
    """Knows the rows of the app on the terminal, and where among them the cursor is."""

    def __init__(self) -> None:
        self._rows: list[PaintedRow] = []
        self.cursor = (0, 0)

    def erase(self, width: int) -> str:
        """Take the app off a terminal of this width, also if it has wrapped its rows; the cursor
        is then where the first row was."""
        widths, cursor = [len(row) for row in self._rows], self.cursor
        self._rows, self.cursor = [], (0, 0)
        above = count_rows_above(widths, cursor, width)
        up = f"\x1b[{above}A" if above else ""
        # Not J at the first cell of the terminal: tmux then keeps the screen in its history.
        return up + ("\r\x1b[K\x1b[1B\x1b[J\x1b[1A" if len(widths) > 1 else "\r\x1b[J")

    def paint(
        self,
        finished: Sequence[Strip],
        rows: Sequence[Strip],
        cursor: tuple[int, int],
        height: int,
        color_system: ColorSystem | None,
    ) -> str:
        """Print the finished rows above the app, and show the others as the app, with the cursor
        in them. `height` is that of the terminal."""
        app = [to_cells(strip) for strip in rows] or [()]  # the cursor is below what is printed
        new = [*(to_cells(strip) for strip in finished), *app]
        steps = _Steps(self.cursor[1])
        if not self._rows or len(new) > height:
            steps.go(0)
            for place, row in enumerate(new):
                erase = "\x1b[K" if place < len(new) - 1 else "\x1b[J"
                steps.add(("\r\n" if place else "") + erase)
                steps.add(paint_changes(row, (), color_system)[1])
            steps.row = len(new) - 1
        else:
            for place, (row, old) in enumerate(zip(new, self._move_rows(new, steps), strict=True)):
                if row != old:
                    start, text = paint_changes(row, old, color_system)
                    steps.go(place, start)
                    steps.add(text)
        # A cursor below the last row would be at another row than the next frame believes.
        x, y = cursor
        y = min(y, len(app) - 1)
        steps.go(len(new) - len(app) + y, x)
        self._rows, self.cursor = app, (x, y)
        return "".join(steps.parts)

    def _move_rows(self, new: Sequence[PaintedRow], steps: _Steps) -> list[PaintedRow]:
        """Delete and insert lines, so that rows that are equal are at their place. The rows as
        they are then."""
        growth = len(new) - len(self._rows)
        if growth > 0:  # also at the bottom of the terminal
            steps.go(len(self._rows) - 1)
            steps.add("\n" * growth)
            steps.row += growth
        matcher = SequenceMatcher(None, self._rows, new, autojunk=False)
        changes = [one for one in matcher.get_opcodes() if one[0] != "equal"]
        shown = list(self._rows)
        for _, start, end, new_start, new_end in reversed(changes):  # first: room for the others
            if surplus := max((end - start) - (new_end - new_start), 0):
                steps.go(end - surplus)
                steps.add(f"\x1b[{surplus}M")
                del shown[end - surplus : end]
        for _, start, end, new_start, new_end in changes:
            if missing := max((new_end - new_start) - (end - start), 0):
                steps.go(new_end - missing)
                steps.add(f"\x1b[{missing}L")
                shown[new_end - missing : new_end - missing] = [()] * missing
        return shown


class _Steps:
    """What is written, and the row of the app in which the cursor then is."""

    def __init__(self, row: int) -> None:
        self.row = row
        self.parts: list[str] = []

    def add(self, text: str) -> None:
        self.parts.append(text)

    def go(self, row: int, column: int = 0) -> None:
        by = row - self.row
        if by:
            self.parts.append(f"\x1b[{abs(by)}{'B' if by > 0 else 'A'}")
        self.parts.append(f"\x1b[{column + 1}G" if column else "\r")
        self.row = row


def count_rows_above(widths: Sequence[int], cursor: tuple[int, int], new_width: int) -> int:
    """How far the cursor is below the first row of the app after a resize: rows that do not fit any
    more are wrapped by the terminal. `widths` are those of the rows."""
    width = max(new_width, 1)
    x, y = cursor
    above = sum(max(1, -(-one // width)) for one in widths[:y])
    return above + x // width

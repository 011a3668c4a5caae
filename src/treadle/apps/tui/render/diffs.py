"""A unified diff as lines for a terminal: line numbers, signs, and optional colour."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.text import Text

from treadle.apps.tui.render.markdown import styled_prefix
from treadle.apps.tui.render.palette import Palette
from treadle.core.text import plural

_HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


def count_changes(text: str) -> tuple[int, int]:
    """The numbers of added and removed lines."""
    rows = [row for row in text.split("\n") if not row.startswith(("+++ ", "--- "))]
    return sum(row.startswith("+") for row in rows), sum(row.startswith("-") for row in rows)


def render_diff(text: str, width: int, palette: Palette, max_lines: int = 0) -> list[Text]:
    """The diff, one Text a line, truncated at the width; with `max_lines`, the rest is counted."""
    rows = list(_render_rows(text, width, palette))
    if not max_lines or len(rows) <= max_lines:
        return rows
    rest = plural(len(rows) - max_lines, "more line")
    return [*rows[:max_lines], Text(f"… {rest}", palette.faint)]


def _render_rows(text: str, width: int, palette: Palette) -> Iterator[Text]:
    old = new = 0
    hunks = 0
    for row in text.split("\n"):
        hunk = _HUNK.match(row)
        if hunk is not None:
            old, new = int(hunk[1]), int(hunk[2])
            hunks += 1
            if hunks > 1:
                yield Text("   ⋮", palette.faint)
        elif row.startswith("+++ "):
            hunks = 0
            name = row[4:].removeprefix("b/")
            if text.count("\n+++ ") > 1 and name != "/dev/null":
                yield Text(name, palette.bold)
        elif row.startswith(("--- ", "diff --git ", "index ", "\\ No newline")):
            continue
        elif row.startswith("+"):
            yield _render_row(new, "+", row[1:], width, palette, "added")
            new += 1
        elif row.startswith("-"):
            yield _render_row(old, "-", row[1:], width, palette, "removed")
            old += 1
        elif row.startswith("..."):  # the tool left out the rest of a long diff
            yield Text(row, palette.faint)
        elif hunks:
            yield _render_row(new, " ", row[1:], width, palette, "plain")
            old, new = old + 1, new + 1


def _render_row(number: int, sign: str, text: str, width: int, palette: Palette, role: str) -> Text:
    prefix = styled_prefix(f"{number:>4} ", palette.faint)
    body = Text(f"{sign} {text.expandtabs(4)}", palette.get_style(role))
    room = max(width - prefix.cell_len, 4)
    body.truncate(room, overflow="ellipsis", pad=role != "plain")
    return prefix + body

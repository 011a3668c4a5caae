"""Bars: for a terminal a label, a bar in eighths of a character, and the number as it was given;
for a page the same as SVG.

No colour, as wide as it is told to be. Where numbers come from is others' business.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Sequence
from typing import Literal

import msgspec

EIGHTHS = " ▏▎▍▌▋▊▉"
FULL_BLOCK = "█"
MIN_BAR_WIDTH = 8  # characters; with less room there is no bar
MAX_BAR_WIDTH = 60
MIN_LABEL_WIDTH = 8


# Names of one family are alike in front; sentences say most there.
TruncateSide = Literal["front", "end"]


class ChartBar(msgspec.Struct, frozen=True):
    """One row. Without a value there is no bar, only what is `shown`."""

    label: str
    value: float | None
    value_text: str


def render_bars(
    rows: Sequence[ChartBar],
    width: int,
    *,
    truncate_side: TruncateSide = "front",
    ascii_only: bool = False,
) -> list[str]:
    """The rows under one scale. `plain` is for terminals without Unicode; `cut` says which end of
    a label gives way.

    None is wider than `width` unless the numbers alone are; what is above zero is never drawn as
    nothing.
    """
    if not rows:
        return []
    shown = max(display_width(row.value_text) for row in rows)
    label = max(display_width(row.label) for row in rows)
    with_bar = width - shown - MIN_BAR_WIDTH - 4
    if label > with_bar:
        label = with_bar if with_bar >= MIN_LABEL_WIDTH else min(label, max(1, width - shown - 2))
    room = min(width - label - shown - 4, MAX_BAR_WIDTH)
    most = max((row.value or 0.0 for row in rows), default=0.0)
    lines = []
    for row in rows:
        drawn = (
            f"  {_render_bar(row.value, most, room, ascii_only)}" if room >= MIN_BAR_WIDTH else ""
        )
        number = " " * (shown - display_width(row.value_text)) + row.value_text
        lines.append(f"{fit_width(row.label, label, truncate_side)}{drawn}  {number}")
    return lines


def render_svg_bar(value: float | None, max_value: float) -> str:
    """One bar that lies, as long as its share of the room that a page gives it."""
    return f'<svg class="bar" aria-hidden="true"><rect width="{_percent(value, max_value):.2f}%"/></svg>'


def render_svg_columns(rows: Sequence[ChartBar]) -> str:
    """All rows as bars that stand side by side; each says what it is when it is pointed at."""
    most = max((row.value or 0.0 for row in rows), default=0.0)
    drawn = []
    for place, row in enumerate(rows):
        high = _percent(row.value, most)
        told = html.escape(f"{row.label}: {row.value_text or '0'}")
        drawn.append(
            f'<g><title>{told}</title><rect class="room" x="{place}" width="1" height="100"/>'
            f'<rect x="{place}.1" width=".8" y="{100 - high:.2f}" height="{high:.2f}"/></g>'
        )
    size = f'viewBox="0 0 {len(rows)} 100" preserveAspectRatio="none"'
    return f'<svg class="columns" {size} role="img">{"".join(drawn)}</svg>'


def _percent(value: float | None, max_value: float) -> float:
    """In percent; what is above zero is never drawn as nothing."""
    return max(0.5, value / max_value * 100) if value and value > 0 and max_value > 0 else 0.0


def display_width(text: str) -> int:
    """How many columns a text takes in a terminal."""
    return sum(_char_width(character) for character in text)


def fit_width(text: str, width: int, truncate_side: TruncateSide = "front") -> str:
    """Exactly `width` columns: padded, or cut with a sign that it was."""
    taken = display_width(text)
    if taken <= width:
        return text + " " * (width - taken)
    kept: list[str] = []
    left = width - 1
    for character in text if truncate_side == "end" else reversed(text):
        left -= _char_width(character)
        if left < 0:
            break
        kept.append(character)
    rest = " " * (width - 1 - display_width("".join(kept)))
    return "".join([*kept, "…"] if truncate_side == "end" else ["…", *reversed(kept)]) + rest


def _char_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _render_bar(value: float | None, max_value: float, width: int, ascii_only: bool) -> str:
    if not value or value < 0 or max_value <= 0:
        return " " * width
    eighths = max(1, round(value / max_value * width * 8))
    if ascii_only:
        return ("#" * max(1, round(eighths / 8))).ljust(width)
    whole, rest = divmod(eighths, 8)
    return (FULL_BLOCK * whole + (EIGHTHS[rest] if rest else "")).ljust(width)

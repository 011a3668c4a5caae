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
FULL = "█"
LEAST_BAR = 8  # characters; with less room there is no bar
MOST_BAR = 60
LEAST_LABEL = 8


# Names of one family are alike in front; sentences say most there.
Cut = Literal["front", "end"]


class Bar(msgspec.Struct, frozen=True):
    """One row. Without a value there is no bar, only what is `shown`."""

    label: str
    value: float | None
    shown: str


def bars(rows: Sequence[Bar], width: int, *, cut: Cut = "front", plain: bool = False) -> list[str]:
    """The rows under one scale. `plain` is for terminals without Unicode; `cut` says which end of
    a label gives way.

    None is wider than `width` unless the numbers alone are; what is above zero is never drawn as
    nothing.
    """
    if not rows:
        return []
    shown = max(columns(row.shown) for row in rows)
    label = max(columns(row.label) for row in rows)
    with_bar = width - shown - LEAST_BAR - 4
    if label > with_bar:
        label = with_bar if with_bar >= LEAST_LABEL else min(label, max(1, width - shown - 2))
    room = min(width - label - shown - 4, MOST_BAR)
    most = max((row.value or 0.0 for row in rows), default=0.0)
    lines = []
    for row in rows:
        drawn = f"  {_bar(row.value, most, room, plain)}" if room >= LEAST_BAR else ""
        number = " " * (shown - columns(row.shown)) + row.shown
        lines.append(f"{fitted(row.label, label, cut)}{drawn}  {number}")
    return lines


def svg_bar(value: float | None, most: float) -> str:
    """One bar that lies, as long as its share of the room that a page gives it."""
    return f'<svg class="bar" aria-hidden="true"><rect width="{_share(value, most):.2f}%"/></svg>'


def svg_columns(rows: Sequence[Bar]) -> str:
    """All rows as bars that stand side by side; each says what it is when it is pointed at."""
    most = max((row.value or 0.0 for row in rows), default=0.0)
    drawn = []
    for place, row in enumerate(rows):
        high = _share(row.value, most)
        told = html.escape(f"{row.label}: {row.shown or '0'}")
        drawn.append(
            f'<g><title>{told}</title><rect class="room" x="{place}" width="1" height="100"/>'
            f'<rect x="{place}.1" width=".8" y="{100 - high:.2f}" height="{high:.2f}"/></g>'
        )
    size = f'viewBox="0 0 {len(rows)} 100" preserveAspectRatio="none"'
    return f'<svg class="columns" {size} role="img">{"".join(drawn)}</svg>'


def _share(value: float | None, most: float) -> float:
    """In percent; what is above zero is never drawn as nothing."""
    return max(0.5, value / most * 100) if value and value > 0 and most > 0 else 0.0


def columns(text: str) -> int:
    """How many columns a text takes in a terminal."""
    return sum(_columns_of(character) for character in text)


def fitted(text: str, width: int, cut: Cut = "front") -> str:
    """Exactly `width` columns: padded, or cut with a sign that it was."""
    taken = columns(text)
    if taken <= width:
        return text + " " * (width - taken)
    kept: list[str] = []
    left = width - 1
    for character in text if cut == "end" else reversed(text):
        left -= _columns_of(character)
        if left < 0:
            break
        kept.append(character)
    rest = " " * (width - 1 - columns("".join(kept)))
    return "".join([*kept, "…"] if cut == "end" else ["…", *reversed(kept)]) + rest


def _columns_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _bar(value: float | None, most: float, room: int, plain: bool) -> str:
    if not value or value < 0 or most <= 0:
        return " " * room
    eighths = max(1, round(value / most * room * 8))
    if plain:
        return ("#" * max(1, round(eighths / 8))).ljust(room)
    whole, rest = divmod(eighths, 8)
    return (FULL * whole + (EIGHTHS[rest] if rest else "")).ljust(room)

"""Bar charts: for a terminal a label, a bar in eighths of a character, and the value as text; for
an HTML page the same as SVG.

No colour. The caller gives the width and the values.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Literal

import msgspec

EIGHTHS = " ▏▎▍▌▋▊▉"
FULL_BLOCK = "█"
MIN_BAR_WIDTH = 8  # characters; with less room there is no bar
MAX_BAR_WIDTH = 60
MIN_LABEL_WIDTH = 8

TruncateSide = Literal["front", "end"]  # "front" for paths and names, "end" for sentences


class ChartBar(msgspec.Struct, frozen=True):
    """One row. Without a value there is no bar, only the `value_text`."""

    label: str
    value: float | None
    value_text: str


def render_bars(
    rows: Sequence[ChartBar],
    width: int,
    *,
    truncate_side: TruncateSide = "front",
    ascii_only: bool = False,
    max_value: float | None = None,
) -> list[str]:
    """The rows under one scale, up to `max_value` or the highest value. `ascii_only` is for
    terminals without Unicode; `truncate_side` is the side on which long labels are cut.

    No row is wider than `width` unless its value text alone is; every value above zero has a
    visible bar.
    """
    if not rows:
        return []
    value_width = max(display_width(row.value_text) for row in rows)
    label_width = max(display_width(row.label) for row in rows)
    max_label = width - value_width - MIN_BAR_WIDTH - 4  # that leaves room for a bar
    if label_width > max_label:
        without_bar = min(label_width, max(1, width - value_width - 2))
        label_width = max_label if max_label >= MIN_LABEL_WIDTH else without_bar
    bar_width = min(width - label_width - value_width - 4, MAX_BAR_WIDTH)
    if max_value is None:
        max_value = max(row.value or 0.0 for row in rows)
    lines = []
    for row in rows:
        bar = ""
        if bar_width >= MIN_BAR_WIDTH:
            bar = f"  {_render_bar(row.value, max_value, bar_width, ascii_only)}"
        value = " " * (value_width - display_width(row.value_text)) + row.value_text
        lines.append(f"{fit_width(row.label, label_width, truncate_side)}{bar}  {value}")
    return lines


def display_width(text: str) -> int:
    """How many columns a text takes in a terminal."""
    return sum(_char_width(character) for character in text)


def fit_width(text: str, width: int, truncate_side: TruncateSide = "front") -> str:
    """Exactly `width` columns: padded, or truncated with an ellipsis."""
    text_width = display_width(text)
    if text_width <= width:
        return text + " " * (width - text_width)
    fitting: list[str] = []
    left = width - 1
    for character in text if truncate_side == "end" else reversed(text):
        left -= _char_width(character)
        if left < 0:
            break
        fitting.append(character)
    padding = " " * (width - 1 - display_width("".join(fitting)))
    parts = [*fitting, "…"] if truncate_side == "end" else ["…", *reversed(fitting)]
    return "".join(parts) + padding


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

"""Plots as SVG texts: lines over logarithmic axes, and bars; five series at most.

Colors are classes, for a light and for a dark scheme; the picture has its own background, since a
page may have another scheme than the system.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 820, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 260, 50, 50
# Name of the class, color on white, color on a dark page. The series of Treadle is `ours`.
COLORS = {
    "back": ("#ffffff", "#1e2129"), "text": ("#1f2328", "#e6e6e6"),
    "grid": ("#d0d0d0", "#4a4a55"), "ours": ("#c2410c", "#fb923c"),
    "s0": ("#1d4ed8", "#93c5fd"), "s1": ("#15803d", "#86efac"), "s2": ("#7e22ce", "#d8b4fe"),
    "s3": ("#0e7490", "#67e8f9"), "bar": ("#4b5563", "#9ca3af"),
}  # fmt: skip
SERIES = ("s0", "s1", "s2", "s3")
FONT = 'font-family="sans-serif" font-size="12"'
LABEL_GAP = 14.0

Points = Sequence[tuple[float, float]]


def draw_lines(
    title: str, x_label: str, y_label: str, series: Mapping[str, Points], ours: str = ""
) -> str:
    """A line per name, with its name at its end; both axes are logarithmic."""
    lines = {name: points for name, points in series.items() if points}
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points]
    across, up = LogAxis(xs, LEFT, WIDTH - RIGHT), LogAxis(ys, HEIGHT - BOTTOM, TOP)
    parts = [*draw_frame(title, x_label, y_label), *draw_ticks(across, up)]
    ends: list[tuple[float, float, str, str]] = []
    others = iter(SERIES)
    for name, points in lines.items():
        color = "ours" if name == ours else next(others)
        placed = [(across.place(x), up.place(y)) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        width = 3 if name == ours else 1.5
        parts.append(f'<polyline points="{path}" class="line {color}" stroke-width="{width}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" class="{color}"/>' for x, y in placed]
        ends.append((*placed[-1], name, color))
    return wrap([*parts, *draw_end_labels(ends)])


def draw_bars(title: str, unit: str, values: Mapping[str, float], ours: str = "") -> str:
    """A horizontal bar per name, the shortest first."""
    ordered = sorted(values.items(), key=lambda pair: pair[1])
    height = TOP + 28 * len(ordered) + 20
    longest = max(values.values(), default=1.0) or 1.0
    start, room = 250, WIDTH - 250 - 90
    parts = [f'<text x="{WIDTH / 2}" y="26" text-anchor="middle" font-weight="bold" {FONT}>'
             f"{escape(title)}</text>"]  # fmt: skip
    for number, (name, value) in enumerate(ordered):
        y = TOP + 28 * number
        color = "ours" if name == ours else "bar"
        length = max(1.0, value / longest * room)
        parts += [
            f'<text x="{start - 8}" y="{y + 14}" text-anchor="end" {FONT}>{escape(name)}</text>',
            f'<rect x="{start}" y="{y}" width="{length:.1f}" height="20" class="{color}"/>',
            f'<text x="{start + length + 6:.1f}" y="{y + 14}" {FONT}>'
            f"{format_number(value)} {escape(unit)}</text>",
        ]
    return wrap(parts, height)


class LogAxis:
    """Places values between two pixels; whole powers of ten at both ends."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        positive = [value for value in values if value > 0] or [1.0]
        self._low = math.floor(math.log10(min(positive)) + 1e-9)
        self._high = max(math.ceil(math.log10(max(positive)) - 1e-9), self._low + 1)
        self._start, self._end = start, end

    def place(self, value: float) -> float:
        exponent = math.log10(value) if value > 0 else self._low
        share = (exponent - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)

    def ticks(self) -> list[float]:
        return [10.0**exponent for exponent in range(self._low, self._high + 1)]


def draw_frame(title: str, x_label: str, y_label: str) -> list[str]:
    middle = (TOP + HEIGHT - BOTTOM) / 2
    width, height = WIDTH - RIGHT - LEFT, HEIGHT - BOTTOM - TOP
    return [
        f'<text x="{LEFT}" y="26" font-weight="bold" {FONT}>{escape(title)}</text>',
        f'<rect x="{LEFT}" y="{TOP}" width="{width}" height="{height}" class="line grid"/>',
        f'<text x="{LEFT + width / 2}" y="{HEIGHT - 12}" text-anchor="middle" {FONT}>'
        f"{escape(x_label)}</text>",
        f'<text x="16" y="{middle}" text-anchor="middle" {FONT} '
        f'transform="rotate(-90 16 {middle})">{escape(y_label)}</text>',
    ]


def draw_ticks(across: LogAxis, up: LogAxis) -> list[str]:
    parts = []
    for value in across.ticks():
        x = across.place(value)
        parts += [
            f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" '
            'class="line grid"/>',
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle" {FONT}>'
            f"{format_number(value)}</text>",
        ]
    for value in up.ticks():
        y = up.place(value)
        parts += [
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" class="line grid"/>',
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" {FONT}>'
            f"{format_number(value)}</text>",
        ]
    return parts


def draw_end_labels(ends: list[tuple[float, float, str, str]]) -> list[str]:
    """Names at the right, moved apart where two lines end at the same height."""
    parts: list[str] = []
    lowest = -math.inf
    for x, y, name, color in sorted(ends, key=lambda end: end[1]):
        place = max(y, lowest + LABEL_GAP)
        lowest = place
        right = WIDTH - RIGHT + 14
        parts += [
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{right - 3}" y2="{place:.1f}" '
            f'class="line {color}" stroke-width="0.5" stroke-dasharray="2 2"/>',
            f'<text x="{right}" y="{place + 4:.1f}" class="{color}" {FONT}>{escape(name)}</text>',
        ]
    return parts


def format_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def wrap(parts: Sequence[str], height: float = HEIGHT) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">'
    light, dark = (" ".join(make_rule(name, color[at]) for name, color in COLORS.items())
                   for at in (0, 1))  # fmt: skip
    background = '<rect width="100%" height="100%" class="back"/>'
    base = f"text {{fill: {COLORS['text'][0]}}} .line {{fill: none}}"
    night = f"text {{fill: {COLORS['text'][1]}}}"
    style = f"{base} {light}\n@media (prefers-color-scheme: dark) {{{night} {dark}}}"
    return "\n".join([head, f"<style>{style}</style>", background, *parts, "</svg>", ""])


def make_rule(name: str, color: str) -> str:
    return f".{name} {{fill: {color}}} .line.{name} {{fill: none; stroke: {color}}}"

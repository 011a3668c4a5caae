"""Screens of a terminal, one after the other, as one animated SVG without scripts.

A screen is text with SGR sequences, as `tmux capture-pane -e` prints it. A row that stays the same
over several screens is drawn once and shown as long. Without animation the last screen is seen.
Used by recording.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

CELL_WIDTH, CELL_HEIGHT, PADDING, TITLE = 8.4, 18, 14, 30
FOREGROUND, BACKGROUND = "#d6deeb", "#11151c"
# The colours of a terminal by number, dark theme.
BASIC = (
    *("#3b4252", "#f07178", "#7fd88f", "#e5c07b", "#6cb6ff", "#c792ea", "#56c8d8", "#c8d0da"),
    *("#6b7688", "#ff8b92", "#9be8a8", "#ffd58a", "#8cc8ff", "#d7aefb", "#7fe0ec", "#ffffff"),
)
SGR = re.compile(r"\x1b\[([\d;:]*)m|\x1b[^m]*?[a-zA-Z\\]|\x0f|\x0e")
WIDE = re.compile(r"[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60]")


class Frame(NamedTuple):
    """A screen and how many seconds it is shown."""

    screen: str
    seconds: float


class CellStyle(NamedTuple):
    color: str = ""
    background: str = ""
    bold: bool = False
    dim: bool = False
    italic: bool = False
    reverse: bool = False


class Span(NamedTuple):
    column: int
    text: str
    style: CellStyle


PLAIN = CellStyle()


def parse_row(row: str, style: CellStyle = PLAIN) -> tuple[list[Span], CellStyle]:
    """The parts of a row with one style each, and the style that is in force behind it."""
    spans: list[Span] = []
    column = at = 0
    for sequence in [*SGR.finditer(row), None]:
        text = row[at : sequence.start() if sequence else None]
        if text:
            spans.append(Span(column, text, style))
            column += len(text) + len(WIDE.findall(text))
        if sequence:
            at = sequence.end()
            style = apply_codes(style, sequence[1]) if sequence[1] is not None else style
    return spans, style


def apply_codes(style: CellStyle, codes: str) -> CellStyle:
    """The style after an SGR sequence."""
    numbers = [int(code or 0) for code in re.split("[;:]", codes)]
    while numbers:
        match numbers.pop(0):
            case 0:
                style = PLAIN
            case 1:
                style = style._replace(bold=True)
            case 2:
                style = style._replace(dim=True)
            case 3:
                style = style._replace(italic=True)
            case 7:
                style = style._replace(reverse=True)
            case 22:
                style = style._replace(bold=False, dim=False)
            case 23:
                style = style._replace(italic=False)
            case 27:
                style = style._replace(reverse=False)
            case 38:
                style = style._replace(color=take_color(numbers))
            case 48:
                style = style._replace(background=take_color(numbers))
            case 39:
                style = style._replace(color="")
            case 49:
                style = style._replace(background="")
            case code if 30 <= code <= 37 or 90 <= code <= 97:
                style = style._replace(color=BASIC[code - 30 if code < 90 else code - 82])
            case code if 40 <= code <= 47 or 100 <= code <= 107:
                style = style._replace(background=BASIC[code - 40 if code < 100 else code - 92])
            case _:
                pass
    return style


def take_color(numbers: list[int]) -> str:
    """The colour behind 38 or 48: `2;r;g;b` or `5;number`."""
    if numbers.pop(0) == 2:
        red, green, blue = (numbers.pop(0) for _ in range(3))
        return f"#{red:02x}{green:02x}{blue:02x}"
    number = numbers.pop(0)
    if number < 16:
        return BASIC[number]
    if number >= 232:
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3
    levels = (0, 95, 135, 175, 215, 255)
    number -= 16
    parts = (levels[number // 36], levels[number // 6 % 6], levels[number % 6])
    return "#" + "".join(f"{part:02x}" for part in parts)


def draw_animation(frames: Sequence[Frame], columns: int, rows: int, title: str) -> str:
    """The frames as one SVG that runs in a circle."""
    width = columns * CELL_WIDTH + 2 * PADDING
    height = rows * CELL_HEIGHT + 2 * PADDING + TITLE
    total = sum(frame.seconds for frame in frames)
    styles, drawn = [], []
    for number, (content, intervals) in enumerate(collect_rows(frames)):
        is_last = intervals[-1][1] >= total - 1e-6
        shown = "" if is_last else ' visibility="hidden"'
        if intervals != [(0.0, total)]:
            styles.append(f"@keyframes k{number}{{{write_keyframes(intervals, total)}}}")
            styles.append(f".k{number}{{animation:k{number} {total:g}s step-end infinite}}")
        drawn.append(f'<g class="k{number}"{shown}>{content}</g>')
    styles.append("@media (prefers-reduced-motion:reduce){g{animation:none!important}}")
    dots = "".join(
        f'<circle cx="{18 + 18 * at}" cy="17" r="5.5" fill="{color}"/>'
        for at, color in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
            f' width="{width:g}" height="{height:g}" role="img" font-size="14"'
            ' font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace">',
            f"<title>{escape(title)}</title>",
            f"<style>text{{white-space:pre}}{''.join(styles)}</style>",
            f'<rect width="{width:g}" height="{height:g}" rx="9" fill="{BACKGROUND}"/>',
            dots,
            *drawn,
            "</svg>\n",
        ]
    )


def collect_rows(frames: Sequence[Frame]) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Each different row as SVG, with the times at which it is seen."""
    seen: dict[str, list[tuple[float, float]]] = {}
    now = 0.0
    for frame in frames:
        style = PLAIN
        for number, row in enumerate(frame.screen.split("\n")):
            spans, style = parse_row(row, style)
            content = "".join(part for span in spans for part in draw_span(span, number))
            if not content:
                continue
            intervals = seen.setdefault(content, [])
            if intervals and abs(intervals[-1][1] - now) < 1e-6:
                intervals[-1] = (intervals[-1][0], now + frame.seconds)
            else:
                intervals.append((now, now + frame.seconds))
        now += frame.seconds
    yield from seen.items()


def write_keyframes(intervals: Sequence[tuple[float, float]], total: float) -> str:
    steps = {0.0: "hidden"}
    for start, end in intervals:
        steps[start] = "visible"
        steps[end] = "hidden"
    return "".join(
        f"{100 * time / total:.2f}%{{visibility:{state}}}" for time, state in sorted(steps.items())
    )


def draw_span(span: Span, row: int) -> Iterator[str]:
    style = span.style
    color, background = style.color or FOREGROUND, style.background
    if style.reverse:
        color, background = background or BACKGROUND, color
    x = PADDING + span.column * CELL_WIDTH
    y = TITLE + PADDING + row * CELL_HEIGHT
    cells = len(span.text) + len(WIDE.findall(span.text))
    if background:
        yield (
            f'<rect x="{x:g}" y="{y}" width="{cells * CELL_WIDTH:.1f}" height="{CELL_HEIGHT}"'
            f' fill="{background}"/>'
        )
    text = span.text.rstrip()
    if not text:
        return
    indent = len(text) - len(text.lstrip())
    shown = text.lstrip()
    length = (len(shown) + len(WIDE.findall(shown))) * CELL_WIDTH
    looks = f' fill="{color}"' + ' font-weight="bold"' * style.bold
    looks += ' font-style="italic"' * style.italic + ' opacity=".6"' * style.dim
    yield (
        f'<text x="{x + indent * CELL_WIDTH:g}" y="{y + 13.5:g}" textLength="{length:.1f}"{looks}>'
        f"{escape(shown)}</text>"
    )

"""Plots as SVG with x in percent and y in pixels: they stretch, their text does not."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from treadle.apps.pages.elements import escape_html

BAR_SHARE = 0.7  # of the room of a column
MAX_LABELS = 15


class BarPart(msgspec.Struct, frozen=True):
    """A part of a column: its value, and the class of its colour."""

    value: float
    style: str


class Column(msgspec.Struct, frozen=True):
    """One column. `thin` is drawn beside the wide one; `title` is shown when one points at it.
    `step` is what a click on it shows, if it is given."""

    segments: tuple[BarPart, ...]
    thin: tuple[BarPart, ...] = ()
    label: str = ""
    title: str = ""
    step: int = 0


class BarRow(msgspec.Struct, frozen=True):
    """One row of a list of bars. `share` is the part of the width, from 0 to 1; `interval` are the
    ends of a line over the bar."""

    label: str
    value: str
    share: float
    style: str
    detail: str
    interval: tuple[float, float] | None = None


def draw_bar_list(rows: Sequence[BarRow]) -> str:
    """Rows of a name and a value, with a bar and a detail below."""
    return f'<ul class="models">{"".join(map(_draw_bar_row, rows))}</ul>'


def _draw_bar_row(row: BarRow) -> str:
    line = ""
    if row.interval is not None:
        low, high = row.interval
        line = f'<line class="span" x1="{low:.1%}" x2="{high:.1%}" y1="4" y2="4"/>'
    return (
        f"<li><span>{escape_html(row.label)}</span>"
        f'<span class="c">{escape_html(row.value)}</span><svg aria-hidden="true">'
        f'<rect class="d-rest" width="100%" height="8" rx="2"/>'
        f'<rect class="{row.style}" width="{row.share:.1%}" height="8" rx="2"/>{line}'
        f"</svg><small>{escape_html(row.detail)}</small></li>"
    )


def draw_key(
    style: str, label: str, *, x: int = 0, y: int = 0, width: int = 10, height: int = 10
) -> str:
    """An entry of the key of a chart: a rectangle of a colour, and what it stands for (HTML)."""
    place = f'x="{x}" y="{y}" width="{width}" height="{height}"'
    return f'<li><svg aria-hidden="true"><rect class="{style}" {place}/></svg>{label}</li>'


def draw_columns(
    columns: Sequence[Column],
    height: int,
    label: str,
    *,
    chosen: int = -1,
    marks: Sequence[tuple[float, str]] = (),
) -> str:
    """A column chart; the chosen column has a band behind it. `marks` are lines across it: how far
    from the left, from 0 to 1, and a name."""
    if not columns:
        return ""
    top = max(sum(part.value for part in one.segments) for one in columns) or 1.0
    room = 100 / len(columns)
    parts = _draw_band(chosen, len(columns), height)
    for index, column in enumerate(columns):
        wide = room * (BAR_SHARE * 0.75 if column.thin else BAR_SHARE)
        left = index * room + room * (1 - BAR_SHARE) / 2
        title = f"<title>{escape_html(column.title)}</title>" if column.title else ""
        bars = _draw_stack(column.segments, left, wide, height, top)
        bars += _draw_stack(column.thin, left + wide, room * BAR_SHARE * 0.2, height, top)
        if column.step:  # all of its room takes the click
            place = f'x="{index * room:.2f}%" width="{room:.2f}%"'
            bars += f'<rect class="hit" {place} y="0" height="{height}"/>'
        step = f' data-step="{column.step}"' if column.step else ""
        parts.append(f'<g data-column="{index}"{step}>{title}{bars}</g>')
    parts.append(f'<line class="base" x1="0" x2="100%" y1="{height - 0.5}" y2="{height - 0.5}"/>')
    for share, name in marks:
        anchor = "end" if share > 0.9 else "middle"
        parts.append(
            f'<line class="mark" x1="{share:.2%}" x2="{share:.2%}" y1="0" y2="{height}"/>'
            f'<text x="{share:.2%}" y="-4" text-anchor="{anchor}">{escape_html(name)}</text>'
        )
    return _wrap(parts, height, label)


def _draw_band(chosen: int, count: int, height: int) -> list[str]:
    if not 0 <= chosen < count:
        return []
    room = 100 / count
    place = f'x="{chosen * room:.2f}%" width="{room:.2f}%"'
    return [f'<rect class="band" {place} y="0" height="{height}"/>']


def _draw_stack(
    segments: Sequence[BarPart], left: float, width: float, height: int, top: float
) -> str:
    bars, bottom = "", float(height)
    for part in segments:
        size = (height - 4) * part.value / top
        bottom -= size
        bars += (
            f'<rect class="{part.style}" x="{left:.2f}%" width="{width:.2f}%" '
            f'y="{bottom:.1f}" height="{size:.1f}"/>'
        )
    return bars


def draw_line(values: Sequence[float | None], height: int, label: str, *, chosen: int = -1) -> str:
    """A line with a point for each value; None leaves a gap."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    top, room = max(known) or 1.0, 100 / len(values)
    points: list[tuple[float, float]] = []
    parts = _draw_band(chosen, len(values), height)
    dots: list[str] = []
    for index, value in enumerate(values):
        if value is None:
            continue
        x, y = (index + 0.5) * room, height - 8 - (height - 16) * value / top
        points.append((x, y))
        style = "pt on" if index == chosen else "pt"
        dots.append(f'<circle class="{style}" cx="{x:.2f}%" cy="{y:.1f}" r="3"/>')
    path = " ".join(f"{'M' if not at else 'L'}{x:.2f} {y:.1f}" for at, (x, y) in enumerate(points))
    parts.append(
        f'<svg width="100%" height="{height}" viewBox="0 0 100 {height}" '
        f'preserveAspectRatio="none"><path class="ln" d="{path}"/></svg>'
    )
    return _wrap([*parts, *dots], height, label)


def draw_axis(texts: Sequence[tuple[float, str]], height: int) -> str:
    """The values at the right of a plot: (y, text)."""
    rows = "".join(f'<text x="8" y="{y:.0f}">{escape_html(text)}</text>' for y, text in texts)
    return f'<svg class="chart axis" height="{height}" aria-hidden="true">{rows}</svg>'


def draw_labels(labels: Sequence[str], chosen: int = -1) -> str:
    """Names below the columns of a plot; of many only some, so that they do not overlap."""
    room, every = 100 / max(1, len(labels)), max(1, len(labels) // MAX_LABELS)
    texts = [
        f'<text{_mark_chosen(index == chosen)} x="{(index + 0.5) * room:.2f}%" y="12" '
        f'text-anchor="middle">{escape_html(label)}</text>'
        for index, label in enumerate(labels)
        if index % every == 0 or index == chosen
    ]
    return f'<svg class="chart" height="16" aria-hidden="true">{"".join(texts)}</svg>'


def _mark_chosen(is_chosen: bool) -> str:
    return ' class="on"' if is_chosen else ""


def _wrap(parts: Sequence[str], height: int, label: str) -> str:
    return (
        f'<svg class="chart" height="{height}" role="img" aria-label="{escape_html(label)}">'
        f"{''.join(parts)}</svg>"
    )

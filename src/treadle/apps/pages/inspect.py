"""The page that looks into a session: a timeline, plots, and what each request contained."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from treadle.apps.pages.elements import escape_html, render_icon
from treadle.apps.pages.frame import render_page
from treadle.apps.pages.gantt import NO_LANES, AgentLane
from treadle.apps.pages.plots import ChartRange, render_plots
from treadle.apps.pages.sheet import SentView, render_sheet
from treadle.apps.pages.timeline import Timeline, TimelineStep
from treadle.lib.text.text import format_cost, plural, shorten_home
from treadle.sessions.summaries import SessionSummary

MAX_MARKS = 200


def render_inspect_page(
    summary: SessionSummary,
    timeline: Timeline,
    step: int,
    view: SentView,
    chart_range: ChartRange = "turn",
    lanes: Mapping[str, AgentLane] = NO_LANES,
) -> str:
    """The page at a step."""
    parts = (
        _render_sub(summary, timeline)
        + _render_strip(timeline, step)
        + '<main class="look"><div class="plots" id="plots">'
        + render_plots(timeline, step, chart_range, lanes)
        + '</div><section class="sheet" id="sheet" aria-label="Request">'
        + render_sheet(timeline, step, view)
        + "</section></main>"
        + '<dialog id="dialog" aria-labelledby="dialog-title"></dialog>'
        + '<div class="toast" id="toast" role="alert" hidden></div>'
    )
    title = summary.title or summary.id
    return render_page(title, "inspect", summary.id, parts, "page inspect")


def _render_sub(summary: SessionSummary, timeline: Timeline) -> str:
    usage = timeline.usage
    is_known = usage.cost is not None or usage.known_cost > 0
    facts = [
        shorten_home(summary.folder),
        summary.id,
        plural(len(timeline.requests), "request"),
        plural(len(timeline.calls), "call"),
        format_cost(usage.cost, usage.known_cost) if is_known else "price unknown",
    ]
    return (
        f'<section class="sub" aria-label="Session"><h1>{escape_html(summary.title or "Session")}'
        f'</h1><span class="where not-small">{escape_html(" · ".join(facts))}</span>'
        f'<div class="acts"><a class="btn" href="/compare/{summary.id}">'
        f"{render_icon('diffs')}Compare</a>"
        f'<a class="btn" href="/export/{summary.id}" download>{render_icon("out")}Export</a>'
        f'<a class="btn" href="/session/{summary.id}">Open in Work</a></div></section>'
    )


# --- the timeline --------------------------------------------------------------------------


def _render_strip(timeline: Timeline, step: int) -> str:
    count = len(timeline.steps)
    buttons = "".join(
        f'<button class="icon" type="button" data-go="{name}" aria-label="{label}">'
        f"{render_icon(icon)}</button>"
        for name, icon, label in (
            ("first", "first", "First step"),
            ("back", "prev", "Step back"),
            ("play", "play", "Play"),
            ("on", "next", "Step on"),
            ("last", "last", "Last step"),
        )
    )
    return (
        f'<section class="strip" aria-label="Steps"><div class="play" role="group" '
        f'aria-label="Replay">{buttons}</div><div class="steps"><div id="marks">'
        f"{render_marks(timeline.steps, step)}</div>"
        f'<input type="range" id="slider" min="1" max="{max(1, count)}" value="{step}" '
        f'aria-label="Step"></div><div class="at" id="at">{render_position(timeline, step)}</div>'
        "</section>"
    )


def render_position(timeline: Timeline, step: int) -> str:
    if not timeline.steps:
        return "<b>No step yet</b>"
    one = timeline.steps[step - 1]
    clock = time.strftime("%H:%M:%S", time.localtime(one.time))
    what = f"request {one.request}" if one.kind == "request" else one.kind
    return f"<b>Step {step} of {len(timeline.steps)}</b><span>{what} · {clock}</span>"


def render_marks(steps: Sequence[TimelineStep], current: int) -> str:
    """The steps on a line; of a long session only the turns and what is near."""
    count = max(2, len(steps))

    def x(number: int) -> float:
        return 1.5 + 97 * (number - 1) / (count - 1)

    parts = [
        '<line class="rail-line" x1="1.5%" x2="98.5%" y1="32" y2="32"/>',
        f'<line class="gone" x1="1.5%" x2="{x(current):.2f}%" y1="32" y2="32"/>',
    ]
    last_label, last_turn = -10.0, 0
    for one in _choose_marks(steps, current):
        past = " past" if one.number <= current else ""
        position = x(one.number)
        is_new = one.turn != last_turn  # a message that is sent meanwhile begins no turn
        if one.kind == "message" and is_new and position - last_label > 6:
            parts.append(f'<text x="{position:.2f}%" y="12">Turn {one.turn}</text>')
            last_label, last_turn = position, one.turn
        parts.append(_draw_mark(one, position, past))
    if steps:
        parts.append(f'<circle class="thumb" cx="{x(current):.2f}%" cy="32" r="9"/>')
    return f'<svg aria-hidden="true">{"".join(parts)}</svg>'


def _choose_marks(steps: Sequence[TimelineStep], current: int) -> list[TimelineStep]:
    """All steps; of a long session the beginnings of turns, as many as can be told apart, and the
    steps of the turn that is looked at."""
    if len(steps) <= MAX_MARKS:
        return list(steps)
    turn, messages = steps[current - 1].turn, [one for one in steps if one.kind == "message"]
    every = max(1, len(messages) // MAX_MARKS)
    near = steps[max(0, current - MAX_MARKS // 2) : current + MAX_MARKS // 2]
    shown = {one.number: one for one in messages[::every]}
    shown |= {one.number: one for one in near if one.turn == turn}
    return [shown[number] for number in sorted(shown)]


def _draw_mark(step: TimelineStep, x: float, past: str) -> str:
    if step.kind in ("rewrite", "rewind"):
        return (
            f'<svg x="{x:.2f}%" y="26" overflow="visible">'
            '<path class="st cut" d="M0 0 6 6 0 12-6 6Z"/></svg>'
        )
    style, radius = {
        "message": ("st user", 5.0),
        "request": ("st", 4.0),
        "calls": ("st user", 1.5),
        "end": ("st", 2.0),
    }[step.kind]
    if step.is_error:
        style, past, radius = "st bad", "", 2.5
    return f'<circle class="{style}{past}" cx="{x:.2f}%" cy="32" r="{radius}"/>'

"""The page that looks into a session: a timeline, plots, and what each request contained."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from treadle.apps.web.render.charts import Column, Segment, draw_axis, draw_columns, draw_line
from treadle.apps.web.render.elements import escape_html, render_icon
from treadle.apps.web.render.gantt import KEY, render_gantt
from treadle.apps.web.render.page import render_page
from treadle.core.text import format_count, format_dollars, plural, shorten_home
from treadle.core.transcript.items import (
    AssistantItem,
    Item,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
)
from treadle.core.transcript.size_estimate import CHARS_PER_MEDIA_TOKEN, estimate_item_chars
from treadle.sessions.index import SessionSummary
from treadle.sessions.timeline import RequestInfo, Timeline, TimelineStep

MAX_SHOWN_CHARS = 20_000
MAX_ITEMS = 400
_PARTS = (
    ("results", "d-results", "results"),
    ("assistant", "d-assistant", "assistant"),
    ("user", "d-user", "user"),
    ("system", "d-system", "system and tools"),
)


class SentView(msgspec.Struct, frozen=True):
    """The items that a request contained, and how many of them the one before had, too."""

    items: Sequence[Item]
    shared: int = 0


def render_inspect_page(
    summary: SessionSummary, timeline: Timeline, step: int, view: SentView
) -> str:
    """The page at a step."""
    parts = (
        _render_sub(summary, timeline)
        + _render_strip(timeline, step)
        + '<main class="look"><div class="plots" id="plots">'
        + render_plots(timeline, step)
        + '</div><section class="sheet" id="sheet" aria-label="Request">'
        + render_sheet(timeline, step, view)
        + "</section></main>"
        + '<dialog id="dialog" aria-labelledby="dialog-title"></dialog>'
        + '<div class="toast" id="toast" role="alert" hidden></div>'
    )
    title = summary.title or summary.id
    return render_page(title, "inspect", summary.id, parts, "page inspect")


def find_request(timeline: Timeline, step: int) -> RequestInfo | None:
    """The model call that a step belongs to."""
    if not timeline.steps or not timeline.requests:
        return None
    number = timeline.steps[step - 1].request
    return timeline.requests[max(0, number - 1)]


def _render_sub(summary: SessionSummary, timeline: Timeline) -> str:
    cost = timeline.usage.cost
    facts = [
        shorten_home(summary.folder),
        summary.id,
        plural(len(timeline.requests), "request"),
        plural(len(timeline.calls), "call"),
        "price unknown" if cost is None else format_dollars(cost),
    ]
    return (
        f'<section class="sub" aria-label="Session"><h1>{escape_html(summary.title or "Session")}'
        f'</h1><span class="where not-small">{escape_html(" · ".join(facts))}</span>'
        '<div class="acts"><button class="btn" type="button" id="compare-button">'
        f"{render_icon('diffs')}Compare</button>"
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
    shown = [one for one in steps if _is_drawn(one, len(steps), current)]

    def x(number: int) -> float:
        return 1.5 + 97 * (number - 1) / (count - 1)

    parts = [
        '<line class="rail-line" x1="1.5%" x2="98.5%" y1="32" y2="32"/>',
        f'<line class="gone" x1="1.5%" x2="{x(current):.2f}%" y1="32" y2="32"/>',
    ]
    last_label = -10.0
    for one in shown:
        past = " past" if one.number <= current else ""
        position = x(one.number)
        if one.kind == "message" and position - last_label > 6:
            parts.append(f'<text x="{position:.2f}%" y="12">Turn {one.turn}</text>')
            last_label = position
        parts.append(_draw_mark(one, position, past))
    if steps:
        parts.append(f'<circle class="thumb" cx="{x(current):.2f}%" cy="32" r="9"/>')
    return f'<svg aria-hidden="true">{"".join(parts)}</svg>'


def _is_drawn(step: TimelineStep, count: int, current: int) -> bool:
    return count <= 200 or step.kind == "message" or abs(step.number - current) < 50


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


# --- plots ---------------------------------------------------------------------------------


def render_plots(timeline: Timeline, step: int) -> str:
    """The chart of the turn, and the plots of all requests."""
    request = find_request(timeline, step)
    if request is None:
        return "<p>There is no model call yet.</p>"
    turn = request.turn
    requests = [one for one in timeline.requests if one.turn == turn]
    calls = [one for one in timeline.calls if one.turn == turn]
    head = f'<header><h2 id="g">Turn {turn}</h2>{KEY}</header>'
    chart = render_gantt(requests, calls, request.number)
    return (
        f'<section class="plot" aria-labelledby="g">{head}{chart}</section>'
        f'<section class="plot" aria-labelledby="c"><div class="cols">'
        f"{_render_context(timeline, request)}{_render_costs(timeline, request)}"
        f"{_render_first_tokens(timeline, request)}</div></section>"
    )


def _split_request(request: RequestInfo) -> dict[str, int]:
    sizes, head = request.sizes.fit(request.usage.total_input)
    parts = {"results": sizes.results, "assistant": sizes.assistant, "user": sizes.user}
    return {**parts, "system": head}


def _render_context(timeline: Timeline, chosen: RequestInfo) -> str:
    columns = []
    for request in timeline.requests:
        sizes, usage = _split_request(request), request.usage
        stack = tuple(Segment(sizes[name], style) for name, style, _ in reversed(_PARTS))
        thin = (Segment(usage.cache_read, "d-read"), Segment(usage.cache_write, "d-write"))
        title = f"request {request.number}: {format_count(usage.total_input)} tokens"
        columns.append(Column(stack, thin, title=title))
    sizes = _split_request(chosen)
    rows = [
        f'<li><svg aria-hidden="true"><rect width="10" height="10" rx="2" class="{style}"/></svg>'
        f"{label}<span>{format_count(sizes[name])}</span></li>"
        for name, style, label in _PARTS
    ]
    for style, label, size in (
        ("d-write", "written to cache", chosen.usage.cache_write),
        ("d-read", "read from cache", chosen.usage.cache_read),
    ):
        rows.append(
            f'<li><svg aria-hidden="true"><rect x="3" width="4" height="10" class="{style}"/>'
            f"</svg>{label}<span>{format_count(size)}</span></li>"
        )
    top = max(request.usage.total_input for request in timeline.requests)
    lead = (
        f'<div class="lead"><h2 id="c">Context by part</h2><p>request {chosen.number}, '
        f"{format_count(chosen.usage.total_input)} tokens</p>"
        f'<ul class="key down">{"".join(rows)}</ul></div>'
    )
    label = f"Tokens of {plural(len(columns), 'request')} by part"
    chart = draw_columns(columns, 180, label, chosen=chosen.number - 1)
    return lead + chart + draw_axis([(10, format_count(top)), (179, "0")], 180)


def _render_costs(timeline: Timeline, chosen: RequestInfo) -> str:
    costs = [request.usage.cost or 0.0 for request in timeline.requests]
    columns = [
        Column(
            (Segment(cost, "d-user" if at == chosen.number - 1 else "d-tools"),),
            title=f"request {at + 1}: {format_dollars(cost)}",
        )
        for at, cost in enumerate(costs)
    ]
    own = "price unknown" if chosen.usage.cost is None else format_dollars(chosen.usage.cost)
    lead = (
        f'<div class="lead"><h2>Cost</h2><p>{own}, of {format_dollars(sum(costs))} in all</p></div>'
    )
    chart = draw_columns(columns, 40, "Cost of each request", chosen=chosen.number - 1)
    return lead + chart + draw_axis([(10, format_dollars(max(costs))), (39, "0")], 40)


def _render_first_tokens(timeline: Timeline, chosen: RequestInfo) -> str:
    values = [request.seconds_to_first for request in timeline.requests]
    own = chosen.seconds_to_first
    text = "not recorded" if own is None else f"{own:.1f} s"
    lead = f'<div class="lead"><h2>First token</h2><p>{text}</p></div>'
    chart = draw_line(values, 60, "Seconds to the first token", chosen=chosen.number - 1)
    if not chart:
        return lead + "<p>There are no times for this session.</p><span></span>"
    top = max(value for value in values if value is not None)
    return lead + chart + draw_axis([(12, f"{top:.1f} s"), (58, "0")], 60)


# --- the request ---------------------------------------------------------------------------


def render_sheet(timeline: Timeline, step: int, view: SentView) -> str:
    """What the model was sent with the request of this step."""
    request = find_request(timeline, step)
    if request is None:
        return "<header><h2>No request yet</h2></header>"
    one = timeline.steps[step - 1]
    turn_step = f'<span class="tag accent">step {step}</span>'
    model = f'<span class="tag">{escape_html(request.model.rpartition("/")[2])}</span>'
    return (
        f'<header><div class="row"><h2>Request {request.number}</h2>{turn_step}{model}</div>'
        f"{_render_figures(request)}{_render_bar(request)}</header>"
        f'<div class="scrolls" tabindex="0" role="region" aria-label="What was sent">'
        f"{_render_rewrites(timeline, request)}{_render_items(view, request)}</div>"
        f'<footer><button class="btn first" type="button" data-fork="{one.turn}">'
        f"{render_icon('fork')}Fork before turn {one.turn}</button></footer>"
    )


def _render_figures(request: RequestInfo) -> str:
    usage, first = request.usage, request.seconds_to_first
    rows = (
        ("Sent", format_count(usage.total_input)),
        ("From cache", format_count(usage.cache_read)),
        ("Written", format_count(usage.cache_write)),
        ("Reply", format_count(usage.output)),
        ("Cost", "unknown" if usage.cost is None else format_dollars(usage.cost)),
        ("First token", "not recorded" if first is None else f"{first:.1f} s"),
        ("Took", f"{request.seconds:.1f} s"),
        ("Attempts", str(request.attempts)),
    )
    cells = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in rows)
    return f'<dl class="figures">{cells}</dl>'


def _render_bar(request: RequestInfo) -> str:
    sizes = _split_request(request)
    total, x, bars = sum(sizes.values()) or 1, 0.0, ""
    for name, style, _ in reversed(_PARTS):
        width = 100 * sizes[name] / total
        bars += f'<rect class="{style}" x="{x:.2f}%" width="{width:.2f}%" height="8"/>'
        x += width
    return f'<svg class="parts" aria-hidden="true">{bars}</svg>'


def _render_rewrites(timeline: Timeline, request: RequestInfo) -> str:
    """What changed the view between the request before and this one."""
    before = timeline.requests[request.number - 2].seq if request.number > 1 else 0
    rewrites = [
        step
        for step in timeline.steps
        if step.kind in ("rewrite", "rewind") and before < step.seq <= request.view_seq
    ]
    if not rewrites:
        return ""
    rows = "".join(
        f"<li>{render_icon('fold')}<span>{escape_html(step.label)}</span></li>" for step in rewrites
    )
    title = f"What changed the view since request {request.number - 1}"
    return f'<div class="changes"><h3>{title}</h3><ul>{rows}</ul></div>'


def _render_items(view: SentView, request: RequestInfo) -> str:
    _, head = request.sizes.fit(request.usage.total_input)
    parts = [_wrap_item("system", "System and tools", "before the first message", head, "")]
    hidden = max(0, len(view.items) - MAX_ITEMS)
    if hidden:
        parts.append(f'<p class="cache">{plural(hidden, "earlier item")} not shown</p>')
    for position, item in enumerate(view.items):
        if position < hidden:
            continue
        if position == view.shared and position:
            parts.append('<p class="cache">new since the request before</p>')
        parts.append(_render_item(item))
    return "".join(parts)


def _render_item(item: Item) -> str:
    tokens = -(-estimate_item_chars(item) // CHARS_PER_MEDIA_TOKEN)
    text = item.text
    match item:
        case AssistantItem():
            calls = [f"{call.name} {call.raw}" for call in item.calls]
            style, who, text = "assistant", "Assistant", "\n".join([text, *calls]).strip()
        case ToolResultItem():
            style, who = "results", item.name
        case SummaryItem():
            style, who = "user", "Summary"
        case NoticeItem():
            style, who = "user", f"Notice ({item.kind})" if item.kind else "Notice"
        case _:
            style, who = "user", "You"
    return _wrap_item(style, who, text.strip().partition("\n")[0][:120], tokens, text)


def _wrap_item(style: str, who: str, what: str, tokens: int, text: str) -> str:
    body = f'<pre class="said">{escape_html(text[:MAX_SHOWN_CHARS])}</pre>' if text else ""
    return (
        f'<details class="part {style}"><summary><span class="who">{escape_html(who)}</span>'
        f'<span class="what">{escape_html(what)}</span><span class="n">{format_count(tokens)}'
        f"</span></summary>{body}</details>"
    )

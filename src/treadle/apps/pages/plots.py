"""The plots of a session: calls over time, and context, cost and first token of each request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import msgspec

from treadle.apps.pages.charts import (
    BarPart,
    Column,
    draw_axis,
    draw_columns,
    draw_key,
    draw_labels,
    draw_line,
)
from treadle.apps.pages.cost_reasons import count_lost_tokens, price_lost_tokens
from treadle.apps.pages.elements import render_buttons
from treadle.apps.pages.gantt import KEY, NO_LANES, AgentLane, render_gantt
from treadle.apps.pages.timeline import RequestInfo, Timeline
from treadle.lib.text.text import format_count, format_dollars, plural

MAX_COLUMNS = 120  # requests that are drawn at once, around the chosen one
ChartRange = Literal["all", "turn", "round"]
# part of ContextSizes, its colour, its name; from top to bottom
PARTS = (
    ("results", "d-results", "results"),
    ("assistant", "d-assistant", "assistant"),
    ("user", "d-user", "user"),
    ("memory", "d-memory", "memory"),
    ("tools", "d-tools", "tools"),
    ("system", "d-system", "system"),
)


def find_request(timeline: Timeline, step: int) -> RequestInfo | None:
    """The model call that a step belongs to."""
    if not timeline.steps or not timeline.requests:
        return None
    number = timeline.steps[step - 1].request
    return timeline.requests[max(0, number - 1)]


def render_plots(
    timeline: Timeline,
    step: int,
    chart_range: ChartRange = "turn",
    lanes: Mapping[str, AgentLane] = NO_LANES,
) -> str:
    """The calls over time, and the plots of the requests around the chosen one."""
    request = find_request(timeline, step)
    if request is None:
        return "<p>There is no model call yet.</p>"
    requests = [one for one in timeline.requests if _is_in_range(one, request, chart_range)]
    numbers = {one.number for one in requests}
    calls = [one for one in timeline.calls if one.request in numbers]
    title = {
        "all": "All turns",
        "turn": f"Turn {request.turn}",
        "round": f"Round of request {request.number}",
    }[chart_range]
    names = {one: one.capitalize() for one in get_args(ChartRange)}
    ranges = render_buttons("range", names, chart_range, "Calls of", "seg end")
    head = f'<header><h2 id="g">{title}</h2>{KEY}{ranges}</header>'
    chart = render_gantt(requests, calls, request.number, lanes)
    return (
        f'<section class="plot" aria-labelledby="g">{head}{chart}</section>'
        f"{render_request_plots(timeline, request)}"
    )


def _is_in_range(one: RequestInfo, chosen: RequestInfo, chart_range: ChartRange) -> bool:
    if chart_range == "turn":
        return one.turn == chosen.turn
    return chart_range == "all" or one.number == chosen.number


def render_request_plots(timeline: Timeline, chosen: RequestInfo | None) -> str:
    """Context, cost and first token of each request; without a chosen one those of the last are
    named."""
    center = chosen or timeline.requests[-1]
    first = min(center.number - 1 - MAX_COLUMNS // 2, len(timeline.requests) - MAX_COLUMNS)
    first = max(0, first)
    shown = timeline.requests[first : first + MAX_COLUMNS]
    at = chosen.number - 1 - first if chosen is not None else -1
    left_out = len(timeline.requests) - len(shown)
    note = f"<p>{plural(left_out, 'other request')} not drawn</p>" if left_out else ""
    return (
        f'<section class="plot" aria-label="Requests"><div class="cols">'
        f"{_render_context(shown, center, at)}{_render_costs(timeline, shown, center, at)}"
        f"{_render_first_tokens(shown, center, at)}{_render_numbers(shown, at)}</div>{note}"
        "</section>"
    )


def split_request(request: RequestInfo) -> dict[str, int]:
    """Estimated tokens by part."""
    return msgspec.structs.asdict(request.sizes.fit(request.usage.total_input))


def list_parts(request: RequestInfo) -> list[tuple[str, str, str]]:
    """The parts of a request that are known. Earlier versions did not record the tools."""
    if request.sizes.has_head:
        return [part for part in PARTS if part[0] != "memory" or request.sizes.memory]
    known = [part for part in PARTS if part[0] not in ("memory", "tools", "system")]
    return [*known, ("system", "d-system", "system and tools")]


def _render_context(shown: Sequence[RequestInfo], center: RequestInfo, at: int) -> str:
    columns = []
    for request in shown:
        sizes, usage = split_request(request), request.usage
        stack = tuple(BarPart(sizes[name], style) for name, style, _ in reversed(PARTS))
        thin = (BarPart(usage.cache_read, "d-read"), BarPart(usage.cache_write, "d-write"))
        title = f"request {request.number}: {format_count(usage.total_input)} tokens"
        columns.append(Column(stack, thin, title=title, step=request.step))
    sizes = split_request(center)
    parts = list_parts(center)
    texts = {style: _add_size(label, sizes[name]) for name, style, label in parts}
    rows = [draw_key(style, text) for style, text in texts.items()]
    written = _add_size("written to cache", center.usage.cache_write)
    read = _add_size("read from cache", center.usage.cache_read)
    rows += [draw_key("d-write", written, x=3, width=4), draw_key("d-read", read, x=3, width=4)]
    top = max(request.usage.total_input for request in shown)
    lead = (
        f'<div class="lead"><h2>Context by part</h2><p>request {center.number}, '
        f"{format_count(center.usage.total_input)} tokens</p>"
        f'<ul class="key down">{"".join(rows)}</ul></div>'
    )
    label = f"Tokens of {plural(len(columns), 'request')} by part"
    chart = draw_columns(columns, 180, label, chosen=at)
    return lead + chart + draw_axis([(10, format_count(top)), (179, "0")], 180)


def _add_size(label: str, size: int) -> str:
    return f"{label}<span>{format_count(size)}</span>"


def _render_costs(
    timeline: Timeline, shown: Sequence[RequestInfo], center: RequestInfo, at: int
) -> str:
    costs = [request.usage.cost or 0.0 for request in shown]
    columns = []
    for position, (request, cost) in enumerate(zip(shown, costs, strict=True)):
        lost = count_lost_tokens(timeline, request)
        again = min(cost, price_lost_tokens(request, lost) or 0.0) if lost else 0.0
        parts = [BarPart(cost - again, "d-user" if position == at else "d-tools")]
        title = f"request {request.number}: {format_dollars(cost)}"
        if again:
            parts.append(BarPart(again, "w-ink"))
            title += f", of it {format_dollars(again)} since the cache broke"
        columns.append(Column(tuple(parts), title=title, step=request.step))
    total = timeline.usage.cost
    in_all = "price unknown" if total is None else f"{format_dollars(total)} in all"
    own = "" if center.usage.cost is None else f"{format_dollars(center.usage.cost)}, of "
    lead = f'<div class="lead"><h2>Cost</h2><p>{own}{in_all}</p></div>'
    chart = draw_columns(columns, 40, "Cost of each request", chosen=at)
    return lead + chart + draw_axis([(10, format_dollars(max(costs))), (39, "0")], 40)


def _render_first_tokens(shown: Sequence[RequestInfo], center: RequestInfo, at: int) -> str:
    values = [request.seconds_to_first for request in shown]
    own = center.seconds_to_first
    text = "not recorded" if own is None else f"{own:.1f} s"
    lead = f'<div class="lead"><h2>First token</h2><p>{text}</p></div>'
    chart = draw_line(values, 60, "Seconds to the first token", chosen=at)
    if not chart:
        return lead + "<p>There are no times for this session.</p><span></span>"
    top = max(value for value in values if value is not None)
    return lead + chart + draw_axis([(12, f"{top:.1f} s"), (58, "0")], 60)


def _render_numbers(shown: Sequence[RequestInfo], at: int) -> str:
    return f"<span></span>{draw_labels([str(one.number) for one in shown], at)}<span></span>"

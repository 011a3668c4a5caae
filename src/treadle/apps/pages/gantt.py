"""Model calls and tool calls over time: what ran side by side, what waited for the user.

Long waits for the user, in which nothing else ran, are folded. A child agent is a lane with its own
model calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from treadle.apps.conversation.block_text import format_call_title
from treadle.apps.conversation.state.blocks import ToolCallBlock
from treadle.apps.conversation.tool_kinds import get_tool_kind
from treadle.apps.pages.charts import draw_key
from treadle.apps.pages.elements import CALL_SIGNS, escape_html, render_icon
from treadle.apps.pages.timeline import CallInfo, RequestInfo
from treadle.lib.text.text import format_seconds, plural

ROW = 20
TOP = 24
MAX_ROWS = 60
TICKS = 6
MIN_FOLDED = 10.0  # seconds of a wait
FOLD_SHARE = 0.03  # of the width, for a wait that is folded
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600)

_KEY_RECTS = {
    "g-ttft": "until first token",
    "g-req": "model writes",
    "d-results": "call",
    "d-user": "child agent",
    "w-ink": "waits for you",
}
KEY = (
    f'<ul class="key">{"".join(draw_key(*one, y=1, height=8) for one in _KEY_RECTS.items())}'
    '<li><svg aria-hidden="true"><path class="g-cap" d="M2 0 8 5 2 10Z"/></svg>'
    "began before the reply was complete</li></ul>"
)


class AgentLane(msgspec.Struct, frozen=True):
    """The session of a child agent: its model calls as (start, end), and its cost as a text."""

    session_id: str
    requests: tuple[tuple[float, float], ...]
    cost: str


NO_LANES: Mapping[str, AgentLane] = MappingProxyType({})


def render_gantt(
    requests: Sequence[RequestInfo],
    calls: Sequence[CallInfo],
    chosen: int,
    lanes: Mapping[str, AgentLane] = NO_LANES,
) -> str:
    """The chart of these requests and calls; `chosen` is the number of a request. `lanes` are the
    sessions of child agents by their calls."""
    if not requests:
        return "<p>There is no model call yet.</p>"
    start = min(request.start for request in requests)
    end = max([request.end for request in requests] + [call.end for call in calls])
    if any(call.is_open for call in calls):
        end += (end - start) / 10  # room for what has not ended
    span = max(end - start, 0.1)
    shown, hidden = _choose_rows(calls, chosen), max(0, len(calls) - MAX_ROWS)
    height = TOP + ROW * (len(shown) + 1)
    scale = _Scale(start, span, _find_folds(requests, calls))
    parts = [
        *_draw_ticks(scale, height),
        *_draw_folds(scale, height),
        *_draw_band(requests, chosen, scale, height),
    ]
    for request in requests:
        parts += _draw_request(request, scale)
    for row, call in enumerate(shown, 1):
        parts += _draw_call(call, TOP + ROW * row, scale)
        if call.call.id in lanes:
            parts += _draw_lane(lanes[call.call.id], TOP + ROW * row, scale)
    total = sum(request.seconds for request in requests)
    names = [_render_model_name(requests)]
    names += [_render_call_name(call, lanes.get(call.call.id)) for call in shown]
    times = [format_seconds(total), *map(_format_time, shown)]
    label = f"{plural(len(requests), 'model call')} and {plural(len(calls), 'tool call')} over time"
    more = f"<p>{hidden} more calls are not drawn</p>" if hidden else ""
    if waited := sum(end - start for start, end in scale.folds):
        more += f'<p class="warn">{format_seconds(waited)} of waits for you are folded</p>'
    return (
        f'<div class="gantt"><ol>{"".join(names)}</ol>'
        f'<svg class="chart" height="{height}" role="img" aria-label="{label}">{"".join(parts)}'
        f'</svg><ol class="tot">{"".join(f"<li>{one}</li>" for one in times)}</ol></div>{more}'
    )


def _choose_rows(calls: Sequence[CallInfo], chosen: int) -> Sequence[CallInfo]:
    """The calls; of many those around the chosen request."""
    first = sum(call.request < chosen for call in calls) - MAX_ROWS // 2
    first = max(0, min(first, len(calls) - MAX_ROWS))
    return calls[first : first + MAX_ROWS]


def _find_folds(
    requests: Sequence[RequestInfo], calls: Sequence[CallInfo]
) -> list[tuple[float, float]]:
    """The long waits for an answer in which nothing else ran, as (start, end), in order."""
    used = [(one.start, one.end) for one in requests]
    for call in calls:
        if call.asked and call.answered:
            used += [(call.start, call.asked), (max(call.start, call.answered), call.end)]
        else:
            used.append((call.start, call.end))
    folds: list[tuple[float, float]] = []
    for call in calls:
        gaps = [(call.asked, call.answered)] if call.asked and call.answered else []
        for begin, end in used:
            if begin < end:
                gaps = [part for gap in gaps for part in _subtract(gap, begin, end)]
        found = [gap for gap in gaps if gap[1] - gap[0] >= MIN_FOLDED]
        folds += found
        used += found
    return sorted(folds)


def _subtract(gap: tuple[float, float], begin: float, end: float) -> list[tuple[float, float]]:
    parts = ((gap[0], min(gap[1], begin)), (max(gap[0], end), gap[1]))
    return [part for part in parts if part[0] < part[1]]


class _Scale:
    """Where a moment is, in percent; a folded wait has a fixed width."""

    def __init__(self, start: float, span: float, folds: Sequence[tuple[float, float]]) -> None:
        self._start = start
        self.folds = folds
        self.end = start + span
        work = max(0.1, span - sum(end - begin for begin, end in folds))
        self._second = (1 - FOLD_SHARE * len(folds)) / work
        self.work = work

    def x(self, moment: float) -> float:
        seconds, folded = moment - self._start, 0.0
        for begin, end in self.folds:
            inside = min(max(moment, begin), end) - begin
            seconds -= inside
            folded += inside / (end - begin)
        return 100 * (seconds * self._second + FOLD_SHARE * folded)

    def find_moment(self, second: float) -> float:
        """When so many seconds of work had passed."""
        moment = self._start + second
        for begin, end in self.folds:
            moment += end - begin if moment > begin else 0.0
        return moment

    def draw(self, style: str, begin: float, end: float, y: float, height: int = 10) -> str:
        width = max(0.3, self.x(end) - self.x(begin))
        return (
            f'<rect class="{style}" x="{self.x(begin):.2f}%" width="{width:.2f}%" '
            f'y="{y + 10 - height / 2:.0f}" height="{height}"/>'
        )


def _draw_ticks(scale: _Scale, height: int) -> list[str]:
    step = next((one for one in _STEPS if scale.work / one <= TICKS), _STEPS[-1])
    parts: list[str] = []
    second = 0.0
    while second <= scale.work:
        x = scale.x(scale.find_moment(second))
        text = f"{int(second) // 60}:{int(second) % 60:02}"
        parts.append(f'<line class="grid" x1="{x:.2f}%" x2="{x:.2f}%" y1="{TOP}" y2="{height}"/>')
        if x < 95:
            parts.append(f'<text x="{x:.2f}%" y="12">{text}</text>')
        second += step
    return parts


def _draw_folds(scale: _Scale, height: int) -> list[str]:
    return [
        f'<rect class="fold" x="{scale.x(begin):.2f}%" width="{100 * FOLD_SHARE:.2f}%" y="{TOP}" '
        f'height="{height - TOP}"><title>{format_seconds(end - begin)} folded</title></rect>'
        for begin, end in scale.folds
    ]


def _draw_lane(lane: AgentLane, y: float, scale: _Scale) -> list[str]:
    return [scale.draw("g-req", start, end, y, height=4) for start, end in lane.requests]


def _draw_band(
    requests: Sequence[RequestInfo], chosen: int, scale: _Scale, height: int
) -> list[str]:
    return [
        f'<rect class="band" x="{scale.x(one.start):.2f}%" '
        f'width="{max(0.5, scale.x(one.end) - scale.x(one.start)):.2f}%" y="{TOP}" '
        f'height="{height - TOP}"/>'
        for one in requests
        if one.number == chosen
    ]


def _draw_request(request: RequestInfo, scale: _Scale) -> list[str]:
    first = request.first or request.start
    parts = [scale.draw("g-req", first, request.end, TOP)]
    if request.first:
        parts.append(scale.draw("g-ttft", request.start, first, TOP))
    return parts


def _draw_call(call: CallInfo, y: float, scale: _Scale) -> list[str]:
    style = "g-child" if get_tool_kind(call.call.name) == "agent" else "g-call"
    if call.is_error:
        style = "g-bad"
    if call.asked and not call.answered and call.is_open:
        return [scale.draw("w-ink", call.asked, scale.end, y)]
    parts = [scale.draw(style, call.start, call.end, y)]
    if call.asked and call.answered:
        parts.append(scale.draw("w-ink", call.asked, call.answered, y))
    if call.is_eager:
        x = scale.x(call.start)
        parts.append(
            f'<svg x="{x:.2f}%" y="{y + 5:.0f}" overflow="visible">'
            '<path class="g-cap" d="M-8 0-2 5-8 10Z"/></svg>'
        )
    return parts


def _render_model_name(requests: Sequence[RequestInfo]) -> str:
    return (
        '<li><svg class="i" viewBox="0 0 16 16" aria-hidden="true"><rect x="3" y="5" width="10" '
        'height="6" rx="1" class="d-assistant" stroke="none"/></svg><b>model</b>'
        f'<span class="a">{plural(len(requests), "request")}</span></li>'
    )


def _render_call_name(call: CallInfo, lane: AgentLane | None) -> str:
    icon, colour, label = CALL_SIGNS[_find_state(call)]
    raw, is_edited = call.edited or call.call.raw, call.edited is not None
    block = ToolCallBlock(call.call.id, call.call.name, raw=raw, is_edited=is_edited)
    name, _, argument = format_call_title(block).partition(": ")
    shown = f"<b>{escape_html(name)}</b>"
    if lane is not None:
        argument = f"{argument} {lane.cost}"
        shown = f'<a href="/inspect/{escape_html(lane.session_id)}">{shown}</a>'
    return (
        f"<li>{render_icon(icon, label=label, style=colour)}{shown}"
        f'<span class="a">{escape_html(argument)}</span></li>'
    )


def _find_state(call: CallInfo) -> str:
    if call.is_open:
        return "asking" if call.asked and not call.answered else "running"
    if call.outcome in ("denied", "interrupted"):
        return call.outcome
    return "failed" if call.is_error else "done"


def _format_time(call: CallInfo) -> str:
    if call.is_open:
        return "waits" if call.asked and not call.answered else "runs"
    return format_seconds(call.end - call.start)

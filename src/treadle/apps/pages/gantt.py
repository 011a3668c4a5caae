"""Model calls and tool calls over time: what ran side by side, what waited for the user."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.apps.conversation.block_text import format_call_title
from treadle.apps.conversation.state.blocks import ToolCallBlock
from treadle.apps.conversation.tool_kinds import get_tool_kind
from treadle.apps.pages.blocks import format_seconds
from treadle.apps.pages.charts import draw_key
from treadle.apps.pages.elements import CALL_SIGNS, escape_html, render_icon
from treadle.apps.pages.timeline import CallInfo, RequestInfo
from treadle.lib.text.text import plural

ROW = 20
TOP = 24
MAX_ROWS = 60
TICKS = 6
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


def render_gantt(requests: Sequence[RequestInfo], calls: Sequence[CallInfo], chosen: int) -> str:
    """The chart of these requests and calls; `chosen` is the number of a request."""
    if not requests:
        return "<p>There is no model call yet.</p>"
    start = min(request.start for request in requests)
    end = max([request.end for request in requests] + [call.end for call in calls])
    if any(call.is_open for call in calls):
        end += (end - start) / 10  # room for what has not ended
    span = max(end - start, 0.1)
    shown, hidden = _choose_rows(calls, chosen), max(0, len(calls) - MAX_ROWS)
    height = TOP + ROW * (len(shown) + 1)
    scale = _Scale(start, span)
    parts = [*_draw_ticks(span, height), *_draw_band(requests, chosen, scale, height)]
    for request in requests:
        parts += _draw_request(request, scale)
    for row, call in enumerate(shown, 1):
        parts += _draw_call(call, TOP + ROW * row, scale)
    total = sum(request.seconds for request in requests)
    names = [_render_model_name(requests), *map(_render_call_name, shown)]
    times = [format_seconds(total), *map(_format_time, shown)]
    label = f"{plural(len(requests), 'model call')} and {plural(len(calls), 'tool call')} over time"
    more = f"<p>{hidden} more calls are not drawn</p>" if hidden else ""
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


class _Scale:
    def __init__(self, start: float, span: float) -> None:
        self._start = start
        self._span = span
        self.end = start + span

    def x(self, moment: float) -> float:
        return 100 * (moment - self._start) / self._span

    def draw(self, style: str, begin: float, end: float, y: float) -> str:
        width = max(0.3, self.x(end) - self.x(begin))
        return (
            f'<rect class="{style}" x="{self.x(begin):.2f}%" width="{width:.2f}%" '
            f'y="{y + 5:.0f}" height="10"/>'
        )


def _draw_ticks(span: float, height: int) -> list[str]:
    step = next((one for one in _STEPS if span / one <= TICKS), _STEPS[-1])
    parts: list[str] = []
    second = 0.0
    while second <= span:
        x = 100 * second / span
        text = f"{int(second) // 60}:{int(second) % 60:02}"
        parts.append(f'<line class="grid" x1="{x:.2f}%" x2="{x:.2f}%" y1="{TOP}" y2="{height}"/>')
        if x < 95:
            parts.append(f'<text x="{x:.2f}%" y="12">{text}</text>')
        second += step
    return parts


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


def _render_call_name(call: CallInfo) -> str:
    icon, colour, label = CALL_SIGNS[_find_state(call)]
    raw, is_edited = call.edited or call.call.raw, call.edited is not None
    block = ToolCallBlock(call.call.id, call.call.name, raw=raw, is_edited=is_edited)
    name, _, argument = format_call_title(block).partition(": ")
    return (
        f"<li>{render_icon(icon, label=label, style=colour)}<b>{escape_html(name)}</b>"
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

"""Looks into a session: its timeline, and what the model was sent at a step."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import msgspec

from treadle.apps.web.render.inspect import (
    SentView,
    find_request,
    render_inspect_page,
    render_marks,
    render_plots,
    render_position,
    render_sheet,
)
from treadle.core.compare import common_prefix_length
from treadle.core.transcript.transcript import Transcript
from treadle.sessions.history import load_view
from treadle.sessions.library import Library
from treadle.sessions.timeline import Timeline, read_timeline

MAX_KEPT = 4  # timelines


class StepParts(msgspec.Struct, frozen=True):
    """What changes in the page when another step is chosen, by the id of the element."""

    step: int
    marks: str
    at: str
    plots: str
    sheet: str


class Inspections:
    """The timelines of sessions that are looked at; one is read again when its log has grown."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._timelines: OrderedDict[Path, tuple[float, Timeline]] = OrderedDict()

    def render_page(self, session_id: str, step: int) -> str:
        path, timeline, step = self._find(session_id, step)
        summary = self._library.get_summary(path)
        return render_inspect_page(summary, timeline, step, self._load_sent(path, timeline, step))

    def render_step(self, session_id: str, step: int) -> StepParts:
        path, timeline, step = self._find(session_id, step)
        sheet = render_sheet(timeline, step, self._load_sent(path, timeline, step))
        marks, at = render_marks(timeline.steps, step), render_position(timeline, step)
        return StepParts(step, marks, at, render_plots(timeline, step), sheet)

    def _find(self, session_id: str, step: int) -> tuple[Path, Timeline, int]:
        path = self._library.find(session_id)
        updated = self._library.get_summary(path).updated
        known = self._timelines.get(path)
        if known is None or known[0] != updated:
            self._timelines[path] = known = (updated, read_timeline(path))
            self._timelines.move_to_end(path)
            if len(self._timelines) > MAX_KEPT:
                self._timelines.popitem(last=False)
        count = len(known[1].steps)
        return path, known[1], min(max(1, step or count), max(1, count))

    def _load_sent(self, path: Path, timeline: Timeline, step: int) -> SentView:
        request = find_request(timeline, step)
        if request is None:
            return SentView(())
        items = load_view(path, last_seq=request.view_seq).transcript
        before = Transcript()
        if request.number > 1:
            earlier = timeline.requests[request.number - 2]
            before = load_view(path, last_seq=earlier.view_seq).transcript
        return SentView(items, common_prefix_length(before, items, lambda one, two: one == two))

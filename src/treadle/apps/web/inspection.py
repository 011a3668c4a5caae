"""Looks into a session: its timeline, and what the model was sent at a step."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from treadle.apps.pages.compare import ComparedSession, render_compare_page
from treadle.apps.pages.gantt import AgentLane
from treadle.apps.pages.inspect import render_inspect_page, render_marks, render_position
from treadle.apps.pages.plots import ChartRange, find_request, render_plots
from treadle.apps.pages.sheet import ItemView, SentView, render_sheet
from treadle.apps.pages.timeline import RequestInfo, Timeline, read_timeline
from treadle.core.transcript.items import Item
from treadle.lib.sequences import common_prefix_length
from treadle.lib.text.text import format_cost
from treadle.sessions.children import list_children, make_child_session_id
from treadle.sessions.history import read_state
from treadle.sessions.library import Library
from treadle.sessions.log.reader import list_segments

MAX_KEPT = 4  # timelines
MAX_CHOICES = 200  # sessions to compare with
LogVersion = tuple[int, int, int]  # of a log: files, and size and time of the last one


class StepParts(msgspec.Struct, frozen=True):
    """What changes in the page when another step is chosen, by the id of the element."""

    step: int
    marks: str
    at: str
    plots: str
    sheet: str


class StepRequest(msgspec.Struct, frozen=True):
    """What a page shows of a step."""

    step: int = 0  # 0: the last one
    chart_range: ChartRange = "turn"
    view: ItemView = "sent"


class Inspections:
    """The timelines of sessions that are looked at; one is read again when its log has grown."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._timelines: OrderedDict[Path, tuple[LogVersion, Timeline]] = OrderedDict()
        self._lanes: dict[Path, Mapping[str, AgentLane]] = {}  # of the same sessions
        self._items: tuple[Path, LogVersion, Sequence[Item]] | None = None  # of the last session

    def render_page(self, session_id: str, wanted: StepRequest) -> str:
        path, timeline, step = self._find(session_id, wanted.step)
        sent = self._load_sent(path, timeline, step, wanted.view)
        summary = self._library.get_summary(path)
        lanes = self._lanes[path]
        return render_inspect_page(summary, timeline, step, sent, wanted.chart_range, lanes)

    def render_step(self, session_id: str, wanted: StepRequest) -> StepParts:
        path, timeline, step = self._find(session_id, wanted.step)
        sheet = render_sheet(timeline, step, self._load_sent(path, timeline, step, wanted.view))
        marks, at = render_marks(timeline.steps, step), render_position(timeline, step)
        plots = render_plots(timeline, step, wanted.chart_range, self._lanes[path])
        return StepParts(step, marks, at, plots, sheet)

    def render_comparison(self, session_id: str, other_id: str) -> str:
        """Two sessions side by side; without another one, a list to choose it from."""
        one = self._load_compared(session_id)
        if not other_id and one.summary.parent is not None:
            other_id = one.summary.parent.session
        others = [
            summary
            for summary in self._library.list_summaries(limit=MAX_CHOICES)
            if summary.turns and summary.id != one.summary.id
        ]
        other = self._load_compared(other_id) if other_id else None
        return render_compare_page(one, other, others)

    def _load_compared(self, session_id: str) -> ComparedSession:
        path, timeline, _ = self._find(session_id, 0)
        view = read_state(path)
        items = view.full_history
        return ComparedSession(self._library.get_summary(path), timeline, items)

    def _find(self, session_id: str, step: int) -> tuple[Path, Timeline, int]:
        path = self._library.find(session_id)
        version = _read_version(path)
        known = self._timelines.get(path)
        if known is None or known[0] != version:
            self._timelines[path] = known = (version, read_timeline(path))
            self._lanes[path] = _read_lanes(path, known[1])
            self._timelines.move_to_end(path)
            if len(self._timelines) > MAX_KEPT:
                del self._lanes[self._timelines.popitem(last=False)[0]]
        count = len(known[1].steps)
        return path, known[1], min(max(1, step or count), max(1, count))

    def _load_sent(self, path: Path, timeline: Timeline, step: int, kind: ItemView) -> SentView:
        request = find_request(timeline, step)
        if request is None:
            return SentView(())
        if kind == "transcript":
            return SentView(self._load_history(path, timeline, step), kind=kind)
        items = self._load_items(path, timeline, request)
        before: Sequence[Item] = ()
        if request.number > 1:
            before = self._load_items(path, timeline, timeline.requests[request.number - 2])
        shared = len(before) if timeline.is_append_only else common_prefix_length(before, items)
        return SentView(items, shared, kind)

    def _load_items(self, path: Path, timeline: Timeline, request: RequestInfo) -> Sequence[Item]:
        """What was sent with a request."""
        if timeline.is_append_only:
            return self._load_all(path)[: request.length]
        return read_state(path, last_seq=request.view_seq).transcript

    def _load_history(self, path: Path, timeline: Timeline, step: int) -> Sequence[Item]:
        """What a person saw at a step."""
        view = read_state(path, last_seq=timeline.steps[step - 1].seq)
        return view.full_history

    def _load_all(self, path: Path) -> Sequence[Item]:
        """All items of a session that was never rewritten, read once for all steps."""
        version = _read_version(path)
        if self._items is None or self._items[:2] != (path, version):
            self._items = (path, version, read_state(path).transcript)
        return self._items[2]


def _read_version(session_dir: Path) -> LogVersion:
    files = list_segments(session_dir)
    status = files[-1].stat()
    return len(files), status.st_size, status.st_mtime_ns


def _read_lanes(session_dir: Path, timeline: Timeline) -> dict[str, AgentLane]:
    """The sessions of the child agents, by their calls."""
    children = {one.name: one for one in list_children(session_dir)}
    lanes: dict[str, AgentLane] = {}
    for call in timeline.calls if children else ():
        child = children.get(make_child_session_id(session_dir.name, call.call.id))
        if child is not None:
            own = read_timeline(child)
            times = tuple((one.start, one.end) for one in own.requests)
            cost = format_cost(own.usage.cost, own.usage.known_cost)
            lanes[call.call.id] = AgentLane(child.name, times, cost)
    return lanes

"""A session as steps that a person can look at one by one: what happened when, and what it cost.

    steps      messages, model calls, rounds of calls, rewrites of the view, ends of turns
    requests   each model call: usage, times, and the entry before which the view was sent
    calls      each tool call: its times, its round, how it ended

Read from the log and from observe/timings. `read_state(session_dir, last_seq=request.view_seq)` of
sessions/history is what the model saw. Used by the pages.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from treadle.apps.pages.context_sizes import ContextCounter, ContextSizes
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.entries import (
    Entry,
    HeadRecorded,
    ItemAdded,
    NoticeShown,
    Rewound,
    TurnBegan,
    TurnEnded,
    Uncompacted,
    UsageRecorded,
    ViewRewritten,
)
from treadle.core.transcript.items import AssistantItem, CallOutcome, ToolResultItem, UserItem
from treadle.core.transcript.usage import NO_USAGE, Usage
from treadle.lib.garbage import paused_collector
from treadle.observe.timings import FILE_NAME, CallTiming, RequestTiming, Timing
from treadle.sessions.log.journal import read_records
from treadle.sessions.log.reader import list_lineage, read_header
from treadle.sessions.log.records import Record

StepKind = Literal["message", "request", "calls", "rewrite", "rewind", "end"]


class TimelineStep(msgspec.Struct, frozen=True):
    """One step. `seq` is its entry in the log; `request` is the last model call up to here."""

    number: int
    kind: StepKind
    seq: int
    time: float
    turn: int
    request: int = 0
    label: str = ""
    is_error: bool = False
    turn_id: str = ""


class RequestInfo(msgspec.Struct, frozen=True):
    """A model call. The view after entry `view_seq` was sent; `seq` is the reply."""

    number: int
    turn: int
    view_seq: int
    seq: int
    model: str
    usage: Usage
    start: float
    end: float
    first: float = 0.0  # the first token; 0: not known
    attempts: int = 1
    sizes: ContextSizes = ContextSizes()  # of what was sent
    length: int = 0  # items that were sent
    head: HeadRecorded | None = None  # what it began with
    step: int = 0  # the step of its reply

    @property
    def seconds(self) -> float:
        return max(0.0, self.end - self.start)

    @property
    def seconds_to_first(self) -> float | None:
        return max(0.0, self.first - self.start) if self.first else None


class CallInfo(msgspec.Struct, frozen=True):
    """A tool call of the reply of a request."""

    call: ToolCall
    request: int
    turn: int
    start: float
    end: float
    outcome: CallOutcome = "finished"
    is_error: bool = False
    is_open: bool = False  # it has no result
    asked: float = 0.0
    answered: float = 0.0  # 0 although it was asked: the question is open
    edited: str | None = None  # the arguments of the run, if the user edited the model's
    is_eager: bool = False  # it began before the reply was complete


class Timeline(msgspec.Struct, frozen=True):
    steps: tuple[TimelineStep, ...] = ()
    requests: tuple[RequestInfo, ...] = ()
    calls: tuple[CallInfo, ...] = ()
    is_append_only: bool = True  # what was sent is always the beginning of the history

    @property
    def usage(self) -> Usage:
        return sum((request.usage for request in self.requests), NO_USAGE)


def read_timeline(
    session_dir: Path, records: Iterable[tuple[Record, Entry]] | None = None
) -> Timeline:
    """The timeline of a session, from the beginning of its log. `records` are its entries, if they
    were changed, for example redacted."""
    timings = read_timings(session_dir)
    builder = _TimelineBuilder(
        [one for one in timings if isinstance(one, RequestTiming)],
        {one.call_id: one for one in timings if isinstance(one, CallTiming)},
    )
    with paused_collector():
        for record, entry in read_records(session_dir) if records is None else records:
            builder.add(record, entry)
    return builder.finish()


class _TimelineBuilder:
    def __init__(
        self, request_timings: list[RequestTiming], call_timings: dict[str, CallTiming]
    ) -> None:
        self._request_timings = request_timings
        self._next_timing = 0
        self._call_timings = call_timings
        self._steps: list[TimelineStep] = []
        self._requests: list[RequestInfo] = []
        self._open: dict[str, CallInfo] = {}
        self._calls: list[CallInfo] = []
        self._turn = 0
        self._turn_id = ""
        self._last = (0, 0.0)  # number and time of the last entry
        self._usage = NO_USAGE  # since the last reply
        self._context = ContextCounter()
        self._head: HeadRecorded | None = None
        self._is_append_only = True

    def add(self, record: Record, entry: Entry) -> None:
        if isinstance(entry, ViewRewritten | Rewound | Uncompacted):
            self._is_append_only = False
        self._add_to_timeline(record, entry)
        self._context.add(entry)

    def _add_to_timeline(self, record: Record, entry: Entry) -> None:
        match entry:
            case TurnBegan(turn_id=turn_id, continues=continues):
                self._turn += not continues
                self._turn_id = turn_id
            case ItemAdded(item=UserItem() as item):
                self._add_step("message", record, item.first_text)
            case ItemAdded(item=AssistantItem() as item):
                self._add_reply(record, item)
            case ItemAdded(item=ToolResultItem() as item):
                self._add_result(record, item)
            case UsageRecorded(usage=usage):
                self._usage += usage
                return  # written with the reply
            case HeadRecorded():
                self._head = entry  # before the reply of the request
                return
            case ViewRewritten(mutator=mutator, is_repair=False, start=start, stop=stop):
                if start < stop:  # otherwise notices were only added
                    self._add_step("rewrite", record, mutator)
            case Rewound():
                self._add_step("rewind", record, "rewound")
            case TurnEnded(reason=reason, detail=detail):
                is_error = reason not in ("end_turn", "aborted")
                label = f"{reason}: {detail}" if detail else reason
                self._add_step("end", record, label, is_error=is_error)
            case NoticeShown():
                return  # shown to the user only
            case _:
                pass
        self._last = (record.seq, record.time)

    def finish(self) -> Timeline:
        calls = [*self._calls, *self._open.values()]
        calls.sort(key=lambda call: (call.request, call.start))
        steps, requests = tuple(self._steps), tuple(self._requests)
        return Timeline(steps, requests, tuple(calls), self._is_append_only)

    def _add_step(
        self, kind: StepKind, record: Record, label: str, *, is_error: bool = False
    ) -> None:
        number, request = len(self._steps) + 1, len(self._requests)
        step = TimelineStep(
            number,
            kind,
            record.seq,
            record.time,
            self._turn,
            request,
            label[:200],
            is_error,
            self._turn_id,
        )
        self._steps.append(step)

    def _add_reply(self, record: Record, item: AssistantItem) -> None:
        view_seq, last_time = self._last
        usage, self._usage = self._usage, NO_USAGE
        timing = self._take_timing(record.time)
        start = timing.start if timing is not None else min(last_time or record.time, record.time)
        number = len(self._requests) + 1
        self._requests.append(
            RequestInfo(
                number,
                self._turn,
                view_seq,
                record.seq,
                item.model,
                usage if usage != NO_USAGE else item.usage,
                start,
                timing.end if timing is not None else record.time,
                timing.first if timing is not None else 0.0,
                timing.attempts if timing is not None else 1,
                self._context.sizes.with_head(self._head),
                self._context.length,
                self._head,
                len(self._steps) + 1,
            )
        )
        self._add_step("request", record, item.text)
        for call in item.calls:
            self._open[call.id] = self._start_call(call, number, record.time)
        if item.calls:
            names = ", ".join(call.name for call in item.calls)
            self._add_step("calls", record, names)

    def _take_timing(self, replied: float) -> RequestTiming | None:
        """The timing of the reply that was logged at this time: the last one that had begun."""
        found = None
        while self._next_timing < len(self._request_timings):
            timing = self._request_timings[self._next_timing]
            if timing.start > replied:
                break
            found = timing
            self._next_timing += 1
        return found

    def _start_call(self, call: ToolCall, request: int, replied: float) -> CallInfo:
        timing = self._call_timings.get(call.id)
        if timing is None:
            return CallInfo(call, request, self._turn, replied, replied, is_open=True)
        return CallInfo(
            call,
            request,
            self._turn,
            timing.start,
            max(timing.start, timing.end),
            asked=timing.asked,
            answered=timing.answered,
            is_eager=timing.start < self._requests[-1].end,
            is_open=True,
        )

    def _add_result(self, record: Record, item: ToolResultItem) -> None:
        call = self._open.pop(item.call_id, None)
        if call is None:
            return
        end = call.end if item.call_id in self._call_timings else record.time
        ended = msgspec.structs.replace(
            call,
            end=end,
            outcome=item.outcome,
            is_error=item.is_error,
            is_open=False,
            edited=item.edited_arguments,
        )
        self._calls.append(ended)
        if self._steps and self._steps[-1].kind == "calls":
            step = self._steps[-1]
            is_error = step.is_error or item.is_error
            self._steps[-1] = msgspec.structs.replace(
                step, seq=record.seq, time=record.time, is_error=is_error
            )


# --- times ----------------------------------------------------------------------------------


def read_timings(session_dir: Path) -> list[Timing]:
    """The timings of a session, oldest first; none for a session of an earlier version. A fork
    has those of its parent up to the time when it was made."""
    lineage = [path for path, _ in list_lineage(session_dir)]
    timings: list[Timing] = []
    for parent, child in itertools.pairwise(lineage):
        header = read_header(child)
        until = header.created if header is not None else 0.0
        timings += [one for one in _read_own_timings(parent) if one.start < until]
    return timings + _read_own_timings(session_dir)


def _read_own_timings(session_dir: Path) -> list[Timing]:
    try:
        return _decode_lines((session_dir / FILE_NAME).read_bytes())
    except OSError:
        return []


def _decode_lines(data: bytes) -> list[Timing]:
    timings: list[Timing] = []
    for line in data.splitlines():
        try:
            timings.append(_decode(line))
        except msgspec.DecodeError:
            continue  # the last line of a process that was killed
    return timings


def read_call_seconds(session_dir: Path) -> dict[str, float]:
    """How long each call took, by its id."""
    timings = (one for one in read_timings(session_dir) if isinstance(one, CallTiming))
    return {one.call_id: one.end - one.start for one in timings if one.end}


class TimingFollower:
    """How long each call took, by its id, of a session that another program writes. `asked` are the
    calls that it asked the user about."""

    def __init__(self, session_dir: Path) -> None:
        self._session_dir = session_dir
        self._end = 0
        self.seconds: dict[str, float] = {}
        self.asked: set[str] = set()

    def read_new(self) -> None:
        """Take over what was added since the last time."""
        file = self._session_dir / FILE_NAME
        if not file.exists():
            return
        with file.open("rb") as opened:
            opened.seek(self._end)
            data = opened.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._end += len(complete)
        for one in _decode_lines(complete):
            if isinstance(one, CallTiming) and one.end:
                self.seconds[one.call_id] = one.end - one.start
            elif isinstance(one, CallTiming):
                self.asked.add(one.call_id)


_decode = msgspec.json.Decoder(Timing).decode

"""When things happened: model calls with their first token, tool calls, waits for the user.

The log has the time of each entry, which is when something was finished. This file beside it has
the rest, for people who look into a session; nothing depends on it, and a process that is killed
loses its last lines. Read by apps/pages/timeline.py.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from treadle.core import events
from treadle.core.contracts.observer import BaseObserver
from treadle.core.events import Event
from treadle.core.transcript.usage import REPLY_PURPOSES

FILE_NAME = "timings.jsonl"
MAX_PENDING = 200


class RequestTiming(msgspec.Struct, frozen=True, tag="request", tag_field="k", gc=False):
    """A model call: seconds since 1970. `first` is the first text, thinking or call; 0: none."""

    start: float
    end: float
    first: float = 0.0
    attempts: int = 1


class CallTiming(
    msgspec.Struct, frozen=True, tag="call", tag_field="k", omit_defaults=True, gc=False
):
    """A tool call. `asked` and `answered`: the wait for an approval; 0: there was none. One whose
    question is open has no `end`; another line with all times follows."""

    call_id: str
    start: float
    end: float
    asked: float = 0.0
    answered: float = 0.0


Timing = RequestTiming | CallTiming
_STREAMED = (events.TextDelta, events.ThinkingDelta, events.ToolCallBegan)


class TimingRecorder(BaseObserver):
    """Writes the timings of a session at the end of each turn, or when many are pending."""

    def __init__(self, session_dir: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = session_dir / FILE_NAME
        self._clock = clock
        self._pending: list[Timing] = []
        self._request = self._first = 0.0
        self._attempts = 0
        self._started: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        self._answered: dict[str, float] = {}
        self._handlers: dict[type[Event], Callable[[Event], None]] = {
            events.RequestStarted: self._start_request,
            events.UsageUpdated: self._end_request,
            events.ToolStarted: self._start_call,
            events.ToolFinished: self._end_call,
            events.ApprovalRequired: self._ask,
            events.ApprovalResolved: self._resolve,
            events.TurnFinished: self._end_turn,
            events.RunFailed: self._end_turn,
        }

    def on_event(self, event: Event) -> None:
        kind = type(event)
        handle = self._handlers.get(kind)
        if handle is not None:
            handle(event)
        elif not self._first and kind in _STREAMED:
            self._first = self._clock()

    def _start_request(self, event: Event) -> None:
        if not self._request:
            self._request, self._attempts = self._clock(), 0
        self._first, self._attempts = 0.0, self._attempts + 1

    def _end_request(self, event: Event) -> None:
        if isinstance(event, events.UsageUpdated) and event.purpose not in REPLY_PURPOSES:
            return
        start, self._request = self._request, 0.0
        if start:
            self._pending.append(RequestTiming(start, self._clock(), self._first, self._attempts))

    def _start_call(self, event: Event) -> None:
        assert isinstance(event, events.ToolStarted)
        self._started[event.call_id] = self._clock()

    def _end_call(self, event: Event) -> None:
        assert isinstance(event, events.ToolFinished)
        now, call_id = self._clock(), event.call_id
        asked, answered = self._asked.pop(call_id, 0.0), self._answered.pop(call_id, 0.0)
        start = self._started.pop(call_id, answered or now)
        self._pending.append(CallTiming(call_id, start, now, asked, answered))
        if len(self._pending) >= MAX_PENDING:
            self._write()

    def _ask(self, event: Event) -> None:
        assert isinstance(event, events.ApprovalRequired)
        now, call_id = self._clock(), event.call.id
        self._asked[call_id] = now
        self._pending.append(CallTiming(call_id, now, 0.0, now))
        self._write()  # a person may look at the session while the question is open

    def _resolve(self, event: Event) -> None:
        assert isinstance(event, events.ApprovalResolved)
        self._answered[event.call_id] = self._clock()

    def _end_turn(self, event: Event) -> None:
        self._request = 0.0
        self._write()

    def _write(self) -> None:
        pending, self._pending = self._pending, []
        lines = b"".join(msgspec.json.encode(timing) + b"\n" for timing in pending)
        try:
            fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "ab") as file:
                file.write(lines)
        except OSError:
            pass  # a full disk: the log says so; these times are not needed

"""How long the calls of an open session took, also those of earlier processes."""

from __future__ import annotations

import time
from pathlib import Path

from treadle.core import events
from treadle.core.contracts.observer import BaseObserver
from treadle.core.events import Event
from treadle.sessions.timings import read_call_seconds


class CallTimes(BaseObserver):
    """Observes the driver; sessions/timings.py keeps the same on disk."""

    def __init__(self) -> None:
        self._started: dict[str, float] = {}
        self._seconds: dict[str, float] = {}

    def load(self, session_dir: Path) -> None:
        """Take over what earlier processes wrote."""
        self._seconds = {**read_call_seconds(session_dir), **self._seconds}

    def find(self, call_id: str) -> float | None:
        return self._seconds.get(call_id)

    def on_event(self, event: Event) -> None:
        if type(event) is events.ToolStarted:
            self._started[event.call_id] = time.monotonic()
        elif type(event) is events.ToolFinished:
            started = self._started.pop(event.call_id, None)
            if started is not None:
                self._seconds[event.call_id] = time.monotonic() - started

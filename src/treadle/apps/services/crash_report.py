"""Reports what happened to the calls that were running when the last process ended, in one line.

An Observer of a resumed session. The loop decides about each call (core/loop/tool_round.py); this
only tells the user.
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.core.contracts.observer import BaseObserver
from treadle.core.events import Event, ToolFinished
from treadle.core.transcript.entries import View
from treadle.core.transcript.items import CallOutcome
from treadle.core.transcript.pending import RunTools, pending

MAX_LABEL_CHARS = 60

_OUTCOMES: dict[CallOutcome, str] = {
    "unknown": "outcome unknown, not run again",
    "recovered": "was done, not run again",
}
_RERUN = "had not happened, run now"


class CrashReport(BaseObserver):
    """Notifies once all of these calls have a result; not at all if there were none."""

    def __init__(self, view: View, notify: Callable[[str], None]) -> None:
        move = pending(view.transcript)
        calls = move.calls if isinstance(move, RunTools) else ()
        # A damaged log may have intents of calls whose results are lost; those are not open.
        calls = tuple([call for call in calls if call.id in view.intents])
        self._open_call_ids = {call.id for call in calls}
        self._call_labels = {call.id: f"{call.name} {call.raw[:MAX_LABEL_CHARS]}" for call in calls}
        self._notify = notify
        self._outcomes: list[str] = []

    def on_event(self, event: Event) -> None:
        if type(event) is not ToolFinished or event.call_id not in self._open_call_ids:
            return
        self._open_call_ids.discard(event.call_id)
        label = self._call_labels.get(event.call_id, event.name)
        self._outcomes.append(f"{label}: {_OUTCOMES.get(event.outcome, _RERUN)}")
        if not self._open_call_ids:
            self._notify(f"calls open at the interruption: {'; '.join(self._outcomes)}")

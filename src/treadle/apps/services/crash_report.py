"""Reports what happened to the calls that were running when the last process ended, in one line.

An Observer of a resumed session. The loop decides about each call (core/loop/tool_round.py); this
only tells the user.
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.core.contracts.observer import BaseObserver
from treadle.core.events import Event, ToolFinished
from treadle.core.transcript.entries import View
from treadle.core.transcript.items import AssistantItem, CallOutcome
from treadle.core.transcript.transcript import Transcript

MAX_LABEL_CHARS = 60

_OUTCOMES: dict[CallOutcome, str] = {
    "unknown": "outcome unknown, not run again",
    "recovered": "was done, not run again",
}
_RERUN = "had not happened, run now"


class CrashReport(BaseObserver):
    """Notifies once all of these calls have a result; not at all if there were none."""

    def __init__(self, view: View, notify: Callable[[str], None]) -> None:
        self._open_call_ids = set(view.intents)
        self._call_labels = _label_calls(view.transcript, self._open_call_ids)
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


def _label_calls(transcript: Transcript, ids: set[str]) -> dict[str, str]:
    """Names and arguments of the calls, which are in the last reply."""
    for position in range(len(transcript) - 1, -1, -1):
        item = transcript[position]
        if isinstance(item, AssistantItem):
            calls = [call for call in item.calls if call.id in ids]
            return {call.id: f"{call.name} {call.raw[:MAX_LABEL_CHARS]}" for call in calls}
    return {}

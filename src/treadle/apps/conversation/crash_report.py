"""Reports what happened to the calls that were running when the last process ended, a line each.

An Observer of a resumed session. The loop decides about each call (core/loop/calls); this
only tells the user.
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.core.contracts.observer import BaseObserver
from treadle.core.events import Event, ToolFinished
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.items import CallOutcome
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.state import SessionState

MAX_LABEL_CHARS = 60

_OUTCOMES: dict[CallOutcome, str] = {
    "unknown": "It may or may not have finished. It was not started again.",
    "recovered": "It had finished. It was not started again.",
    "denied": "It had not happened. It was not started again.",
}
_RERUN = "It had not happened. It was started again."
_RESUMED = "The agent continued where it was."


class CrashReport(BaseObserver):
    """Notifies once all of these calls have a result; not at all if there were none."""

    def __init__(self, view: SessionState, notify: Callable[[str], None]) -> None:
        move = pending(view.transcript)
        calls = move.calls if isinstance(move, RunTools) else ()
        # A damaged log may have intents of calls whose results are lost; those are not open.
        calls = tuple([call for call in calls if call.id in view.intents])
        self._open_call_ids = {call.id for call in calls}
        self._descriptions = {call.id: _describe_call(call) for call in calls}
        self._notify = notify
        self._outcomes: list[str] = []

    def on_event(self, event: Event) -> None:
        if type(event) is not ToolFinished or event.call_id not in self._open_call_ids:
            return
        self._open_call_ids.discard(event.call_id)
        rerun = _RESUMED if event.name == "task" else _RERUN
        outcome = _OUTCOMES.get(event.outcome, rerun)
        self._outcomes.append(f"{self._descriptions[event.call_id]} {outcome}")
        if not self._open_call_ids:
            self._notify("\n".join(self._outcomes))


def _describe_call(call: ToolCall) -> str:
    command = (call.arguments or {}).get("command")
    kind, text = ("command", command) if isinstance(command, str) else (f"call of {call.name}", "")
    text = " ".join((text or call.raw).split())
    cut = "…" if len(text) > MAX_LABEL_CHARS else ""
    return f"This {kind} was running when the program stopped: {text[:MAX_LABEL_CHARS]}{cut}."

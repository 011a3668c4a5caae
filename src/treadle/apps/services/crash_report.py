"""What became of the calls that were under way when the last process ended, in one line.

An Observer of a session that was resumed. The loop concludes each such call (core/loop/calling);
here is only how a person is told.
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.core.events import Event, ToolFinished
from treadle.core.transcript.entries import View
from treadle.core.transcript.items import AssistantItem, Item
from treadle.core.transcript.transcript import Transcript

MAX_LABEL_CHARS = 60


class CrashReport:
    """Says its line when all of them are settled; nothing where there were none."""

    def __init__(self, view: View, notify: Callable[[str], None]) -> None:
        self._open_call_ids = set(view.intents)
        self._call_labels = _label_calls(view.transcript, self._open_call_ids)
        self._notify = notify
        self._outcomes: list[str] = []

    def on_event(self, event: Event) -> None:
        if type(event) is not ToolFinished or event.call_id not in self._open_call_ids:
            return
        self._open_call_ids.discard(event.call_id)
        named = self._call_labels.get(event.call_id, event.name)
        self._outcomes.append(f"{named}: {_describe_outcome(event.result)}")
        if not self._open_call_ids:
            self._notify(f"in doubt since the interruption: {'; '.join(self._outcomes)}")

    def on_item(self, position: int, item: Item) -> None:
        return None


def _describe_outcome(result: str) -> str:
    if result.startswith("Interrupted, outcome unknown"):
        return "outcome unknown, not run again"
    if result.startswith("Done before an interruption"):
        return "it was done, not run again"
    return "it had not happened, run now"


def _label_calls(transcript: Transcript, ids: set[str]) -> dict[str, str]:
    """The calls as a person reads them; they are in the last reply."""
    for position in range(len(transcript) - 1, -1, -1):
        item = transcript[position]
        if isinstance(item, AssistantItem):
            return {
                call.id: f"{call.name} {call.raw[:MAX_LABEL_CHARS]}"
                for call in item.calls
                if call.id in ids
            }
    return {}

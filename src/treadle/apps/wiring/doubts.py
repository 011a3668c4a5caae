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

SHOWN_CHARS = 60


class Doubts:
    """Says its line when all of them are settled; nothing where there were none."""

    def __init__(self, view: View, say: Callable[[str], None]) -> None:
        self._left = set(view.intents)
        self._calls = _named(view.transcript, self._left)
        self._say = say
        self._settled: list[str] = []

    def on_event(self, event: Event) -> None:
        if type(event) is not ToolFinished or event.call_id not in self._left:
            return
        self._left.discard(event.call_id)
        named = self._calls.get(event.call_id, event.name)
        self._settled.append(f"{named}: {_outcome(event.result)}")
        if not self._left:
            self._say(f"in doubt since the interruption: {'; '.join(self._settled)}")

    def on_item(self, position: int, item: Item) -> None:
        return None


def _outcome(result: str) -> str:
    if result.startswith("Interrupted, outcome unknown"):
        return "outcome unknown, not run again"
    if result.startswith("Done before an interruption"):
        return "it was done, not run again"
    return "it had not happened, run now"


def _named(transcript: Transcript, ids: set[str]) -> dict[str, str]:
    """The calls as a person reads them; they are in the last reply."""
    for position in range(len(transcript) - 1, -1, -1):
        item = transcript[position]
        if isinstance(item, AssistantItem):
            return {
                call.id: f"{call.name} {call.raw[:SHOWN_CHARS]}"
                for call in item.calls
                if call.id in ids
            }
    return {}

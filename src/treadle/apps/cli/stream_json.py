"""stream-json: every event and item of a run as a line on standard output, without keys.

The lines are those of observe/jsonlines (docs/events.md). What is added here is the program's: a
reader may be slow, and keys stay at home. Loaded only for a run that prints them.
"""

from __future__ import annotations

from treadle.apps.assembly.redaction import find_environment_secrets, redact, redact_for_display
from treadle.apps.cli.output import Stdout
from treadle.core import events
from treadle.core.events import Event
from treadle.core.transcript.items import Item
from treadle.observe.jsonlines import DELTA_EVENTS, ItemLine, encode_line, without_items

_MODEL_TEXT_EVENTS = (events.TextDelta, events.ThinkingDelta)


class StreamJsonWriter:
    """An observer that prints everything it is events."""

    def __init__(self, stdout: Stdout) -> None:
        self._stdout = stdout
        self._secrets = find_environment_secrets()
        self.session_id = ""

    def on_event(self, event: Event) -> None:
        if self._stdout.is_lagging and isinstance(event, DELTA_EVENTS):
            return
        line = encode_line(without_items(event)).decode()
        own = isinstance(event, _MODEL_TEXT_EVENTS)
        self._stdout.write_json(redact(self._secrets, line) if own else redact_for_display(line))

    def on_item(self, position: int, item: Item) -> None:
        line = encode_line(ItemLine(self.session_id, position, item)).decode()
        self._stdout.write_json(redact_for_display(line))

"""stream-json: every event and item of a run as a line on standard output, without keys.

The lines are those of observe/jsonlines (docs/events.md). What is added here is the program's: a
reader may be slow, and keys stay at home. Loaded only for a run that prints them.
"""

from __future__ import annotations

from treadle.apps.cli.output import Stdout
from treadle.apps.wiring.discretion import own_secrets, shown, without
from treadle.core import events as told
from treadle.core.events import Event
from treadle.core.transcript.items import Item
from treadle.observe.jsonlines import DELTAS, ItemLine, line_of, without_items

_OWN_WORDS = (told.TextDelta, told.ThinkingDelta)


class Lines:
    """An observer that prints everything it is told."""

    def __init__(self, out: Stdout) -> None:
        self._out = out
        self._secrets = own_secrets()
        self.session_id = ""

    def on_event(self, event: Event) -> None:
        if self._out.lags and isinstance(event, DELTAS):
            return
        line = line_of(without_items(event)).decode()
        own = isinstance(event, _OWN_WORDS)
        self._out.write_json(without(self._secrets, line) if own else shown(line))

    def on_item(self, position: int, item: Item) -> None:
        line = line_of(ItemLine(self.session_id, position, item)).decode()
        self._out.write_json(shown(line))

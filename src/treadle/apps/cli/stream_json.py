"""stream-json: every event and item of a run as one JSON line on stdout, without secrets.

The lines are those of observe/jsonlines (docs/events.md). A slow reader gets no deltas. A mutator
that changed nothing has no lines. Loaded only for a run that prints them.
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
    """An observer that prints all events and items."""

    def __init__(self, stdout: Stdout) -> None:
        self._stdout = stdout
        self._secrets = find_environment_secrets()
        self.session_id = ""
        self._begun: events.MutationStarted | None = None  # not printed yet

    def on_event(self, event: Event) -> None:
        begun, self._begun = self._begun, None
        if begun is not None and isinstance(event, events.MutationFinished) and not event.changed:
            return
        if begun is not None:
            self._print_event(begun)
        if isinstance(event, events.MutationStarted):
            self._begun = event
        else:
            self._print_event(event)

    def _print_event(self, event: Event) -> None:
        if self._stdout.is_lagging and isinstance(event, DELTA_EVENTS):
            return
        line = encode_line(without_items(event)).decode()
        # The model's own text is printed as it is, except for secrets of this process.
        is_model_text = isinstance(event, _MODEL_TEXT_EVENTS)
        line = redact(self._secrets, line) if is_model_text else redact_for_display(line)
        self._stdout.write_json(line)

    def on_item(self, position: int, item: Item) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            self._print_event(begun)
        line = encode_line(ItemLine(self.session_id, position, item)).decode()
        self._stdout.write_json(redact_for_display(line))

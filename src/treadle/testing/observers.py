"""Observers for tests: one that records, one that fails."""

from __future__ import annotations

from typing import TypeVar

from treadle.core.events import Event
from treadle.core.transcript.items import Item

EventT = TypeVar("EventT", bound=Event)


class RecordingObserver:
    """Records every event and every item, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.items: list[tuple[int, Item]] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def on_item(self, position: int, item: Item) -> None:
        self.items.append((position, item))

    def events_of(self, event_type: type[EventT]) -> list[EventT]:
        return [event for event in self.events if isinstance(event, event_type)]

    @property
    def event_names(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


class FailingObserver:
    """Raises at every event and item."""

    def __init__(self) -> None:
        self.call_count = 0

    def on_event(self, event: Event) -> None:
        self.call_count += 1
        raise RuntimeError("the observer is broken")

    def on_item(self, position: int, item: Item) -> None:
        raise RuntimeError("the observer is broken")

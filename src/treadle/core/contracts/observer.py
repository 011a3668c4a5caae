"""The contract of an observer: someone who is told.

Two channels. Events say what is happening and may be dropped by an observer that lags.
Items are the transcript itself: once for each one appended, in order, none left out; a
mutator's rewrite is not an append and shows as MutationFinished.
"""

from __future__ import annotations

from typing import Protocol

from treadle.core.events import Event
from treadle.core.transcript.items import Item


class Observer(Protocol):
    """Who is told.

    Promises: returns quickly; heavy work goes behind a queue of its own.
    It must not change anything. One that raises is warned about once, and the run goes on.
    """

    def on_event(self, event: Event) -> None: ...

    def on_item(self, position: int, item: Item) -> None: ...


class BaseObserver:
    """An observer that ignores everything. A subclass defines what it wants to see."""

    def on_event(self, event: Event) -> None:
        return None

    def on_item(self, position: int, item: Item) -> None:
        return None

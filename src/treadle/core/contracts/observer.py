"""The contract of an observer: receives events and items.

There are two channels. Events say what is happening; a slow observer may drop them. Items are the
transcript: one call for each appended item, in order, none left out. A rewrite by a mutator is not
an append; it shows as MutationFinished. Used by core/loop/emitter.py.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from treadle.core.events import Event
from treadle.core.transcript.items import Item


class Observer(Protocol):
    """Receives events and items.

    Promises: both methods return quickly; slow work belongs in a queue of the observer.
    An observer must not change anything. If it raises, the loop warns once and continues.
    One that wants only some events may have `kinds`, as BaseObserver has.
    """

    def on_event(self, event: Event) -> None: ...

    def on_item(self, position: int, item: Item) -> None: ...


class BaseObserver:
    """An observer that ignores everything. A subclass defines what it wants to see."""

    # The events that on_event gets; None: all. Pieces of text come by thousands.
    kinds: ClassVar[frozenset[type[Event]] | None] = None

    def on_event(self, event: Event) -> None:
        return None

    def on_item(self, position: int, item: Item) -> None:
        return None

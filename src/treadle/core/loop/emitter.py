"""Sends events to the observers in order, and each appended item once.

An observer that raises is reported once; the run continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from treadle.core.contracts.observer import Observer
from treadle.core.events import Event, WarningRaised
from treadle.core.transcript.items import Item


class Emitter:
    """Adds ids and a sequence number to events, and passes them to the observers."""

    def __init__(self, observers: Sequence[Observer], session_id: str) -> None:
        self._observers = list(observers)
        self._failed: set[int] = set()
        self.session_id = session_id
        self.turn_id = ""
        self.seq = 0

    def add(self, observer: Observer) -> None:
        self._observers.append(observer)

    def remove(self, observer: Observer) -> None:
        self._observers = [other for other in self._observers if other is not observer]

    def emit(self, kind: Callable[..., Event], *details: object) -> None:
        self.seq += 1
        if not self._observers:
            return
        event = kind(self.session_id, self.turn_id, self.seq, *details)
        for observer in self._observers:
            try:
                observer.on_event(event)
            except Exception as error:  # noqa: BLE001 - an observer never harms the run
                self._warn_once(observer, error)

    def emit_item(self, position: int, item: Item) -> None:
        for observer in self._observers:
            try:
                observer.on_item(position, item)
            except Exception as error:  # noqa: BLE001 - an observer never harms the run
                self._warn_once(observer, error)

    def _warn_once(self, observer: Observer, error: Exception) -> None:
        if id(observer) in self._failed:
            return
        self._failed.add(id(observer))
        name = type(observer).__name__
        self.emit(WarningRaised, f"observer {name} failed: {type(error).__name__}: {error}")

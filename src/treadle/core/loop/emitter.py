"""Sends events to the observers in order, and each appended item once.

An observer that raises is reported once; the run continues. What an observer causes by an action of
its own (an approval, say) is sent when all observers have got the event before it.
"""

from __future__ import annotations

from collections import deque
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
        self._is_sending = False
        self._waiting: deque[Callable[[Observer], None]] = deque()

    def add(self, observer: Observer) -> None:
        self._observers.append(observer)

    def remove(self, observer: Observer) -> None:
        self._observers = [other for other in self._observers if other is not observer]

    def emit(self, kind: Callable[..., Event], *details: object) -> None:
        self.seq += 1
        if not self._observers:
            return
        event = kind(self.session_id, self.turn_id, self.seq, *details)
        self._send(lambda observer: observer.on_event(event))

    def emit_item(self, position: int, item: Item) -> None:
        if self._observers:
            self._send(lambda observer: observer.on_item(position, item))

    def _send(self, notify: Callable[[Observer], None]) -> None:
        self._waiting.append(notify)
        if self._is_sending:
            return
        self._is_sending = True
        try:
            while self._waiting:
                notify = self._waiting.popleft()
                for observer in self._observers:
                    try:
                        notify(observer)
                    except Exception as error:  # noqa: BLE001 - an observer never harms the run
                        self._warn_once(observer, error)
        finally:
            self._is_sending = False

    def _warn_once(self, observer: Observer, error: Exception) -> None:
        if id(observer) in self._failed:
            return
        self._failed.add(id(observer))
        name = type(observer).__name__
        self.emit(WarningRaised, f"observer {name} failed: {type(error).__name__}: {error}")

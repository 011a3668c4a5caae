"""Sends events to the observers in order, and each appended item once.

An observer that raises is reported once; the run continues. What an observer causes by an action of
its own (an approval, say) is sent when all observers have got the event before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from treadle.core.contracts.observer import BaseObserver, Observer
from treadle.core.errors import error_text
from treadle.core.events import Event, WarningRaised
from treadle.core.loop.event_log import LOGGED_EVENTS, log_event
from treadle.core.transcript.items import Item
from treadle.lib.logger import logger

# An observer never harms the run. A cancellation of ours arrives at an await, and there is none
# here: one that an observer raises is its own (the result of a cancelled future, say).
OBSERVER_ERRORS = (Exception, asyncio.CancelledError)


class Emitter:
    """Adds ids and a sequence number to events, and passes them to the observers."""

    def __init__(self, observers: Sequence[Observer], session_id: str, agent: str = "") -> None:
        self._observers = list(observers)
        self._has_item_readers = any(map(_reads_items, observers))
        self.agent = agent  # its name
        self._failed: set[int] = set()
        self.session_id = session_id
        self.turn_id = ""
        self.seq = 0
        self._is_sending = False
        # What an observer causes is sent after what it was told: to all in the same order.
        self._waiting: deque[tuple[Event | None, Item | None, int]] = deque()

    def add(self, observer: Observer) -> None:
        self._observers.append(observer)
        self._has_item_readers = self._has_item_readers or _reads_items(observer)

    def remove(self, observer: Observer) -> None:
        self._observers = [other for other in self._observers if other is not observer]
        self._has_item_readers = any(map(_reads_items, self._observers))

    def emit(self, kind: Callable[..., Event], *details: object) -> None:
        self.seq += 1
        if kind in LOGGED_EVENTS and logger.isEnabledFor(LOGGED_EVENTS[kind][0]):
            log_event(kind, details, self.agent, self.session_id)
        if not self._observers:
            return
        event = kind(self.session_id, self.turn_id, self.seq, *details)
        if self._is_sending:
            self._waiting.append((event, None, 0))
            return
        self._is_sending = True
        try:
            for observer in self._observers:
                try:
                    observer.on_event(event)
                except OBSERVER_ERRORS as error:
                    self._warn_once(observer, error)
        finally:
            self._is_sending = False
        if self._waiting:
            self._send_waiting()

    def emit_item(self, position: int, item: Item) -> None:
        if self._has_item_readers:
            self._waiting.append((None, item, position))
            if not self._is_sending:
                self._send_waiting()

    def _send_waiting(self) -> None:
        self._is_sending = True
        try:
            while self._waiting:
                event, item, position = self._waiting.popleft()
                for observer in self._observers:
                    try:
                        if event is not None:
                            observer.on_event(event)
                        elif item is not None:
                            observer.on_item(position, item)
                    except OBSERVER_ERRORS as error:
                        self._warn_once(observer, error)
        finally:
            self._is_sending = False

    def _warn_once(self, observer: Observer, error: BaseException) -> None:
        if id(observer) in self._failed:
            return
        self._failed.add(id(observer))
        name = type(observer).__name__
        self.emit(WarningRaised, f"observer {name} failed: {error_text(error)}")
        logger.debug("where observer %s failed", name, exc_info=error)


def _reads_items(observer: Observer) -> bool:
    on_item = getattr(observer, "on_item", None)
    return getattr(on_item, "__func__", None) is not BaseObserver.on_item

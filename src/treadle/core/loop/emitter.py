"""Sends events to the observers in order, and each appended item once; logs those that a log needs.

An observer that raises is reported once; the run continues. What an observer causes by an action of
its own (an approval, say) is sent when all observers have got the event before it. The log:

    ERROR     a turn failed; a tool raised an error
    WARNING   something is wrong, but the run continues; another model is used
    INFO      a model call is repeated; another model was chosen
    DEBUG     turns, requests and calls: names and counts, no content of the conversation
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from treadle.core import events
from treadle.core.contracts.observer import BaseObserver, Observer
from treadle.core.errors import error_message, error_text
from treadle.core.events import Event
from treadle.core.transcript.items import Item
from treadle.lib.logger import logger
from treadle.lib.tasks import await_contained

T = TypeVar("T")
_LogLine = tuple[int, str]
_Route = tuple[tuple[Observer, ...], _LogLine | None]  # who wants an event, and how it is logged

# The level, and the text with the details of the event by their positions.
LOGGED_EVENTS: Final[Mapping[Callable[..., Event], _LogLine]] = {
    events.RunFailed: (logging.ERROR, "the turn failed: {1}: {0}"),
    events.WarningRaised: (logging.WARNING, "{0}"),
    events.ModelChanged: (logging.WARNING, "{1} is used instead of {0}: {2}"),
    events.RetryScheduled: (logging.INFO, "attempt {0} failed, the next is in {1:.1f} s: {2}"),
    events.TurnStarted: (logging.DEBUG, "a turn starts"),
    events.RequestStarted: (logging.DEBUG, "request to {0}, attempt {1}"),
    events.ToolStarted: (logging.DEBUG, "call {0} of {1} starts"),
    events.ToolFinished: (logging.DEBUG, "call {0} of {1} ended"),
    events.TurnFinished: (logging.DEBUG, "the turn ended: {0.reason}"),
}


class Emitter:
    """Adds ids and a sequence number to events, and passes them to the observers."""

    def __init__(self, observers: Sequence[Observer], session_id: str, agent: str = "") -> None:
        self._observers = list(observers)
        self._routes: dict[Callable[..., Event], _Route] = {}  # by kind
        self.has_item_readers = any(map(_reads_items, observers))
        self.agent = agent  # its name
        self._failed: list[Observer] = []
        self.session_id = session_id
        self.turn_id = ""
        self.seq = 0
        self._is_sending = False
        # What an observer causes is sent after what it was told: to all in the same order.
        self._waiting: list[tuple[Event | None, Item | None, int]] = []

    def add(self, observer: Observer) -> None:
        self._observers.append(observer)
        self._routes = {}
        self.has_item_readers = self.has_item_readers or _reads_items(observer)

    def remove(self, observer: Observer) -> None:
        self._observers = [other for other in self._observers if other is not observer]
        self._routes = {}
        self._failed = [other for other in self._failed if other is not observer]
        self.has_item_readers = any(map(_reads_items, self._observers))

    def emit(self, kind: Callable[..., Event], *details: object) -> None:
        self.seq = seq = self.seq + 1
        listeners, logged = self._routes.get(kind) or self._find_route(kind)
        if logged is not None and logger.isEnabledFor(logged[0]):
            level, text = logged
            is_choice = kind is events.ModelChanged and details[-1] is True
            self._log(logging.INFO if is_choice else level, text, details)
        if not listeners:
            return
        event = kind(self.session_id, self.turn_id, seq, *details)
        if self._is_sending:
            self._waiting.append((event, None, 0))
            return
        self._is_sending = True
        try:
            for observer in listeners:
                try:
                    observer.on_event(event)
                except BaseException as error:  # noqa: BLE001 - it never harms the run
                    self._warn_once(observer, error)
        finally:
            self._is_sending = False
        if self._waiting:
            self._send_waiting()

    def emit_item(self, position: int, item: Item) -> None:
        self._waiting.append((None, item, position))
        if not self._is_sending:
            self._send_waiting()

    def await_contained(
        self, work: Awaitable[T], who: str, timeout: float | None = None
    ) -> Awaitable[T]:
        """Await code of others (lib/tasks.py); a warning tells of code that does not stop."""
        problem = f"{who} does not stop; it was abandoned"
        return await_contained(work, timeout, lambda: self.emit(events.WarningRaised, problem))

    def _send_waiting(self) -> None:
        self._is_sending = True
        try:
            while self._waiting:
                event, item, position = self._waiting.pop(0)
                readers = self._observers if event is None else self._find_route(type(event))[0]
                for observer in readers:
                    try:
                        if event is not None:
                            observer.on_event(event)
                        elif item is not None:
                            observer.on_item(position, item)
                    except BaseException as error:  # noqa: BLE001 - it never harms the run
                        self._warn_once(observer, error)
        finally:
            self._is_sending = False

    def _find_route(self, kind: Callable[..., Event]) -> _Route:
        if kind not in self._routes:
            wanted = [(one, getattr(one, "kinds", None)) for one in self._observers]
            listeners = [one for one, kinds in wanted if kinds is None or kind in kinds]
            self._routes[kind] = tuple(listeners), LOGGED_EVENTS.get(kind)
        return self._routes[kind]

    def _warn_once(self, observer: Observer, error: BaseException) -> None:
        """A cancellation of ours arrives at an await, and an observer has none: one that it raises
        is its own (the result of a cancelled future, say)."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        if any(observer is other for other in self._failed):
            return
        self._failed.append(observer)
        name = type(observer).__name__
        self.emit(events.WarningRaised, f"observer {name} failed: {error_text(error)}")
        logger.debug("where observer %s failed", name, exc_info=error)

    def log_fault(self, who: str, error: BaseException) -> events.ToolFault:
        """Log an error in code of others with its traceback; the same for an event."""
        from traceback import format_exception  # rarely needed

        trace = "".join(format_exception(error))
        if logger.isEnabledFor(logging.ERROR):
            self._log(logging.ERROR, "{} failed: {}\n{}", (who, error_text(error), trace))
        return events.ToolFault(type(error).__name__, error_message(error), trace)

    def _log(self, level: int, text: str, details: tuple[object, ...]) -> None:
        """Secrets of the environment are redacted."""
        from treadle.lib.text.redaction import find_secrets, redact  # not for every start

        message = redact(find_secrets(os.environ), text.format(*details))
        who = f"session {self.session_id}"
        logger.log(level, "%s: %s", f"{self.agent}, {who}" if self.agent else who, message)


def _reads_items(observer: Observer) -> bool:
    on_item = getattr(observer, "on_item", None)
    return getattr(on_item, "__func__", None) is not BaseObserver.on_item

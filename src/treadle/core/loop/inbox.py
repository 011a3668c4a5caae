"""The inbox: messages and notices that wait for their place in the transcript.

A host may add a message at any time (steering); background tasks add notices. The driver accepts
them in order at the next legal point. While they wait they are in the log, so that a crash loses
none.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from treadle.core.contracts.hook import AddContext, Block
from treadle.core.events import InputAccepted, MessageDropped, WarningRaised
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.hooks import Hooks
from treadle.core.loop.session_state import SessionState
from treadle.core.transcript.entries import Entry, InputDropped, InputMoved, InputQueued
from treadle.core.transcript.items import NoticeItem, UserItem

TASK = "task"  # the kind of a notice: the report of a background task
CONTINUED = "continued"  # the kind of a notice: the user continues an interrupted turn
CONTINUED_TEXT = "The user continues the turn. Go on where it stopped."
REPORTS_TEXT = "Background tasks have ended; the notices above are their reports. Continue."


class WaitingItem(msgspec.Struct, frozen=True):
    """An item of the queue; `id` is valid in this process."""

    item: UserItem | NoticeItem
    is_logged: bool
    id: str


class Inbox:
    def __init__(
        self, queued: Iterable[UserItem | NoticeItem], write_entry: Callable[[Entry], None]
    ) -> None:
        self._queue = deque(WaitingItem(item, True, _make_message_id()) for item in queued)
        self._write_entry = write_entry

    def put(self, item: UserItem | NoticeItem, *, is_busy: bool = True) -> str:
        """Add an item; returns its id. It is logged while it waits; an idle agent accepts it at
        once."""
        must_log = is_busy or any(waiting.is_logged for waiting in self._queue)
        if must_log:
            self.log_waiting()  # those before it come first in the log, too
            self._write_entry(InputQueued(item))
        waiting = WaitingItem(item, must_log, _make_message_id())
        self._queue.append(waiting)
        return waiting.id

    def log_waiting(self) -> None:
        """Log what waits and is not in the log yet."""
        for waiting in self._queue:
            if not waiting.is_logged:
                self._write_entry(InputQueued(waiting.item))
        self._queue = deque(WaitingItem(one.item, True, one.id) for one in self._queue)

    def accept_first(self) -> None:
        """The first item has entered the transcript."""
        self._queue.popleft()

    def drop_first(self) -> None:
        """The first item was refused."""
        if self._queue.popleft().is_logged:
            self._write_entry(InputDropped())

    def withdraw(self, message: str | UserItem) -> str:
        """Remove a message that waits, given by its id or as the item; returns its id, "" if it is
        not there (any more)."""
        for index, waiting in enumerate(self._queue):
            if message == waiting.id or message is waiting.item:
                if waiting.is_logged:
                    self._write_entry(InputDropped(index))
                del self._queue[index]
                return waiting.id
        return ""

    def move(self, message: str | UserItem, by: int) -> bool:
        """Move a message that waits by some places among the messages; False if it is not there."""
        places = [place for place, one in enumerate(self._queue) if isinstance(one.item, UserItem)]
        for position, index in enumerate(places):
            waiting = self._queue[index]
            if message == waiting.id or message is waiting.item:
                to = places[max(0, min(position + by, len(places) - 1))]
                if to != index:
                    self.log_waiting()  # the log has to know what is moved
                    self._write_entry(InputMoved(index, to))
                    waiting = self._queue[index]
                    del self._queue[index]
                    self._queue.insert(to, waiting)
                return True
        return False

    @property
    def first(self) -> WaitingItem | None:
        return self._queue[0] if self._queue else None

    @property
    def has_message(self) -> bool:
        """Whether the user wants a turn; notices of tasks and hooks do not begin one."""
        items = (waiting.item for waiting in self._queue)
        return any(isinstance(item, UserItem) or item.kind == CONTINUED for item in items)

    @property
    def has_report(self) -> bool:
        """Whether the report of a background task waits."""
        items = (waiting.item for waiting in self._queue)
        return any(isinstance(item, NoticeItem) and item.kind == TASK for item in items)

    @property
    def waiting(self) -> tuple[WaitingItem, ...]:
        return tuple(self._queue)

    @property
    def queued(self) -> tuple[UserItem | NoticeItem, ...]:
        return tuple([waiting.item for waiting in self._queue])


def _make_message_id() -> str:
    return f"msg_{os.urandom(6).hex()}"


class InputAcceptor:
    def __init__(self, inbox: Inbox, hooks: Hooks, session: SessionState, emitter: Emitter) -> None:
        self._inbox = inbox
        self._hooks = hooks
        self._session = session
        self._emitter = emitter

    async def accept_queued(self) -> str:
        """Append every waiting item in order; why a hook refused the last that it refused."""
        last_refusal = ""
        while (waiting := self._inbox.first) is not None:
            item = waiting.item
            refusal: str | None = None
            added: list[str] = []
            if isinstance(item, UserItem) and self._hooks.has("user_prompt_submit"):
                refusal, added = await self._run_prompt_hooks(item)
                if self._inbox.first is not waiting:
                    continue  # withdrawn meanwhile
            if refusal is not None:
                self._inbox.drop_first()
                last_refusal = refusal
                self._emitter.emit(WarningRaised, f"a hook refused the message: {refusal}")
                self._emitter.emit(MessageDropped, waiting.id, "refused")
                continue
            self._session.append(item)
            self._inbox.accept_first()
            if isinstance(item, UserItem):
                self._emitter.emit(InputAccepted, item, waiting.id)
            for text in added:
                self._session.append(NoticeItem(text, kind="hook"))
        return last_refusal

    async def _run_prompt_hooks(self, item: UserItem) -> tuple[str | None, list[str]]:
        added: list[str] = []
        for answer in await self._hooks.run("user_prompt_submit", {"prompt": item.text}):
            if isinstance(answer, Block):
                return answer.reason, []
            if isinstance(answer, AddContext):
                added.append(answer.text)
        return None, added

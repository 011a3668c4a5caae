"""The inbox: messages and notices that wait for their place in the transcript.

A host may add a message at any time (steering); background tasks add notices. The driver accepts
them in order at the next legal point. While they wait they are in the log, so that a crash loses
none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from treadle.core.contracts.hook import AddContext, Block
from treadle.core.events import InputAccepted, WarningRaised
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.hooks import Hooks
from treadle.core.loop.session_state import SessionState
from treadle.core.transcript.entries import Entry, InputDropped, InputQueued
from treadle.core.transcript.items import NoticeItem, UserItem

CONTINUED = "continued"  # the kind of a notice: the user continues an interrupted turn
CONTINUED_TEXT = "The user continues the turn. Go on where it stopped."


class Inbox:
    def __init__(
        self, queued: Iterable[UserItem | NoticeItem], write_entry: Callable[[Entry], None]
    ) -> None:
        self._queue = deque((item, True) for item in queued)  # and whether it is in the log
        self._write_entry = write_entry

    def put(self, item: UserItem | NoticeItem, *, is_busy: bool = True) -> None:
        """Add an item. It is logged while it waits; an idle agent accepts it at once."""
        must_log = is_busy or any(is_logged for _, is_logged in self._queue)
        if must_log:
            self._write_entry(InputQueued(item))
        self._queue.append((item, must_log))

    def log_waiting(self) -> None:
        """Log what waits and is not in the log yet: the process ends before it was accepted."""
        for item, is_logged in self._queue:
            if not is_logged:
                self._write_entry(InputQueued(item))
        self._queue = deque((item, True) for item, _ in self._queue)

    def accept_first(self) -> None:
        """The first item has entered the transcript."""
        self._queue.popleft()

    def drop_first(self) -> None:
        """The first item was refused."""
        _, is_logged = self._queue.popleft()
        if is_logged:
            self._write_entry(InputDropped())

    def withdraw(self, item: UserItem) -> bool:
        """Remove a message that waits; False if it is not there (any more)."""
        for index, (queued, is_logged) in enumerate(self._queue):
            if queued is item:
                if is_logged:
                    before = [logged for _, logged in self._queue][:index]
                    self._write_entry(InputDropped(sum(before)))
                del self._queue[index]
                return True
        return False

    @property
    def first(self) -> UserItem | NoticeItem | None:
        return self._queue[0][0] if self._queue else None

    @property
    def has_message(self) -> bool:
        """Whether the user wants a turn; notices of tasks and hooks do not begin one."""
        return any(isinstance(item, UserItem) or item.kind == CONTINUED for item, _ in self._queue)

    @property
    def queued(self) -> tuple[UserItem | NoticeItem, ...]:
        return tuple([item for item, _ in self._queue])


class InputAcceptor:
    def __init__(self, inbox: Inbox, hooks: Hooks, session: SessionState, emitter: Emitter) -> None:
        self._inbox = inbox
        self._hooks = hooks
        self._session = session
        self._emitter = emitter

    async def accept_queued(self) -> bool:
        """Append every waiting item in order; whether a hook refused one."""
        has_refused = False
        while (item := self._inbox.first) is not None:
            refusal: str | None = None
            added: list[str] = []
            if isinstance(item, UserItem) and self._hooks.has("user_prompt_submit"):
                refusal, added = await self._run_prompt_hooks(item)
                if self._inbox.first is not item:
                    continue  # withdrawn meanwhile
            if refusal is not None:
                self._inbox.drop_first()
                has_refused = True
                self._emitter.emit(WarningRaised, f"a hook refused the message: {refusal}")
                continue
            self._session.append(item)
            self._inbox.accept_first()
            if isinstance(item, UserItem):
                self._emitter.emit(InputAccepted, item)
            for text in added:
                self._session.append(NoticeItem(text, kind="hook"))
        return has_refused

    async def _run_prompt_hooks(self, item: UserItem) -> tuple[str | None, list[str]]:
        added: list[str] = []
        for answer in await self._hooks.run("user_prompt_submit", {"prompt": item.text}):
            if isinstance(answer, Block):
                return answer.reason, []
            if isinstance(answer, AddContext):
                added.append(answer.text)
        return None, added

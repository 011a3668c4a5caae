"""The inbox: messages and notices that wait for their place in the transcript.

A host may add a message at any time (steering); background tasks add notices. The driver accepts
them in order at the next legal point. While they wait they are in the log, so that a crash loses
none.
"""

from __future__ import annotations

import os

import msgspec

from treadle.core.contracts.hook import AddContext, Block
from treadle.core.events import InputAccepted, MessageDropped, WarningRaised
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.hooks import Hooks
from treadle.core.loop.loop_session import LoopSession
from treadle.core.transcript.entries import InputDropped, InputMoved, InputQueued
from treadle.core.transcript.items import NoticeItem, UserItem
from treadle.core.transcript.state import QueuedMessage

TASK = "task"  # the kind of a notice: the report of a background task
CONTINUED = "continued"  # the kind of a notice: the user continues an interrupted turn
CONTINUED_TEXT = "The user continues the turn. Go on where it stopped."
REPORTS_TEXT = "Background tasks have ended; the notices above are their reports. Continue."


class Refusal(msgspec.Struct, frozen=True):
    """Why a hook refused a message; `is_offer`: it was that of a run."""

    reason: str
    is_offer: bool


class Inbox:
    """The messages that wait: those of the log, and those that a run or a retry offers, which are
    in the transcript once their turn begins, or nowhere."""

    def __init__(self, session: LoopSession) -> None:
        self._session = session
        self._offers: list[QueuedMessage] = []

    def put(self, item: UserItem | NoticeItem) -> str:
        """Queue an item; returns its id."""
        message_id = make_message_id()
        self._session.write(InputQueued(item, message_id))
        return message_id

    def offer(self, item: UserItem | NoticeItem) -> None:
        """Let the next turn begin with the item, with a notice only once. Nothing is logged
        before."""
        if isinstance(item, UserItem) or all(one.item != item for one in self._offers):
            self._offers.append(QueuedMessage(make_message_id(), item))

    def withdraw_offers(self) -> None:
        self._offers.clear()

    def keep_offers(self) -> None:
        """Queue the offered messages: their turn begins in another process."""
        for offered in self._offers:
            if isinstance(offered.item, UserItem):
                self._session.write(InputQueued(offered.item, offered.id))
        self._offers.clear()

    def accept(self, message: QueuedMessage) -> None:
        """The message enters the transcript."""
        if message in self._offers:
            self._offers.remove(message)
        self._session.append(message.item, message.id)

    def drop(self, message: QueuedMessage) -> None:
        """The message does not enter the transcript."""
        if message in self._offers:
            self._offers.remove(message)
        else:
            self._session.write(InputDropped(message_id=message.id))

    def find(self, message: str | UserItem) -> QueuedMessage | None:
        """A message that waits, by its id or as the item."""
        return next((one for one in self.waiting if message == one.id or message is one.item), None)

    def move(self, message: QueuedMessage, by: int) -> None:
        """Move a queued message by some places among the messages."""
        queued = self._session.state.queued
        places = [place for place, one in enumerate(queued) if isinstance(one.item, UserItem)]
        for position, index in enumerate(places):
            if queued[index] is message:
                to = places[max(0, min(position + by, len(places) - 1))]
                if to != index:
                    self._session.write(InputMoved(index, to, message.id))

    @property
    def is_empty(self) -> bool:
        return not self._offers and not self._session.state.queued

    @property
    def waiting(self) -> tuple[QueuedMessage, ...]:
        return (*self._session.state.queued, *self._offers)

    @property
    def has_message(self) -> bool:
        """Whether the user wants a turn; notices of tasks and hooks do not begin one."""
        items = (waiting.item for waiting in self.waiting)
        return any(isinstance(item, UserItem) or item.kind == CONTINUED for item in items)

    @property
    def has_report(self) -> bool:
        """Whether the report of a background task waits."""
        items = (waiting.item for waiting in self.waiting)
        return any(isinstance(item, NoticeItem) and item.kind == TASK for item in items)

    async def accept_all(self, hooks: Hooks, emitter: Emitter) -> Refusal | None:
        """Append every waiting item in order; the last message that a hook refused."""
        refused: Refusal | None = None
        while messages := self.waiting:
            waiting = messages[0]
            item = waiting.item
            added: list[str] = []
            if isinstance(item, UserItem) and hooks.has("user_prompt_submit"):
                answers = await hooks.run("user_prompt_submit", {"prompt": item.text})
                if waiting not in self.waiting:
                    continue  # withdrawn meanwhile
                if answers and isinstance(answers[-1], Block):
                    reason = answers[-1].reason
                    refused = Refusal(reason, waiting in self._offers)
                    self.drop(waiting)
                    emitter.emit(WarningRaised, f"a hook refused the message: {reason}")
                    emitter.emit(MessageDropped, waiting.id, "refused")
                    continue
                added = [answer.text for answer in answers if isinstance(answer, AddContext)]
            self.accept(waiting)
            if isinstance(item, UserItem):
                emitter.emit(InputAccepted, item, waiting.id)
            for text in added:
                self._session.append(NoticeItem(text, kind="hook"))
        return refused


def make_message_id() -> str:
    return f"msg_{os.urandom(6).hex()}"

"""`/queue` as questions with numbered answers, for any frontend.

The full screen has a list with keys of its own instead: widgets/queue_list.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from treadle.apps.conversation.choice_option import ChoiceOption
from treadle.apps.conversation.conversation import Conversation
from treadle.apps.conversation.state.blocks import Tone
from treadle.core.transcript.items import UserItem

MAX_LABEL_CHARS = 300
NO_MESSAGE = "no message is queued"
QUEUE_CHANGED = "the queue has changed, so its list was closed"

ACTIONS = (
    ChoiceOption("edit", "Edit", key="e"),
    ChoiceOption("remove", "Remove", key="r"),
    ChoiceOption("earlier", "Move up", key="u"),
    ChoiceOption("later", "Move down", key="d"),
)


class QueueFrontend(Protocol):
    """What the menu needs of a frontend."""

    @property
    def conversation(self) -> Conversation: ...

    @property
    def choose(self) -> Callable[..., Awaitable[str | None]]: ...

    def show_message(self, text: str, tone: Tone = "plain") -> None: ...

    def edit_messages(self, items: Sequence[UserItem]) -> None: ...


def list_options(queued: Sequence[UserItem]) -> list[ChoiceOption]:
    """An option for each queued message; its value is the position."""
    labels = (" ".join(item.text[:MAX_LABEL_CHARS].split()) for item in queued)
    return [ChoiceOption(str(number), label or "(image)") for number, label in enumerate(labels)]


async def edit_queue(ui: QueueFrontend) -> None:
    """Ask for a message and what to do with it."""
    queued = ui.conversation.list_queued()
    if not queued:
        ui.show_message(NO_MESSAGE)
        return
    # The list is closed when it is out of date: a message was accepted, or taken back.
    choosing = asyncio.ensure_future(_choose(ui, queued))
    changing = asyncio.ensure_future(ui.conversation.wait_for_queue_change())
    try:
        await asyncio.wait((choosing, changing), return_when=asyncio.FIRST_COMPLETED)
        if not choosing.done():
            ui.show_message(QUEUE_CHANGED)
            return
        item, action = choosing.result()
    finally:
        choosing.cancel()
        changing.cancel()
    if item is None:
        return
    match action:
        case "earlier" | "later":
            ui.conversation.move_queued(item, -1 if action == "earlier" else 1)
        case "edit" if ui.conversation.withdraw(item):
            ui.edit_messages([item])
        case "remove":
            ui.conversation.withdraw(item)


async def _choose(ui: QueueFrontend, queued: Sequence[UserItem]) -> tuple[UserItem | None, str]:
    chosen = await ui.choose("Queued messages", list_options(queued))
    if chosen is None:
        return None, ""
    return queued[int(chosen)], await ui.choose("What to do with this message?", ACTIONS) or ""

"""The list of queued messages: e edits, r removes, shift+up and shift+down move.

It stays open while messages are moved and removed, and follows the queue. If the message at the
cursor is accepted meanwhile, the list is closed: the next key would be for another message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.text import Text
from textual import events

from treadle.apps.conversation.commands.sessions import list_queued_options
from treadle.apps.conversation.conversation import Conversation
from treadle.apps.tui.render.palette import Palette
from treadle.apps.tui.widgets.choices import Choices
from treadle.core.transcript.items import UserItem

HINT = "e edit · r remove · shift+↑ shift+↓ move · esc closes"
SHORT_HINT = "e edit · r remove · shift+↑↓ move · esc"
EDIT, CHANGED = "edit", "changed"  # the values that close it
_REMOVE_KEYS = ("r", "delete", "backspace")
_MOVES = {"shift+up": -1, "shift+down": 1, "alt+up": -1, "alt+down": 1}


class QueueList(Choices):
    """Selected has EDIT (with `item` to edit), CHANGED, or None. `on_removed` gets a message that
    the user removed."""

    def __init__(
        self,
        conversation: Conversation,
        palette: Palette,
        on_removed: Callable[[UserItem], None],
    ) -> None:
        self._conversation = conversation
        self._on_removed = on_removed
        self._items = conversation.list_queued()
        super().__init__("Queued messages", list_queued_options(self._items), palette, hint=HINT)

    @property
    def item(self) -> UserItem:
        """The message at the cursor."""
        return self._items[self.cursor]

    def _build_lines(self, width: int, height: int) -> list[Text]:
        self.title = f"Queued messages, {self.cursor + 1} of {len(self._items)}"
        self._hint = HINT if len(HINT) <= width else SHORT_HINT
        return super()._build_lines(width, height)

    def has_answer(self, character: str) -> bool:
        return character in ("e", "r") or super().has_answer(character)

    def mark(self, character: str) -> bool:
        return character not in ("e", "r") and super().mark(character)

    def _handle_key(self, event: events.Key) -> bool:
        if event.key in ("e", "enter"):
            self.post_message(self.Selected(EDIT))
        elif event.key in _REMOVE_KEYS:
            self._remove(self.item)
        elif event.key in _MOVES:
            self._conversation.move_queued(self.item, _MOVES[event.key])
            self.update_queue()
        else:
            return super()._handle_key(event)
        return True

    def _remove(self, item: UserItem) -> None:
        neighbours = self._items[self.cursor + 1 :] or self._items[: self.cursor][-1:]
        if self._conversation.withdraw(item):
            self._on_removed(item)
        queued = self._conversation.list_queued()
        if queued or neighbours:
            self._show(queued, neighbours[0] if neighbours else None)
        else:
            self.post_message(self.Selected(None))

    def update_queue(self) -> None:
        """The queue may have changed."""
        queued = self._conversation.list_queued()
        if len(queued) != len(self._items) or any(
            new is not old for new, old in zip(queued, self._items, strict=True)
        ):
            self._show(queued, self.item)

    def _show(self, queued: Sequence[UserItem], current: UserItem | None) -> None:
        places = [place for place, item in enumerate(queued) if item is current]
        if not places:
            self.post_message(self.Selected(CHANGED))
            return
        self._items = list(queued)
        self.options = self.matching_options = list_queued_options(queued)
        self.cursor = places[0]
        self.refresh(layout=True)

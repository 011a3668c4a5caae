"""How large the parts of the model's context are, kept up to date entry by entry."""

from __future__ import annotations

from typing import Literal

import msgspec

from treadle.core.transcript.entries import (
    Entry,
    HeadRecorded,
    ItemAdded,
    Rewound,
    TurnBegan,
    Uncompacted,
    ViewRewritten,
)
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem
from treadle.core.transcript.size_estimate import CHARS_PER_MEDIA_TOKEN, estimate_item_chars

ContextPart = Literal["user", "assistant", "results"]
_Sizes = list[tuple[ContextPart, int]]


class ContextSizes(msgspec.Struct, frozen=True):
    """Estimated tokens: messages and notices, replies, results; the instructions, the memory files
    in them, and the tools. Earlier versions did not record the last three: they are 0, or after
    `fit` all in `system`."""

    user: int = 0
    assistant: int = 0
    results: int = 0
    system: int = 0
    memory: int = 0
    tools: int = 0

    @property
    def total(self) -> int:
        return sum(msgspec.structs.astuple(self))

    @property
    def has_head(self) -> bool:
        """Whether the sizes of instructions and tools are known."""
        return bool(self.tools or self.memory)

    def with_head(self, head: HeadRecorded | None) -> ContextSizes:
        """With what the request began with."""
        if head is None:
            return self
        chars = (head.system_chars, head.memory_chars, head.tools_chars)
        system, memory, tools = (-(-size // CHARS_PER_MEDIA_TOKEN) for size in chars)
        return msgspec.structs.replace(self, system=system, memory=memory, tools=tools)

    def fit(self, measured: int) -> ContextSizes:
        """The sizes by the provider's count of the whole request. What is left if the instructions
        and tools are not known is theirs."""
        if not measured or not self.total:
            return msgspec.structs.replace(self, system=measured or self.system)
        if not self.system and measured >= self.total:
            return msgspec.structs.replace(self, system=measured - self.total)
        share = measured / self.total
        return ContextSizes(*(int(size * share) for size in msgspec.structs.astuple(self)))


class ContextCounter:
    """The sizes of the view after the entries that were added."""

    def __init__(self) -> None:
        self._view: _Sizes = []  # never changed in place before its end
        self._history: _Sizes | None = None  # without any replacement; None while there was none
        self._before_turn: dict[str, tuple[_Sizes, int]] = {}
        self._chars: dict[ContextPart, int] = {"user": 0, "assistant": 0, "results": 0}

    @property
    def sizes(self) -> ContextSizes:
        tokens = {part: -(-chars // CHARS_PER_MEDIA_TOKEN) for part, chars in self._chars.items()}
        return ContextSizes(**tokens)

    @property
    def length(self) -> int:
        """How many items the view has."""
        return len(self._view)

    def add(self, entry: Entry) -> None:
        match entry:
            case ItemAdded(item=item):
                part, chars = _measure(item)
                self._view.append((part, chars))
                self._chars[part] += chars
                if self._history is not None:
                    self._history.append((part, chars))
            case TurnBegan(turn_id=turn_id):
                self._before_turn[turn_id] = (self._view, len(self._view))
            case ViewRewritten():
                if self._history is None and not entry.is_repair:
                    self._history = list(self._view)
                new = map(_measure, entry.items)
                lost = max(0, entry.length - len(self._view))
                stop = max(entry.start, entry.stop - lost)
                self._replace([*self._view[: entry.start], *new, *self._view[stop:]])
            case Uncompacted() if self._history is not None:
                self._replace(self._history)
                self._history = None
            case Rewound(turn_id=turn_id) if turn_id in self._before_turn:
                view, length = self._before_turn[turn_id]
                self._replace(view[:length])
            case _:
                pass

    def _replace(self, view: _Sizes) -> None:
        self._view = view
        self._chars = {"user": 0, "assistant": 0, "results": 0}
        for part, chars in view:
            self._chars[part] += chars


def _measure(item: Item) -> tuple[ContextPart, int]:
    part: ContextPart = "user"
    if isinstance(item, AssistantItem):
        part = "assistant"
    elif isinstance(item, ToolResultItem):
        part = "results"
    return part, estimate_item_chars(item)

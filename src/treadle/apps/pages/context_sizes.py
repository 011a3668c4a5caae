"""How large the parts of the model's context are, kept up to date entry by entry."""

from __future__ import annotations

from typing import Literal

import msgspec

from treadle.core.transcript.entries import Entry, HeadRecorded
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem
from treadle.core.transcript.size_estimate import CHARS_PER_MEDIA_TOKEN, estimate_item_chars
from treadle.core.transcript.state import SessionState, apply

ContextPart = Literal["user", "assistant", "results"]


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
        self._state = SessionState()
        self._chars: dict[ContextPart, int] = {"user": 0, "assistant": 0, "results": 0}

    @property
    def sizes(self) -> ContextSizes:
        tokens = {part: -(-chars // CHARS_PER_MEDIA_TOKEN) for part, chars in self._chars.items()}
        return ContextSizes(**tokens)

    @property
    def length(self) -> int:
        """How many items the view has."""
        return len(self._state.transcript)

    def add(self, entry: Entry) -> None:
        before, self._state = self._state, apply(self._state, entry)
        known = len(before.transcript)
        if self._state.view_changes != before.view_changes:
            self._chars, known = dict.fromkeys(self._chars, 0), 0
        for item in self._state.transcript[known:]:
            part, chars = _measure(item)
            self._chars[part] += chars


def _measure(item: Item) -> tuple[ContextPart, int]:
    part: ContextPart = "user"
    if isinstance(item, AssistantItem):
        part = "assistant"
    elif isinstance(item, ToolResultItem):
        part = "results"
    return part, estimate_item_chars(item)

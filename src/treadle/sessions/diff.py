"""Where two histories part: the first item that is not the same in both.

What a provider counts and names (usage, ids of replies) does not make a difference; what was
said, called and answered does.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from treadle.core.transcript.items import (
    AssistantItem,
    Item,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
)
from treadle.core.transcript.usage import Usage


class Difference(msgspec.Struct, frozen=True):
    """The first place where two histories differ; None stands for the end of one."""

    position: int
    left: Item | None
    right: Item | None


def find_first_difference(left: Sequence[Item], right: Sequence[Item]) -> Difference | None:
    for position in range(max(len(left), len(right))):
        one = left[position] if position < len(left) else None
        two = right[position] if position < len(right) else None
        if one is None or two is None or not is_same(one, two):
            return Difference(position, one, two)
    return None


def is_same(one: Item, two: Item) -> bool:
    return _comparable_value(one) == _comparable_value(two)


def _comparable_value(item: Item) -> object:
    if isinstance(item, AssistantItem):
        return msgspec.structs.replace(item, usage=Usage(), response_id="", model="")
    if isinstance(item, ToolResultItem):
        return (item.call_id, item.name, item.content, item.is_error)
    return item


def format_item(item: Item | None) -> str:
    """An item as text, for a person who compares."""
    if item is None:
        return "(nothing: the history ends here)"
    if isinstance(item, (NoticeItem, SummaryItem)):
        return f"{type(item).__name__.removesuffix('Item').lower()}:\n{item.text}"
    if isinstance(item, ToolResultItem):
        kind = "error of" if item.is_error else "result of"
        return f"{kind} {item.name} ({item.call_id}):\n{item.text}"
    if isinstance(item, AssistantItem):
        calls = "".join(f"\ncall {call.name} ({call.id}): {call.raw}" for call in item.calls)
        return f"assistant:\n{item.text}{calls}"
    return f"user:\n{item.text}"

"""Compares two histories: the first item that differs.

Messages, calls and results count; usage, reply ids, model names and data for programs do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from treadle.core.transcript import AssistantItem, Item, NoticeItem, SummaryItem, ToolResultItem
from treadle.core.transcript.usage import Usage
from treadle.lib.compare import common_prefix_length


class Difference(msgspec.Struct, frozen=True):
    """The first difference of two histories; None means that a history has ended."""

    position: int
    left: Item | None
    right: Item | None


def find_first_difference(left: Sequence[Item], right: Sequence[Item]) -> Difference | None:
    position = common_prefix_length(left, right, is_same)
    if position == len(left) == len(right):
        return None
    pair = (items[position] if position < len(items) else None for items in (left, right))
    return Difference(position, *pair)


def is_same(one: Item, two: Item) -> bool:
    return _comparable_value(one) == _comparable_value(two)


def _comparable_value(item: Item) -> object:
    if isinstance(item, AssistantItem):
        return msgspec.structs.replace(item, usage=Usage(), response_id="", model="")
    if isinstance(item, ToolResultItem):
        return (item.call_id, item.name, item.content, item.is_error)
    if isinstance(item, NoticeItem):
        return (item.text, item.kind, item.next_move)
    return item


def format_item(item: Item | None) -> str:
    """An item as text for the user."""
    if item is None:
        return "(the history ends here)"
    if isinstance(item, (NoticeItem, SummaryItem)):
        return f"{type(item).__name__.removesuffix('Item').lower()}:\n{item.text}"
    if isinstance(item, ToolResultItem):
        kind = "error of" if item.is_error else "result of"
        return f"{kind} {item.name} ({item.call_id}):\n{item.text}"
    if isinstance(item, AssistantItem):
        calls = "".join(f"\ncall {call.name} ({call.id}): {call.raw}" for call in item.calls)
        return f"assistant:\n{item.text}{calls}"
    return f"user:\n{item.text}"

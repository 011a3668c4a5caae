"""Cheap trims: large old results become references that `recall` can open.

The log keeps everything; only the view gets smaller. A trimmed result still answers its call, so
the transcript stays valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from treadle.context.compaction.pins import (
    collect_user_messages,
    make_user_messages_notice,
    replace_media,
)
from treadle.core.transcript import AssistantContent, RedactedThinking, Thinking, ToolCall
from treadle.core.transcript.content import Document, Image, Text
from treadle.core.transcript.items import AssistantItem, Item, NoticeItem, ToolResultItem, UserItem

READ_TOOLS = frozenset({"read"})
LARGE_RESULT_CHARS = 2_000
PREVIEW_CHARS = 300
MediaItem = TypeVar("MediaItem", UserItem, ToolResultItem)


def trim_old_items(items: Sequence[Item], keep_last: int) -> list[Item]:
    """Large results and images before the last `keep_last` items become references."""
    border = max(0, len(items) - keep_last)
    return [*map(_trim_item, items[:border]), *items[border:]]


def truncate_results(items: Sequence[Item], limit: int) -> list[Item]:
    """Cut every result to about `limit` characters, keeping its beginning and end."""
    return [
        _truncate_result(item, limit) if isinstance(item, ToolResultItem) else item
        for item in items
    ]


def truncate_user_messages(items: Sequence[Item], limit: int) -> list[Item]:
    """Cut the middle of user messages that are longer than `limit`."""
    return [_truncate_user_message(item, limit) for item in items]


def truncate_replies(items: Sequence[Item], limit: int) -> list[Item]:
    """Cut each text and call argument of the replies to about `limit` characters."""
    return [_truncate_reply(item, limit) for item in items]


def _trim_item(item: Item) -> Item:
    if isinstance(item, UserItem):
        return _replace_media(item)
    if isinstance(item, AssistantItem):
        return _remove_thinking(item)
    if not isinstance(item, ToolResultItem):
        return item
    item = _replace_media(item)
    text = item.model_text
    if len(text) <= LARGE_RESULT_CHARS:
        return item
    note = (
        f"{text[:PREVIEW_CHARS]}\n[{len(text):,} characters are out of view; {_find_again(item)}]"
    )
    return msgspec.structs.replace(item, content=(Text(note),), notes=())


def _find_again(item: ToolResultItem) -> str:
    """How the model sees the whole result again. A file may have changed since it was read."""
    if item.name in READ_TOOLS:
        return "read the file again to see them"
    return f'recall with id "{item.call_id}" shows them'


def _replace_media(item: MediaItem) -> MediaItem:
    if not any(isinstance(part, (Image, Document)) for part in item.content):
        return item
    content = tuple(replace_media(part) for part in item.content)
    return msgspec.structs.replace(item, content=content)


def _truncate_result(item: ToolResultItem, limit: int) -> ToolResultItem:
    text = item.model_text
    if len(text) <= limit:
        return item
    short = truncate_middle(text, limit, _find_again(item))
    return msgspec.structs.replace(item, content=(Text(short),), notes=())


def _truncate_user_message(item: Item, limit: int) -> Item:
    if isinstance(item, UserItem):
        if len(item.text) <= limit:
            return item
        return msgspec.structs.replace(item, content=(Text(truncate_middle(item.text, limit)),))
    if isinstance(item, NoticeItem) and item.kind == "said":
        messages = collect_user_messages([item])
        return make_user_messages_notice([truncate_middle(text, limit) for text in messages])
    return item


def _remove_thinking(item: AssistantItem) -> AssistantItem:
    hidden = (Thinking, RedactedThinking)
    content = tuple(part for part in item.content if not isinstance(part, hidden))
    if not content or content == item.content:
        return item
    return msgspec.structs.replace(item, content=content)


def _truncate_reply(item: Item, limit: int) -> Item:
    if not isinstance(item, AssistantItem):
        return item
    content = tuple(_truncate_part(part, limit) for part in item.content)
    return msgspec.structs.replace(item, content=content) if content != item.content else item


def _truncate_part(part: AssistantContent, limit: int) -> AssistantContent:
    if isinstance(part, Text) and len(part.text) > limit:
        return Text(truncate_middle(part.text, limit))
    if isinstance(part, ToolCall) and len(part.raw) > 2 * limit:
        short = {
            key: truncate_middle(value, limit) if isinstance(value, str) else value
            for key, value in (part.arguments or {}).items()
        }
        raw = msgspec.json.encode(short).decode()
        return ToolCall(part.id, part.name, raw if len(raw) < len(part.raw) else "{}")
    return part


def truncate_middle(text: str, limit: int, find_again: str = "recall finds them") -> str:
    if len(text) <= limit:
        return text
    half = max(20, limit // 2 - 60)
    left_out = len(text) - 2 * half
    note = f"[... {left_out:,} characters left out; {find_again} ...]"
    return f"{text[:half]}\n{note}\n{text[-half:]}"

"""Cheap trims: large old results become references that `recall` can open.

The log keeps everything; only the view gets smaller. A trimmed result still answers its call, so
the transcript stays valid.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from treadle.context.compaction.pins import collect_user_messages, make_user_messages_notice
from treadle.core.transcript.content import (
    AssistantContent,
    Document,
    Image,
    RedactedThinking,
    ResultContent,
    Text,
    Thinking,
    ToolCall,
    UserContent,
)
from treadle.core.transcript.items import AssistantItem, Item, NoticeItem, ToolResultItem, UserItem

LARGE_RESULT_CHARS = 2_000
PREVIEW_CHARS = 300


def trim_old_items(
    items: Sequence[Item], keep_last: int, max_chars: int = LARGE_RESULT_CHARS
) -> list[Item]:
    """Large results and images before the last `keep_last` items become references."""
    border = len(items) - keep_last
    return [
        _trim_item(item, max_chars) if position < border else item
        for position, item in enumerate(items)
    ]


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
    return [
        _truncate_reply(item, limit) if isinstance(item, AssistantItem) else item for item in items
    ]


def _trim_item(item: Item, max_chars: int) -> Item:
    if isinstance(item, UserItem):
        return _remove_images(item)
    if isinstance(item, AssistantItem):
        return _remove_thinking(item)
    if not isinstance(item, ToolResultItem):
        return item
    has_media = any(isinstance(part, (Image, Document)) for part in item.content)
    if not has_media and len(item.text) <= max_chars:
        return item
    text = item.text
    note = (
        f"{text[:PREVIEW_CHARS]}\n[{len(text):,} characters are out of view; "
        f'recall with id "{item.call_id}" shows them]'
    )
    return msgspec.structs.replace(item, content=(Text(note),))


def _remove_images(item: UserItem) -> UserItem:
    if not any(isinstance(part, (Image, Document)) for part in item.content):
        return item
    content: list[UserContent] = [
        part if isinstance(part, Text) else Text(f"[a {part.media_type} that was shown before]")
        for part in item.content
    ]
    return msgspec.structs.replace(item, content=tuple(content))


def _truncate_result(item: ToolResultItem, limit: int) -> ToolResultItem:
    if len(item.text) <= limit:
        return item
    content: list[ResultContent] = [Text(truncate_middle(item.text, limit))]
    return msgspec.structs.replace(item, content=tuple(content))


def _truncate_user_message(item: Item, limit: int) -> Item:
    if isinstance(item, UserItem) and len(item.text) > limit:
        return msgspec.structs.replace(item, content=(Text(truncate_middle(item.text, limit)),))
    if isinstance(item, NoticeItem) and item.kind == "said":
        return make_user_messages_notice(
            [truncate_middle(message, limit) for message in collect_user_messages([item])]
        )
    return item


def _remove_thinking(item: AssistantItem) -> AssistantItem:
    content = tuple(
        part for part in item.content if not isinstance(part, (Thinking, RedactedThinking))
    )
    if not content or content == item.content:
        return item
    return msgspec.structs.replace(item, content=content)


def _truncate_reply(item: AssistantItem, limit: int) -> AssistantItem:
    content = tuple(_truncate_part(part, limit) for part in item.content)
    return msgspec.structs.replace(item, content=content) if content != item.content else item


def _truncate_part(part: AssistantContent, limit: int) -> AssistantContent:
    if isinstance(part, Text) and len(part.text) > limit:
        return Text(truncate_middle(part.text, limit))
    if isinstance(part, ToolCall) and len(part.raw) > 2 * limit:
        arguments = part.arguments or {}
        short = {
            key: truncate_middle(value, limit) if isinstance(value, str) else value
            for key, value in arguments.items()
        }
        raw = msgspec.json.encode(short).decode()
        return ToolCall(part.id, part.name, raw if len(raw) < len(part.raw) else "{}")
    return part


def truncate_middle(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = max(20, limit // 2 - 60)
    left_out = len(text) - 2 * half
    note = f"[... {left_out:,} characters left out; recall finds them ...]"
    return f"{text[:half]}\n{note}\n{text[-half:]}"

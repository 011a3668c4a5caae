"""Decodes only the few fields of a long line that the fold needs, and makes no value of its text.

The JSON decoder passes over all other fields, and a result is decoded only to where its content
begins. Of a line that it does not know enough about, the answer is None: the caller decodes all of
it. Used by state_loader.py for its placeholders.
"""

from __future__ import annotations

import msgspec

from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.entries import ItemAdded
from treadle.core.transcript.entry_json import make_decoder
from treadle.core.transcript.items import AssistantItem, ToolResultItem, UserItem
from treadle.core.transcript.usage import NO_USAGE, Usage

_CONTENT_FIELD = b',"content":'  # in a JSON string the quotes would be escaped


class _ItemHead(msgspec.Struct):
    """An item to where its content begins."""

    type: str
    call_id: str = ""
    name: str = ""


class _EntryHead(msgspec.Struct):
    item: _ItemHead


class _Part(msgspec.Struct, gc=False):
    type: str
    id: str = ""


class _Reply(msgspec.Struct, tag="assistant"):
    content: tuple[_Part, ...]
    usage: Usage = NO_USAGE


class _Message(msgspec.Struct, tag="user"):
    metadata: msgspec.Raw | None = None


class _EntryOutline(msgspec.Struct):
    item: _Reply | _Message
    message_id: str = ""


def outline_entry(line: bytes) -> ItemAdded | None:
    """The entry of an item without its texts. A reply has the ids of its calls: the fold counts a
    round when all have results. None for a message with metadata, which the fold needs."""
    try:
        return _outline_result(line) or _outline_others(line)
    except msgspec.DecodeError:
        return None


def _outline_result(line: bytes) -> ItemAdded | None:
    end = line.find(_CONTENT_FIELD)
    head = line if end < 0 else line[:end] + b"}}"
    entry: _EntryHead = make_decoder(_EntryHead).decode(head)
    item = entry.item
    is_known = item.type == "tool_result" and item.call_id and item.name
    return ItemAdded(ToolResultItem(item.call_id, item.name, ())) if is_known else None


def _outline_others(line: bytes) -> ItemAdded | None:
    entry: _EntryOutline = make_decoder(_EntryOutline).decode(line)
    match entry.item:
        case _Reply(content=content, usage=usage):
            calls = [ToolCall(part.id, "", "") for part in content if part.type == "tool_call"]
            return ItemAdded(AssistantItem(tuple(calls), usage=usage), entry.message_id)
        case _Message(metadata=None):
            return ItemAdded(UserItem(()), entry.message_id)
    return None

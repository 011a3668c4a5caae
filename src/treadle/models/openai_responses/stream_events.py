"""The events and items of a Responses stream as values.

Only what decoding.py reads is here. A field of another type is ignored where the reply does not
depend on it.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from treadle.models.provider_base.error_map import UNREADABLE
from treadle.models.provider_base.lenient import decode_leniently
from treadle.models.provider_base.openai_common import OpenAIUsage


class OutputDelta(msgspec.Struct, gc=False):
    delta: str = ""
    item_id: str = ""
    output_index: int | None = None
    summary_index: int = 0

    @property
    def key(self) -> int | str:
        return self.item_id if self.output_index is None else self.output_index


class OutputItemEvent(msgspec.Struct):
    item: msgspec.Raw
    output_index: int | None = None


class OutputPart(msgspec.Struct):
    type: str = ""
    text: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None


class _ItemHeader(msgspec.Struct):
    type: str = ""
    id: str | None = None


class OutputItem(msgspec.Struct):
    type: str = ""
    id: str | None = None
    status: str | None = None
    content: list[OutputPart] | None = None
    summary: list[OutputPart] | None = None
    encrypted_content: str | None = None
    phase: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None  # of a call with free text
    namespace: str | None = None


class FailureDetails(msgspec.Struct):
    reason: str | None = None
    code: str | None = None
    message: str | None = None


class ResponseBody(msgspec.Struct):
    id: str | None = None
    error: FailureDetails | None = None
    incomplete_details: FailureDetails | None = None
    usage: OpenAIUsage | None = None
    output: list[msgspec.Raw] | None = None


class ResponseEvent(msgspec.Struct):
    response: ResponseBody


class EventType(msgspec.Struct):
    type: str = ""


decode_delta = msgspec.json.Decoder(OutputDelta).decode
# The reply depends on these fields; any other one is ignored if it does not fit.
_STRICT_FIELDS = frozenset(
    [
        "response",
        "output",
        "item",
        "type",
        "content",
        "text",
        "refusal",
        "summary",
        "encrypted_content",
        "call_id",
        "name",
        "arguments",
        "input",
        "delta",
    ]
)
# Items of other types are kept as they are.
_READ_ITEMS = frozenset({"message", "function_call", "custom_tool_call", "reasoning"})
T = TypeVar("T", bound=msgspec.Struct)


def decode_event(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except UNREADABLE:
        return decode_leniently(data, kind, _STRICT_FIELDS)


def decode_item(data: bytes) -> OutputItem:
    header = decode_event(data, _ItemHeader)
    if header.type in _READ_ITEMS:
        return decode_event(data, OutputItem)
    return OutputItem(type=header.type, id=header.id)

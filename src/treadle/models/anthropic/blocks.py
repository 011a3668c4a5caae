"""Content as the blocks of Anthropic Messages: what a request's `messages` are made of.

Pure and per block; encoding.py joins them and keeps the bytes. A provider's extras that the
transcript has no word for (citations, who called a tool) travel as an Opaque right behind the
part that they belong to, and are written back into its block here.
"""

from __future__ import annotations

import base64
from collections.abc import Hashable, Sequence

from treadle.core.transcript.content import (
    AssistantContent,
    Document,
    Image,
    Opaque,
    RedactedThinking,
    ResultContent,
    Text,
    Thinking,
    UserContent,
)
from treadle.core.transcript.items import AssistantItem, ToolResultItem
from treadle.models.compiler import MIB, RequestLimits
from treadle.models.encoding import EncodedBlock, MessageRole, encode_json_string

ORIGIN = "anthropic"
ATTACHED_LABEL = "attached"  # the label of an Opaque whose fields belong into the block before it

LIMITS = RequestLimits(
    origin=ORIGIN,
    max_images=100,
    max_image_bytes=5 * MIB,
    max_image_side=8000,
    many_images_count=20,
    many_images_side=2000,
    max_document_bytes=32 * MIB,
    # The limit is 32 MB for the whole body; system prompt and tools need some of it.
    max_body_bytes=31 * MIB,
    max_id_length=64,
)


class AnthropicEncoder:
    """Blocks of one role stand together in one message."""

    cache_key: Hashable = ("anthropic", "messages")
    merges_roles = True

    def __init__(self, limits: RequestLimits = LIMITS) -> None:
        self.limits = limits
        if limits is not LIMITS:
            self.cache_key = ("anthropic", "messages", limits)

    def open_message(self, role: MessageRole) -> bytes:
        return (
            b'{"role":"user","content":[' if role == "user" else b'{"role":"assistant","content":['
        )

    def close_message(self, role: MessageRole) -> bytes:
        return b"]}"

    def encode_input(self, parts: Sequence[tuple[int, UserContent]]) -> list[EncodedBlock]:
        return [(number, _encode_input_block(part)) for number, part in parts]

    def encode_result(
        self,
        call_id: str,
        name: str,
        parts: Sequence[tuple[int, ResultContent]],
        is_error: bool,
    ) -> list[EncodedBlock]:
        first = parts[0][1]
        if len(parts) == 1 and isinstance(first, Text):
            content = encode_json_string(first.text)
        else:
            content = b"[%b]" % b",".join([_encode_input_block(part) for _, part in parts])
        block = b'{"type":"tool_result","tool_use_id":%b,"content":%b%b}' % (
            encode_json_string(call_id),
            content,
            b',"is_error":true' if is_error else b"",
        )
        return [(parts[0][0], block)]

    def encode_after_results(
        self, items: Sequence[tuple[int, ToolResultItem]]
    ) -> list[EncodedBlock]:
        return []

    def encode_reply(
        self, parts: Sequence[tuple[int, AssistantContent]], item: AssistantItem
    ) -> list[EncodedBlock]:
        blocks: list[EncodedBlock] = []
        for number, part in parts:
            if isinstance(part, Opaque) and part.label == ATTACHED_LABEL:
                if blocks and blocks[-1][0] == number - 1:
                    owner, block = blocks[-1]
                    blocks[-1] = (owner, block[:-1] + b"," + part.json.encode()[1:])
                continue
            blocks.append((number, _encode_reply_block(part)))
        return blocks


def _encode_reply_block(part: AssistantContent) -> bytes:
    match part:
        case Text(text=text):
            return b'{"type":"text","text":%b}' % encode_json_string(text)
        case Thinking(text=text, signature=signature):
            return b'{"type":"thinking","thinking":%b,"signature":%b}' % (
                encode_json_string(text),
                encode_json_string(signature),
            )
        case RedactedThinking(data=data):
            return b'{"type":"redacted_thinking","data":%b}' % encode_json_string(data)
        case Opaque(json=json):
            return json.encode("utf-8", "replace")
        case call:
            # What could not be read as an object cannot be sent as one either; the answer to
            # the call says what was wrong with it.
            raw = call.raw.strip() if call.arguments is not None else ""
            return b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % (
                encode_json_string(call.id),
                encode_json_string(call.name),
                raw.encode("utf-8", "replace") or b"{}",
            )


def _encode_input_block(part: UserContent) -> bytes:
    if isinstance(part, Text):
        return b'{"type":"text","text":%b}' % encode_json_string(part.text)
    if isinstance(part, Image):
        return b'{"type":"image","source":%b}' % _encode_source(part)
    title = b',"title":%b' % encode_json_string(part.title) if part.title else b""
    return b'{"type":"document","source":%b%b}' % (_encode_source(part), title)


def _encode_source(part: Image | Document) -> bytes:
    if not part.data:
        return b'{"type":"url","url":%b}' % encode_json_string(part.url)
    if part.media_type == "text/plain":
        text = part.data.decode("utf-8", "replace")
        return b'{"type":"text","media_type":"text/plain","data":%b}' % encode_json_string(text)
    return b'{"type":"base64","media_type":%b,"data":"%b"}' % (
        encode_json_string(part.media_type),
        base64.b64encode(part.data),
    )

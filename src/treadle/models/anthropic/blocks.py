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
from treadle.models.compiler import MIB, Rules
from treadle.models.encoding import Block, Role, json_text

ORIGIN = "anthropic"
ATTACHED = "attached"  # the label of an Opaque whose fields belong into the block before it

RULES = Rules(
    origin=ORIGIN,
    max_images=100,
    max_image_bytes=5 * MIB,
    max_image_side=8000,
    many_images=20,
    many_images_side=2000,
    max_document_bytes=32 * MIB,
    # The limit is 32 MB for the whole body; system prompt and tools need some of it.
    max_body_bytes=31 * MIB,
    max_id_length=64,
)


class AnthropicDialect:
    """Blocks of one role stand together in one message."""

    key: Hashable = ("anthropic", "messages")
    merging = True

    def __init__(self, rules: Rules = RULES) -> None:
        self.rules = rules
        if rules is not RULES:
            self.key = ("anthropic", "messages", rules)

    def opening(self, role: Role) -> bytes:
        return (
            b'{"role":"user","content":[' if role == "user" else b'{"role":"assistant","content":['
        )

    def closing(self, role: Role) -> bytes:
        return b"]}"

    def said(self, parts: Sequence[tuple[int, UserContent]]) -> list[Block]:
        return [(number, _input_block(part)) for number, part in parts]

    def answered(
        self,
        call_id: str,
        name: str,
        parts: Sequence[tuple[int, ResultContent]],
        is_error: bool,
    ) -> list[Block]:
        first = parts[0][1]
        if len(parts) == 1 and isinstance(first, Text):
            content = json_text(first.text)
        else:
            content = b"[%b]" % b",".join([_input_block(part) for _, part in parts])
        block = b'{"type":"tool_result","tool_use_id":%b,"content":%b%b}' % (
            json_text(call_id),
            content,
            b',"is_error":true' if is_error else b"",
        )
        return [(parts[0][0], block)]

    def after_answers(self, items: Sequence[tuple[int, ToolResultItem]]) -> list[Block]:
        return []

    def replied(
        self, parts: Sequence[tuple[int, AssistantContent]], item: AssistantItem
    ) -> list[Block]:
        blocks: list[Block] = []
        for number, part in parts:
            if isinstance(part, Opaque) and part.label == ATTACHED:
                if blocks and blocks[-1][0] == number - 1:
                    owner, block = blocks[-1]
                    blocks[-1] = (owner, block[:-1] + b"," + part.json.encode()[1:])
                continue
            blocks.append((number, _reply_block(part)))
        return blocks


def _reply_block(part: AssistantContent) -> bytes:
    match part:
        case Text(text=text):
            return b'{"type":"text","text":%b}' % json_text(text)
        case Thinking(text=text, signature=signature):
            return b'{"type":"thinking","thinking":%b,"signature":%b}' % (
                json_text(text),
                json_text(signature),
            )
        case RedactedThinking(data=data):
            return b'{"type":"redacted_thinking","data":%b}' % json_text(data)
        case Opaque(json=json):
            return json.encode("utf-8", "replace")
        case call:
            # What could not be read as an object cannot be sent as one either; the answer to
            # the call says what was wrong with it.
            raw = call.raw.strip() if call.arguments is not None else ""
            return b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % (
                json_text(call.id),
                json_text(call.name),
                raw.encode("utf-8", "replace") or b"{}",
            )


def _input_block(part: UserContent) -> bytes:
    if isinstance(part, Text):
        return b'{"type":"text","text":%b}' % json_text(part.text)
    if isinstance(part, Image):
        return b'{"type":"image","source":%b}' % _source(part)
    title = b',"title":%b' % json_text(part.title) if part.title else b""
    return b'{"type":"document","source":%b%b}' % (_source(part), title)


def _source(part: Image | Document) -> bytes:
    if not part.data:
        return b'{"type":"url","url":%b}' % json_text(part.url)
    if part.media_type == "text/plain":
        text = part.data.decode("utf-8", "replace")
        return b'{"type":"text","media_type":"text/plain","data":%b}' % json_text(text)
    return b'{"type":"base64","media_type":%b,"data":"%b"}' % (
        json_text(part.media_type),
        base64.b64encode(part.data),
    )

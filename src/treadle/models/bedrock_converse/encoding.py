"""Encodes a request of Bedrock's Converse interface: messages, system prompt, tools, options.

Sans-IO. `ConverseEncoder` encodes the items of a transcript, each once (provider_base/encoding.py);
`encode_head` adds the small part that changes from request to request.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Hashable
from typing import Any

import msgspec

from treadle.core.contracts.model import ModelCard, ModelOptions, ModelRequest
from treadle.core.contracts.tool import ToolSpec
from treadle.core.transcript.content import (
    AssistantContent,
    Document,
    Image,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    UserContent,
)
from treadle.models.profiles import resolve_sampling
from treadle.models.provider_base.encoding import (
    EncodedBlock,
    InputParts,
    MessageEncoder,
    MessageRole,
    ReplyParts,
    ResultParts,
    encode_call_arguments,
    encode_json,
    encode_json_string,
)
from treadle.models.provider_base.request_limits import (
    MIB,
    OFFICE_TYPES,
    RequestLimits,
    make_provider_tool_name,
)
from treadle.models.provider_base.tool_schema import adapt_tool_schema

ORIGIN = "bedrock"
DOCUMENT_FORMATS = {
    **OFFICE_TYPES,
    "application/pdf": "pdf",
    "text/plain": "txt",
    "text/html": "html",
    "text/markdown": "md",
}
# A request with calls needs tools.
PLACEHOLDER_TOOL = ToolSpec("none", "No tool can be used now.", {"type": "object"})
LIMITS = RequestLimits(
    origin=ORIGIN,
    max_images=20,
    max_image_bytes=5 * MIB,
    max_image_side=8000,
    max_document_bytes=6 * MIB,
    max_body_bytes=24 * MIB,
    document_types=frozenset(DOCUMENT_FORMATS),
)


class ConverseEncoder(MessageEncoder):
    """Encodes items as blocks; consecutive blocks of one role are one message."""

    merges_roles = True

    def __init__(self, model: str = "") -> None:
        self.limits = msgspec.structs.replace(LIMITS, model=model)
        self.cache_key: Hashable = ("bedrock", "converse", model)

    def open_message(self, role: MessageRole) -> bytes:
        return b'{"role":"%b","content":[' % role.encode()

    def close_message(self) -> bytes:
        return b"]}"

    def encode_input(self, parts: InputParts, by_engine: bool = False) -> list[EncodedBlock]:
        return [(number, _encode_input_block(part, number)) for number, part in parts]

    def encode_result(
        self, call: ToolCall, parts: ResultParts, is_error: bool
    ) -> list[EncodedBlock]:
        blocks = [_encode_input_block(part, number) for number, part in parts]
        values = (
            encode_json_string(call.id),
            b",".join(blocks),
            b"error" if is_error else b"success",
        )
        block = b'{"toolResult":{"toolUseId":%b,"content":[%b],"status":"%b"}}' % values
        return [(parts[0][0], block)]

    def encode_reply(self, parts: ReplyParts) -> list[EncodedBlock]:
        return [(number, _encode_reply_block(part)) for number, part in parts]


def _encode_reply_block(part: AssistantContent) -> bytes:
    match part:
        case Text(text=text):
            return b'{"text":%b}' % encode_json_string(text)
        case Thinking(text=text, signature=signature):
            values = (encode_json_string(text), encode_json_string(signature))
            return b'{"reasoningContent":{"reasoningText":{"text":%b,"signature":%b}}}' % values
        case RedactedThinking(data=data):
            return b'{"reasoningContent":{"redactedContent":%b}}' % encode_json_string(data)
        case Opaque(json=json):
            return json.encode("utf-8", "replace")
        case call:
            arguments = encode_call_arguments(call)
            names = (encode_json_string(call.id), encode_json_string(call.name))
            return b'{"toolUse":{"toolUseId":%b,"name":%b,"input":%b}}' % (*names, arguments)


def _encode_input_block(part: UserContent, number: int) -> bytes:
    if isinstance(part, Text):
        return b'{"text":%b}' % encode_json_string(part.text)
    if not part.data:
        return b'{"text":%b}' % encode_json_string(f"[{part.url}]")
    data = b'{"bytes":"%b"}' % base64.b64encode(part.data)
    if isinstance(part, Image):
        kind = part.media_type.rpartition("/")[2]
        return b'{"image":{"format":"%b","source":%b}}' % (kind.encode(), data)
    name = encode_json_string(_make_document_name(part, number))
    kind = DOCUMENT_FORMATS[part.media_type]
    return b'{"document":{"format":"%b","name":%b,"source":%b}}' % (kind.encode(), name, data)


def _make_document_name(part: Document, number: int) -> str:
    """A name of letters, digits, single spaces and hyphens; a dot is not allowed."""
    plain = re.sub(r"[^a-zA-Z0-9()\[\]-]+", " ", part.title).strip()
    return f"{plain} {number}".strip()[-200:] if plain else f"document {number}"


# ------------------------------------------------------------------ the head


def encode_head(card: ModelCard, request: ModelRequest, has_calls: bool) -> bytes:
    """The bytes up to `"messages":[`."""
    options = request.options
    fields: dict[str, Any] = {}
    if request.system:
        fields["system"] = [{"text": request.system}]
    tools = [spec for spec in request.tools if not spec.deferred]
    if not tools and has_calls:
        tools = [PLACEHOLDER_TOOL]
    if tools and options.tool_choice == "none" and not has_calls:
        tools = []
    if tools:
        fields["toolConfig"] = _build_tool_config(tools, options)
    heat, top_p = resolve_sampling(options, card)
    given = {
        "maxTokens": options.max_tokens,
        "stopSequences": list(options.stop) or None,
        "temperature": heat,
        "topP": top_p,
    }
    config = {name: value for name, value in given.items() if value is not None}
    if config:
        fields["inferenceConfig"] = config
    if options.output_schema is not None:
        schema = encode_json(options.output_schema).decode()
        structure = {"jsonSchema": {"name": "output", "schema": schema}}
        fields["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": structure}}
    if options.service_tier:
        fields["serviceTier"] = {"type": options.service_tier}
    fields |= options.extra
    head = encode_json(fields)
    return head[:-1] + (b"," if fields else b"") + b'"messages":['


def _build_tool_config(tools: list[ToolSpec], options: ModelOptions) -> dict[str, Any]:
    config: dict[str, Any] = {"tools": [msgspec.Raw(_encode_tool(spec)) for spec in tools]}
    choice = options.tool_choice
    if choice == "any":
        config["toolChoice"] = {"any": {}}
    elif choice not in ("auto", "none"):
        config["toolChoice"] = {"tool": {"name": make_provider_tool_name(choice)}}
    return config


def _encode_tool(spec: ToolSpec) -> bytes:
    """A tool's declaration, encoded once and cached in the spec."""
    encoded: bytes | None = spec.__dict__.get("converse tool")
    if encoded is None:
        body = {
            "name": make_provider_tool_name(spec.name),
            "description": spec.description or spec.name,
            "inputSchema": {"json": adapt_tool_schema(spec.schema)},
        }
        encoded = spec.__dict__["converse tool"] = encode_json({"toolSpec": body})
    return encoded

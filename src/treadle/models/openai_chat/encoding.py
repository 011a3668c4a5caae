"""Encodes a Chat Completions request, for any server.

Sans-IO. `ChatEncoder` encodes the items of a transcript, each once (provider_base/encoding.py);
`encode_chat_body` adds the small head and tail that change from request to request.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.core.transcript.content import (
    AssistantContent,
    Document,
    Image,
    Opaque,
    ResultContent,
    Text,
    Thinking,
    ToolCall,
    UserContent,
)
from treadle.models.openai_chat.decoding import REASONING_FIELDS, REASONING_PARTS
from treadle.models.openai_chat.effort_fields import build_effort_fields
from treadle.models.output_schema import is_strict_schema
from treadle.models.provider_base.codec import CALL_EXTRA_LABEL
from treadle.models.provider_base.encoding import (
    EncodedBlock,
    InputParts,
    MessageEncoder,
    ReplyParts,
    ResultParts,
    encode_json_string,
    encode_transcript,
)
from treadle.models.provider_base.openai_common import (
    build_cache_fields,
    build_common_options,
    encode_arguments,
    encode_data_url,
    encode_fields,
    encode_file,
    encode_tool,
    encode_tool_choice,
    format_document,
    get_engine_role,
    list_document_types,
)
from treadle.models.provider_base.quirks import Quirks
from treadle.models.provider_base.request_limits import TEXT_TYPES, RequestLimits

# Gemini's value for a call without its signature, because another model made the call.
_UNSIGNED_CALL = b'{"google":{"thought_signature":"skip_thought_signature_validator"}}'

_SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}")


class ChatEncoder(MessageEncoder):
    """Encodes items as messages. `thinks`: the model does."""

    def __init__(self, quirks: Quirks, model: str = "", thinks: bool = True) -> None:
        self._quirks = quirks
        # The older models accept only `system`.
        self.system_role = quirks.system_role if thinks else "system"
        self.cache_key: Hashable = ("openai_chat", quirks, model, self.system_role)
        self.accepts_reply_first = quirks.accepts_reply_first
        self.limits = RequestLimits(
            origin=quirks.name,
            max_images=quirks.max_images,
            max_body_bytes=quirks.max_body_bytes,
            document_types=list_document_types(quirks),
            max_id_length=40,
            resends_thinking=bool(quirks.reasoning_input_field),
            needs_signature=quirks.reasoning_input_field == "reasoning_details",
            model=model,
            signed_labels=frozenset({CALL_EXTRA_LABEL}),
        )

    def encode_input(self, parts: InputParts, by_engine: bool = False) -> list[EncodedBlock]:
        if not parts:
            return []
        role = get_engine_role(self._quirks, self.system_role) if by_engine else b"user"
        content = self._encode_content(parts)
        return [(parts[0][0], b'{"role":"%b","content":%b}' % (role, content))]

    def encode_reply(self, parts: ReplyParts) -> list[EncodedBlock]:
        texts = [part.text for _, part in parts if type(part) is Text]
        calls = self._encode_calls([part for _, part in parts])
        if not texts and not calls:
            return []
        thoughts = [part for _, part in parts if type(part) is Thinking]
        # Some servers refuse an empty text, others a reply without the field.
        content = encode_json_string("\n\n".join(texts)) if texts else b"null"
        if thoughts and self._quirks.reasoning_input_field == REASONING_PARTS:
            content = _encode_thinking_parts(thoughts, content if texts else b"")
        message = b'{"role":"assistant","content":' + content + self._encode_reasoning(thoughts)
        if calls:
            message += b',"tool_calls":[' + b",".join(calls) + b"]"
        return [(parts[0][0], message + b"}")]

    def encode_result(
        self, call: ToolCall, parts: ResultParts, is_error: bool
    ) -> list[EncodedBlock]:
        texts: list[str] = []
        moved = 0
        for _, part in parts:
            if isinstance(part, Text):
                texts.append(part.text)
            elif isinstance(part, Document) and part.media_type in TEXT_TYPES and part.data:
                texts.append(format_document(part))
            else:
                moved += 1
        if moved:
            texts.append(f"[{moved} attachment(s) of this result follow in the next message]")
        call_id = self._to_server_id(call.id)
        values = (encode_json_string(call_id), encode_json_string("\n".join(texts)))
        return [(parts[0][0], b'{"role":"tool","tool_call_id":%b,"content":%b}' % values)]

    def encode_after_results(self, parts: ResultParts) -> list[EncodedBlock]:
        """A tool's message can only have text: images and files follow in a user message."""
        moved = [(number, part) for number, part in parts if _is_attachment(part)]
        if not moved:
            return []
        return self.encode_input([(moved[0][0], Text("Attachments of the results above:")), *moved])

    def _encode_content(self, parts: InputParts) -> bytes:
        if len(parts) == 1 and isinstance(parts[0][1], Text):
            return encode_json_string(parts[0][1].text)
        return b"[" + b",".join([self._encode_part(part) for _, part in parts]) + b"]"

    def _encode_part(self, part: UserContent) -> bytes:
        if isinstance(part, Text):
            return b'{"type":"text","text":' + encode_json_string(part.text) + b"}"
        if isinstance(part, Image):
            return b'{"type":"image_url","image_url":{"url":' + encode_data_url(part) + b"}}"
        if part.media_type in TEXT_TYPES and part.data:
            return b'{"type":"text","text":' + encode_json_string(format_document(part)) + b"}"
        if not part.data:
            return b'{"type":"text","text":' + encode_json_string(f"[document: {part.url}]") + b"}"
        return b'{"type":"file","file":{%b}}' % encode_file(part)

    def _encode_calls(self, parts: Sequence[AssistantContent]) -> list[bytes]:
        calls: list[bytes] = []
        extra = b""
        for part in parts:
            if isinstance(part, Opaque) and part.label == CALL_EXTRA_LABEL:
                extra = part.json.encode()
            elif isinstance(part, ToolCall):
                if self._quirks.requires_call_signatures and not extra and not calls:
                    extra = _UNSIGNED_CALL
                function = b'{"name":' + encode_json_string(part.name)
                function += b',"arguments":' + encode_arguments(part) + b"}"
                call_id = encode_json_string(self._to_server_id(part.id))
                call = b'{"id":%b,"type":"function","function":%b' % (call_id, function)
                calls.append(call + (b',"extra_content":' + extra if extra else b"") + b"}")
                extra = b""
        return calls

    def _encode_reasoning(self, thoughts: Sequence[Thinking]) -> bytes:
        field: str = self._quirks.reasoning_input_field
        if field == "reasoning_details":
            return _encode_details(thoughts)
        if field == REASONING_PARTS:
            return b""
        if field == "same":
            if details := _encode_details([t for t in thoughts if t.id != REASONING_PARTS]):
                return details
            field = next((t.id for t in thoughts if t.id in REASONING_FIELDS), "")
        text = "".join([thought.text for thought in thoughts])
        if not field or not (text or self._quirks.requires_reasoning_field):
            return b""
        return b',"' + field.encode() + b'":' + encode_json_string(text)

    def _to_server_id(self, call_id: str) -> str:
        if not self._quirks.requires_short_ids or _SHORT_ID.fullmatch(call_id):
            return call_id
        import hashlib  # only one server needs it

        return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]


def _encode_details(thoughts: Sequence[Thinking]) -> bytes:
    details = thoughts[0].signature if thoughts else ""
    return b',"reasoning_details":' + details.encode() if details else b""


def _encode_thinking_parts(thoughts: Sequence[Thinking], text: bytes) -> bytes:
    """Thinking and text as parts of the content: Mistral."""
    parts: list[bytes] = []
    for thought in thoughts:
        part = b'{"type":"thinking","thinking":[{"type":"text","text":%b}]' % encode_json_string(
            thought.text
        )
        if thought.signature:
            part += b',"signature":' + encode_json_string(thought.signature)
        parts.append(part + b"}")
    if text:
        parts.append(b'{"type":"text","text":' + text + b"}")
    return b"[" + b",".join(parts) + b"]"


def _is_attachment(part: ResultContent) -> bool:
    if isinstance(part, Document):
        return part.media_type not in TEXT_TYPES or not part.data
    return isinstance(part, Image)


def encode_chat_body(
    model: str, card: ModelCard, quirks: Quirks, encoder: ChatEncoder, request: ModelRequest
) -> list[bytes]:
    """The body of a request, in parts."""
    history = encode_transcript(encoder, request.transcript, request.quarantine)
    messages = history.messages()
    head = b'{"model":' + encode_json_string(model) + b',"messages":['
    if request.system:
        values = (encoder.system_role.encode(), encode_json_string(request.system))
        head += b'{"role":"%b","content":%b}' % values
        if any(messages):
            head += b","
    tail = b'],"stream":true'
    if tools := [spec for spec in request.tools if not spec.deferred]:
        specs = [encode_tool(spec, True, quirks.supports_strict) for spec in tools]
        tail += b',"tools":[' + b",".join(specs) + b"]"
    return [head, *messages, tail + encode_fields(_build_options(card, quirks, request)) + b"}"]


def _build_options(card: ModelCard, quirks: Quirks, request: ModelRequest) -> dict[str, object]:
    options = request.options
    values = build_common_options(options, card, bool(request.tools))
    if quirks.supports_stream_usage:
        values["stream_options"] = {"include_usage": True}
    if options.max_tokens is not None:
        values[quirks.max_tokens_field] = options.max_tokens
    if options.seed is not None:
        values["seed"] = options.seed
    if options.stop:
        values["stop"] = list(options.stop)
    if request.tools and options.tool_choice != "auto":
        values["tool_choice"] = encode_tool_choice(options.tool_choice, True)
    if options.output_schema is not None:
        values["response_format"] = _build_response_format(quirks, options.output_schema)
    values |= build_effort_fields(card, quirks, options)
    return values | build_cache_fields(quirks, request) | options.extra


def _build_response_format(quirks: Quirks, schema: dict[str, object]) -> dict[str, object]:
    shape: dict[str, object] = {"name": "output", "schema": schema}
    if quirks.supports_strict:
        shape["strict"] = is_strict_schema(schema)
    return {"type": "json_schema", "json_schema": shape}

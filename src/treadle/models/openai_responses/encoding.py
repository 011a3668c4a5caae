"""Encodes a Responses request: stateless by default, or a continuation of a stored response.

Sans-IO. `ResponsesEncoder` encodes the items of a transcript, each once (provider_base/
encoding.py); encrypted reasoning is sent back unchanged, before the item that it led to.
`encode_responses_body` adds the head and the tail.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence

import msgspec

from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.core.contracts.tool import ToolSpec
from treadle.core.transcript.content import (
    AssistantContent,
    Image,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    UserContent,
)
from treadle.core.transcript.items import Metadata
from treadle.models.openai_responses.decoding import (
    CALL_EXTRA_LABEL,
    EXTRA_LABELS,
    ITEM_LABEL,
    MESSAGE_EXTRA_LABEL,
)
from treadle.models.openai_responses.free_text import (
    FREE_TEXT_CALL,
    FreeTextTools,
    encode_free_text_tool,
    find_free_text_tools,
    read_free_text,
)
from treadle.models.output_schema import is_strict_schema
from treadle.models.provider_base.codec import CITATIONS_LABEL
from treadle.models.provider_base.encoding import (
    EncodedBlock,
    InputParts,
    MessageEncoder,
    ReplyParts,
    ResultParts,
    encode_json_string,
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
    get_engine_role,
    resolve_effort,
)
from treadle.models.provider_base.quirks import Quirks
from treadle.models.provider_base.request_limits import (
    OFFICE_TYPES,
    RequestLimits,
    list_sent_tools,
    make_provider_tool_name,
)

MAX_METADATA_KEYS = 16
MAX_NAMESPACE_CHARS = 100
TOOL_SEARCH = b'{"type":"tool_search"}'
_SERVER_PREFIX = re.compile(r"mcp__.+?(?=__)")


class ResponsesEncoder(MessageEncoder):
    """Encodes items as input items."""

    accepts_reply_first = True

    def __init__(self, quirks: Quirks, model: str = "", free_text: FreeTextTools = {}) -> None:  # noqa: B006 - not changed
        self.cache_key: Hashable = ("openai_responses", quirks, model, *free_text.items())
        self.free_text = free_text
        self._engine_role = get_engine_role(quirks)
        self.limits = RequestLimits(
            origin=quirks.name,
            max_images=quirks.max_images,
            max_body_bytes=quirks.max_body_bytes,
            document_types=frozenset(("text/plain", "application/pdf", *OFFICE_TYPES)),
            max_id_length=64,
            model=model,
            signed_labels=frozenset({ITEM_LABEL}),
        )

    def encode_input(self, parts: InputParts, by_engine: bool = False) -> list[EncodedBlock]:
        if not parts:
            return []
        role = self._engine_role if by_engine else b"user"
        content = b",".join([_encode_input_part(part) for _, part in parts])
        return [(parts[0][0], b'{"type":"message","role":"%b","content":[%b]}' % (role, content))]

    def encode_reply(self, parts: ReplyParts) -> list[EncodedBlock]:
        blocks: list[EncodedBlock] = []
        extras: dict[str, bytes] = {}
        for number, part in parts:
            if isinstance(part, Opaque) and part.label in EXTRA_LABELS:
                extras[part.label] = part.json.encode()
                continue
            blocks.append((number, _encode_output_item(part, extras, self.free_text)))
            extras = {}
        # The provider refuses reasoning without a following item, which may have been cut.
        while blocks and blocks[-1][1].startswith(_REASONING_PREFIX):
            blocks.pop()
        return blocks

    def encode_result(
        self, call: ToolCall, parts: ResultParts, is_error: bool
    ) -> list[EncodedBlock]:
        if all(type(part) is Text for _, part in parts):
            texts = [part.text for _, part in parts if type(part) is Text]
            output = encode_json_string("\n".join(texts))
        else:
            output = b"[" + b",".join([_encode_input_part(part) for _, part in parts]) + b"]"
        is_free_text = read_free_text(call, self.free_text) is not None
        kind = FREE_TEXT_CALL if is_free_text else "function_call"
        answer = b'{"type":"%b_output","call_id":' % kind.encode() + encode_json_string(call.id)
        return [(parts[0][0], answer + b',"output":' + output + b"}")]


_REASONING_PREFIX = b'{"type":"reasoning"'


def _encode_input_part(part: UserContent) -> bytes:
    if isinstance(part, Text):
        return b'{"type":"input_text","text":' + encode_json_string(part.text) + b"}"
    if isinstance(part, Image):
        return b'{"type":"input_image","detail":"auto","image_url":' + encode_data_url(part) + b"}"
    if not part.data:
        return b'{"type":"input_file","file_url":' + encode_json_string(part.url) + b"}"
    return b'{"type":"input_file",%b}' % encode_file(part)


def _encode_output_item(
    part: AssistantContent, extras: Mapping[str, bytes], free_text: FreeTextTools
) -> bytes:
    if isinstance(part, Text):
        content = encode_json_string(part.text)
        # Strict servers take parts only in a message with an id.
        if ITEM_LABEL in extras or CITATIONS_LABEL in extras:
            values = (extras.get(CITATIONS_LABEL, b"[]"), content)
            content = b'[{"type":"output_text","annotations":%b,"text":%b}]' % values
        fields = _get_fields(extras, ITEM_LABEL) + _get_fields(extras, MESSAGE_EXTRA_LABEL)
        return b'{"type":"message","role":"assistant","content":%b%b}' % (content, fields)
    if isinstance(part, ToolCall):
        free = read_free_text(part, free_text)
        kind, foreign_id = ("function_call", b'"ctc') if free is None else (FREE_TEXT_CALL, b'"fc')
        call = b'{"type":"%b","call_id":' % kind.encode() + encode_json_string(part.id)
        call += b',"name":' + encode_json_string(part.name)
        if free is None:
            call += b',"arguments":' + encode_arguments(part)
        else:
            call += b',"input":' + encode_json_string(free)
        if foreign_id not in extras.get(ITEM_LABEL, b""):  # the id of an item tells its type
            call += _get_fields(extras, ITEM_LABEL)
        return call + _get_fields(extras, CALL_EXTRA_LABEL) + b"}"
    if isinstance(part, Thinking):
        text = b'{"type":"summary_text","text":' + encode_json_string(part.text) + b"}"
        summary = b',"summary":[' + (text if part.text else b"") + b"]"
        encrypted = b',"encrypted_content":' + encode_json_string(part.signature)
        part_id = b',"id":' + encode_json_string(part.id) if part.id else b""
        return _REASONING_PREFIX + part_id + summary + encrypted + b"}"
    if isinstance(part, Opaque):
        return part.json.encode()
    raise TypeError(f"a Responses request cannot contain {type(part).__name__}")


def _get_fields(extras: Mapping[str, bytes], label: str) -> bytes:
    """`,"name":value` for each field of the object with this label."""
    return b"," + extras[label][1:-1] if label in extras else b""


def encode_responses_body(
    model: str,
    card: ModelCard,
    quirks: Quirks,
    request: ModelRequest,
    items: Sequence[bytes],
    previous_response_id: str | None,
    store: bool,
) -> list[bytes]:
    """The body of a request, in parts. The items continue the response `previous_response_id`."""
    head = b'{"model":' + encode_json_string(model) + b',"input":['
    tail = b'],"stream":true,"store":' + (b"true" if store else b"false")
    if previous_response_id:
        tail += b',"previous_response_id":' + encode_json_string(previous_response_id)
    if request.system:
        tail += b',"instructions":' + encode_json_string(request.system)
    free_text = find_free_text_tools(request.tools, card)
    specs = list(_encode_tools(list_sent_tools(request.tools, card), free_text))
    if request.options.web_search and "search" in card.abilities:
        specs.append(b'{"type":"web_search"}')
    if specs:
        tail += b',"tools":[' + b",".join(specs) + b"]"
    return [head, *items, tail + encode_fields(_build_options(card, quirks, request)) + b"}"]


def _encode_tools(tools: Sequence[ToolSpec], free_text: FreeTextTools) -> list[bytes]:
    """The declarations. Deferred tools are in namespaces, as the provider recommends: of these the
    model sees the names and descriptions."""
    encoded = [
        encode_free_text_tool(tool) if tool.name in free_text else encode_tool(tool, False, True)
        for tool in tools
        if not tool.deferred
    ]
    groups: dict[str, list[ToolSpec]] = {}
    for tool in tools:
        if tool.deferred:
            server = _SERVER_PREFIX.match(tool.name)
            groups.setdefault(server[0] if server else "more", []).append(tool)
    for name, group in groups.items():
        names = ", ".join(tool.name.removeprefix(f"{name}__") for tool in group)
        fields = b'{"type":"namespace","name":%b,"description":%b,"tools":[%b]}' % (
            encode_json_string(make_provider_tool_name(name)),
            encode_json_string(f"{len(group)} tools: {names}"[:MAX_NAMESPACE_CHARS]),
            b",".join([encode_tool(tool, False, True) for tool in group]),
        )
        encoded.append(fields)
    return [*encoded, TOOL_SEARCH] if groups else encoded


def _build_options(card: ModelCard, quirks: Quirks, request: ModelRequest) -> dict[str, object]:
    options = request.options
    values = build_common_options(options, card, bool(request.tools))
    if "thinking" in card.abilities:
        values["include"] = ["reasoning.encrypted_content"]
    if options.max_tokens is not None:
        values["max_output_tokens"] = options.max_tokens
    effort = resolve_effort(options, card)
    if effort is not None and "effort" in card.abilities:
        kept = {"context": "all_turns"} if "all_turns" in card.abilities else {}
        values["reasoning"] = {"effort": effort, "summary": "auto", **kept}
    text: dict[str, object] = {}
    if options.thinking is not None and card.verbosity:
        text["verbosity"] = card.verbosity
    if request.tools and options.tool_choice != "auto":
        values["tool_choice"] = encode_tool_choice(options.tool_choice, False)
        if options.tool_choice in find_free_text_tools(request.tools, card):
            values["tool_choice"] = {"type": "custom", "name": options.tool_choice}
    if options.output_schema is not None:
        schema = options.output_schema
        shape = {"type": "json_schema", "name": "output", "schema": schema}
        text["format"] = {**shape, "strict": is_strict_schema(schema)}
    if text:
        values["text"] = text
    if request.metadata:
        values["metadata"] = _encode_metadata(request.metadata)
    return values | build_cache_fields(quirks, request) | options.extra


def _encode_metadata(metadata: Metadata) -> dict[str, str]:
    """As the provider takes it: a few short texts."""
    entries = list(metadata.items())[:MAX_METADATA_KEYS]
    return {key[:64]: _format_value(value)[:512] for key, value in entries}


def _format_value(value: str | int | float | bool) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()

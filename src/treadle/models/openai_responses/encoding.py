"""A request in the Responses dialect: stateless by default, or chained to the last response.

Sans-IO. Items are encoded by `ResponsesDialect` once each (see models/encoding); sealed
reasoning goes back unchanged, in front of what it led to. Head and tail are made here too.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.core.transcript.content import (
    AssistantContent,
    Image,
    Opaque,
    ResultContent,
    Text,
    Thinking,
    ToolCall,
    UserContent,
)
from treadle.core.transcript.items import AssistantItem, ToolResultItem
from treadle.models.compiler import Rules
from treadle.models.encoding import Block, Role, json_text
from treadle.models.openai_responses.decoding import MESSAGE_EXTRA
from treadle.models.openai_wire import (
    TOOL_CHOICES,
    arguments_text,
    cache_field,
    data_url,
    effort,
    fields,
    file_name,
    is_strict,
    tool_bytes,
)
from treadle.models.quirks import Quirks


class ResponsesDialect:
    """How items become input items."""

    merging = False

    def __init__(self, quirks: Quirks) -> None:
        self.key: Hashable = ("openai_responses", quirks.name)
        self.rules = Rules(
            origin=quirks.name,
            max_images=quirks.max_images,
            max_body_bytes=quirks.max_body_bytes,
            max_id_length=64,
        )

    def opening(self, role: Role) -> bytes:
        return b""

    def closing(self, role: Role) -> bytes:
        return b""

    def said(self, parts: Sequence[tuple[int, UserContent]]) -> list[Block]:
        if not parts:
            return []
        content = b",".join([_input_part(part) for _, part in parts])
        return [(parts[0][0], b'{"type":"message","role":"user","content":[' + content + b"]}")]

    def replied(
        self, parts: Sequence[tuple[int, AssistantContent]], item: AssistantItem
    ) -> list[Block]:
        blocks: list[Block] = []
        extra = b""
        for number, part in parts:
            if isinstance(part, Opaque) and part.label == MESSAGE_EXTRA:
                extra = b"," + part.json.encode()[1:-1]
                continue
            blocks.append((number, _output_item(part, extra)))
            extra = b""
        # Reasoning that led to nothing is refused: it stays behind if its item was cut.
        while blocks and blocks[-1][1].startswith(_REASONING):
            blocks.pop()
        return blocks

    def answered(
        self,
        call_id: str,
        name: str,
        parts: Sequence[tuple[int, ResultContent]],
        is_error: bool,
    ) -> list[Block]:
        if all(type(part) is Text for _, part in parts):
            output = json_text("\n".join([part.text for _, part in parts if type(part) is Text]))
        else:
            output = b"[" + b",".join([_input_part(part) for _, part in parts]) + b"]"
        answer = b'{"type":"function_call_output","call_id":' + json_text(call_id)
        return [(parts[0][0], answer + b',"output":' + output + b"}")]

    def after_answers(self, items: Sequence[tuple[int, ToolResultItem]]) -> list[Block]:
        return []


_REASONING = b'{"type":"reasoning"'


def _input_part(part: UserContent) -> bytes:
    if isinstance(part, Text):
        return b'{"type":"input_text","text":' + json_text(part.text) + b"}"
    if isinstance(part, Image):
        return b'{"type":"input_image","detail":"auto","image_url":' + data_url(part) + b"}"
    if not part.data:
        return b'{"type":"input_file","file_url":' + json_text(part.url) + b"}"
    file = b'"filename":' + file_name(part) + b',"file_data":' + data_url(part)
    return b'{"type":"input_file",' + file + b"}"


def _output_item(part: AssistantContent, extra: bytes) -> bytes:
    if isinstance(part, Text):
        text = b'{"type":"output_text","annotations":[],"text":' + json_text(part.text) + b"}"
        return b'{"type":"message","role":"assistant","content":[' + text + b"]" + extra + b"}"
    if isinstance(part, ToolCall):
        call = b'{"type":"function_call","call_id":' + json_text(part.id)
        call += b',"name":' + json_text(part.name)
        return call + b',"arguments":' + arguments_text(part) + b"}"
    if isinstance(part, Thinking):
        text = b'{"type":"summary_text","text":' + json_text(part.text) + b"}"
        summary = b',"summary":[' + (text if part.text else b"") + b"]"
        sealed = b',"encrypted_content":' + json_text(part.signature)
        return _REASONING + b',"id":' + json_text(part.id) + summary + sealed + b"}"
    if isinstance(part, Opaque):
        return part.json.encode()
    raise TypeError(f"{type(part).__name__} is not of this dialect")


def wrapped(
    model: str,
    card: ModelCard,
    quirks: Quirks,
    request: ModelRequest,
    items: Sequence[bytes],
    previous: str | None,
    keep: bool,
) -> list[bytes]:
    """The request in pieces. `previous` is the response that these items go on from."""
    head = b'{"model":' + json_text(model) + b',"input":['
    tail = b'],"stream":true,"store":' + (b"true" if keep else b"false")
    if previous:
        tail += b',"previous_response_id":' + json_text(previous)
    if request.system:
        tail += b',"instructions":' + json_text(request.system)
    if request.tools:
        specs = [tool_bytes(spec, False, True) for spec in request.tools]
        tail += b',"tools":[' + b",".join(specs) + b"]"
    return [head, *items, tail + fields(_options(card, quirks, request)) + b"}"]


def _options(card: ModelCard, quirks: Quirks, request: ModelRequest) -> dict[str, object]:
    options = request.options
    values: dict[str, object] = {}
    if "thinking" in card.abilities:
        values["include"] = ["reasoning.encrypted_content"]
    if options.max_tokens is not None:
        values["max_output_tokens"] = options.max_tokens
    if options.temperature is not None and "sampling" in card.abilities:
        values["temperature"] = options.temperature
    word = effort(options)
    if word is not None and "effort" in card.abilities:
        values["reasoning"] = {"effort": word, "summary": "auto"}
    if request.tools and options.tool_choice != "auto":
        named = {"type": "function", "name": options.tool_choice}
        values["tool_choice"] = TOOL_CHOICES.get(options.tool_choice, named)
    if options.output_schema is not None:
        schema = options.output_schema
        shape = {"type": "json_schema", "name": "output", "schema": schema}
        values["text"] = {"format": {**shape, "strict": is_strict(schema)}}
    return values | cache_field(quirks, request) | options.extra

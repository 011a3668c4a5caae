"""A request in the chat-completions dialect, for whichever server is behind it.

Sans-IO. Items are encoded by `ChatDialect` once each (see models/encoding); what changes from
request to request is the small head and tail around them, made here too.
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
from treadle.core.transcript.items import AssistantItem, ToolResultItem
from treadle.models.compiler import Rules, sendable_answer
from treadle.models.encoding import REFUSED, Block, Role, encoded, json_text
from treadle.models.openai_chat.decoding import CALL_EXTRA
from treadle.models.openai_wire import (
    TOOL_CHOICES,
    arguments_text,
    cache_field,
    data_url,
    document_text,
    effort,
    fields,
    file_name,
    is_strict,
    tool_bytes,
)
from treadle.models.quirks import Quirks

# Gemini's own word for a call that it did not sign, because another model made it.
_UNSIGNED = b'{"google":{"thought_signature":"skip_thought_signature_validator"}}'

_NINE = re.compile(r"[a-zA-Z0-9]{9}")


class ChatDialect:
    """How items become messages. `quarantine` is what one request must not hold."""

    merging = False

    def __init__(
        self, quirks: Quirks, quarantine: frozenset[tuple[int, int]] = frozenset()
    ) -> None:
        self._quirks = quirks
        self._quarantine = quarantine
        self.key: Hashable = ("openai_chat", quirks)
        self.rules = Rules(
            origin=quirks.name,
            max_images=quirks.max_images,
            max_body_bytes=quirks.max_body_bytes,
            document_types=frozenset(
                {"text/plain", "application/pdf"} if quirks.documents else {"text/plain"}
            ),
            max_id_length=40,
            keeps_thinking=bool(quirks.reasoning_back),
            needs_signature=quirks.reasoning_back == "reasoning_details",
        )

    def opening(self, role: Role) -> bytes:
        return b""

    def closing(self, role: Role) -> bytes:
        return b""

    def said(self, parts: Sequence[tuple[int, UserContent]]) -> list[Block]:
        if not parts:
            return []
        return [(parts[0][0], b'{"role":"user","content":' + self._content(parts) + b"}")]

    def replied(
        self, parts: Sequence[tuple[int, AssistantContent]], item: AssistantItem
    ) -> list[Block]:
        texts = [part.text for _, part in parts if type(part) is Text]
        calls = self._calls([part for _, part in parts])
        if not texts and not calls:
            return []
        message = b'{"role":"assistant","content":'
        # Some servers refuse an empty text, others a reply without the field.
        message += json_text("\n\n".join(texts)) if texts else b"null"
        message += self._reasoning([part for _, part in parts if type(part) is Thinking])
        if calls:
            message += b',"tool_calls":[' + b",".join(calls) + b"]"
        return [(parts[0][0], message + b"}")]

    def answered(
        self,
        call_id: str,
        name: str,
        parts: Sequence[tuple[int, ResultContent]],
        is_error: bool,
    ) -> list[Block]:
        texts: list[str] = []
        moved = 0
        for _, part in parts:
            if isinstance(part, Text):
                texts.append(part.text)
            elif isinstance(part, Document) and part.media_type == "text/plain" and part.data:
                texts.append(document_text(part))
            else:
                moved += 1
        if moved:
            texts.append(f"[{moved} attachment(s) of this result follow in the next message]")
        message = b'{"role":"tool","tool_call_id":' + json_text(self._id(call_id))
        return [(parts[0][0], message + b',"content":' + json_text("\n".join(texts)) + b"}")]

    def after_answers(self, items: Sequence[tuple[int, ToolResultItem]]) -> list[Block]:
        """A tool's message holds only text: pictures and files follow from the user's side."""
        moved: list[tuple[int, UserContent]] = []
        for position, item in items:
            parts = sendable_answer(
                item, position, self.rules, dict.fromkeys(self._quarantine, REFUSED)
            )
            moved += [(number, part) for number, part in parts if _is_moved(part)]
        if not moved:
            return []
        return self.said([(moved[0][0], Text("Attachments of the results above:")), *moved])

    def _content(self, parts: Sequence[tuple[int, UserContent]]) -> bytes:
        if len(parts) == 1 and isinstance(parts[0][1], Text):
            return json_text(parts[0][1].text)
        return b"[" + b",".join([self._part(part) for _, part in parts]) + b"]"

    def _part(self, part: UserContent) -> bytes:
        if isinstance(part, Text):
            return b'{"type":"text","text":' + json_text(part.text) + b"}"
        if isinstance(part, Image):
            return b'{"type":"image_url","image_url":{"url":' + data_url(part) + b"}}"
        if part.media_type == "text/plain" and part.data:
            return b'{"type":"text","text":' + json_text(document_text(part)) + b"}"
        if not part.data:
            return b'{"type":"text","text":' + json_text(f"[document: {part.url}]") + b"}"
        file = b'{"filename":' + file_name(part) + b',"file_data":' + data_url(part) + b"}"
        return b'{"type":"file","file":' + file + b"}"

    def _calls(self, parts: Sequence[AssistantContent]) -> list[bytes]:
        calls: list[bytes] = []
        extra = b""
        for part in parts:
            if isinstance(part, Opaque) and part.label == CALL_EXTRA:
                extra = part.json.encode()
            elif isinstance(part, ToolCall):
                if self._quirks.call_signatures and not extra and not calls:
                    extra = _UNSIGNED
                function = b'{"name":' + json_text(part.name)
                function += b',"arguments":' + arguments_text(part) + b"}"
                call = b'{"id":' + json_text(self._id(part.id)) + b',"type":"function"'
                call += b',"function":' + function
                calls.append(call + (b',"extra_content":' + extra if extra else b"") + b"}")
                extra = b""
        return calls

    def _reasoning(self, thoughts: Sequence[Thinking]) -> bytes:
        field = self._quirks.reasoning_back
        if field == "reasoning_details":
            details = thoughts[0].signature if thoughts else ""
            return b',"reasoning_details":' + details.encode() if details else b""
        text = "".join([thought.text for thought in thoughts])
        if not field or not (text or self._quirks.reasoning_always):
            return b""
        return b',"' + field.encode() + b'":' + json_text(text)

    def _id(self, call_id: str) -> str:
        if not self._quirks.short_ids or _NINE.fullmatch(call_id):
            return call_id
        import hashlib  # for one server only

        return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]


def _is_moved(part: ResultContent) -> bool:
    if isinstance(part, Document):
        return part.media_type != "text/plain" or not part.data
    return isinstance(part, Image)


def body(
    model: str, card: ModelCard, quirks: Quirks, dialect: ChatDialect, request: ModelRequest
) -> list[bytes]:
    """The request in pieces, to be sent one behind the other."""
    history = encoded(dialect, request.transcript, request.quarantine)
    messages = history.messages()
    head = b'{"model":' + json_text(model) + b',"messages":['
    if request.system:
        # The older models know only `system`.
        role = quirks.system_role if "thinking" in card.abilities else "system"
        head += b'{"role":"' + role.encode() + b'","content":' + json_text(request.system) + b"}"
        if any(messages):
            head += b","
    tail = b'],"stream":true' + _tools(quirks, request) + fields(_options(card, quirks, request))
    return [head, *messages, tail + b"}"]


def _tools(quirks: Quirks, request: ModelRequest) -> bytes:
    if not request.tools:
        return b""
    specs = [tool_bytes(spec, True, quirks.strict_schema) for spec in request.tools]
    return b',"tools":[' + b",".join(specs) + b"]"


def _options(card: ModelCard, quirks: Quirks, request: ModelRequest) -> dict[str, object]:
    options = request.options
    values: dict[str, object] = {}
    if quirks.stream_usage:
        values["stream_options"] = {"include_usage": True}
    if options.max_tokens is not None:
        values[quirks.limit_field] = options.max_tokens
    if options.temperature is not None and "sampling" in card.abilities:
        values["temperature"] = options.temperature
    if options.stop:
        values["stop"] = list(options.stop)
    if request.tools and options.tool_choice != "auto":
        named = {"type": "function", "function": {"name": options.tool_choice}}
        values["tool_choice"] = TOOL_CHOICES.get(options.tool_choice, named)
    if options.output_schema is not None:
        values["response_format"] = _format(quirks, options.output_schema)
    values |= _thinking(card, quirks, request)
    return values | cache_field(quirks, request) | options.extra


def _thinking(card: ModelCard, quirks: Quirks, request: ModelRequest) -> dict[str, object]:
    word = effort(request.options)
    if word is None or not quirks.effort_field:
        return {}
    if quirks.effort_field == "reasoning_effort":
        # Of a model on one's own server nothing is known; those ignore what they cannot do.
        may = "effort" in card.abilities or not quirks.key_needed
        return {"reasoning_effort": word} if may else {}
    budget = request.options.thinking
    return {"reasoning": {"max_tokens": budget} if isinstance(budget, int) else {"effort": word}}


def _format(quirks: Quirks, schema: dict[str, object]) -> dict[str, object]:
    shape: dict[str, object] = {"name": "output", "schema": schema}
    if quirks.strict_schema:
        shape["strict"] = is_strict(schema)
    return {"type": "json_schema", "json_schema": shape}

"""Decodes a Responses stream into model events and one reply.

Sans-IO. `response.output_item.done` has the whole item, and only it has encrypted reasoning. The
deltas become events, and replace the items of servers that do not send them. An item is
identified by its output index if it has one, else by its id.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from treadle.core.contracts.model import (
    ModelCard,
    ModelEvent,
    ModelRequest,
    ModelTextDelta,
    ModelThinkingDelta,
    ModelToolCallBegan,
    ModelToolCallDelta,
    ModelToolCallRequested,
    ModelUsageUpdated,
)
from treadle.core.errors import StreamBroken
from treadle.core.transcript.content import AssistantContent, Opaque, Text, Thinking, ToolCall
from treadle.core.transcript.items import AssistantItem, StopReason
from treadle.core.transcript.usage import Usage
from treadle.models.provider_base.codec import make_unique_call_id
from treadle.models.provider_base.error_mapping import (
    ProviderErrorBody,
    ProviderInfo,
    has_field,
    incomplete_stream_error,
    map_error_body,
    parse_error_body,
    unreadable_event_error,
)
from treadle.models.provider_base.lenient import decode_leniently
from treadle.models.provider_base.openai_common import OpenAIUsage, convert_usage
from treadle.models.provider_base.request_limits import restore_tool_name

# The labels of an Opaque that belongs to the part after it, and is sent back with it.
MESSAGE_EXTRA_LABEL = "message_extra"
CALL_EXTRA_LABEL = "function_call_extra"
CITATIONS_LABEL = "citations"
EXTRA_LABELS = frozenset({MESSAGE_EXTRA_LABEL, CALL_EXTRA_LABEL, CITATIONS_LABEL})


class _Delta(msgspec.Struct, gc=False):
    delta: str = ""
    item_id: str = ""
    output_index: int | None = None
    summary_index: int = 0

    @property
    def key(self) -> int | str:
        return self.item_id if self.output_index is None else self.output_index


class _ItemEvent(msgspec.Struct):
    item: msgspec.Raw
    output_index: int | None = None


class _Part(msgspec.Struct):
    type: str = ""
    text: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None


class _ItemHeader(msgspec.Struct):
    type: str = ""
    id: str | None = None


class _Item(msgspec.Struct):
    type: str = ""
    id: str | None = None
    status: str | None = None
    content: list[_Part] | None = None
    summary: list[_Part] | None = None
    encrypted_content: str | None = None
    phase: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    namespace: str | None = None


class _FailureDetails(msgspec.Struct):
    reason: str | None = None
    code: str | None = None
    message: str | None = None


class _Response(msgspec.Struct):
    id: str | None = None
    error: _FailureDetails | None = None
    incomplete_details: _FailureDetails | None = None
    usage: OpenAIUsage | None = None
    output: list[msgspec.Raw] | None = None


class _ResponseEvent(msgspec.Struct):
    response: _Response


class _TypeOnly(msgspec.Struct):
    type: str = ""


_decode_delta = msgspec.json.Decoder(_Delta).decode
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
        "delta",
    ]
)
# Items of other types are kept as they are.
_READ_ITEMS = frozenset({"message", "function_call", "reasoning"})
T = TypeVar("T", bound=msgspec.Struct)


def _decode(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return decode_leniently(data, kind, _STRICT_FIELDS)


def _decode_item(data: bytes) -> _Item:
    header = _decode(data, _ItemHeader)
    if header.type in _READ_ITEMS:
        return _decode(data, _Item)
    return _Item(type=header.type, id=header.id)


class _Status(msgspec.Struct):
    status: str | None = None


def split_response(body: bytes) -> list[tuple[bytes, bytes]]:
    """The last event of a stream that holds this whole response."""
    if not has_field(body, "output"):
        return []
    status = _decode(body, _Status).status or "completed"
    return [(b"response." + status.encode(), b'{"response":' + body + b"}")]


class _PartialItem(msgspec.Struct):
    """One output item while it arrives; `raw` is the whole item, once it is complete."""

    item: _Item
    raw: bytes = b""
    call_id: str = ""
    call: ToolCall | None = None
    deltas: list[str] = []


class ResponsesDecoder:
    """Decodes one response; see codec.Decoder for its promises. `max_tokens` is the limit."""

    def __init__(
        self,
        request: ModelRequest,
        card: ModelCard,
        provider: ProviderInfo,
        origin: str,
        max_tokens: int | None = None,
    ) -> None:
        self.progress = 0
        self.done = False
        self.response_id = ""
        self._transcript = request.transcript
        self._tools = request.tools
        self._card = card
        self._provider = provider
        self._origin = origin
        self._max_tokens = max_tokens
        self._partial_items: dict[int | str, _PartialItem] = {}
        self._doubtful_calls: list[tuple[_PartialItem, ToolCall]] = []
        self._ids: set[str] = set()
        self._is_cut = False
        self._is_refused = False
        self._refusal_text = ""
        self._usage: OpenAIUsage | None = None

    def feed(self, events: Iterable[tuple[bytes, bytes]]) -> list[ModelEvent]:
        out: list[ModelEvent] = []
        for name, data in events:
            try:
                if name == b"response.output_text.delta" and b'"delta"' in data:
                    self._read_delta(data, ModelTextDelta, out)
                elif data != b"[DONE]":
                    self._handle_event(name or _decode(data, _TypeOnly).type.encode(), data, out)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                expected = "of the Responses protocol"
                raise unreadable_event_error(self._provider, data, expected, error) from error
        return out

    def finish(self) -> AssistantItem:
        if not self.done:
            raise incomplete_stream_error(self._provider)
        content: list[AssistantContent] = []
        for partial in self._partial_items.values():
            self._append_content(partial, content)
        if self._refusal_text:
            content.append(Text(self._refusal_text))
        return AssistantItem(
            content=tuple(content),
            stop=self._stop_reason(content),
            model=self._card.name,
            usage=self._build_usage(),
            response_id=self.response_id,
        )

    # ------------------------------------------------------------------ events by name

    def _handle_event(self, name: bytes, data: bytes, out: list[ModelEvent]) -> None:
        match name:
            case b"response.output_text.delta" | b"response.refusal.delta":
                self._read_delta(data, ModelTextDelta, out)
            case b"response.function_call_arguments.delta":
                self._read_arguments(_decode(data, _Delta), out)
            case b"response.reasoning_summary_text.delta" | b"response.reasoning_text.delta":
                self._read_delta(data, ModelThinkingDelta, out)
            case b"response.reasoning_summary_part.added":
                part = _decode(data, _Delta)
                if part.summary_index:
                    self._append_delta(part.key, "\n\n")
                    out.append(ModelThinkingDelta("\n\n"))
            case b"response.output_item.added":
                event = _decode(data, _ItemEvent)
                self._start_item(_decode_item(bytes(event.item)), event.output_index, out)
            case b"response.output_item.done":
                event = _decode(data, _ItemEvent)
                self._finish_item(bytes(event.item), event.output_index, out)
            case b"response.created" | b"response.in_progress" | b"response.queued":
                self.response_id = _decode(data, _ResponseEvent).response.id or self.response_id
            case b"response.completed" | b"response.incomplete" | b"response.done":
                self._finish_response(_decode(data, _ResponseEvent).response, out)
            case b"response.failed" | b"response.cancelled":
                self._handle_failure(_decode(data, _ResponseEvent).response)
            case b"error":
                raise map_error_body(self._provider, parse_error_body(data), None)
            case _:
                # Server-side tools report their progress, which is not kept. Data that is not
                # JSON still means a broken stream.
                _decode(data, _TypeOnly)
                if name.startswith(b"response."):
                    self.progress += 1

    def _read_delta(
        self,
        data: bytes,
        event_type: type[ModelTextDelta] | type[ModelThinkingDelta],
        out: list[ModelEvent],
    ) -> None:
        try:
            delta = _decode_delta(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            delta = _decode(data, _Delta)
        self.progress += 1
        self._append_delta(delta.key, delta.delta)
        out.append(event_type(delta.delta))

    def _append_delta(self, key: int | str, text: str) -> None:
        partial = self._partial_items.get(key)
        if partial is not None:
            partial.deltas.append(text)

    def _read_arguments(self, delta: _Delta, out: list[ModelEvent]) -> None:
        self.progress += 1
        partial = self._partial_items.get(delta.key)
        if partial is None:
            name = self._provider.name
            message = f"{name} sent arguments of a call that it had not started."
            raise StreamBroken(message, provider=name)
        partial.deltas.append(delta.delta)
        out.append(ModelToolCallDelta(partial.call_id, delta.delta))

    def _start_item(self, item: _Item, index: int | None, out: list[ModelEvent]) -> _PartialItem:
        self.progress += 1
        partial = _PartialItem(item)
        key = item.id or f"item {len(self._partial_items)}"
        self._partial_items[key if index is None else index] = partial
        if item.type == "function_call":
            partial.call_id = make_unique_call_id(item.call_id or "", self._ids, self._transcript)
            out.append(ModelToolCallBegan(partial.call_id, self._get_tool_name(item)))
        return partial

    def _finish_item(self, raw: bytes, index: int | None, out: list[ModelEvent]) -> None:
        self.progress += 1
        item = _decode_item(raw)
        key = item.id if index is None else index
        partial = self._partial_items.get(key) if key is not None else None
        if partial is None:
            partial = self._start_item(item, index, out)
        partial.item, partial.raw = item, raw
        if item.type == "function_call" and item.status != "incomplete" and partial.call is None:
            arguments = item.arguments if item.arguments is not None else "".join(partial.deltas)
            call = ToolCall(partial.call_id, self._get_tool_name(item), arguments)
            if call.problem is None:
                partial.call = call
                out.append(ModelToolCallRequested(call))
            else:
                self._doubtful_calls.append((partial, call))

    def _get_tool_name(self, item: _Item) -> str:
        return restore_tool_name(item.name or "", self._tools)

    # ------------------------------------------------------------------ the end

    def _finish_response(self, response: _Response, out: list[ModelEvent]) -> None:
        self.response_id = response.id or self.response_id
        reason = response.incomplete_details.reason if response.incomplete_details else None
        self._is_cut = reason is not None and reason != "content_filter"
        self._is_refused = reason == "content_filter"
        output = response.output or []
        if len(output) > sum(1 for partial in self._partial_items.values() if partial.raw):
            # Some servers send no item events; the whole output is at the end.
            for index, raw in enumerate(output):
                partial = self._partial_items.get(index)
                if partial is None or not partial.raw:
                    self._finish_item(bytes(raw), index, out)
        if response.usage is not None:
            self._usage = response.usage
            out.append(ModelUsageUpdated(self._build_usage()))
        self._resolve_doubtful_calls(out)
        self.done = True

    def _resolve_doubtful_calls(self, out: list[ModelEvent]) -> None:
        """A call with invalid arguments was cut by the limit, or the model wrote it like that.

        llama.cpp reports a reply and its calls as complete although its limit has cut them.
        """
        used = self._usage.output_tokens if self._usage is not None else None
        at_limit = self._max_tokens is not None and used is not None and used >= self._max_tokens
        has_calls = any(partial.call for partial in self._partial_items.values())
        if at_limit and (self._doubtful_calls or not has_calls):
            self._is_cut = True
        for partial, call in self._doubtful_calls:
            if not self._is_cut:
                partial.call = call
                out.append(ModelToolCallRequested(call))

    def _handle_failure(self, response: _Response) -> None:
        details = response.error or _FailureDetails(message="no reason given")
        code, message = details.code or "", details.message or ""
        if "policy" in code or code == "content_filter":  # a refusal, not an error
            self._is_refused, self._refusal_text, self.done = True, message or code, True
            return
        is_about_input = "image" in code or "file" in code
        error = ProviderErrorBody(message=message, code=code)
        raise map_error_body(self._provider, error, 400 if is_about_input else None)

    def _append_content(self, partial: _PartialItem, content: list[AssistantContent]) -> None:
        item = partial.item
        if item.type == "function_call" and partial.call is not None:
            if item.namespace:
                content.append(self._make_extra(CALL_EXTRA_LABEL, {"namespace": item.namespace}))
            content.append(partial.call)
        elif item.type == "message":
            if item.phase:
                content.append(self._make_extra(MESSAGE_EXTRA_LABEL, {"phase": item.phase}))
            if not partial.raw:
                content.append(Text("".join(partial.deltas)))
            for part in item.content or ():
                self._is_refused = self._is_refused or part.refusal is not None
                text = part.text or part.refusal
                if text and part.annotations:
                    content.append(self._make_extra(CITATIONS_LABEL, part.annotations))
                if text:
                    content.append(Text(text))
        elif item.type == "reasoning":
            parts = item.summary or item.content or ()
            text = "\n\n".join([part.text for part in parts if part.text])
            text = text if partial.raw else "".join(partial.deltas)
            encrypted = item.encrypted_content or "" if partial.raw else ""
            if text or encrypted:
                content.append(Thinking(text, encrypted, item.id or "", self._origin))
        elif partial.raw and item.type != "function_call":
            content.append(Opaque(self._origin, partial.raw.decode(), item.type))

    def _make_extra(self, label: str, value: object) -> Opaque:
        return Opaque(self._origin, msgspec.json.encode(value).decode(), label)

    def _stop_reason(self, content: list[AssistantContent]) -> StopReason:
        if self._is_refused:
            return "refusal"
        if self._is_cut:
            return "max_tokens"
        return "tool_use" if any(type(part) is ToolCall for part in content) else "end_turn"

    def _build_usage(self) -> Usage:
        items = self._partial_items.values()
        searches = sum(partial.item.type == "web_search_call" for partial in items)
        return convert_usage(self._card, self._usage or OpenAIUsage(), searches=searches)

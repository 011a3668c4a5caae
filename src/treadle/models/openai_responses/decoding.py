"""A Responses stream, read into model events and one reply.

Sans-IO. What counts is `response.output_item.done`: it holds the whole item, and sealed
reasoning only there. Deltas are for watching, and a stand-in for servers that leave items out.
Items are known by their output index where there is one, else by their id.
"""

from __future__ import annotations

from collections.abc import Iterable

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
from treadle.core.errors import ModelError, StreamBroken
from treadle.core.transcript.content import (
    AssistantContent,
    Opaque,
    Text,
    Thinking,
    ToolCall,
)
from treadle.core.transcript.items import AssistantItem, StopReason
from treadle.core.transcript.usage import Usage
from treadle.models.provider_base.codec import make_unique_call_id
from treadle.models.provider_base.error_mapping import (
    ProviderErrorBody,
    ProviderInfo,
    incomplete_stream_error,
    map_error_body,
    parse_error_body,
    unreadable_event_error,
)
from treadle.models.provider_base.openai_common import (
    InputTokenDetails,
    OutputTokenDetails,
    convert_usage,
)

# The label of an Opaque that belongs to the message behind it, and must come back with it.
MESSAGE_EXTRA_LABEL = "message_extra"

_EXPECTED_EVENT = "of the Responses protocol"


class _Delta(msgspec.Struct, gc=False):
    delta: str = ""
    item_id: str = ""
    output_index: int | None = None


class _ItemEvent(msgspec.Struct):
    item: msgspec.Raw
    output_index: int | None = None


class _PartEvent(msgspec.Struct):
    summary_index: int = 0
    item_id: str = ""
    output_index: int | None = None


class _Part(msgspec.Struct):
    type: str = ""
    text: str | None = None
    refusal: str | None = None


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


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: InputTokenDetails | None = None
    output_tokens_details: OutputTokenDetails | None = None


class _FailureDetails(msgspec.Struct):
    reason: str | None = None
    code: str | None = None
    message: str | None = None


class _Response(msgspec.Struct):
    id: str | None = None
    error: _FailureDetails | None = None
    incomplete_details: _FailureDetails | None = None
    usage: _Usage | None = None
    output: list[msgspec.Raw] | None = None


class _ResponseEvent(msgspec.Struct):
    response: _Response


class _TypeOnly(msgspec.Struct):
    type: str = ""


_decode_delta = msgspec.json.Decoder(_Delta).decode
_decode_item_event = msgspec.json.Decoder(_ItemEvent).decode
_decode_part_event = msgspec.json.Decoder(_PartEvent).decode
_decode_item = msgspec.json.Decoder(_Item).decode
_decode_response = msgspec.json.Decoder(_ResponseEvent).decode
_decode_type = msgspec.json.Decoder(_TypeOnly).decode


class _PartialItem:
    """One output item while it arrives; `raw` is the whole of it, once it is there."""

    __slots__ = ("call", "call_id", "deltas", "item", "raw")

    def __init__(self, item: _Item) -> None:
        self.item = item
        self.raw = b""
        self.call_id = ""
        self.call: ToolCall | None = None
        self.deltas: list[str] = []


class ResponsesDecoder:
    """Reads one answer; see codec.Decoder for what is promised. `limit` is the output limit."""

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
        self._usage: _Usage | None = None

    def feed(self, events: Iterable[tuple[bytes, bytes]]) -> list[ModelEvent]:
        out: list[ModelEvent] = []
        for name, data in events:
            if name == b"response.output_text.delta" and b'"delta"' in data:
                try:
                    piece = _decode_delta(data)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise unreadable_event_error(
                        self._provider, data, _EXPECTED_EVENT, error
                    ) from error
                self.progress += 1
                self._append_delta(piece)
                out.append(ModelTextDelta(piece.delta))
            elif data != b"[DONE]":
                try:
                    self._handle_event(name or _decode_type(data).type.encode(), data, out)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise unreadable_event_error(
                        self._provider, data, _EXPECTED_EVENT, error
                    ) from error
        return out

    def finish(self) -> AssistantItem:
        if not self.done:
            raise incomplete_stream_error(self._provider)
        content: list[AssistantContent] = []
        for slot in self._partial_items.values():
            self._append_content(slot, content)
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
                piece = _decode_delta(data)
                self.progress += 1
                self._append_delta(piece)
                out.append(ModelTextDelta(piece.delta))
            case b"response.function_call_arguments.delta":
                self._read_arguments(_decode_delta(data), out)
            case b"response.reasoning_summary_text.delta" | b"response.reasoning_text.delta":
                piece = _decode_delta(data)
                self.progress += 1
                self._append_delta(piece)
                out.append(ModelThinkingDelta(piece.delta))
            case b"response.reasoning_summary_part.added":
                part = _decode_part_event(data)
                if part.summary_index:
                    self._append_delta(_Delta("\n\n", part.item_id, part.output_index))
                    out.append(ModelThinkingDelta("\n\n"))
            case b"response.output_item.added":
                event = _decode_item_event(data)
                self._start_item(_decode_item(event.item), event.output_index, out)
            case b"response.output_item.done":
                event = _decode_item_event(data)
                self._finish_item(bytes(event.item), event.output_index, out)
            case b"response.created" | b"response.in_progress" | b"response.queued":
                self.response_id = _decode_response(data).response.id or self.response_id
            case b"response.completed" | b"response.incomplete" | b"response.done":
                self._finish_response(_decode_response(data).response, out)
            case b"response.failed" | b"response.cancelled":
                self._handle_failure(_decode_response(data).response)
            case b"error":
                raise map_error_body(self._provider, parse_error_body(data), None)
            case _:
                # Server-side tools report their steps: signs of life, nothing to keep. But what
                # is not JSON is a sign of a broken stream, whatever its name.
                _decode_type(data)
                if name.startswith(b"response."):
                    self.progress += 1

    def _append_delta(self, delta: _Delta) -> None:
        slot = self._partial_items.get(
            delta.item_id if delta.output_index is None else delta.output_index
        )
        if slot is not None:
            slot.deltas.append(delta.delta)

    def _read_arguments(self, delta: _Delta, out: list[ModelEvent]) -> None:
        self.progress += 1
        key = delta.item_id if delta.output_index is None else delta.output_index
        slot = self._partial_items.get(key)
        if slot is None:
            raise StreamBroken(
                f"{self._provider.name} sent arguments of a call that it had not begun.",
                provider=self._provider.name,
            )
        slot.deltas.append(delta.delta)
        out.append(ModelToolCallDelta(slot.call_id, delta.delta))

    def _start_item(self, item: _Item, index: int | None, out: list[ModelEvent]) -> _PartialItem:
        self.progress += 1
        slot = _PartialItem(item)
        self._partial_items[
            (item.id or f"item {len(self._partial_items)}") if index is None else index
        ] = slot
        if item.type == "function_call":
            slot.call_id = make_unique_call_id(item.call_id or "", self._ids, self._transcript)
            out.append(ModelToolCallBegan(slot.call_id, item.name or ""))
        return slot

    def _finish_item(self, raw: bytes, index: int | None, out: list[ModelEvent]) -> None:
        self.progress += 1
        item = _decode_item(raw)
        key = item.id if index is None else index
        slot = self._partial_items.get(key) if key is not None else None
        if slot is None:
            slot = self._start_item(item, index, out)
        slot.item, slot.raw = item, raw
        if item.type == "function_call" and item.status != "incomplete" and slot.call is None:
            arguments = item.arguments if item.arguments is not None else "".join(slot.deltas)
            call = ToolCall(slot.call_id, item.name or "", arguments)
            if call.problem is None:
                slot.call = call
                out.append(ModelToolCallRequested(call))
            else:
                self._doubtful_calls.append((slot, call))

    # ------------------------------------------------------------------ the end

    def _finish_response(self, response: _Response, out: list[ModelEvent]) -> None:
        self.response_id = response.id or self.response_id
        reason = response.incomplete_details.reason if response.incomplete_details else None
        self._is_cut = reason is not None and reason != "content_filter"
        self._is_refused = reason == "content_filter"
        output = response.output or []
        if len(output) > sum(1 for slot in self._partial_items.values() if slot.raw):
            # Some servers send no item events; the whole output is at the end.
            for index, raw in enumerate(output):
                slot = self._partial_items.get(index)
                if slot is None or not slot.raw:
                    self._finish_item(bytes(raw), index, out)
        if response.usage is not None:
            self._usage = response.usage
            out.append(ModelUsageUpdated(self._build_usage()))
        self._resolve_doubtful_calls(out)
        self.done = True

    def _resolve_doubtful_calls(self, out: list[ModelEvent]) -> None:
        """A call that cannot be read was cut by the limit, or the model wrote it so.

        llama.cpp calls a reply and its calls complete although its limit has cut them.
        """
        used = self._usage.output_tokens if self._usage is not None else None
        spent = self._max_tokens is not None and used is not None and used >= self._max_tokens
        if spent and (
            self._doubtful_calls or not any(slot.call for slot in self._partial_items.values())
        ):
            self._is_cut = True
        for slot, call in self._doubtful_calls:
            if not self._is_cut:
                slot.call = call
                out.append(ModelToolCallRequested(call))

    def _handle_failure(self, response: _Response) -> None:
        why = response.error or _FailureDetails(message="it gave no reason")
        code, message = why.code or "", why.message or ""
        if "policy" in code or code == "content_filter":
            # Not a fault but a refusal, and to be told as one.
            self._is_refused, self._refusal_text, self.done = True, message or code, True
            return
        raise self._map_failure(ProviderErrorBody(message=message, code=code))

    def _map_failure(self, error: ProviderErrorBody) -> ModelError:
        is_about_input = "image" in error.code or "file" in error.code
        return map_error_body(self._provider, error, 400 if is_about_input else None)

    def _append_content(self, slot: _PartialItem, content: list[AssistantContent]) -> None:
        item = slot.item
        if item.type == "function_call":
            if slot.call is not None:
                content.append(slot.call)
        elif item.type == "message":
            if item.phase:
                extra = msgspec.json.encode({"phase": item.phase}).decode()
                content.append(Opaque(self._origin, extra, MESSAGE_EXTRA_LABEL))
            if not slot.raw:
                content.append(Text("".join(slot.deltas)))
            for part in item.content or ():
                self._is_refused = self._is_refused or part.refusal is not None
                text = part.text or part.refusal
                if text:
                    content.append(Text(text))
        elif item.type == "reasoning":
            parts = item.summary or item.content or ()
            text = "\n\n".join([part.text for part in parts if part.text])
            text = text if slot.raw else "".join(slot.deltas)
            sealed = item.encrypted_content or "" if slot.raw else ""
            if text or sealed:
                content.append(Thinking(text, sealed, item.id or "", self._origin))
        elif slot.raw:
            content.append(Opaque(self._origin, slot.raw.decode(), item.type))

    def _stop_reason(self, content: list[AssistantContent]) -> StopReason:
        if self._is_refused:
            return "refusal"
        if self._is_cut:
            return "max_tokens"
        if any(type(part) is ToolCall for part in content):
            return "tool_use"
        return "end_turn"

    def _build_usage(self) -> Usage:
        usage = self._usage or _Usage()
        return convert_usage(
            self._card,
            prompt_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            prompt_details=usage.input_tokens_details,
            output_details=usage.output_tokens_details,
        )

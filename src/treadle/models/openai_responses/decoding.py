"""A Responses stream, read into model events and one reply.

Sans-IO. What counts is `response.output_item.done`: it holds the whole item, and sealed
reasoning only there. Deltas are for watching, and a stand-in for servers that leave items out.
Items are known by their output index where there is one, else by their id.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from treadle.core.contracts.model import (
    CallBegun,
    CallPiece,
    CallReady,
    ModelCard,
    ModelEvent,
    ModelRequest,
    TextPiece,
    ThinkingPiece,
    UsageSeen,
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
from treadle.models.codec import fresh_call_id
from treadle.models.failures import (
    Complaint,
    Provider,
    complaint,
    cut_short,
    from_complaint,
    unreadable,
)
from treadle.models.openai_wire import InputDetails, OutputDetails, counted

# The label of an Opaque that belongs to the message behind it, and must come back with it.
MESSAGE_EXTRA = "message_extra"

_PROTOCOL = "of the Responses protocol"


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
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None


class _Why(msgspec.Struct):
    reason: str | None = None
    code: str | None = None
    message: str | None = None


class _Response(msgspec.Struct):
    id: str | None = None
    error: _Why | None = None
    incomplete_details: _Why | None = None
    usage: _Usage | None = None
    output: list[msgspec.Raw] | None = None


class _ResponseEvent(msgspec.Struct):
    response: _Response


class _Typed(msgspec.Struct):
    type: str = ""


_read_delta = msgspec.json.Decoder(_Delta).decode
_read_item_event = msgspec.json.Decoder(_ItemEvent).decode
_read_part_event = msgspec.json.Decoder(_PartEvent).decode
_read_item = msgspec.json.Decoder(_Item).decode
_read_response = msgspec.json.Decoder(_ResponseEvent).decode
_read_type = msgspec.json.Decoder(_Typed).decode


class _Slot:
    """One output item while it arrives; `raw` is the whole of it, once it is there."""

    __slots__ = ("call", "call_id", "item", "pieces", "raw")

    def __init__(self, item: _Item) -> None:
        self.item = item
        self.raw = b""
        self.call_id = ""
        self.call: ToolCall | None = None
        self.pieces: list[str] = []


class ResponsesDecoder:
    """Reads one answer; see codec.Decoder for what is promised. `limit` is the output limit."""

    def __init__(
        self,
        request: ModelRequest,
        card: ModelCard,
        who: Provider,
        origin: str,
        limit: int | None = None,
    ) -> None:
        self.progress = 0
        self.done = False
        self.response_id = ""
        self._transcript = request.transcript
        self._card = card
        self._who = who
        self._origin = origin
        self._limit = limit
        self._slots: dict[int | str, _Slot] = {}
        self._doubtful: list[tuple[_Slot, ToolCall]] = []
        self._ids: set[str] = set()
        self._cut = False
        self._refused = False
        self._withheld = ""
        self._usage: _Usage | None = None

    def feed(self, events: Iterable[tuple[bytes, bytes]]) -> list[ModelEvent]:
        out: list[ModelEvent] = []
        for name, data in events:
            if name == b"response.output_text.delta" and b'"delta"' in data:
                try:
                    piece = _read_delta(data)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise unreadable(self._who, data, _PROTOCOL, error) from error
                self.progress += 1
                self._keep(piece)
                out.append(TextPiece(piece.delta))
            elif data != b"[DONE]":
                try:
                    self._read(name or _read_type(data).type.encode(), data, out)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise unreadable(self._who, data, _PROTOCOL, error) from error
        return out

    def finish(self) -> AssistantItem:
        if not self.done:
            raise cut_short(self._who)
        content: list[AssistantContent] = []
        for slot in self._slots.values():
            self._append_content(slot, content)
        if self._withheld:
            content.append(Text(self._withheld))
        return AssistantItem(
            content=tuple(content),
            stop=self._stop_reason(content),
            model=self._card.name,
            usage=self._priced(),
            response_id=self.response_id,
        )

    # ------------------------------------------------------------------ events by name

    def _read(self, name: bytes, data: bytes, out: list[ModelEvent]) -> None:
        match name:
            case b"response.output_text.delta" | b"response.refusal.delta":
                piece = _read_delta(data)
                self.progress += 1
                self._keep(piece)
                out.append(TextPiece(piece.delta))
            case b"response.function_call_arguments.delta":
                self._read_arguments(_read_delta(data), out)
            case b"response.reasoning_summary_text.delta" | b"response.reasoning_text.delta":
                piece = _read_delta(data)
                self.progress += 1
                self._keep(piece)
                out.append(ThinkingPiece(piece.delta))
            case b"response.reasoning_summary_part.added":
                part = _read_part_event(data)
                if part.summary_index:
                    self._keep(_Delta("\n\n", part.item_id, part.output_index))
                    out.append(ThinkingPiece("\n\n"))
            case b"response.output_item.added":
                event = _read_item_event(data)
                self._open(_read_item(event.item), event.output_index, out)
            case b"response.output_item.done":
                event = _read_item_event(data)
                self._close(bytes(event.item), event.output_index, out)
            case b"response.created" | b"response.in_progress" | b"response.queued":
                self.response_id = _read_response(data).response.id or self.response_id
            case b"response.completed" | b"response.incomplete" | b"response.done":
                self._end(_read_response(data).response, out)
            case b"response.failed" | b"response.cancelled":
                self._fail(_read_response(data).response)
            case b"error":
                raise from_complaint(self._who, complaint(data), None)
            case _:
                # Server-side tools report their steps: signs of life, nothing to keep. But what
                # is not JSON is a sign of a broken stream, whatever its name.
                _read_type(data)
                if name.startswith(b"response."):
                    self.progress += 1

    def _keep(self, piece: _Delta) -> None:
        slot = self._slots.get(piece.item_id if piece.output_index is None else piece.output_index)
        if slot is not None:
            slot.pieces.append(piece.delta)

    def _read_arguments(self, piece: _Delta, out: list[ModelEvent]) -> None:
        self.progress += 1
        key = piece.item_id if piece.output_index is None else piece.output_index
        slot = self._slots.get(key)
        if slot is None:
            raise StreamBroken(
                f"{self._who.name} sent arguments of a call that it had not begun.",
                provider=self._who.name,
            )
        slot.pieces.append(piece.delta)
        out.append(CallPiece(slot.call_id, piece.delta))

    def _open(self, item: _Item, index: int | None, out: list[ModelEvent]) -> _Slot:
        self.progress += 1
        slot = _Slot(item)
        self._slots[(item.id or f"item {len(self._slots)}") if index is None else index] = slot
        if item.type == "function_call":
            slot.call_id = fresh_call_id(item.call_id or "", self._ids, self._transcript)
            out.append(CallBegun(slot.call_id, item.name or ""))
        return slot

    def _close(self, raw: bytes, index: int | None, out: list[ModelEvent]) -> None:
        self.progress += 1
        item = _read_item(raw)
        key = item.id if index is None else index
        slot = self._slots.get(key) if key is not None else None
        if slot is None:
            slot = self._open(item, index, out)
        slot.item, slot.raw = item, raw
        if item.type == "function_call" and item.status != "incomplete" and slot.call is None:
            arguments = item.arguments if item.arguments is not None else "".join(slot.pieces)
            call = ToolCall(slot.call_id, item.name or "", arguments)
            if call.problem is None:
                slot.call = call
                out.append(CallReady(call))
            else:
                self._doubtful.append((slot, call))

    # ------------------------------------------------------------------ the end

    def _end(self, response: _Response, out: list[ModelEvent]) -> None:
        self.response_id = response.id or self.response_id
        reason = response.incomplete_details.reason if response.incomplete_details else None
        self._cut = reason is not None and reason != "content_filter"
        self._refused = reason == "content_filter"
        output = response.output or []
        if len(output) > sum(1 for slot in self._slots.values() if slot.raw):
            # Some servers send no item events; the whole output is at the end.
            for index, raw in enumerate(output):
                slot = self._slots.get(index)
                if slot is None or not slot.raw:
                    self._close(bytes(raw), index, out)
        if response.usage is not None:
            self._usage = response.usage
            out.append(UsageSeen(self._priced()))
        self._settle_doubts(out)
        self.done = True

    def _settle_doubts(self, out: list[ModelEvent]) -> None:
        """A call that cannot be read was cut by the limit, or the model wrote it so.

        llama.cpp calls a reply and its calls complete although its limit has cut them.
        """
        used = self._usage.output_tokens if self._usage is not None else None
        spent = self._limit is not None and used is not None and used >= self._limit
        if spent and (self._doubtful or not any(slot.call for slot in self._slots.values())):
            self._cut = True
        for slot, call in self._doubtful:
            if not self._cut:
                slot.call = call
                out.append(CallReady(call))

    def _fail(self, response: _Response) -> None:
        why = response.error or _Why(message="it gave no reason")
        code, message = why.code or "", why.message or ""
        if "policy" in code or code == "content_filter":
            # Not a fault but a refusal, and to be told as one.
            self._refused, self._withheld, self.done = True, message or code, True
            return
        raise self._failure(Complaint(message=message, code=code))

    def _failure(self, said: Complaint) -> ModelError:
        is_about_input = "image" in said.code or "file" in said.code
        return from_complaint(self._who, said, 400 if is_about_input else None)

    def _append_content(self, slot: _Slot, content: list[AssistantContent]) -> None:
        item = slot.item
        if item.type == "function_call":
            if slot.call is not None:
                content.append(slot.call)
        elif item.type == "message":
            if item.phase:
                extra = msgspec.json.encode({"phase": item.phase}).decode()
                content.append(Opaque(self._origin, extra, MESSAGE_EXTRA))
            if not slot.raw:
                content.append(Text("".join(slot.pieces)))
            for part in item.content or ():
                self._refused = self._refused or part.refusal is not None
                text = part.text or part.refusal
                if text:
                    content.append(Text(text))
        elif item.type == "reasoning":
            parts = item.summary or item.content or ()
            text = "\n\n".join([part.text for part in parts if part.text])
            text = text if slot.raw else "".join(slot.pieces)
            sealed = item.encrypted_content or "" if slot.raw else ""
            if text or sealed:
                content.append(Thinking(text, sealed, item.id or "", self._origin))
        elif slot.raw:
            content.append(Opaque(self._origin, slot.raw.decode(), item.type))

    def _stop_reason(self, content: list[AssistantContent]) -> StopReason:
        if self._refused:
            return "refusal"
        if self._cut:
            return "max_tokens"
        if any(type(part) is ToolCall for part in content):
            return "tool_use"
        return "end_turn"

    def _priced(self) -> Usage:
        usage = self._usage or _Usage()
        return counted(
            self._card,
            prompt=usage.input_tokens,
            output=usage.output_tokens,
            of_prompt=usage.input_tokens_details,
            of_output=usage.output_tokens_details,
        )

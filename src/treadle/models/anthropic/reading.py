"""The events of an Anthropic stream, put together to one reply.

    message_start  (content_block_start  content_block_delta*  content_block_stop)*
    message_delta  message_stop                   ping and error may stand anywhere

Sans-IO. A call is announced when it is whole. One whose arguments do not read as an object may
have been cut by the output limit: it waits until what follows shows that it was not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

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
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
)
from treadle.core.transcript.items import AssistantItem, StopReason
from treadle.core.transcript.usage import Usage
from treadle.models.anthropic.blocks import ATTACHED, ORIGIN
from treadle.models.codec import Failed, fresh_call_id, priced
from treadle.models.failures import Complaint, Provider, from_complaint

_STOPS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "pause_turn": "pause",
    "refusal": "refusal",
    "model_context_window_exceeded": "context",
}


class _CacheCreation(msgspec.Struct, gc=False):
    ephemeral_1h_input_tokens: int | None = None


class _OutputDetails(msgspec.Struct, gc=False):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: _CacheCreation | None = None
    output_tokens_details: _OutputDetails | None = None


class _Message(msgspec.Struct):
    id: str | None = None
    usage: _Usage | None = None


class _StopDetails(msgspec.Struct, gc=False):
    explanation: str | None = None


class _Delta(msgspec.Struct, gc=False):
    """Deltas of all kinds in one: which fields are there depends on `type`."""

    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None


class _Failure(msgspec.Struct, gc=False):
    type: str = ""
    message: str = ""


class _Event(msgspec.Struct):
    type: str
    index: int = 0
    delta: _Delta | None = None
    content_block: dict[str, Any] | None = None
    message: _Message | None = None
    usage: _Usage | None = None
    error: _Failure | None = None


class _RawDelta(msgspec.Struct):
    delta: dict[str, Any]


_decode: Callable[[bytes], _Event] = msgspec.json.Decoder(_Event).decode
_decode_raw: Callable[[bytes], _RawDelta] = msgspec.json.Decoder(_RawDelta).decode


class _Block:
    """One content block while it grows."""

    __slots__ = ("call", "held", "id", "kind", "pieces", "signature", "start")

    def __init__(self, kind: str, start: dict[str, Any]) -> None:
        self.kind = kind
        self.start = start
        self.id = ""
        self.pieces: list[str] = []
        self.signature: str = start.get("signature") or ""
        self.call: ToolCall | None = None
        self.held = False  # closed, but not shown to be whole


class AnthropicDecoder:
    """Reads one answer."""

    __slots__ = (
        "_blocks", "_card", "_ids", "_message_id", "_request", "_stop", "_stop_text", "_usage",
        "_who", "done", "progress",
    )  # fmt: skip

    def __init__(self, who: Provider, card: ModelCard, request: ModelRequest) -> None:
        self._who = who
        self._card = card
        self._request = request
        self._blocks: dict[int, _Block] = {}
        self._ids: set[str] = set()
        self._usage = _Usage()
        self._message_id = ""
        self._stop: str | None = None
        self._stop_text = ""
        self.progress = 0
        self.done = False

    def feed(self, events: Iterable[tuple[bytes, bytes]]) -> list[ModelEvent]:
        out: list[ModelEvent] = []
        emit = out.append
        blocks = self._blocks
        for _, data in events:
            try:
                event = _decode(data)
                delta = event.delta
                if event.type != "content_block_delta" or delta is None:
                    self._on_event(event, out)
                    continue
                self.progress += 1
                block = blocks[event.index]
                kind = delta.type
                if kind == "text_delta":
                    block.pieces.append(delta.text)
                    emit(TextPiece(delta.text))
                elif kind == "input_json_delta":
                    block.pieces.append(delta.partial_json)
                    if block.kind == "tool_use" and delta.partial_json:
                        emit(CallPiece(block.id, delta.partial_json))
                elif kind == "thinking_delta":
                    block.pieces.append(delta.thinking)
                    emit(ThinkingPiece(delta.thinking))
                elif kind == "signature_delta":
                    block.signature = delta.signature
                else:
                    _merge(block.start, _decode_raw(data).delta)
            except ModelError as error:
                raise Failed(error, out) from error
            except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
                broken = StreamBroken(
                    f"{self._who.name} sent an event that does not fit the protocol ({error}).",
                    provider=self._who.name,
                )
                raise Failed(broken, out) from error
        return out

    def _on_event(self, event: _Event, out: list[ModelEvent]) -> None:
        match event.type:
            case "content_block_start":
                self.progress += 1
                self._release(out)
                self._begin(event.index, event.content_block or {}, out)
            case "content_block_stop":
                self.progress += 1
                self._end(self._blocks[event.index], out)
            case "message_start" if event.message is not None:
                self._message_id = event.message.id or ""
                self._take_usage(event.message.usage)
                out.append(UsageSeen(self._priced()))
            case "message_delta":
                self.progress += 1
                self._take_usage(event.usage)
                if event.delta is not None:
                    self._stop = event.delta.stop_reason or self._stop
                    if event.delta.stop_details is not None:
                        self._stop_text = event.delta.stop_details.explanation or ""
            case "message_stop":
                if self._stop not in ("max_tokens", "model_context_window_exceeded"):
                    self._release(out)
                self.done = True
            case "error":
                failure = event.error or _Failure()
                raise from_complaint(self._who, Complaint(failure.message, failure.type), None)
            case _:
                pass  # ping, and what they may add

    # -------------------------------------------------------------- blocks

    def _begin(self, index: int, start: dict[str, Any], out: list[ModelEvent]) -> None:
        kind = start.get("type")
        block = _Block(kind if isinstance(kind, str) else "", start)
        self._blocks[index] = block
        if block.kind == "text":
            self._open_text(block, "text", TextPiece, out)
        elif block.kind == "thinking":
            self._open_text(block, "thinking", ThinkingPiece, out)
        elif block.kind == "tool_use":
            block.id = fresh_call_id(_string(start, "id"), self._ids, self._request.transcript)
            out.append(CallBegun(block.id, _string(start, "name")))

    def _open_text(
        self,
        block: _Block,
        field: str,
        piece: type[TextPiece] | type[ThinkingPiece],
        out: list[ModelEvent],
    ) -> None:
        text = _string(block.start, field)
        if text:
            block.pieces.append(text)
            out.append(piece(text))

    def _end(self, block: _Block, out: list[ModelEvent]) -> None:
        if block.kind != "tool_use" or block.call is not None:
            return
        raw = "".join(block.pieces)
        if not raw and block.start.get("input"):
            raw = msgspec.json.encode(block.start["input"]).decode()
        block.call = ToolCall(block.id, _string(block.start, "name"), raw)
        if raw.strip() and block.call.arguments is not None:
            out.append(CallReady(block.call))
        else:
            block.held = True

    def _release(self, out: list[ModelEvent]) -> None:
        """What follows shows that no call was cut: announce those that were in doubt."""
        for block in self._blocks.values():
            if block.held and block.call is not None:
                block.held = False
                out.append(CallReady(block.call))

    # -------------------------------------------------------------- the whole

    def finish(self) -> AssistantItem:
        if not self.done:
            raise StreamBroken(
                f"{self._who.name} ended the answer before it was complete.",
                provider=self._who.name,
            )
        content: list[AssistantContent] = []
        for _, block in sorted(self._blocks.items()):
            content += _parts_of(block)
        stop: StopReason = _STOPS.get(self._stop or "", "end_turn")
        if stop == "refusal" and not content:
            content.append(Text(self._stop_text or "The model declined to answer this."))
        return AssistantItem(
            tuple(content),
            stop=stop,
            model=self._card.name,
            usage=self._priced(),
            response_id=self._message_id,
        )

    def _take_usage(self, usage: _Usage | None) -> None:
        """Counts are running totals; one that is not sent again still holds."""
        for name in _Usage.__struct_fields__ if usage is not None else ():
            value = getattr(usage, name)
            if value is not None:
                setattr(self._usage, name, value)

    def _priced(self) -> Usage:
        usage = self._usage
        hour = usage.cache_creation.ephemeral_1h_input_tokens if usage.cache_creation else 0
        details = usage.output_tokens_details
        return priced(
            self._card,
            input=usage.input_tokens,
            output=usage.output_tokens,
            cache_read=usage.cache_read_input_tokens,
            cache_write=usage.cache_creation_input_tokens,
            reasoning=details.thinking_tokens if details else 0,
            hour_writes=max(0, hour or 0),
        )


def _parts_of(block: _Block) -> list[AssistantContent]:
    match block.kind:
        case "text":
            text = "".join(block.pieces)
            return [Text(text), *_attached(block, "citations")] if text else []
        case "thinking":
            return [Thinking("".join(block.pieces), block.signature, origin=ORIGIN)]
        case "redacted_thinking":
            return [RedactedThinking(_string(block.start, "data"), ORIGIN)]
        case "tool_use":
            if block.call is None or block.held:
                return []  # cut by the output limit: it never was a call
            return [block.call, *_attached(block, "caller", "toolset_name")]
        case _:
            return [_opaque(block)]


def _attached(block: _Block, *names: str) -> list[AssistantContent]:
    fields = {name: block.start[name] for name in names if block.start.get(name)}
    if fields.get("caller") == {"type": "direct"}:
        del fields["caller"]
    if not fields:
        return []
    return [Opaque(ORIGIN, msgspec.json.encode(fields).decode(), ATTACHED)]


def _opaque(block: _Block) -> Opaque:
    value = dict(block.start)
    if block.pieces:
        raw = "".join(block.pieces)
        try:
            value["input"] = msgspec.json.decode(raw)
        except msgspec.DecodeError:
            value["input"] = {}
    return Opaque(ORIGIN, msgspec.json.encode(value).decode(), block.kind)


def _merge(start: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a delta that has no case of its own, by the shape of its fields."""
    if delta.get("type") == "citations_delta":
        start["citations"] = [*(start.get("citations") or ()), delta.get("citation")]
        return
    for name, value in delta.items():
        if name == "type":
            continue
        known = start.get(name)
        start[name] = known + value if isinstance(known, str) and isinstance(value, str) else value


def _string(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""

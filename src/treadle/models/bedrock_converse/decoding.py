"""Decodes a Converse stream into model events and one reply.

    messageStart  (contentBlockStart?  contentBlockDelta*  contentBlockStop)*
    messageStop  metadata

Sans-IO: the name of an event is that of its frame (provider_base/aws_eventstream.py). Only calls
have a start. A reply in one piece is read as the event `whole`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
from treadle.core.errors import ModelError
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
from treadle.models.bedrock_converse.encoding import ORIGIN
from treadle.models.provider_base.codec import DecodeFailed, build_usage, make_unique_call_id
from treadle.models.provider_base.error_map import (
    UNREADABLE,
    ProviderInfo,
    incomplete_stream_error,
    late_arguments_error,
    map_error_body,
    map_stream_error,
    unreadable_event_error,
)
from treadle.models.provider_base.error_types import ProviderErrorBody
from treadle.models.provider_base.lenient import decode_leniently
from treadle.models.provider_base.request_limits import restore_tool_name

_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "guardrail_intervened": "refusal",
    "content_filtered": "refusal",
    "model_context_window_exceeded": "context",
}
# The provider could not use what the model wrote; another sample may be fine.
_UNUSABLE = ("malformed_model_output", "malformed_tool_use")
_CUT_REASONS = ("max_tokens", "model_context_window_exceeded")
_SERVER_TOOL = "server_tool_use"


class _ToolStart(msgspec.Struct, rename="camel"):
    tool_use_id: str = ""
    name: str = ""
    type: str = ""


class _ToolDelta(msgspec.Struct):
    input: str = ""


class _Start(msgspec.Struct, rename="camel"):
    tool_use: _ToolStart | None = None
    tool_result: dict[str, Any] | None = None  # of a tool that the provider ran


class _Reasoning(msgspec.Struct, rename="camel"):
    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None


class _Delta(msgspec.Struct, rename="camel"):
    text: str | None = None
    tool_use: _ToolDelta | None = None
    tool_result: list[Any] | None = None
    reasoning_content: _Reasoning | None = None


class _Usage(msgspec.Struct, rename="camel"):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


class _Message(msgspec.Struct):
    content: list[dict[str, Any]] | None = None


class _Output(msgspec.Struct):
    message: _Message | None = None


class _Event(msgspec.Struct, rename="camel"):
    """The fields of all events; which are set depends on the name of the event."""

    content_block_index: int = 0
    start: _Start | None = None
    delta: _Delta | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None
    output: _Output | None = None


_decode_event = msgspec.json.Decoder(_Event).decode
# The reply depends on these fields; any other one is ignored if it does not fit.
_STRICT_FIELDS = frozenset(
    ["content_block_index", "start", "delta", "text", "tool_use", "input", "name", "output",
     "message", "content", "stop_reason", "reasoning_content", "signature"]
)  # fmt: skip


class _PartialBlock(msgspec.Struct):
    """One content block while it grows; `kind` is text, thinking, redacted, call, opaque (a call
    of a tool that the provider runs), result (of it) or other."""

    kind: str
    result: dict[str, Any] = {}
    id: str = ""
    name: str = ""
    signature: str = ""
    deltas: list[str] = []
    call: ToolCall | None = None


class ConverseDecoder:
    """Decodes one response; see codec.Decoder for its promises."""

    def __init__(self, provider: ProviderInfo, card: ModelCard, request: ModelRequest) -> None:
        self._provider = provider
        self._card = card
        self._request = request
        self._blocks: list[_PartialBlock] = []
        self._by_index: dict[int, _PartialBlock] = {}
        self._ids: set[str] = set()
        self._stop_reason = ""
        self._usage: _Usage | None = None
        self.progress = 0
        self.done = False

    def feed(self, events: Iterable[tuple[bytes, bytes]]) -> list[ModelEvent]:
        out: list[ModelEvent] = []
        for name, data in events:
            if self.done:
                break
            try:
                if name == b"error":
                    raise map_stream_error(self._provider, data)
                try:
                    event = _decode_event(data)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    event = decode_leniently(data, _Event, _STRICT_FIELDS)
                self._read_event(name, event, out)
            except ModelError as error:
                raise DecodeFailed(error, out) from error
            except UNREADABLE as error:
                broken = unreadable_event_error(self._provider, data, "of Converse", error)
                raise DecodeFailed(broken, out) from error
        return out

    def _read_event(self, name: bytes, event: _Event, out: list[ModelEvent]) -> None:
        match name:
            case b"contentBlockStart":
                self.progress += 1
                if event.start is not None and event.start.tool_use is not None:
                    self._start_call(event.content_block_index, event.start.tool_use, out)
                elif event.start is not None and event.start.tool_result is not None:
                    block = self._get_block(event.content_block_index, "result")
                    block.result = {**event.start.tool_result, "content": []}
            case b"contentBlockDelta" if event.delta is not None:
                self.progress += 1
                self._read_delta(event.content_block_index, event.delta, out)
            case b"contentBlockStop":
                self.progress += 1
                self._finish_block(self._by_index.get(event.content_block_index), out)
            case b"messageStop":
                self.progress += 1
                self._finish(event.stop_reason or "end_turn", out)
            case b"metadata":
                self._read_usage(event.usage, out)
                self.done = bool(self._stop_reason)
            case b"whole":
                self._read_whole(event, out)
            case _:
                pass  # messageStart, and events that are new

    def _start_call(self, index: int, start: _ToolStart, out: list[ModelEvent]) -> None:
        if start.type == _SERVER_TOOL:
            block = _PartialBlock("opaque", id=start.tool_use_id, name=start.name)
        else:
            call_id = make_unique_call_id(start.tool_use_id, self._ids, self._request.transcript)
            name = restore_tool_name(start.name, self._request.tools)
            block = _PartialBlock("call", id=call_id, name=name)
            out.append(ModelToolCallBegan(call_id, name))
        self._by_index[index] = block
        self._blocks.append(block)

    def _read_delta(self, index: int, delta: _Delta, out: list[ModelEvent]) -> None:
        if delta.text is not None:
            self._get_block(index, "text").deltas.append(delta.text)
            if delta.text:
                out.append(ModelTextDelta(delta.text))
        if delta.tool_result is not None:
            block = self._get_block(index, "result")
            block.result["content"] = [*block.result.get("content", ()), *delta.tool_result]
        if delta.tool_use is not None:
            block = self._get_block(index, "call")
            if block.call is not None and delta.tool_use.input.strip():
                raise late_arguments_error(self._provider, block.name)
            block.deltas.append(delta.tool_use.input)
            if block.kind == "call" and block.id and delta.tool_use.input:
                out.append(ModelToolCallDelta(block.id, delta.tool_use.input))
        if (reasoning := delta.reasoning_content) is not None:
            if reasoning.redacted_content is not None:
                self._get_block(index, "redacted").deltas.append(reasoning.redacted_content)
            if reasoning.text:
                self._get_block(index, "thinking").deltas.append(reasoning.text)
                out.append(ModelThinkingDelta(reasoning.text))
            if reasoning.signature:
                self._get_block(index, "thinking").signature += reasoning.signature

    def _get_block(self, index: int, kind: str) -> _PartialBlock:
        """The open block of this index; another kind under the same index is another block."""
        block = self._by_index.get(index)
        is_call = kind == "call" and block is not None and block.kind in ("call", "opaque")
        if block is None or (block.kind != kind and not is_call):
            block = self._by_index[index] = _PartialBlock(kind)
            self._blocks.append(block)
        return block

    def _finish_block(self, block: _PartialBlock | None, out: list[ModelEvent]) -> None:
        """Announce a call that is whole; one whose arguments are not may have been cut."""
        if block is None or block.kind != "call" or block.call is not None or not block.id:
            return
        call = ToolCall(block.id, block.name, "".join(block.deltas))
        if call.raw.strip() and call.arguments is not None:
            block.call = call
            out.append(ModelToolCallRequested(call))

    def _finish(self, reason: str, out: list[ModelEvent]) -> None:
        self._stop_reason = reason
        if reason in _UNUSABLE:
            body = ProviderErrorBody(reason, "tool_use_failed")
            raise map_error_body(self._provider, body, None)
        for block in self._blocks:
            self._finish_block(block, out)
            is_open = block.kind == "call" and block.id and block.call is None
            if is_open and reason not in _CUT_REASONS:
                block.call = ToolCall(block.id, block.name, "".join(block.deltas))
                out.append(ModelToolCallRequested(block.call))
        if _STOP_REASONS.get(reason) == "refusal" and not any(map(_to_content, self._blocks)):
            text = f"{self._provider.name} declined ({reason})."
            self._blocks.append(_PartialBlock("text", deltas=[text]))
            out.append(ModelTextDelta(text))

    def _read_usage(self, usage: _Usage | None, out: list[ModelEvent]) -> None:
        if usage is not None:
            self._usage = usage
            out.append(ModelUsageUpdated(self._build_usage()))

    # -------------------------------------------------------------- a reply in one piece

    def _read_whole(self, event: _Event, out: list[ModelEvent]) -> None:
        message = event.output.message if event.output is not None else None
        for index, block in enumerate((message.content if message is not None else None) or ()):
            self.progress += 1
            self._read_whole_block(index, block, out)
        self._finish(event.stop_reason or "end_turn", out)
        self._read_usage(event.usage, out)
        self.done = True

    def _read_whole_block(self, index: int, block: dict[str, Any], out: list[ModelEvent]) -> None:
        data = msgspec.json.encode(block)
        if isinstance(block.get("text"), str):
            self._read_delta(index, _Delta(text=block["text"]), out)
        elif "toolUse" in block:
            start = decode_leniently(data, _Start, _STRICT_FIELDS).tool_use or _ToolStart()
            self._start_call(index, start, out)
            raw = block["toolUse"].get("input") if isinstance(block["toolUse"], dict) else None
            text = msgspec.json.encode(raw if raw is not None else {}).decode()
            self._read_delta(index, _Delta(tool_use=_ToolDelta(text)), out)
        elif isinstance(block.get("reasoningContent"), dict):
            content = block["reasoningContent"]
            inner = content.get("reasoningText")
            raw = msgspec.json.encode(inner if isinstance(inner, dict) else content)
            reasoning = decode_leniently(raw, _Reasoning, _STRICT_FIELDS)
            self._read_delta(index, _Delta(reasoning_content=reasoning), out)
        else:
            self._blocks.append(_PartialBlock("other", deltas=[data.decode()]))

    # -------------------------------------------------------------- the reply

    def finish(self) -> AssistantItem:
        if not self._stop_reason:
            raise incomplete_stream_error(self._provider)
        content: list[AssistantContent] = []
        for block in self._blocks:
            content += _to_content(block)
        stop: StopReason = _STOP_REASONS.get(self._stop_reason, "end_turn")
        if any(block.call is not None for block in self._blocks) and stop == "end_turn":
            stop = "tool_use"
        return AssistantItem(
            tuple(content),
            stop=stop,
            model=self._card.name,
            usage=self._build_usage(),
            refusal_reason=self._stop_reason if stop == "refusal" else "",
        )

    def _build_usage(self) -> Usage:
        usage = self._usage or _Usage()
        return build_usage(
            self._card,
            input=usage.input_tokens,
            output=usage.output_tokens,
            cache_read=usage.cache_read_input_tokens,
            cache_write=usage.cache_write_input_tokens,
        )


def _to_content(block: _PartialBlock) -> list[AssistantContent]:
    text = "".join(block.deltas)
    match block.kind:
        case "text":
            return [Text(text)] if text else []
        case "thinking":
            return [Thinking(text, block.signature, origin=ORIGIN)]
        case "redacted":
            return [RedactedThinking(text, ORIGIN)]
        case "call":
            return [block.call] if block.call is not None else []
        case "opaque":
            value: dict[str, Any] = {"toolUseId": block.id, "name": block.name}
            value |= {"type": _SERVER_TOOL, "input": ToolCall("", "", text).arguments or {}}
            return [Opaque(ORIGIN, msgspec.json.encode({"toolUse": value}).decode(), _SERVER_TOOL)]
        case "result":
            value = {"toolResult": block.result}
            return [Opaque(ORIGIN, msgspec.json.encode(value).decode(), "block")]
        case _:
            return [Opaque(ORIGIN, text, "block")]

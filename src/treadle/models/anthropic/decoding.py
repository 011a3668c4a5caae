"""Decodes the events of an Anthropic stream into model events and one reply.

    message_start  (content_block_start  content_block_delta*  content_block_stop)*
    message_delta  message_stop                   ping and error can come anywhere

Sans-IO. A call is announced when it is complete. A call whose arguments are not an object may have
been cut by the output limit: it is announced only when the next event shows that it was not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
from treadle.models.anthropic.encoding import ATTACHED_LABEL, ORIGIN
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
    "pause_turn": "pause",
    "compaction": "pause",
    "refusal": "refusal",
    "model_context_window_exceeded": "context",
}


class _CacheCreation(msgspec.Struct, gc=False):
    ephemeral_5m_input_tokens: int | None = None
    ephemeral_1h_input_tokens: int | None = None


class _OutputDetails(msgspec.Struct, gc=False):
    thinking_tokens: int | None = None


class _ServerToolUse(msgspec.Struct, gc=False):
    web_search_requests: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: _CacheCreation | None = None
    output_tokens_details: _OutputDetails | None = None
    server_tool_use: _ServerToolUse | None = None


class _StopDetails(msgspec.Struct, gc=False):
    explanation: str | None = None
    category: str | None = None


class _Message(msgspec.Struct):
    id: str | None = None
    usage: _Usage | None = None
    content: list[dict[str, Any]] | None = None
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None


class _Delta(msgspec.Struct, gc=False):
    """The fields of all kinds of deltas; which are set depends on `type`."""

    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None


class _StreamError(msgspec.Struct, gc=False):
    type: str = ""
    message: str = ""


class _Event(msgspec.Struct):
    type: str
    index: int = 0
    delta: _Delta | None = None
    content_block: dict[str, Any] | None = None
    message: _Message | None = None
    usage: _Usage | None = None
    error: _StreamError | None = None


class _RawDelta(msgspec.Struct):
    delta: dict[str, Any]


_decode_event: Callable[[bytes], _Event] = msgspec.json.Decoder(_Event).decode
# The reply depends on these fields; any other one is ignored if it does not fit.
_STRICT_FIELDS = frozenset(
    [
        "type",
        "index",
        "delta",
        "content_block",
        "content",
        "stop_reason",
        "text",
        "partial_json",
        "thinking",
        "signature",
    ]
)


# The deltas that a block of this kind consists of; blocks of other kinds take any.
_OWN_DELTAS = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}


class _PartialBlock(msgspec.Struct):
    """One content block while it grows."""

    index: int
    kind: str
    start: dict[str, Any]
    id: str = ""
    name: str = ""
    signature: str = ""
    deltas: list[str] = []
    call: ToolCall | None = None
    is_doubtful: bool = False  # closed, but may have been cut


class AnthropicDecoder:
    """Decodes one response."""

    def __init__(self, provider: ProviderInfo, card: ModelCard, request: ModelRequest) -> None:
        self._provider = provider
        self._card = card
        self._request = request
        self._blocks: list[_PartialBlock] = []
        self._newest_blocks: dict[int, _PartialBlock] = {}  # by index, which a server may use twice
        self._ids: set[str] = set()
        self._usage: _Usage | None = None
        self._message_id = ""
        self._stop_reason: str | None = None
        self._refusal_text = self._refusal_category = ""
        self.progress = 0
        self.done = False

    def feed(self, events: Iterable[tuple[bytes, bytes]]) -> list[ModelEvent]:
        out: list[ModelEvent] = []
        emit = out.append
        blocks = self._newest_blocks
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
                delta = event.delta
                if event.type != "content_block_delta" or delta is None:
                    self._handle_event(event, out)
                    continue
                self.progress += 1
                block = blocks[event.index]
                kind = delta.type
                if kind == "text_delta" and block.kind == "text":
                    block.deltas.append(delta.text)
                    emit(ModelTextDelta(delta.text))
                elif kind == "input_json_delta" and block.kind != "text":
                    self._read_arguments(block, delta.partial_json, out)
                elif kind == "thinking_delta" and block.kind == "thinking":
                    block.deltas.append(delta.thinking)
                    emit(ModelThinkingDelta(delta.thinking))
                elif kind == "signature_delta":
                    block.signature = delta.signature
                else:
                    raw = decode_leniently(data, _RawDelta, _STRICT_FIELDS)
                    _merge_delta(block, raw.delta)
            except ModelError as error:
                raise DecodeFailed(error, out) from error
            except (*UNREADABLE, KeyError) as error:
                broken = unreadable_event_error(self._provider, data, "of the Messages API", error)
                raise DecodeFailed(broken, out) from error
        return out

    def _handle_event(self, event: _Event, out: list[ModelEvent]) -> None:
        match event.type:
            case "content_block_start":
                self.progress += 1
                self._confirm_doubtful_calls(out)
                self._start_block(event.index, event.content_block or {}, out)
            case "content_block_stop":
                self.progress += 1
                block = self._newest_blocks.get(event.index)
                if block is not None:  # llama.cpp ends a block that it never started
                    self._finish_block(block, out)
            case "message_start" if event.message is not None:
                self._start_message(event.message, out)
            case "message_delta":
                self.progress += 1
                self._update_usage(event.usage)
                if event.delta is not None:
                    self._update_stop(event.delta)
            case "message_stop":
                for block in self._blocks:
                    self._finish_block(block, out)
                if self._stop_reason not in ("max_tokens", "model_context_window_exceeded"):
                    self._confirm_doubtful_calls(out)
                self._explain_refusal(out)
                self.done = True
            case "error":
                failure = event.error or _StreamError()
                body = ProviderErrorBody(failure.message, failure.type)
                raise map_error_body(self._provider, body, None)
            case _:
                pass  # ping, and events that are new

    def _start_message(self, message: _Message, out: list[ModelEvent]) -> None:
        self._message_id = message.id or ""
        self._update_usage(message.usage)
        self._update_stop(message)
        out.append(ModelUsageUpdated(self._build_usage()))
        content = message.content or []
        for index, block in enumerate(content, -len(content)):  # before the blocks that follow
            self.progress += 1
            self._finish_block(self._start_block(index, block, out), out)

    def _update_stop(self, source: _Message | _Delta) -> None:
        self._stop_reason = source.stop_reason or self._stop_reason
        if source.stop_details is not None:
            self._refusal_text = source.stop_details.explanation or ""
            self._refusal_category = source.stop_details.category or ""

    # -------------------------------------------------------------- blocks

    def _start_block(
        self, index: int, start: dict[str, Any], out: list[ModelEvent]
    ) -> _PartialBlock:
        block = _PartialBlock(index, _get_string(start, "type"), start)
        block.signature = _get_string(start, "signature")
        self._newest_blocks[index] = block
        self._blocks.append(block)
        if block.kind == "tool_use":
            call_id = _get_string(start, "id")
            block.id = make_unique_call_id(call_id, self._ids, self._request.transcript)
            block.name = restore_tool_name(_get_string(start, "name"), self._request.tools)
            out.append(ModelToolCallBegan(block.id, block.name))
        elif block.kind in ("text", "thinking") and (text := _get_string(start, block.kind)):
            block.deltas.append(text)
            is_text = block.kind == "text"
            out.append(ModelTextDelta(text) if is_text else ModelThinkingDelta(text))
        return block

    def _read_arguments(self, block: _PartialBlock, text: str, out: list[ModelEvent]) -> None:
        if block.call is not None and text.strip():
            raise late_arguments_error(self._provider, block.name)
        block.deltas.append(text)
        if block.kind == "tool_use" and text:
            out.append(ModelToolCallDelta(block.id, text))

    def _finish_block(self, block: _PartialBlock, out: list[ModelEvent]) -> None:
        if block.kind != "tool_use" or block.call is not None:
            return
        raw = "".join(block.deltas)
        if not raw and block.start.get("input"):
            raw = msgspec.json.encode(block.start["input"]).decode()
            out.append(ModelToolCallDelta(block.id, raw))
        block.call = ToolCall(block.id, block.name, raw)
        if raw.strip() and block.call.arguments is not None:
            out.append(ModelToolCallRequested(block.call))
        else:
            block.is_doubtful = True

    def _confirm_doubtful_calls(self, out: list[ModelEvent]) -> None:
        """The next event shows that no call was cut: announce the doubtful ones."""
        for block in self._blocks:
            if block.is_doubtful and block.call is not None:
                block.is_doubtful = False
                out.append(ModelToolCallRequested(block.call))

    def _explain_refusal(self, out: list[ModelEvent]) -> None:
        """A refusal without content gets a text."""
        if self._stop_reason != "refusal" or any(map(_to_content, self._blocks)):
            return
        text = self._refusal_text or "The model declined to answer this."
        self._blocks.append(_PartialBlock(0, "text", {}, deltas=[text]))
        out.append(ModelTextDelta(text))

    # -------------------------------------------------------------- the reply

    def finish(self) -> AssistantItem:
        if not self.done:
            raise incomplete_stream_error(self._provider)
        content: list[AssistantContent] = []
        for block in sorted(self._blocks, key=lambda block: block.index):
            content += _to_content(block)
        stop: StopReason = _STOP_REASONS.get(self._stop_reason or "", "end_turn")
        return AssistantItem(
            tuple(content),
            stop=stop,
            model=self._card.name,
            usage=self._build_usage(),
            response_id=self._message_id,
            refusal_reason=self._refusal_category if stop == "refusal" else "",
        )

    def _update_usage(self, usage: _Usage | None) -> None:
        """Counts are running totals; a count that is not sent again stays valid."""
        if usage is None or self._usage is None:
            self._usage = usage or self._usage
            return
        for name in _Usage.__struct_fields__:
            value = getattr(usage, name)
            if value is not None:
                setattr(self._usage, name, value)

    def _build_usage(self) -> Usage:
        usage = self._usage or _Usage()
        by_lifetime = usage.cache_creation or _CacheCreation()
        hour = max(0, by_lifetime.ephemeral_1h_input_tokens or 0)
        # Some servers send only the counts by lifetime.
        written = hour + max(0, by_lifetime.ephemeral_5m_input_tokens or 0)
        details = usage.output_tokens_details
        return build_usage(
            self._card,
            input=usage.input_tokens,
            output=usage.output_tokens,
            cache_read=usage.cache_read_input_tokens,
            cache_write=usage.cache_creation_input_tokens or written,
            reasoning=details.thinking_tokens if details else 0,
            cache_write_1h=hour,
            searches=(usage.server_tool_use or _ServerToolUse()).web_search_requests or 0,
        )


def _to_content(block: _PartialBlock) -> list[AssistantContent]:
    match block.kind:
        case "text":
            text = "".join(block.deltas)
            return [Text(text), *_attach_fields(block, "citations")] if text else []
        case "thinking":
            return [Thinking("".join(block.deltas), block.signature, origin=ORIGIN)]
        case "redacted_thinking":
            return [RedactedThinking(_get_string(block.start, "data"), ORIGIN)]
        case "tool_use":
            if block.call is None or block.is_doubtful:
                return []  # cut by the output limit: not a call
            return [block.call, *_attach_fields(block, "caller", "toolset_name")]
        case _:
            return [_to_opaque(block)]


def _attach_fields(block: _PartialBlock, *names: str) -> list[AssistantContent]:
    fields = {name: block.start[name] for name in names if block.start.get(name)}
    if fields.get("caller") == {"type": "direct"}:
        del fields["caller"]
    if not fields:
        return []
    return [Opaque(ORIGIN, msgspec.json.encode(fields).decode(), ATTACHED_LABEL)]


def _to_opaque(block: _PartialBlock) -> Opaque:
    value = dict(block.start)
    if block.deltas:
        try:
            value["input"] = msgspec.json.decode("".join(block.deltas))
        except UNREADABLE:
            value["input"] = {}
    return Opaque(ORIGIN, msgspec.json.encode(value).decode(), block.kind)


def _merge_delta(block: _PartialBlock, delta: dict[str, Any]) -> None:
    """Merge a delta of an unknown type: strings are joined, other values replaced."""
    start = block.start
    if block.kind in _OWN_DELTAS and delta.get("type") in _OWN_DELTAS.values():
        raise msgspec.ValidationError(f"{delta['type']} in a block of the type {block.kind}")
    if delta.get("type") == "citations_delta":
        known = start.get("citations")
        start["citations"] = [*(known if isinstance(known, list) else ()), delta.get("citation")]
        return
    for name, value in delta.items():
        if name == "type":
            continue
        known = start.get(name)
        start[name] = known + value if isinstance(known, str) and isinstance(value, str) else value


def _get_string(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""

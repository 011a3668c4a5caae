"""Decodes the chunks of a generateContent stream into model events and one reply.

Sans-IO. A chunk has some parts of the reply, the last one the reason for its end; nothing marks the
end of the stream. A call comes whole. Parts of other kinds (code that the provider ran, searches,
images) are kept as they are, to be sent back.
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
from treadle.core.transcript.content import AssistantContent, Opaque, Text, Thinking, ToolCall
from treadle.core.transcript.items import AssistantItem, StopReason
from treadle.core.transcript.usage import Usage
from treadle.models.gemini.encoding import ORIGIN, PART_LABEL, SIGNATURE_LABEL
from treadle.models.provider_base.codec import (
    CALL_EXTRA_LABEL,
    CITATIONS_LABEL,
    DecodeFailed,
    build_usage,
    make_unique_call_id,
)
from treadle.models.provider_base.error_map import (
    UNREADABLE,
    ProviderInfo,
    incomplete_stream_error,
    map_error_body,
    map_stream_error,
    unreadable_event_error,
)
from treadle.models.provider_base.error_types import ProviderErrorBody
from treadle.models.provider_base.lenient import decode_leniently, decode_opaque
from treadle.models.provider_base.request_limits import restore_tool_name

SEARCH_PRICE = 0.014  # USD for one query of Google Search
_STOPPED_BY_LIMIT = "MAX_TOKENS"
_REFUSALS = frozenset((
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR",
    "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "ESCALATION",
    "PUP_LIMITED_DISABLED",
))  # fmt: skip
# The provider could not use what the model wrote; another sample may be fine.
_UNUSABLE = frozenset(("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"))
_NO_JSON = msgspec.Raw(b"null")


class _FunctionCall(msgspec.Struct):
    name: str = ""
    id: str | None = None
    args: msgspec.Raw = _NO_JSON


class _Part(msgspec.Struct, rename="camel"):
    """A part of one of the kinds that are read; the others have neither text nor a call."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _FunctionCall | None = None


class _Content(msgspec.Struct):
    parts: list[msgspec.Raw] | None = None


class _WebSource(msgspec.Struct, gc=False):
    uri: str = ""
    title: str | None = None


class _GroundingChunk(msgspec.Struct):
    web: _WebSource | None = None


class _Grounding(msgspec.Struct, rename="camel"):
    grounding_chunks: list[_GroundingChunk] | None = None
    web_search_queries: list[str] | None = None


class _SafetyRating(msgspec.Struct, gc=False):
    category: str = ""
    blocked: bool | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    content: _Content | None = None
    index: int | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    safety_ratings: list[_SafetyRating] | None = None
    grounding_metadata: _Grounding | None = None


class _PromptFeedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None
    safety_ratings: list[_SafetyRating] | None = None


class _Usage(msgspec.Struct, rename="camel"):
    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None


class _Chunk(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _PromptFeedback | None = None
    usage_metadata: _Usage | None = None
    response_id: str | None = None
    error: msgspec.Raw = _NO_JSON


_decode_chunk: Callable[[bytes], _Chunk] = msgspec.json.Decoder(_Chunk).decode
_decode_part: Callable[[bytes], _Part] = msgspec.json.Decoder(_Part).decode
# The reply depends on these fields; any other one is ignored if it does not fit.
_STRICT_FIELDS = frozenset(
    ["candidates", "content", "parts", "text", "function_call", "name", "args", "thought",
     "thought_signature", "finish_reason"]
)  # fmt: skip


class GeminiDecoder:
    """Decodes one response; see codec.Decoder for its promises."""

    def __init__(self, provider: ProviderInfo, card: ModelCard, request: ModelRequest) -> None:
        self._provider = provider
        self._card = card
        self._request = request
        self._content: list[AssistantContent] = []
        self._open_kind = ""  # of the text that the next delta continues: text, thinking or none
        self._open_text: list[str] = []
        self._ids: set[str] = set()
        self._finish_reason = ""
        self._finish_message = ""
        self._refusal_reason = ""
        self._usage: _Usage | None = None
        self._sources: dict[str, dict[str, Any]] = {}
        self._queries: set[str] = set()
        self._response_id = ""
        self.progress = 0
        self.done = False

    def feed(self, events: Iterable[tuple[bytes, bytes]]) -> list[ModelEvent]:
        out: list[ModelEvent] = []
        for name, data in events:
            try:
                if name == b"error":
                    raise map_stream_error(self._provider, data)
                try:
                    chunk = _decode_chunk(data)
                except UNREADABLE:
                    chunk = decode_leniently(data, _Chunk, _STRICT_FIELDS)
                self._read_chunk(chunk, data, out)
            except ModelError as error:
                raise DecodeFailed(error, out) from error
            except UNREADABLE as error:
                expected = "of generateContent"
                broken = unreadable_event_error(self._provider, data, expected, error)
                raise DecodeFailed(broken, out) from error
        return out

    def _read_chunk(self, chunk: _Chunk, data: bytes, out: list[ModelEvent]) -> None:
        if bytes(chunk.error) != b"null":
            raise map_stream_error(self._provider, data)
        self._response_id = self._response_id or chunk.response_id or ""
        for candidate in chunk.candidates or ():
            if not candidate.index:  # the others are other answers to the same request
                self._read_candidate(candidate, out)
        feedback = chunk.prompt_feedback
        if feedback is not None and feedback.block_reason:
            self._finish_reason = "SAFETY"
            self._finish_message = feedback.block_reason_message or feedback.block_reason
            self._refusal_reason = _find_blocked(feedback.safety_ratings) or feedback.block_reason
            self._explain_refusal(out)
        if chunk.usage_metadata is not None:
            self._usage = chunk.usage_metadata
            out.append(ModelUsageUpdated(self._build_usage()))

    def _read_candidate(self, candidate: _Candidate, out: list[ModelEvent]) -> None:
        if candidate.content is not None:
            for part in candidate.content.parts or ():
                self.progress += 1
                self._read_part(bytes(part), out)
        if candidate.grounding_metadata is not None:
            self._read_grounding(candidate.grounding_metadata)
        if reason := candidate.finish_reason:
            self.progress += 1
            self._finish_reason = reason
            self._finish_message = candidate.finish_message or ""
            self._refusal_reason = _find_blocked(candidate.safety_ratings) or reason
            # A call of a tool that is not there stays: its result tells the model so.
            if reason in _UNUSABLE and not self._ids:
                message = self._finish_message or reason
                body = ProviderErrorBody(message, "tool_use_failed")
                raise map_error_body(self._provider, body, None)
            if reason in _REFUSALS:
                self._explain_refusal(out)

    def _explain_refusal(self, out: list[ModelEvent]) -> None:
        """A refusal without text gets one."""
        self._close_text()
        if not any(isinstance(part, Text) for part in self._content):
            why = self._finish_message or self._finish_reason
            text = f"{self._provider.name} declined to answer this ({why})."
            self._content.append(Text(text))
            out.append(ModelTextDelta(text))

    # -------------------------------------------------------------- parts

    def _read_part(self, data: bytes, out: list[ModelEvent]) -> None:
        try:
            part = _decode_part(data)
        except UNREADABLE:
            part = decode_leniently(data, _Part, _STRICT_FIELDS)
        signature = part.thought_signature or ""
        if part.function_call is not None:
            self._read_call(part.function_call, signature, out)
        elif part.text is None:
            self._close_text()
            self._content.append(Opaque(ORIGIN, decode_opaque(data), PART_LABEL))
        elif part.thought:
            self._read_text("thinking", part.text, signature)
            if part.text:
                out.append(ModelThinkingDelta(part.text))
        else:
            self._read_text("text", part.text, signature)
            if part.text:
                out.append(ModelTextDelta(part.text))

    def _read_text(self, kind: str, text: str, signature: str) -> None:
        """Add a delta. A signature belongs to its part alone, so such a part stays by itself."""
        if kind != self._open_kind or (signature and kind == "text"):
            self._close_text()
        self._open_kind = kind
        self._open_text.append(text)
        if signature:
            self._close_text(signature)

    def _close_text(self, signature: str = "") -> None:
        text, kind = "".join(self._open_text), self._open_kind
        self._open_text, self._open_kind = [], ""
        if kind == "thinking":
            self._content.append(Thinking(text, signature, origin=ORIGIN))
        elif text.strip():
            self._content.append(Text(text))
            if signature:
                signed = _encode({"thoughtSignature": signature})
                self._content.append(Opaque(ORIGIN, signed, SIGNATURE_LABEL))
        elif text or signature:
            if text:
                self._content.append(Text(text))
            if signature:
                signed = _encode({"text": "", "thoughtSignature": signature})
                self._content.append(Opaque(ORIGIN, signed, PART_LABEL))

    def _read_call(self, call: _FunctionCall, signature: str, out: list[ModelEvent]) -> None:
        self._close_text()
        call_id = make_unique_call_id(call.id or "", self._ids, self._request.transcript)
        name = restore_tool_name(call.name, self._request.tools)
        raw = decode_opaque(bytes(call.args))
        made = ToolCall(call_id, name, "{}" if raw == "null" else raw)
        if signature:
            extra = _encode({"google": {"thought_signature": signature}})
            self._content.append(Opaque(ORIGIN, extra, CALL_EXTRA_LABEL))
        self._content.append(made)
        out.append(ModelToolCallBegan(call_id, name))
        out.append(ModelToolCallDelta(call_id, made.raw))
        out.append(ModelToolCallRequested(made))

    def _read_grounding(self, grounding: _Grounding) -> None:
        self._queries.update(grounding.web_search_queries or ())
        for chunk in grounding.grounding_chunks or ():
            if chunk.web is not None and chunk.web.uri:
                source = {"url": chunk.web.uri, "title": chunk.web.title or ""}
                self._sources.setdefault(chunk.web.uri, source)

    # -------------------------------------------------------------- the reply

    def finish(self) -> AssistantItem:
        if not self._finish_reason:
            raise incomplete_stream_error(self._provider)
        self._close_text()
        content = list(self._content)
        if self._sources:
            sources = _encode(list(self._sources.values()))
            content.append(Opaque(ORIGIN, sources, CITATIONS_LABEL))
        return AssistantItem(
            tuple(content),
            stop=self._stop_reason(),
            model=self._card.name,
            usage=self._build_usage(),
            response_id=self._response_id,
            refusal_reason=self._refusal_reason if self._finish_reason in _REFUSALS else "",
        )

    def _stop_reason(self) -> StopReason:
        if self._finish_reason in _REFUSALS:
            return "refusal"
        if self._finish_reason == _STOPPED_BY_LIMIT:
            return "max_tokens"
        return "tool_use" if self._ids else "end_turn"

    def _build_usage(self) -> Usage:
        """Their prompt has the cached tokens; what thinking and tools used is counted beside."""
        usage = self._usage or _Usage()
        prompt, cached = usage.prompt_token_count, usage.cached_content_token_count or 0
        output, thoughts = usage.candidates_token_count, usage.thoughts_token_count or 0
        if prompt is not None:
            prompt += (usage.tool_use_prompt_token_count or 0) - cached
        if output is not None or prompt is not None:  # a reply without text has no count of it
            output = (output or 0) + thoughts
        return build_usage(
            self._card,
            input=prompt,
            output=output,
            cache_read=cached,
            reasoning=thoughts,
            searches=len(self._queries),
            search_price=SEARCH_PRICE,
        )


def _find_blocked(ratings: list[_SafetyRating] | None) -> str:
    """The category for which it is blocked, if one is named."""
    return next((rating.category for rating in ratings or () if rating.blocked), "")


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()

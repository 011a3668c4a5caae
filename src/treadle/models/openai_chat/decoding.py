"""Decodes a Chat Completions stream, with the deviations of every known server.

Sans-IO: event data goes in, model events and one reply come out. The tolerance is the same for
all servers: ids and indexes may be missing, a call may come whole or in deltas, reasoning has
three names, usage comes last or not at all, and a reply with calls may say "stop".
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
from treadle.core.errors import ModelError, Overloaded
from treadle.core.transcript.content import (
    AssistantContent,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    parse_arguments,
)
from treadle.core.transcript.items import AssistantItem, StopReason
from treadle.core.transcript.usage import Usage
from treadle.models.openai_chat.chunks import (
    ABSENT,
    ChatCallDelta,
    ChatChunk,
    ChatDelta,
    ChatFunction,
    ChatPart,
    ChatUsage,
    count_hidden_reasoning,
    decode_chunk,
    decode_odd_chunk,
    pick_choice,
)
from treadle.models.provider_base.codec import (
    CALL_EXTRA_LABEL,
    CITATIONS_LABEL,
    DecodeFailed,
    make_unique_call_id,
)
from treadle.models.provider_base.error_map import (
    UNREADABLE,
    ProviderInfo,
    incomplete_stream_error,
    late_arguments_error,
    map_stream_error,
    unreadable_event_error,
)
from treadle.models.provider_base.lenient import decode_opaque
from treadle.models.provider_base.openai_common import convert_usage
from treadle.models.provider_base.request_limits import restore_tool_name

# The fields in which reasoning comes; its `id` is the one in which it came, to send it back there.
REASONING_FIELDS = ("reasoning_content", "reasoning")
REASONING_PARTS = "content"  # it came as parts of the content
# The labels of blocks that are kept and not sent back.
EXECUTED_TOOLS_LABEL = "executed_tools"
IMAGES_LABEL = "images"

CONTENT_FILTER = "content_filter"
_CUT_REASONS = ("length", "max_tokens", "model_length", CONTENT_FILTER)
_STOP_REASONS: dict[str, StopReason] = {
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "model_length": "context",
    CONTENT_FILTER: "refusal",
}
UNNAMED_CALL = "unnamed_call"
_SERVER_FAILURE_REASONS = ("error", "insufficient_system_resource", "abort", "load", "unload")


class _PartialCall(msgspec.Struct):
    """One call while it arrives."""

    index: int | None
    provider_id: str = ""
    id: str = ""
    name: str = ""
    arguments: list[str] = []
    extra: str = ""
    call: ToolCall | None = None


class ChatDecoder:
    """Decodes one response; see codec.Decoder for its promises."""

    def __init__(
        self, request: ModelRequest, card: ModelCard, provider: ProviderInfo, origin: str
    ) -> None:
        self.progress = 0
        self.done = False
        self._transcript = request.transcript
        self._tools = request.tools
        self._card = card
        self._provider = provider
        self._origin = origin
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._thinking: list[str] = []
        self._reasoning_field = ""
        self._reasoning_details: list[dict[str, Any]] = []
        self._signature = ""
        self._annotations: list[Any] = []
        self._executed_tools: list[Any] = []
        self._images: list[Any] = []
        self._citations: list[Any] = []
        self._search_results: list[Any] = []
        self._partial_calls: list[_PartialCall] = []
        self._ids: set[str] = set()
        self._finish_reason = ""
        self._usage: ChatUsage | None = None
        self._response_id = ""

    def feed(self, events: Iterable[tuple[bytes, bytes]]) -> list[ModelEvent]:
        out: list[ModelEvent] = []
        try:
            self._read_chunks(events, out)
        except ModelError as error:
            if not out:
                raise
            raise DecodeFailed(error, out) from error
        return out

    def _read_chunks(self, events: Iterable[tuple[bytes, bytes]], out: list[ModelEvent]) -> None:
        texts = self._text
        for name, data in events:
            if self.done:
                break
            if name == b"error":
                self._raise_stream_error(data)
                continue
            if data == b"[DONE]":
                self._finish_calls(out)
                self.done = True
                break
            try:
                chunk = decode_chunk(data)
            except UNREADABLE:
                chunk = self._decode_odd_chunk(data)
            if chunk.object == "error" or chunk.error is not ABSENT or chunk.base_resp is not None:
                self._check_error(chunk, data)
            choice = pick_choice(chunk)
            if choice is not None:
                delta = choice.delta or choice.message
                if delta is not None:
                    text = delta.content
                    if isinstance(text, str):
                        if text:
                            self.progress += 1
                            texts.append(text)
                            out.append(ModelTextDelta(text))
                    elif text:
                        self._read_parts(text, out)
                    if delta.tool_calls or delta.refusal:
                        self._read_calls(delta, out)
                    if delta.annotations or delta.executed_tools or delta.images:
                        self._annotations += delta.annotations or ()
                        self._executed_tools += delta.executed_tools or ()
                        self._images += delta.images or ()
                    if delta.reasoning_content or delta.reasoning or delta.reasoning_details:
                        self._read_reasoning(delta, out)
                if choice.finish_reason:
                    self._handle_finish_reason(choice.finish_reason, out)
                if choice.usage is not None:
                    self._usage = choice.usage
            if not self._response_id and chunk.id:
                self._response_id = chunk.id
            if chunk.citations or chunk.search_results:
                self._citations = chunk.citations or self._citations
                self._search_results = chunk.search_results or self._search_results
            if chunk.usage is not None or chunk.x_groq is not None:
                self._read_usage(chunk, out)

    def _decode_odd_chunk(self, data: bytes) -> ChatChunk:
        try:
            return decode_odd_chunk(data)
        except UNREADABLE as error:
            raise unreadable_event_error(self._provider, data, "a chat chunk", error) from error

    def finish(self) -> AssistantItem:
        if not self._finish_reason and not self.done:
            raise incomplete_stream_error(self._provider)
        content: list[AssistantContent] = []
        if self._thinking or self._reasoning_details:
            details = self._reasoning_details
            signature = msgspec.json.encode(details).decode() if details else self._signature
            text = "".join(self._thinking)
            content.append(Thinking(text, signature, self._reasoning_field, self._origin))
        content += [Text("".join(texts)) for texts in (self._text, self._refusal) if texts]
        content += self._build_extras()
        for partial in self._partial_calls:
            if partial.call is not None:
                if partial.extra:
                    content.append(Opaque(self._origin, partial.extra, CALL_EXTRA_LABEL))
                content.append(partial.call)
        is_filtered = self._finish_reason == CONTENT_FILTER
        return AssistantItem(
            content=tuple(content),
            stop=self._stop_reason(),
            model=self._card.name,
            usage=self._build_usage(),
            response_id=self._response_id,
            refusal_reason=CONTENT_FILTER if is_filtered else "",
        )

    def _build_extras(self) -> list[Opaque]:
        values = (
            (CITATIONS_LABEL, [*self._annotations, *self._search_results, *self._list_addresses()]),
            (EXECUTED_TOOLS_LABEL, self._executed_tools),
            (IMAGES_LABEL, self._images),
        )
        return [
            Opaque(self._origin, msgspec.json.encode(value).decode(), label)
            for label, value in values
            if value
        ]

    def _list_addresses(self) -> list[Any]:
        """The cited addresses that are not among the results of the search."""
        results = [result for result in self._search_results if isinstance(result, dict)]
        known = [result.get("url") for result in results]
        return [address for address in self._citations if address not in known]

    # ------------------------------------------------------------------ the parts of a delta

    def _append_thinking(self, text: str, out: list[ModelEvent]) -> None:
        if text:
            self.progress += 1
            self._thinking.append(text)
            out.append(ModelThinkingDelta(text))

    def _read_parts(self, parts: list[ChatPart], out: list[ModelEvent]) -> None:
        for part in parts:
            thinking = part.thinking
            if thinking or part.signature:
                self._reasoning_field = REASONING_PARTS
                self._signature += part.signature or ""
            if isinstance(thinking, str):
                self._append_thinking(thinking, out)
            elif thinking:
                self._append_thinking("".join([inner.text or "" for inner in thinking]), out)
            elif part.text:
                self.progress += 1
                self._text.append(part.text)
                out.append(ModelTextDelta(part.text))

    def _read_reasoning(self, delta: ChatDelta, out: list[ModelEvent]) -> None:
        plain = delta.reasoning_content or delta.reasoning or ""
        if plain and not self._reasoning_field:
            self._reasoning_field = REASONING_FIELDS[0 if delta.reasoning_content else 1]
        for detail in delta.reasoning_details or ():
            self.progress += 1
            text = detail.get("text") or detail.get("summary")
            if not plain and isinstance(text, str):
                self._append_thinking(text, out)
            self._merge_detail(detail)
        self._append_thinking(plain, out)

    def _merge_detail(self, detail: dict[str, Any]) -> None:
        """Details arrive in deltas, but must be sent back whole."""
        last = self._reasoning_details[-1] if self._reasoning_details else {}
        same = last.get("type") == detail.get("type") and last.get("index") == detail.get("index")
        if not last or not same:
            self._reasoning_details.append(dict(detail))
            return
        for key, value in detail.items():
            if key in ("text", "summary", "data") and isinstance(last.get(key), str):
                last[key] += value if isinstance(value, str) else ""
            elif value is not None:
                last[key] = value

    def _read_calls(self, delta: ChatDelta, out: list[ModelEvent]) -> None:
        self.progress += 1
        if delta.refusal:
            self._refusal.append(delta.refusal)
            out.append(ModelTextDelta(delta.refusal))
        for call_delta in delta.tool_calls or ():
            partial = self._find_partial_call(call_delta, out)
            function = call_delta.function or ChatFunction()
            if bytes(call_delta.extra_content) not in (b"", b"null"):
                partial.extra = self._decode_extra(bytes(call_delta.extra_content))
            if call_delta.id and not partial.provider_id:
                partial.provider_id = call_delta.id
            if function.name and not partial.name:
                partial.name = restore_tool_name(function.name, self._tools)
                self._announce_start(partial, out)
            text = function.arguments
            if text is not None and not isinstance(text, str):
                text = msgspec.json.encode(text).decode()
            if text:
                self._append_arguments(partial, text, out)
        if self._finish_reason:
            self._finish_calls(out)  # some servers send the finish reason before the calls

    def _decode_extra(self, data: bytes) -> str:
        try:
            return decode_opaque(data)
        except UNREADABLE as error:
            raise unreadable_event_error(self._provider, data, "a chat chunk", error) from error

    def _find_partial_call(self, delta: ChatCallDelta, out: list[ModelEvent]) -> _PartialCall:
        """The call that a delta belongs to.

        By its index if it has one, else by its id, else the last call. A delta with a name still
        starts another call if it has a new id, or more arguments for a complete call.
        """
        calls = self._partial_calls
        if delta.index is not None:
            match = next((call for call in reversed(calls) if call.index == delta.index), None)
        elif delta.id:
            match = next((call for call in calls if call.provider_id == delta.id), None)
            match = match or (calls[-1] if calls and not calls[-1].provider_id else None)
        else:
            match = calls[-1] if calls else None
        if match is not None and match.name and delta.function and delta.function.name:
            other_id = bool(delta.id) and delta.id != match.provider_id
            no_key = not delta.id and delta.index is None
            more = delta.function.arguments and _is_complete_object("".join(match.arguments))
            if other_id or no_key or more:
                match = None
        if match is None:
            if calls and _is_complete_object("".join(calls[-1].arguments)):
                self._finish_call(calls[-1], out)
            match = _PartialCall(delta.index)
            calls.append(match)
        return match

    def _append_arguments(self, partial: _PartialCall, text: str, out: list[ModelEvent]) -> None:
        if partial.call is not None:
            if text.strip():
                raise late_arguments_error(self._provider, partial.call.name)
            return
        partial.arguments.append(text)
        if partial.name:
            out.append(ModelToolCallDelta(partial.id, text))

    # ------------------------------------------------------------------ the end

    def _handle_finish_reason(self, reason: str, out: list[ModelEvent]) -> None:
        if reason in _SERVER_FAILURE_REASONS:
            name = self._provider.name
            raise Overloaded(f"{name} aborted the reply ({reason}).", provider=name)
        self._finish_reason = reason
        self._finish_calls(out)

    def _finish_calls(self, out: list[ModelEvent]) -> None:
        """Announce the complete calls; a cut call is never announced."""
        is_cut = self._finish_reason in _CUT_REASONS
        for partial in self._partial_calls:
            if not partial.name and not is_cut:
                self._name_call(partial, out)
            if not is_cut or _is_complete_object("".join(partial.arguments)):
                self._finish_call(partial, out)

    def _finish_call(self, partial: _PartialCall, out: list[ModelEvent]) -> None:
        if partial.call is None and partial.name:
            partial.call = ToolCall(partial.id, partial.name, "".join(partial.arguments))
            out.append(ModelToolCallRequested(partial.call))

    def _name_call(self, partial: _PartialCall, out: list[ModelEvent]) -> None:
        """A call without a name gets one that no tool has, so that the model gets an error for it;
        providers reject an empty name."""
        arguments = "".join(partial.arguments)
        if _is_complete_object(arguments):
            partial.name = UNNAMED_CALL
            self._announce_start(partial, out)

    def _announce_start(self, partial: _PartialCall, out: list[ModelEvent]) -> None:
        partial.id = make_unique_call_id(partial.provider_id, self._ids, self._transcript)
        out.append(ModelToolCallBegan(partial.id, partial.name))
        if partial.arguments:
            out.append(ModelToolCallDelta(partial.id, "".join(partial.arguments)))

    def _stop_reason(self) -> StopReason:
        if self._finish_reason in _STOP_REASONS:
            return _STOP_REASONS[self._finish_reason]
        if any(partial.call is not None for partial in self._partial_calls):
            return "tool_use"
        return "refusal" if self._refusal else "end_turn"

    def _read_usage(self, chunk: ChatChunk, out: list[ModelEvent]) -> None:
        usage = chunk.usage or (chunk.x_groq.usage if chunk.x_groq is not None else None)
        if usage is None:
            return
        self._usage = usage
        if self._finish_reason:
            out.append(ModelUsageUpdated(self._build_usage()))
            # The chunk without choices is the last one.
            self.done = self.done or not chunk.choices

    def _build_usage(self) -> Usage:
        usage = count_hidden_reasoning(self._usage or ChatUsage())
        converted = convert_usage(self._card, usage, usage.prompt_cache_hit_tokens)
        if usage.cost is not None and usage.cost >= 0:
            return msgspec.structs.replace(converted, cost=usage.cost)
        return converted

    def _check_error(self, chunk: ChatChunk, data: bytes) -> None:
        has_failed = chunk.base_resp is not None and bool(chunk.base_resp.status_code)
        if has_failed or chunk.object == "error" or bytes(chunk.error) not in (b"", b"null"):
            self._raise_stream_error(data)

    def _raise_stream_error(self, data: bytes) -> None:
        if self._finish_reason in _CUT_REASONS:
            return  # OpenRouter repeats as an error that the limit was reached
        raise map_stream_error(self._provider, data)


def _is_complete_object(raw: str) -> bool:
    """Whether this is one whole JSON object, to which nothing can be added."""
    return raw.rstrip().endswith("}") and not isinstance(parse_arguments(raw), str)

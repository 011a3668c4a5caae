"""Decodes a Responses stream into model events and one reply.

Sans-IO. `response.output_item.done` has the whole item, and only it has encrypted reasoning. The
deltas become events, and replace the items of servers that do not send them. An item is
identified by its output index if it has one, else by its id. Text that was shown stays in the
reply, whatever the whole item says.
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
from treadle.core.transcript.content import AssistantContent, Opaque, Text, Thinking, ToolCall
from treadle.core.transcript.items import AssistantItem, StopReason
from treadle.core.transcript.usage import Usage
from treadle.models.openai_responses.free_text import (
    CALL_TYPES,
    FREE_TEXT_CALL,
    FreeTextArguments,
)
from treadle.models.openai_responses.stream_events import (
    EventType,
    FailureDetails,
    OutputDelta,
    OutputItem,
    OutputItemEvent,
    ResponseBody,
    ResponseEvent,
    decode_delta,
    decode_event,
    decode_item,
)
from treadle.models.provider_base.codec import (
    CITATIONS_LABEL,
    DecodeFailed,
    make_unique_call_id,
)
from treadle.models.provider_base.error_map import (
    UNREADABLE,
    ProviderInfo,
    has_field,
    incomplete_stream_error,
    late_arguments_error,
    map_error_body,
    map_stream_error,
    unreadable_event_error,
)
from treadle.models.provider_base.error_types import ProviderErrorBody
from treadle.models.provider_base.lenient import decode_opaque
from treadle.models.provider_base.openai_common import OpenAIUsage, convert_usage
from treadle.models.provider_base.request_limits import restore_tool_name

# The labels of an Opaque that belongs to the part after it, and is sent back with it.
MESSAGE_EXTRA_LABEL = "message_extra"
CALL_EXTRA_LABEL = "function_call_extra"
ITEM_LABEL = "item"  # id and status of the item, which belong to its reasoning
EXTRA_LABELS = frozenset({MESSAGE_EXTRA_LABEL, CALL_EXTRA_LABEL, CITATIONS_LABEL, ITEM_LABEL})


class _Status(msgspec.Struct):
    status: str | None = None


_OTHER_STATUS = ("queued", "in_progress", "incomplete", "failed", "cancelled")


def split_response(body: bytes) -> list[tuple[bytes, bytes]]:
    """The last event of a stream that holds this whole response."""
    if not has_field(body, "output"):
        return []
    try:
        status = decode_event(body, _Status).status
    except UNREADABLE:
        return []
    status = status if status in _OTHER_STATUS else "completed"
    return [(b"response." + status.encode(), b'{"response":' + body + b"}")]


class _PartialItem(msgspec.Struct):
    """One output item while it arrives; `raw` is the whole item, once it is complete."""

    item: OutputItem
    raw: str = ""
    call_id: str = ""
    call: ToolCall | None = None
    doubtful_call: ToolCall | None = None  # its arguments are invalid: it may have been cut
    deltas: list[str] = []  # what was shown
    free_text: FreeTextArguments | None = None  # of a call that is no JSON


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
        self._items: list[_PartialItem] = []
        self._items_by_key: dict[int | str, _PartialItem] = {}
        self._ids: set[str] = set()
        self._is_cut = False
        self._is_refused = False
        self._refusal_text = self._refusal_reason = ""
        self._usage: OpenAIUsage | None = None

    def feed(self, events: Iterable[tuple[bytes, bytes]]) -> list[ModelEvent]:
        out: list[ModelEvent] = []
        for name, data in events:
            if self.done:
                break
            try:
                if name == b"response.output_text.delta" and b'"delta"' in data:
                    self._read_delta(data, ModelTextDelta, out)
                elif data != b"[DONE]":
                    self._handle_event(
                        name or decode_event(data, EventType).type.encode(), data, out
                    )
            except (ModelError, *UNREADABLE) as error:
                failure = error if isinstance(error, ModelError) else self._unreadable(data, error)
                raise (DecodeFailed(failure, out) if out else failure) from error
        return out

    def _unreadable(self, data: bytes, error: Exception) -> ModelError:
        expected = "of the Responses protocol"
        return unreadable_event_error(self._provider, data, expected, error)

    def finish(self) -> AssistantItem:
        if not self.done:
            raise incomplete_stream_error(self._provider)
        content: list[AssistantContent] = []
        for partial in self._items:
            self._append_content(partial, content)
        if self._refusal_text:
            content.append(Text(self._refusal_text))
        return AssistantItem(
            content=tuple(content),
            stop=self._stop_reason(content),
            model=self._card.name,
            usage=self._build_usage(),
            response_id=self.response_id,
            refusal_reason=self._refusal_reason,
        )

    # ------------------------------------------------------------------ events by name

    def _handle_event(self, name: bytes, data: bytes, out: list[ModelEvent]) -> None:
        match name:
            case b"response.output_text.delta" | b"response.refusal.delta":
                self._read_delta(data, ModelTextDelta, out)
            case (
                b"response.function_call_arguments.delta" | b"response.custom_tool_call_input.delta"
            ):
                self._read_arguments(decode_event(data, OutputDelta), out)
            case b"response.reasoning_summary_text.delta" | b"response.reasoning_text.delta":
                self._read_delta(data, ModelThinkingDelta, out)
            case b"response.reasoning_summary_part.added":
                part = decode_event(data, OutputDelta)
                if part.summary_index:
                    self._show(self._get_item(part.key, "reasoning"), "\n\n", out)
            case b"response.output_item.added":
                event = decode_event(data, OutputItemEvent)
                self._start_item(decode_item(bytes(event.item)), event.output_index, out)
            case b"response.output_item.done":
                event = decode_event(data, OutputItemEvent)
                self._finish_item(bytes(event.item), event.output_index, out)
            case b"response.created" | b"response.in_progress" | b"response.queued":
                self.response_id = decode_event(data, ResponseEvent).response.id or self.response_id
            case b"response.completed" | b"response.incomplete" | b"response.done":
                self._finish_response(decode_event(data, ResponseEvent).response, out)
            case b"response.failed" | b"response.cancelled":
                self._handle_failure(decode_event(data, ResponseEvent).response, out)
            case b"error":
                raise map_stream_error(self._provider, data)
            case _:
                # Server-side tools report their progress, which is not kept. Data that is not
                # JSON still means a broken stream.
                decode_event(data, EventType)
                if name.startswith(b"response."):
                    self.progress += 1

    def _read_delta(
        self,
        data: bytes,
        event_type: type[ModelTextDelta] | type[ModelThinkingDelta],
        out: list[ModelEvent],
    ) -> None:
        try:
            delta = decode_delta(data)
        except UNREADABLE:
            delta = decode_event(data, OutputDelta)
        self.progress += 1
        kind = "message" if event_type is ModelTextDelta else "reasoning"
        self._get_item(delta.key, kind).deltas.append(delta.delta)
        out.append(event_type(delta.delta))

    def _get_item(self, key: int | str, kind: str) -> _PartialItem:
        """The message or the reasoning that a delta belongs to; some servers do not start it."""
        partial = self._items_by_key.get(key)
        if partial is None or partial.item.type != kind:
            own_key = f"{kind} {key}"
            partial = self._items_by_key.get(own_key)
            if partial is None:
                partial = self._items_by_key[own_key] = _PartialItem(OutputItem(kind))
                self._items.append(partial)
        return partial

    def _show(self, partial: _PartialItem, text: str, out: list[ModelEvent]) -> None:
        partial.deltas.append(text)
        is_text = partial.item.type == "message"
        out.append(ModelTextDelta(text) if is_text else ModelThinkingDelta(text))

    def _read_arguments(self, delta: OutputDelta, out: list[ModelEvent]) -> None:
        self.progress += 1
        partial = self._items_by_key.get(delta.key)
        name = self._provider.name
        if partial is None or partial.item.type not in CALL_TYPES:
            message = f"{name} sent arguments of a call that it had not started."
            raise StreamBroken(message, provider=name)
        if partial.raw and delta.delta.strip():
            raise late_arguments_error(self._provider, self._get_tool_name(partial.item))
        text = delta.delta
        if (free := partial.free_text) is not None:
            text = free.escape(text) if partial.deltas else free.start + free.escape(text)
        partial.deltas.append(delta.delta)
        out.append(ModelToolCallDelta(partial.call_id, text))

    def _start_item(
        self, item: OutputItem, index: int | None, out: list[ModelEvent]
    ) -> _PartialItem:
        self.progress += 1
        partial = _PartialItem(item)
        self._items.append(partial)
        for key in (index, item.id):
            if key is not None and key != "":
                self._items_by_key[key] = partial
        if item.type in CALL_TYPES:
            partial.call_id = make_unique_call_id(item.call_id or "", self._ids, self._transcript)
            name = self._get_tool_name(item)
            if item.type == FREE_TEXT_CALL:
                partial.free_text = FreeTextArguments(name, self._tools)
            out.append(ModelToolCallBegan(partial.call_id, name))
        return partial

    def _finish_item(
        self, raw: bytes, index: int | None, out: list[ModelEvent], is_last: bool = False
    ) -> None:
        """Take the whole item; `is_last`: out of the last event, which may repeat items."""
        self.progress += 1
        item = decode_item(raw)
        partial = self._find_started(item, index, is_last)
        if partial is None:
            partial = self._start_item(item, index, out)
        if partial.raw and is_last:
            return
        partial.item, partial.raw = item, decode_opaque(raw)
        if item.type in CALL_TYPES:
            self._finish_call(partial, out)
        elif item.type in ("message", "reasoning"):
            shown, whole = "".join(partial.deltas), _join_texts(item)
            if whole.startswith(shown) and whole != shown:
                self._show(partial, whole[len(shown) :], out)

    def _find_started(
        self, item: OutputItem, index: int | None, is_last: bool
    ) -> _PartialItem | None:
        """By its index, else by its id, else the first one that is not finished."""
        for key in (index, item.id, f"{item.type} {index}", f"{item.type} {item.id}"):
            partial = self._items_by_key.get(key) if key is not None else None
            if partial is not None and partial.item.type == item.type:
                return partial
        if index is not None and not is_last:
            return None
        unfinished = (one for one in self._items if not one.raw and one.item.type == item.type)
        return next(unfinished, None)

    def _finish_call(self, partial: _PartialItem, out: list[ModelEvent]) -> None:
        item = partial.item
        if item.status == "incomplete" or partial.call or partial.doubtful_call:
            return
        free, given = partial.free_text, item.arguments
        if free is not None:
            given = free.encode("".join(partial.deltas) if item.input is None else item.input)
        arguments = given if given is not None else "".join(partial.deltas)
        if arguments and not partial.deltas:
            out.append(ModelToolCallDelta(partial.call_id, arguments))
        elif free is not None:
            out.append(ModelToolCallDelta(partial.call_id, free.end))
        call = ToolCall(partial.call_id, self._get_tool_name(item), arguments)
        if call.problem is None:
            partial.call = call
            out.append(ModelToolCallRequested(call))
        else:
            partial.doubtful_call = call

    def _get_tool_name(self, item: OutputItem) -> str:
        return restore_tool_name(item.name or "", self._tools)

    # ------------------------------------------------------------------ the end

    def _finish_response(self, response: ResponseBody, out: list[ModelEvent]) -> None:
        self.response_id = response.id or self.response_id
        reason = response.incomplete_details.reason if response.incomplete_details else None
        self._is_cut = reason is not None and reason != "content_filter"
        self._is_refused = reason == "content_filter"
        self._refusal_reason = reason or "" if self._is_refused else ""
        output = response.output or []
        if len(output) > sum(1 for partial in self._items if partial.raw):
            # Some servers send no item events; the whole output is at the end.
            for index, raw in enumerate(output):
                self._finish_item(bytes(raw), index, out, is_last=True)
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
        has_calls = any(partial.call for partial in self._items)
        doubtful = [partial for partial in self._items if partial.doubtful_call]
        if at_limit and (doubtful or not has_calls):
            self._is_cut = True
        for partial in doubtful:
            if not self._is_cut and partial.doubtful_call is not None:
                partial.call = partial.doubtful_call
                out.append(ModelToolCallRequested(partial.call))

    def _handle_failure(self, response: ResponseBody, out: list[ModelEvent]) -> None:
        details = response.error or FailureDetails(message="no reason given")
        code, message = details.code or "", details.message or ""
        if "policy" in code or code == "content_filter":  # a refusal, not an error
            self._is_refused, self._refusal_text, self.done = True, message or code, True
            self._refusal_reason = code
            out.append(ModelTextDelta(self._refusal_text))
            return
        is_about_input = "image" in code or "file" in code
        error = ProviderErrorBody(message=message, code=code)
        raise map_error_body(self._provider, error, 400 if is_about_input else None)

    def _append_content(self, partial: _PartialItem, content: list[AssistantContent]) -> None:
        item, shown = partial.item, "".join(partial.deltas)
        if item.type in CALL_TYPES and partial.call is not None:
            self._append_item_id(partial, content)
            if item.namespace:
                content.append(self._make_extra(CALL_EXTRA_LABEL, {"namespace": item.namespace}))
            content.append(partial.call)
        elif item.type == "message":
            if item.content or shown:
                self._append_item_id(partial, content)
            if item.phase:
                content.append(self._make_extra(MESSAGE_EXTRA_LABEL, {"phase": item.phase}))
            parts = item.content or []
            self._is_refused = self._is_refused or any(part.refusal is not None for part in parts)
            if shown and _join_texts(item) != shown:  # the item says something else, or nothing
                content.append(Text(shown))
                return
            for part in parts:
                text = part.text or part.refusal
                if text and part.annotations:
                    content.append(self._make_extra(CITATIONS_LABEL, part.annotations))
                if text:
                    content.append(Text(text))
        elif item.type == "reasoning":
            encrypted = item.encrypted_content or "" if partial.raw else ""
            if shown or encrypted:
                content.append(Thinking(shown, encrypted, item.id or "", self._origin))
        elif partial.raw and item.type not in CALL_TYPES:
            content.append(Opaque(self._origin, partial.raw, item.type))

    def _append_item_id(self, partial: _PartialItem, content: list[AssistantContent]) -> None:
        """The id of a complete item, which is sent back with it."""
        item = partial.item
        if partial.raw and item.id:
            status = "incomplete" if item.status == "incomplete" else "completed"
            content.append(self._make_extra(ITEM_LABEL, {"id": item.id, "status": status}))

    def _make_extra(self, label: str, value: object) -> Opaque:
        return Opaque(self._origin, msgspec.json.encode(value).decode(), label)

    def _stop_reason(self, content: list[AssistantContent]) -> StopReason:
        if self._is_refused:
            return "refusal"
        if self._is_cut:
            return "max_tokens"
        return "tool_use" if any(type(part) is ToolCall for part in content) else "end_turn"

    def _build_usage(self) -> Usage:
        searches = sum(partial.item.type == "web_search_call" for partial in self._items)
        return convert_usage(self._card, self._usage or OpenAIUsage(), searches=searches)


def _join_texts(item: OutputItem) -> str:
    """All text of a message, or of reasoning, whose parts are paragraphs."""
    if item.type == "message":
        return "".join([part.text or part.refusal or "" for part in item.content or ()])
    return "\n\n".join([part.text for part in item.summary or item.content or () if part.text])

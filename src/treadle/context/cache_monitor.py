"""A model wrapper that reports what broke the prompt cache, and what that cost.

Providers cache the prefix of a request (tools, then system, then items) while it stays the same.
The wrapper compares each request with the previous one of its session. When the prefix changed it
notifies the user in one line: the first change, and the money lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from treadle.core.compare import common_prefix_length
from treadle.core.contracts.model import Model, ModelEvent, ModelNotified, ModelRequest, Reply
from treadle.core.contracts.tool import ToolSpec
from treadle.core.contracts.wrapped import WrappedModel, open_stream
from treadle.core.text import format_dollars, plural
from treadle.core.transcript.transcript import Transcript

MAX_SESSIONS = 256


class _LastRequest(msgspec.Struct, frozen=True):
    request: ModelRequest
    cached_tokens: int  # that the provider may have cached


class CacheMonitor(WrappedModel):
    """Watches the requests of the wrapped model."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._last: dict[str, _LastRequest] = {}

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        last = self._last.get(request.session_id)
        if last is not None:
            change = describe_first_change(last.request, request)
            if change and last.cached_tokens:
                loss = self._format_loss(last.cached_tokens)
                yield ModelNotified(f"the prompt cache broke: {change}{loss}")
        async with open_stream(self._model, request) as events:
            async for event in events:
                if isinstance(event, Reply):
                    self._save_last(request, event.item.usage.total_input)
                yield event

    def _save_last(self, request: ModelRequest, cached: int) -> None:
        self._last.pop(request.session_id, None)
        self._last[request.session_id] = _LastRequest(request, cached)
        while len(self._last) > MAX_SESSIONS:
            self._last.pop(next(iter(self._last)))

    def _format_loss(self, tokens: int) -> str:
        card = self.card
        text = f"; about {tokens:,} tokens are sent uncached"
        if card.input_price is None or card.cache_read_price is None:
            return text
        full_price = max(card.input_price, card.cache_write_price or 0.0)
        loss = tokens * (full_price - card.cache_read_price) / 1e6
        return f"{text} (+{format_dollars(loss)})" if loss > 0 else text


def describe_first_change(old: ModelRequest, new: ModelRequest) -> str:
    """The first change that breaks the cached prefix; empty if the new request extends it."""
    return (
        _describe_tools_change(old.tools, new.tools)
        or _describe_system_change(old.system, new.system)
        or _describe_thinking_change(old.options.thinking, new.options.thinking)
        or _describe_items_change(old.transcript, new.transcript)
    )


def _describe_tools_change(old: tuple[ToolSpec, ...], new: tuple[ToolSpec, ...]) -> str:
    if old is new or old == new:
        return ""
    position = common_prefix_length(old, new)
    if position == len(old):
        return f"the tool {new[position].name} was added"
    if position == len(new):
        return f"the tool {old[position].name} was removed"
    before, after = old[position].name, new[position].name
    if before != after:
        return f"tool {position + 1} was {before} and is {after}"
    return f"the definition of tool {before} changed"


def _describe_system_change(old: str, new: str) -> str:
    if old == new:
        return ""
    before, after = old.splitlines(), new.splitlines()
    position = common_prefix_length(before, after)
    if position < min(len(before), len(after)):
        return f"line {position + 1} of the instructions changed to {after[position][:60]!r}"
    return "the instructions became longer or shorter"


def _describe_thinking_change(old: int | str | None, new: int | str | None) -> str:
    """Providers cache the messages for one setting of thinking."""
    return "" if old == new else f"thinking changed from {old or 'off'} to {new or 'off'}"


def _describe_items_change(old: Transcript, new: Transcript) -> str:
    if old.cache is new.cache and len(new) >= len(old):
        return ""  # the same list, only longer
    position = common_prefix_length(old, new)
    if position < min(len(old), len(new)):
        return f"message {position + 1} of {len(old)} was rewritten"
    removed = len(old) - len(new)
    return f"{plural(removed, 'message')} at the end removed" if removed > 0 else ""

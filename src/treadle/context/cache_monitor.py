"""The cache accountant: says what broke the cached beginning of a request, and what it cost.

Providers keep the beginning of a request (tools, then system, then items) while it stays the same.
This model wraps another, compares each request with the one before it in its session, and tells
the person in one line when something in the middle changed: what came first, and the money lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from treadle.core.contracts.model import (
    Model,
    ModelEvent,
    ModelNotified,
    ModelRequest,
    Reply,
)
from treadle.core.contracts.tool import ToolSpec
from treadle.core.contracts.wrapped import WrappedModel, open_stream
from treadle.core.transcript.transcript import Transcript

MAX_SESSIONS = 256


class _LastRequest(msgspec.Struct, frozen=True):
    request: ModelRequest
    cached_tokens: int  # tokens that the provider could have kept


class CacheMonitor(WrappedModel):
    """A model that watches what it is asked. Everything else is the wrapped model's."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._last: dict[str, _LastRequest] = {}

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        last = self._last.get(request.session_id)
        if last is not None:
            change = describe_first_change(last.request, request)
            if change and last.cached_tokens:
                yield ModelNotified(
                    f"the prompt cache broke: {change}{self._format_loss(last.cached_tokens)}"
                )
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
        said = f"; about {tokens:,} tokens are read anew"
        if card.input_price is None or card.cache_read_price is None:
            return said
        written = max(card.input_price, card.cache_write_price or 0.0)
        lost = tokens * (written - card.cache_read_price) / 1e6
        return f"{said}, {lost:.4f} USD more" if lost > 0 else said


def describe_first_change(old: ModelRequest, new: ModelRequest) -> str:
    """What of the old request's beginning is not in the new one; empty if all of it is."""
    return (
        _describe_tools_change(old.tools, new.tools)
        or _describe_system_change(old.system, new.system)
        or _describe_items_change(old.transcript, new.transcript)
    )


def _describe_tools_change(old: tuple[ToolSpec, ...], new: tuple[ToolSpec, ...]) -> str:
    if old is new or old == new:
        return ""
    for position, (one, two) in enumerate(zip(old, new, strict=False)):
        if one.name != two.name:
            return f"tool {position + 1} was {one.name} and is {two.name}"
        if one != two:
            return f"the definition of tool {one.name} changed"
    if len(new) > len(old):
        return f"the tool {new[len(old)].name} was added"
    return f"the tool {old[len(new)].name} was removed"


def _describe_system_change(old: str, new: str) -> str:
    if old == new:
        return ""
    lines = zip(old.splitlines(), new.splitlines(), strict=False)
    for number, (one, two) in enumerate(lines, 1):
        if one != two:
            return f"line {number} of the instructions changed to {two[:60]!r}"
    return "the instructions became longer or shorter"


def _describe_items_change(old: Transcript, new: Transcript) -> str:
    if old.cache is new.cache and len(new) >= len(old):
        return ""  # the same list, only longer
    for position, (one, two) in enumerate(zip(old, new, strict=False)):
        if one is not two and one != two:
            return f"message {position + 1} of {len(old)} was rewritten"
    return "" if len(new) >= len(old) else f"the last {len(old) - len(new)} messages are gone"

"""A model wrapper that reports what broke the prompt cache, and what that cost.

Providers cache the prefix of a request (tools, then system, then items) while it stays the same.
The wrapper compares each request with the previous one of its session. When the prefix changed it
notifies the user in one line: the first change, and the money lost. The head of the last request
(tools, system, thinking) is in the log, so the first request of a resumed session is compared too.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from treadle.core.contracts.model import Model, ModelEvent, ModelNotified, ModelRequest, Reply
from treadle.core.contracts.tool import ToolSpec
from treadle.core.contracts.wrapped import WrappedModel, open_stream
from treadle.core.transcript.entries import HeadRecorded
from treadle.core.transcript.size_estimate import estimate_chars, estimate_item_chars
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage
from treadle.lib.sequences import common_prefix_length
from treadle.lib.text.text import format_dollars

MAX_SESSIONS = 256
CACHE_SECONDS = 300.0  # providers keep a prompt for this long without a request


class _LastRequest(msgspec.Struct, frozen=True):
    request: ModelRequest
    tokens: int
    cached_tokens: int  # of them; as far as the provider tells
    cached_until: float


class HeadLog(msgspec.Struct, frozen=True):
    """The head of a session's last request, and where a new one is recorded. `cached_tokens` are
    those that the provider has cached from an earlier process, until `cached_until` (as
    `time.time`)."""

    session_id: str
    save: Callable[[HeadRecorded], None]
    last: HeadRecorded | None = None
    cached_tokens: int = 0
    cached_until: float = math.inf
    memory_chars: int = 0  # of the memory files in the instructions


class CacheMonitor(WrappedModel):
    """Watches the requests of the wrapped model."""

    def __init__(
        self,
        model: Model,
        head_log: HeadLog | None = None,
        *,
        get_time: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(model)
        self._get_time = get_time
        self._last: dict[str, _LastRequest] = {}
        self._head_log = head_log

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        is_turn = request.purpose in ("turn", "closing")  # others leave the cached prefix alone
        change, cached_tokens = self._find_change(request) if is_turn else ("", 0)
        if change and cached_tokens:
            loss = self._format_loss(cached_tokens)
            yield ModelNotified(f"the prompt cache broke: {change}{loss}")
        async with open_stream(self._model, request) as events:
            async for event in events:
                if is_turn and isinstance(event, Reply):
                    self._save_last(request, event.item.usage)
                yield event

    def _find_change(self, request: ModelRequest) -> tuple[str, int]:
        """What broke the cached prefix, and how many tokens are sent again for it. A cache that the
        provider has dropped by itself, or never had, cannot break."""
        last, log = self._last.get(request.session_id), self._head_log
        if last is not None:
            if not last.cached_tokens or self._get_time() >= last.cached_until:
                return "", 0
            change = describe_first_change(last.request, request)
            return change, _count_lost(last, request) if change else 0
        if log is None or log.last is None or request.session_id != log.session_id:
            return "", 0
        if self._get_time() >= log.cached_until:
            return "", 0
        return describe_head_change(log.last, make_head(self.name, request)), log.cached_tokens

    def _save_head(self, request: ModelRequest, last: _LastRequest | None) -> None:
        """Record the head if it is another one; usually once in a session."""
        log = self._head_log
        if log is None or request.session_id != log.session_id:
            return
        if last is not None and _has_same_head(last.request, request):
            return
        head = make_head(self.name, request, log.memory_chars)
        if head != log.last:
            log.save(head)
            self._head_log = msgspec.structs.replace(log, last=head)

    def _save_last(self, request: ModelRequest, usage: Usage) -> None:
        self._save_head(request, self._last.pop(request.session_id, None))
        until = self._get_time() + CACHE_SECONDS
        last = _LastRequest(request, usage.total_input, count_cached(usage), until)
        self._last[request.session_id] = last
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


def count_cached(usage: Usage) -> int:
    """How many tokens of a request are in the provider's cache; 0 if it does not tell."""
    return usage.cache_read + usage.cache_write


def _count_lost(last: _LastRequest, new: ModelRequest) -> int:
    """How many tokens of the request were cached before, and are not any more."""
    old = last.request
    kept = [old.tools == new.tools, old.system == new.system]
    kept.append(old.options.thinking == new.options.thinking)
    count = next((count for count, is_same in enumerate(kept) if not is_same), len(kept))
    tools, system = _count_tool_chars(new), len(new.system)
    kept_chars = sum((tools, system)[:count])
    if count == len(kept):
        same = common_prefix_length(old.transcript, new.transcript)
        kept_chars += sum(map(estimate_item_chars, new.transcript[:same]))
    old_chars = _count_tool_chars(old) + len(old.system) + estimate_chars(old.transcript)
    sent = min(old_chars, tools + system + estimate_chars(new.transcript))
    size = last.tokens / max(1, old_chars)  # of a character
    return max(0, round(min(last.cached_tokens, sent * size) - kept_chars * size))


def _count_tool_chars(request: ModelRequest) -> int:
    return len(msgspec.json.encode(_list_definitions(request))) if request.tools else 0


def _list_definitions(request: ModelRequest) -> list[tuple[str, str, dict[str, Any]]]:
    return [(tool.name, tool.description, tool.schema) for tool in request.tools]


def make_head(model: str, request: ModelRequest, memory_chars: int = 0) -> HeadRecorded:
    tools = _list_definitions(request)
    definitions = msgspec.json.encode(tools)
    return HeadRecorded(
        model,
        zlib.crc32(request.system.encode("utf-8", "replace")),
        tuple([tool.name for tool in request.tools]),
        zlib.crc32(definitions),
        request.options.thinking,
        system_chars=max(0, len(request.system) - memory_chars),
        memory_chars=memory_chars,
        tools_chars=_count_tool_chars(request),
    )


def _has_same_head(old: ModelRequest, new: ModelRequest) -> bool:
    has_same_tools = old.tools is new.tools or old.tools == new.tools
    has_same_thinking = old.options.thinking == new.options.thinking
    return has_same_tools and has_same_thinking and old.system == new.system


def describe_head_change(old: HeadRecorded, new: HeadRecorded) -> str:
    """What differs from the request of an earlier process. Another model has another cache, as the
    user knows."""
    if old.model != new.model:
        return ""
    added = [name for name in new.tools if name not in old.tools]
    removed = [name for name in old.tools if name not in new.tools]
    since = "since the session was last used"
    if added:
        return f"the tool {added[0]} was added {since}"
    if removed:
        return f"the tool {removed[0]} was removed {since}"
    if old.tools != new.tools or old.definitions != new.definitions:
        return f"the definitions of the tools changed {since}"
    if old.system != new.system:
        return f"the instructions changed {since}"
    return _describe_thinking_change(old.thinking, new.thinking)


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
    return ""  # longer; or shorter, and the cache holds what is left

"""Why a request cost what it did: the price of each item, and what broke the provider's cache.

Tokens of items are estimated and fitted to the provider's count; prices follow from what the
provider read from its cache, wrote to it, and read at full price. Used by sheet.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from treadle.apps.pages.timeline import RequestInfo, Timeline
from treadle.context.cache_monitor import CACHE_SECONDS
from treadle.core.transcript.entries import HeadRecorded
from treadle.core.transcript.usage import Usage
from treadle.lib.text.text import plural
from treadle.models.catalog import card_for, compute_cost

MIN_LOST = 1_000  # tokens; less is how a provider rounds
_SAMPLE = 1_000  # tokens of which the price of one is computed


class CacheBreak(msgspec.Struct, frozen=True):
    """Tokens that the request before had in the cache, and this one did not read from it; what that
    cost more, None if the price is not known; and the causes that are known."""

    tokens: int
    price: float | None
    causes: tuple[str, ...]


class ItemCost(msgspec.Struct, frozen=True):
    """`cached` of the tokens were read from the cache."""

    tokens: int
    cached: int
    price: float | None


def find_cache_break(timeline: Timeline, request: RequestInfo) -> CacheBreak | None:
    lost = count_lost_tokens(timeline, request)
    if not lost:
        return None
    before = timeline.requests[request.number - 2]
    causes = tuple(_list_causes(timeline, before, request))
    return CacheBreak(lost, price_lost_tokens(request, lost), causes)


def count_lost_tokens(timeline: Timeline, request: RequestInfo) -> int:
    """Those that the request before had in the cache, and this one did not read from it."""
    if request.number < 2:
        return 0
    before = timeline.requests[request.number - 2].usage
    lost = before.cache_read + before.cache_write - request.usage.cache_read
    return lost if lost >= MIN_LOST else 0


def price_lost_tokens(request: RequestInfo, lost: int) -> float | None:
    """What they cost more than from the cache."""
    is_written = request.usage.cache_write >= lost
    paid = _compute(request, Usage(cache_write=lost) if is_written else Usage(input=lost))
    cheap = _compute(request, Usage(cache_read=lost))
    return None if paid is None or cheap is None else paid - cheap


def _list_causes(timeline: Timeline, before: RequestInfo, request: RequestInfo) -> list[str]:
    causes: list[str] = []
    if before.model != request.model:
        causes.append(f"the model changed from {before.model} to {request.model}")
    if before.head is not None and request.head is not None:
        causes += _compare_heads(before.head, request.head)
    causes += [
        f"the messages were rewritten: {step.label}"
        for step in timeline.steps
        if step.kind in ("rewrite", "rewind") and before.seq < step.seq <= request.view_seq
    ]
    idle_seconds = request.start - before.end
    if idle_seconds >= CACHE_SECONDS:
        passed = plural(int(idle_seconds // 60), "minute")
        causes.append(f"{passed} passed since the request before: a cache is kept for some minutes")
    return causes


def _compare_heads(before: HeadRecorded, after: HeadRecorded) -> list[str]:
    causes: list[str] = []
    if before.system != after.system:
        causes.append("the instructions or memory files changed")
    if before.definitions != after.definitions:
        added = [f"+{name}" for name in after.tools if name not in before.tools]
        removed = [f"−{name}" for name in before.tools if name not in after.tools]
        causes.append(f"the tools changed {' '.join([*added, *removed])}".rstrip())
    if before.thinking != after.thinking:
        causes.append("the thinking effort changed")
    return causes


def price_items(request: RequestInfo, sizes: Sequence[int]) -> list[ItemCost]:
    """What the items of a request cost, in the order in which they were sent: first those that were
    in the cache. `sizes` are estimated tokens; the prices add up to that of what was sent."""
    usage = request.usage
    share = usage.total_input / (sum(sizes) or 1)
    kinds = ("cache_read", "cache_write", "input")
    units = [_compute(request, Usage(**{kind: _SAMPLE})) for kind in kinds]
    known = [one for one in units if one is not None]
    left = [usage.cache_read, usage.cache_write, usage.input]
    costs: list[ItemCost] = []
    total = counted = 0
    for size in sizes:
        total += size
        tokens = rest = round(total * share) - counted
        counted += tokens
        parts = [0, 0, 0]
        for kind in range(3):
            parts[kind] = min(rest, left[kind])
            left[kind] -= parts[kind]
            rest -= parts[kind]
        price = None
        if len(known) == len(units):
            price = sum(part * unit for part, unit in zip(parts, known, strict=True)) / _SAMPLE
        costs.append(ItemCost(tokens, parts[0], price))
    return costs


def price_reply(request: RequestInfo) -> float | None:
    return _compute(request, Usage(output=request.usage.output))


def _compute(request: RequestInfo, usage: Usage) -> float | None:
    return compute_cost(card_for(request.model, prices=True), usage)

"""Estimates the tokens of the next request.

The provider's usage is exact. Between two calls the size is estimated from characters, with the
characters per token that the last call of the session showed.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.core.contracts.mutator import MutationContext
from treadle.core.transcript import size_estimate
from treadle.core.transcript.content import Document, Image
from treadle.core.transcript.items import Item, NoticeItem, SummaryItem
from treadle.core.transcript.transcript import Transcript

DEFAULT_CHARS_PER_TOKEN = 3.5  # before the first usage report
MIN_CHARS_PER_TOKEN, MAX_CHARS_PER_TOKEN = 1.5, 6.0  # plausible range of a measurement
ITEM_OVERHEAD_CHARS = 30  # that a request adds around an item


class TokenEstimator:
    """Calibrated by each measured call; one per session."""

    def __init__(self) -> None:
        self._chars_per_token = DEFAULT_CHARS_PER_TOKEN
        self._sent_chars = 0

    def estimate_request(self, context: MutationContext) -> int:
        """Tokens of the next request. Calibrates itself by the usage of the last call."""
        measured = context.last_usage.total_input
        if measured > 0 and self._sent_chars > 0:
            ratio = max(MIN_CHARS_PER_TOKEN, self._sent_chars / measured)
            self._chars_per_token = min(MAX_CHARS_PER_TOKEN, ratio)
        chars = context.overhead_chars + count_chars(context.transcript)
        if context.point == "before_model":
            self.record_sent(chars)
        return self.tokens_for_chars(chars)

    def record_sent(self, chars: int) -> None:
        """Set the number of characters that the next usage report is about."""
        self._sent_chars = chars

    def tokens_for_chars(self, chars: int) -> int:
        return int(chars / self._chars_per_token) + 1

    def chars_for_tokens(self, tokens: int) -> int:
        """How many characters fit into this many tokens."""
        return int(tokens * self._chars_per_token)


def count_chars(items: Sequence[Item]) -> int:
    """Characters of a view. A transcript counts only the items added since the last time."""
    if not isinstance(items, Transcript):
        return sum(map(count_item_chars, items))
    sums: list[int] = items.cache.setdefault("context.size", [0])
    while len(sums) <= len(items):
        sums.append(sums[-1] + count_item_chars(items[len(sums) - 1]))
    return sums[len(items)]


def count_item_chars(item: Item) -> int:
    if isinstance(item, (NoticeItem, SummaryItem)):
        return len(item.text) + ITEM_OVERHEAD_CHARS
    total = ITEM_OVERHEAD_CHARS
    for part in item.content:
        if isinstance(part, (Image, Document)):
            total += size_estimate.estimate_media_chars(part)
        else:
            total += max(len(getattr(part, name, "")) for name in ("text", "raw", "json", "data"))
            total += len(getattr(part, "signature", ""))
    return total

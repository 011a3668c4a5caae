"""Estimates the tokens of the next request.

The provider's usage is exact. Between two calls the size is estimated from characters (UTF-8 bytes,
see core/transcript/size_estimate.py), with the characters per token that the last call of the
session showed. A request that was refused for its length was as long as the window at least.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.core.contracts.mutator import MutationContext
from treadle.core.transcript import size_estimate
from treadle.core.transcript.content import Document, Image
from treadle.core.transcript.items import Item, NoticeItem, SummaryItem, ToolResultItem
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage

DEFAULT_CHARS_PER_TOKEN = 3.5  # before the first usage report
# The range of a measurement: a token has at least one byte, and hardly ever more than six.
MIN_CHARS_PER_TOKEN, MAX_CHARS_PER_TOKEN = 1.0, 6.0
ITEM_OVERHEAD_CHARS = 30  # that a request adds around an item


class TokenEstimator:
    """Calibrated by each measured call; one per session.

    The items of the last measured call count with its characters per token, those added since with
    fewer, if a request was refused: base64 and hex text have 1 to 2 characters per token.
    """

    def __init__(self) -> None:
        self._chars_per_token = DEFAULT_CHARS_PER_TOKEN
        self._added_chars_per_token = MAX_CHARS_PER_TOKEN  # at most, of items not measured yet
        self._view_chars_per_token = DEFAULT_CHARS_PER_TOKEN  # of the last estimated view
        self._sent_chars = 0
        self._measured_chars = 0  # of the last call with a usage report
        self._last_usage: Usage | None = None  # the one that was used for calibration

    def estimate_request(self, context: MutationContext) -> int:
        """Tokens of the next request. Calibrates itself by the usage of the last call, or by its
        refusal."""
        used = context.last_usage
        if used.total_input > 0 and self._sent_chars > 0 and used is not self._last_usage:
            self._last_usage = used
            self._measured_chars = self._sent_chars
            self._chars_per_token = _clamp(self._sent_chars / used.total_input)
        if context.point == "context_too_long" and self._sent_chars > 0:
            self._learn_from_refusal(context.card.window)
        chars = context.overhead_chars + count_chars(context.transcript)
        if context.point == "before_model":
            self.record_sent(chars)
        added = max(0, chars - self._measured_chars)
        ratio = min(self._chars_per_token, self._added_chars_per_token)
        tokens = self.tokens_for_chars(chars - added) + int(added / ratio)
        self._view_chars_per_token = chars / tokens
        return tokens

    def _learn_from_refusal(self, window: int) -> None:
        """The refused request was as long as the window at least."""
        measured = min(self._measured_chars, self._sent_chars)
        added, rest = self._sent_chars - measured, window - self.tokens_for_chars(measured)
        if added > 0 and rest > 0:
            self._added_chars_per_token = min(self._added_chars_per_token, _clamp(added / rest))
        self._chars_per_token = min(self._chars_per_token, _clamp(self._sent_chars / window))

    def record_sent(self, chars: int) -> None:
        """Set the number of characters that the next usage report is about."""
        self._sent_chars = chars

    def tokens_for_chars(self, chars: int) -> int:
        return int(chars / self._chars_per_token) + 1

    def chars_for_tokens(self, tokens: int) -> int:
        """How many characters of the last estimated view fit into this many tokens."""
        return int(tokens * self._view_chars_per_token)


def _clamp(chars_per_token: float) -> float:
    return max(MIN_CHARS_PER_TOKEN, min(MAX_CHARS_PER_TOKEN, chars_per_token))


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
        return size_estimate.estimate_text_chars(item.text) + ITEM_OVERHEAD_CHARS
    total = ITEM_OVERHEAD_CHARS
    for part in item.content:
        if isinstance(part, (Image, Document)):
            total += size_estimate.estimate_media_chars(part)
        else:
            texts = (getattr(part, name, "") for name in ("text", "raw", "json", "data"))
            total += max(map(size_estimate.estimate_text_chars, texts))
            total += len(getattr(part, "signature", ""))
    for note in item.notes if isinstance(item, ToolResultItem) else ():
        total += size_estimate.estimate_text_chars(note.text)
    return total

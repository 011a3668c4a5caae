"""How large the view is: counted by the provider, estimated in between.

A provider's usage is the truth. Between two calls the size is estimated from characters, with
the characters per token that the last call of the session showed.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.core.contracts.mutator import Scene
from treadle.core.transcript import weighing
from treadle.core.transcript.content import Document, Image
from treadle.core.transcript.items import Item, NoticeItem, SummaryItem
from treadle.core.transcript.transcript import Transcript

CHARS_PER_TOKEN = 3.5  # before the provider has said anything
FEWEST, MOST = 1.5, 6.0  # what a measurement may plausibly show
ITEM_CHARS = 30  # what a request adds around an item


class Meter:
    """Calibrated by each measured call; one for a session."""

    def __init__(self) -> None:
        self._ratio = CHARS_PER_TOKEN
        self._sent = 0

    def tokens(self, scene: Scene) -> int:
        """The size of the next request. Asked before each model call, it learns from the last."""
        measured = scene.last_usage.total_input
        if measured > 0 and self._sent > 0:
            self._ratio = min(MOST, max(FEWEST, self._sent / measured))
        chars = scene.overhead_chars + size(scene.transcript)
        if scene.point == "before_model":
            self.sends(chars)
        return self.of_chars(chars)

    def sends(self, chars: int) -> None:
        """The next measurement will be of so many characters."""
        self._sent = chars

    def of_chars(self, chars: int) -> int:
        return int(chars / self._ratio) + 1

    def chars(self, tokens: int) -> int:
        """How many characters fit into so many tokens, carefully."""
        return int(tokens * self._ratio)


def size(items: Sequence[Item]) -> int:
    """Characters of a view. For a transcript only what is new since the last time is counted."""
    if not isinstance(items, Transcript):
        return sum(map(size_of, items))
    sums: list[int] = items.scratch.setdefault("context.size", [0])
    while len(sums) <= len(items):
        sums.append(sums[-1] + size_of(items[len(sums) - 1]))
    return sums[len(items)]


def size_of(item: Item) -> int:
    if isinstance(item, (NoticeItem, SummaryItem)):
        return len(item.text) + ITEM_CHARS
    total = ITEM_CHARS
    for part in item.content:
        if isinstance(part, (Image, Document)):
            total += weighing.chars_of(part)
        else:
            total += max(
                len(getattr(part, name, "")) for name in ("text", "raw", "json", "data")
            ) + len(getattr(part, "signature", ""))
    return total

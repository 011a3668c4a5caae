"""Where two sequences part. Used by the session diff and the cache monitor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import eq
from typing import TypeVar

T = TypeVar("T")


def common_prefix_length(
    left: Sequence[T], right: Sequence[T], is_same: Callable[[T, T], object] = eq
) -> int:
    """How many elements at the beginning are the same in both."""
    for position, (one, other) in enumerate(zip(left, right, strict=False)):
        if one is not other and not is_same(one, other):
            return position
    return min(len(left), len(right))

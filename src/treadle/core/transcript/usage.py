"""What a model call used: tokens by kind, and money where the price is known.

A plain value with addition. Prices live in the models' catalog; budgets in the gates.
"""

from __future__ import annotations

import msgspec


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens and money of one or more model calls. `cost` is in USD; None means not known.

    `input` counts tokens that were neither read from nor written to a cache.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    requests: int = 0
    cost: float | None = 0.0

    @property
    def total_input(self) -> int:
        return self.input + self.cache_read + self.cache_write

    @property
    def total(self) -> int:
        return self.total_input + self.output

    def __add__(self, other: Usage) -> Usage:
        unknown = self.cost is None or other.cost is None
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            reasoning=self.reasoning + other.reasoning,
            requests=self.requests + other.requests,
            cost=None if unknown else (self.cost or 0.0) + (other.cost or 0.0),
        )


NO_USAGE = Usage()

"""The usage of model calls: tokens by kind, and the cost if the price is known.

A value with addition. Prices are in models/catalog.py, budgets in policy/budgets.py.
"""

from __future__ import annotations

from typing import Final

import msgspec

# The cost of a reply whose model counts tokens only. It is told from a cost of 0 by identity; the
# loop replaces it when such a reply arrives, see `add_cost` of core/contracts/model.py.
COST_NOT_GIVEN: Final = float("0")


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens and cost of one or more model calls. `cost` is in USD; None means unknown.

    `input` counts tokens that were neither read from the cache nor written to it. A model that does
    not give the cost of a reply leaves it out: it is computed from the prices of the model's card.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    requests: int = 0
    cost: float | None = COST_NOT_GIVEN

    @property
    def has_cost(self) -> bool:
        """Whether the cost was given, also as 0 or as unknown."""
        return self.cost is not COST_NOT_GIVEN

    @property
    def total_input(self) -> int:
        return self.input + self.cache_read + self.cache_write

    @property
    def total(self) -> int:
        return self.total_input + self.output

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            reasoning=self.reasoning + other.reasoning,
            requests=self.requests + other.requests,
            cost=self._add_costs(other),
        )

    def _add_costs(self, other: Usage) -> float | None:
        if self.cost is None or other.cost is None:
            return None
        is_given = self.has_cost or other.has_cost
        return self.cost + other.cost if is_given else COST_NOT_GIVEN

    def __sub__(self, other: Usage) -> Usage:
        """What is left of it without `other`, which is a part of it."""
        unknown = self.cost is None or other.cost is None
        return Usage(
            input=self.input - other.input,
            output=self.output - other.output,
            cache_read=self.cache_read - other.cache_read,
            cache_write=self.cache_write - other.cache_write,
            reasoning=self.reasoning - other.reasoning,
            requests=self.requests - other.requests,
            cost=None if unknown else max(0.0, (self.cost or 0.0) - (other.cost or 0.0)),
        )


NO_USAGE = Usage()

"""The usage of model calls: tokens by kind, and the cost if the price is known.

A value with addition. Prices are in models/catalog.py, budgets in budgets/gates.py.
"""

from __future__ import annotations

from typing import Literal

import msgspec

# What a model call is for. turn: a reply of a turn; closing: its last one, at a limit. The others
# are no part of the conversation: search looks for what a provider refuses, judge is a hook's.
CallPurpose = Literal["turn", "closing", "side_question", "summary", "search", "judge", "sampling"]
TURN_PURPOSES: frozenset[CallPurpose] = frozenset({"turn", "closing", "search", "summary"})
REPLY_PURPOSES: frozenset[CallPurpose] = frozenset({"turn", "closing", "sampling"})


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens and cost of one or more model calls. `cost` is in USD; None means that it, or a part
    of it, is unknown. `partial_cost` is then what is known of it.

    `input` counts tokens that were neither read from the cache nor written to it. A model that does
    not give the cost of a reply leaves it out: it is computed from the prices of the model's card.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    requests: int = 0
    cost: float | None = 0.0
    partial_cost: float = 0.0

    @property
    def known_cost(self) -> float:
        """The cost of the calls whose cost is known."""
        return self.partial_cost if self.cost is None else self.cost

    @property
    def total_input(self) -> int:
        return self.input + self.cache_read + self.cache_write

    @property
    def total(self) -> int:
        return self.total_input + self.output

    def __add__(self, other: Usage) -> Usage:
        cost, more, known = self.cost, other.cost, 0.0
        if cost is None or more is None:
            cost, known = None, self.known_cost + other.known_cost
        else:
            cost += more
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
            self.requests + other.requests,
            cost,
            known,
        )

    def __sub__(self, other: Usage) -> Usage:
        """What is left of it without `other`, which is a part of it."""
        known = max(0.0, self.known_cost - other.known_cost)
        is_unknown = self.cost is None or other.cost is None
        return Usage(
            self.input - other.input,
            self.output - other.output,
            self.cache_read - other.cache_read,
            self.cache_write - other.cache_write,
            self.reasoning - other.reasoning,
            self.requests - other.requests,
            None if is_unknown else known,
            known if is_unknown else 0.0,
        )


NO_USAGE = Usage()
UNKNOWN_USAGE = Usage(requests=1, cost=None)  # of a call that was paid for

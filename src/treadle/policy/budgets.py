"""Budgets: gates that run before each model call.

    RoundLimit       tool rounds of a turn        CallLimit   tool calls of a turn
    TokenBudget      tokens of a session          TimeLimit   seconds of a turn
    CostBudget       USD of a session             (tokens and cost: with all child sessions)
    RepetitionGuard  the same calls with the same results in a row

Tokens and cost are reserved before the request, at its worst case: a request that could exceed the
budget is not sent. One short closing reply without tools always stays affordable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from treadle.core.contracts.gate import Admit, BaseGate, RequestEstimate, Stop
from treadle.core.contracts.model import ModelCard
from treadle.core.text import plural
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem
from treadle.core.transcript.usage import Usage

# A low number of characters per token: the estimate of tokens is rather too large.
CHARS_PER_TOKEN = 2.5
CLOSING_TOKENS = 1_000
WARN_AT = (0.5, 0.8, 0.95)


class RoundLimit(BaseGate):
    """Limits the tool rounds of a turn: `RoundLimit(3)` allows exactly three."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        if estimate.rounds < self.limit:
            return Admit()
        return Stop("max_turns", f"the limit of {plural(self.limit, 'tool round')} is reached")


class CallLimit(BaseGate):
    """Limits the tool calls of a turn."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        if estimate.calls < self.limit:
            return Admit()
        detail = f"{plural(estimate.calls, 'tool call')} made; the limit is {self.limit}"
        return Stop("budget_exceeded", detail, closing_tokens=CLOSING_TOKENS)


class TimeLimit(BaseGate):
    """Limits the seconds of a turn; checked before each model call."""

    def __init__(self, seconds: float, now: Callable[[], float] = monotonic) -> None:
        self.seconds = seconds
        self._now = now
        self._turn_starts: dict[str, tuple[str, float]] = {}  # by session: turn id and start

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        turn, began = self._turn_starts.get(estimate.session_id, ("", 0.0))
        if turn != estimate.turn_id:
            began = self._now()
            self._turn_starts[estimate.session_id] = (estimate.turn_id, began)
        if self._now() - began < self.seconds:
            return Admit()
        return Stop("budget_exceeded", f"the time limit of {self.seconds:g} s is reached")


class SharedBudget:
    """An amount that an agent and its children share. Each reserves before it spends."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.spent = 0.0
        self.spent_before = 0.0  # the part of `spent` from before this run
        self.reserved = 0.0

    @property
    def remaining(self) -> float:
        return self.limit - self.spent - self.reserved

    def reserve(self, amount: float) -> bool:
        """Reserve an amount if it remains, and return whether it did."""
        if amount > self.remaining + 1e-9:  # rounding errors
            return False
        self.reserved += amount
        return True

    def settle(self, reserved: float, spent: float) -> None:
        self.reserved = max(0.0, self.reserved - reserved)
        self.spent += spent

    def add_earlier(self, spent: float) -> None:
        """Count what a resumed session has spent before."""
        self.spent_before += spent
        self.spent += spent


class _Reservations:
    """Reserves the worst case of each request, and tells the model what is left."""

    def __init__(self, budget: SharedBudget) -> None:
        self._budget = budget
        # By the id of the estimate, which is the value's first part: of one session several calls
        # may be reserved at once, its closing reply and the summary of a mutator.
        self._reserved: dict[int, tuple[RequestEstimate, float]] = {}
        self._passed_count = 0  # of the thresholds in WARN_AT

    def reserve(self, estimate: RequestEstimate, amount: float) -> bool:
        if not self._budget.reserve(amount):
            return False
        self._reserved[id(estimate)] = (estimate, amount)
        return True

    def stop(self, estimate: RequestEstimate, closing: float, detail: str, before: str) -> Stop:
        if self._budget.spent_before:
            detail += f", {before} of them before this run"
        has_room = self.reserve(estimate, closing)
        return Stop("budget_exceeded", detail, closing_tokens=CLOSING_TOKENS * has_room)

    def admit(self, used: float, remaining: str) -> Admit:
        """With a notice about the rest of the budget at each threshold, once."""
        passed = sum(used >= threshold for threshold in WARN_AT)
        if passed <= self._passed_count:
            return Admit()
        self._passed_count = passed
        return Admit(f"Budget: {remaining} are left. Plan the rest of the work accordingly.")

    def settle(self, estimate: RequestEstimate, spent: float) -> None:
        _, reserved = self._reserved.pop(id(estimate), (estimate, 0.0))
        self._budget.settle(reserved, spent)


class TokenBudget:
    """Limits the tokens of an agent and its children, as the provider counts them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._budget = SharedBudget(limit)
        self._reservations = _Reservations(self._budget)

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        budget = self._budget
        input_tokens, output_tokens = estimate_worst_tokens(estimate)
        closing = input_tokens + CLOSING_TOKENS
        if not self._reservations.reserve(estimate, input_tokens + output_tokens + closing):
            detail = f"{budget.spent:,.0f} of {self.limit:,} tokens are used"
            return self._reservations.stop(estimate, closing, detail, f"{budget.spent_before:,.0f}")
        left = self.limit - budget.spent
        used = 1 - left / self.limit
        return self._reservations.admit(used, f"{left:,.0f} of {self.limit:,} tokens")

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        self._reservations.settle(estimate, usage.total)

    def add_earlier(self, usage: Usage) -> None:
        """Count what a resumed session has used before."""
        self._budget.add_earlier(usage.total)


class CostBudget:
    """Limits the cost. The worst case of every request is reserved before it is sent.

    For a model without a known price, `assumed_prices` are used (input and output, USD per million
    tokens); without them the request is not sent.
    """

    def __init__(
        self, budget: SharedBudget, assumed_prices: tuple[float, float] | None = None
    ) -> None:
        self.budget = budget
        self._assumed_prices = assumed_prices
        self._reservations = _Reservations(budget)

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        prices = get_worst_prices(estimate.card) or self._assumed_prices
        if prices is None:
            name = estimate.card.name
            detail = f"the price of {name} is not known, so the cost cannot be limited; "
            detail += "set its price in the settings, or a limit in tokens instead"
            return Stop("budget_exceeded", detail)
        input_tokens, output_tokens = estimate_worst_tokens(estimate)
        worst = _compute_cost(prices, input_tokens, output_tokens)
        closing = _compute_cost(prices, input_tokens, CLOSING_TOKENS)
        budget = self.budget
        if not self._reservations.reserve(estimate, worst + closing):
            detail = f"{budget.spent:.4f} of {budget.limit:g} USD are spent"
            return self._reservations.stop(estimate, closing, detail, f"{budget.spent_before:.4f}")
        left = budget.limit - budget.spent
        used = 1 - max(0.0, left) / (budget.limit or 1.0)
        return self._reservations.admit(used, f"{left:.2f} of {budget.limit:g} USD")

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        self._reservations.settle(estimate, self._compute_cost(usage, estimate.card))

    def add_earlier(self, usage: Usage, card: ModelCard) -> None:
        """Count what a resumed session has spent before, at the price of `card` if unknown."""
        self.budget.add_earlier(self._compute_cost(usage, card))

    def _compute_cost(self, usage: Usage, card: ModelCard) -> float:
        if usage.cost is not None:
            return usage.cost
        prices = get_worst_prices(card) or self._assumed_prices or (0.0, 0.0)
        return _compute_cost(prices, usage.total_input, usage.output)


class RepetitionGuard(BaseGate):
    """Detects repeated calls with the same results: warns the model, then stops the turn."""

    def __init__(self, warn_after: int = 3, stop_after: int = 6) -> None:
        self.warn_after = warn_after
        self.stop_after = stop_after
        # By session: the number of the last round, its hash, how often it was repeated.
        self._last_rounds: dict[str, tuple[int, int, int]] = {}

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        last_round = _find_last_round(estimate.transcript)
        number, before, times = self._last_rounds.get(estimate.session_id, (0, 0, 0))
        if last_round is None or estimate.rounds == 0:
            self._last_rounds.pop(estimate.session_id, None)
            return Admit()
        if number == estimate.rounds:
            return Admit()  # the same round again, after a retry
        times = times + 1 if hash(last_round) == before else 1
        self._last_rounds[estimate.session_id] = (estimate.rounds, hash(last_round), times)
        if times >= self.stop_after:
            return Stop("budget_exceeded", f"the same call gave the same result {times} times")
        if times >= self.warn_after:
            return Admit(f"The same call has now given the same result {times} times. Try another.")
        return Admit()


def estimate_worst_tokens(estimate: RequestEstimate) -> tuple[int, int]:
    """The highest number of input and output tokens that the next request can use."""
    input_tokens = int(estimate.request_chars / CHARS_PER_TOKEN) + 1
    return min(input_tokens, estimate.card.window), estimate.max_output


def get_worst_prices(card: ModelCard) -> tuple[float, float] | None:
    """The highest price of input and output, USD per million tokens, if known."""
    if card.input_price is None or card.output_price is None:
        return None
    return max(card.input_price, card.cache_write_price or 0.0), card.output_price


def _compute_cost(prices: tuple[float, float], input_tokens: int, output_tokens: int) -> float:
    return (input_tokens * prices[0] + output_tokens * prices[1]) / 1e6


def _find_last_round(transcript: Sequence[Item]) -> object | None:
    """The calls of the last reply with their results, or None if it had no calls."""
    results: list[tuple[str, str]] = []
    for item in reversed(transcript):
        if isinstance(item, ToolResultItem):
            results.append((item.name, item.text))
        elif isinstance(item, AssistantItem):
            calls = [(call.name, call.raw) for call in item.calls]
            return (tuple(calls), tuple(results)) if calls else None
    return None

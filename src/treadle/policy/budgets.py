"""Budgets: gates before each model call. Nothing is spent unseen.

    Rounds       tool rounds of a turn            Calls    tool calls of a turn
    Tokens       tokens of a session              Elapsed  seconds of a turn
    Money        USD of a session                 (both with all its children, and reserved before)
    Repetition   the same calls with the same answers, again and again

A gate sees the worst case of the next request, so that the one which would break the budget is
never sent; and room is kept for one short closing reply without tools.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from treadle.core.contracts.gate import Admit, RequestEstimate, Stop
from treadle.core.contracts.model import ModelCard
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem
from treadle.core.transcript.usage import Usage

# Text has at least so many characters a token; fewer make the estimate larger, never smaller.
CHARS_PER_TOKEN = 2.5
CLOSING_TOKENS = 1_000
WARN_AT = (0.5, 0.8, 0.95)


class RoundLimit:
    """At most so many tool rounds a turn: `Rounds(3)` allows exactly three."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        if estimate.rounds < self.limit:
            return Admit()
        return Stop("max_turns", f"{self.limit} tool rounds are done, which is the limit")

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        return None


class CallLimit:
    """At most so many tool calls a turn."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        if estimate.calls < self.limit:
            return Admit()
        detail = f"{estimate.calls} tool calls are made; the limit is {self.limit}"
        return Stop("budget_exceeded", detail, closing_tokens=CLOSING_TOKENS)

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        return None


class TimeLimit:
    """At most so many seconds a turn, looked at before each model call."""

    def __init__(self, seconds: float, now: Callable[[], float] = monotonic) -> None:
        self.seconds = seconds
        self._now = now
        self._turn_starts: dict[str, tuple[str, float]] = {}  # by session: its turn, and since when

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        turn, began = self._turn_starts.get(estimate.session_id, ("", 0.0))
        if turn != estimate.turn_id:
            began = self._now()
            self._turn_starts[estimate.session_id] = (estimate.turn_id, began)
        if self._now() - began < self.seconds:
            return Admit()
        return Stop("budget_exceeded", f"{self.seconds:g} s have passed, which is the limit")

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        return None


class SharedBudget:
    """What a whole tree of agents may spend: what one has reserved, no other can."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.spent = 0.0
        self.spent_before = 0.0  # the part of it that was spent before this run
        self.reserved = 0.0

    @property
    def remaining(self) -> float:
        return self.limit - self.spent - self.reserved

    def reserve(self, amount: float) -> bool:
        """Whether it could be set aside; float dust does not count."""
        if amount > self.remaining + 1e-9:
            return False
        self.reserved += amount
        return True

    def settle(self, reserved: float, spent: float) -> None:
        self.reserved = max(0.0, self.reserved - reserved)
        self.spent += spent

    def add_earlier(self, spent: float) -> None:
        """The session goes on: what it has spent before counts."""
        self.spent_before += spent
        self.spent += spent


class TokenBudget:
    """At most so many tokens for an agent and its children, counted as the provider counts."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._budget = SharedBudget(limit)
        self._reserved: dict[str, float] = {}
        self._notices = _ThresholdNotices()

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        asked, answered = estimate_worst_tokens(estimate)
        closing = asked + CLOSING_TOKENS
        if not self._reserve(estimate, asked + answered + closing):
            detail = f"{self._budget.spent:,.0f} of {self.limit:,} tokens are used"
            if self._budget.spent_before:
                detail += f", {self._budget.spent_before:,.0f} of them before this run"
            has_room = self._reserve(estimate, closing)
            return Stop("budget_exceeded", detail, closing_tokens=CLOSING_TOKENS * has_room)
        left = self.limit - self._budget.spent
        used = 1 - left / self.limit
        return Admit(self._notices.next_notice(used, f"{left:,.0f} of {self.limit:,} tokens"))

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        self._budget.settle(self._reserved.pop(estimate.session_id, 0.0), usage.total)

    def add_earlier(self, usage: Usage) -> None:
        """The session goes on: what it has used before counts."""
        self._budget.add_earlier(usage.total)

    def _reserve(self, estimate: RequestEstimate, amount: float) -> bool:
        if not self._budget.reserve(amount):
            return False
        self._reserved[estimate.session_id] = amount
        return True


class CostBudget:
    """A share of a purse. Every request is reserved at its worst case before it is sent.

    A model whose price is not known cannot be held to a budget in money: then `assumed` prices
    (input and output, USD a million tokens) are used, or without them the request is not sent.
    """

    def __init__(
        self, budget: SharedBudget, assumed_prices: tuple[float, float] | None = None
    ) -> None:
        self.budget = budget
        self._assumed_prices = assumed_prices
        self._reserved: dict[str, float] = {}
        self._notices = _ThresholdNotices()

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        prices = _get_prices(estimate.card) or self._assumed_prices
        if prices is None:
            return Stop(
                "budget_exceeded",
                f"the price of {estimate.card.name} is not known, so a budget in money cannot be "
                "kept; set its price in the configuration, or a limit in tokens instead",
            )
        asked, answered = estimate_worst_tokens(estimate)
        closing = _compute_cost(prices, asked, CLOSING_TOKENS)
        if not self._reserve(estimate, _compute_cost(prices, asked, answered) + closing):
            spent = f"{self.budget.spent:.4f} of {self.budget.limit:g} USD are spent"
            if self.budget.spent_before:
                spent += f", {self.budget.spent_before:.4f} of them before this run"
            has_room = self._reserve(estimate, closing)
            return Stop("budget_exceeded", spent, closing_tokens=CLOSING_TOKENS * has_room)
        used = 1 - max(0.0, self.budget.limit - self.budget.spent) / (self.budget.limit or 1.0)
        left = self.budget.limit - self.budget.spent
        return Admit(self._notices.next_notice(used, f"{left:.2f} of {self.budget.limit:g} USD"))

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        self._release(estimate, self._compute_cost(usage, estimate.card))

    def add_earlier(self, usage: Usage, card: ModelCard) -> None:
        """The session goes on: what it has spent before counts, at this price if none is known."""
        self.budget.add_earlier(self._compute_cost(usage, card))

    def _compute_cost(self, usage: Usage, card: ModelCard) -> float:
        if usage.cost is not None:
            return usage.cost
        prices = _get_prices(card) or self._assumed_prices or (0.0, 0.0)
        return _compute_cost(prices, usage.total_input, usage.output)

    def _reserve(self, estimate: RequestEstimate, amount: float) -> bool:
        if not self.budget.reserve(amount):
            return False
        self._reserved[estimate.session_id] = amount
        return True

    def _release(self, estimate: RequestEstimate, spent: float) -> None:
        self.budget.settle(self._reserved.pop(estimate.session_id, 0.0), spent)


class RepetitionGuard:
    """Notices a model that goes in circles: tells it first, then stops the turn."""

    def __init__(self, warn_after: int = 3, stop_after: int = 6) -> None:
        self.warn_after = warn_after
        self.stop_after = stop_after
        self._last_rounds: dict[
            str, tuple[int, int, int]
        ] = {}  # the round, its print, how many times

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        seen = _find_last_round(estimate.transcript)
        counted, before, times = self._last_rounds.get(estimate.session_id, (0, 0, 0))
        if seen is None or estimate.rounds == 0:
            self._last_rounds.pop(estimate.session_id, None)
            return Admit()
        if counted == estimate.rounds:
            return Admit()  # the same round, asked about again
        times = times + 1 if hash(seen) == before else 1
        self._last_rounds[estimate.session_id] = (estimate.rounds, hash(seen), times)
        if times >= self.stop_after:
            return Stop("budget_exceeded", f"the same call gave the same answer {times} times")
        if times >= self.warn_after:
            return Admit(f"The same call has now given the same answer {times} times. Try another.")
        return Admit()

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        return None


class _ThresholdNotices:
    """Says what is left when a threshold is passed, once for each."""

    def __init__(self) -> None:
        self._passed_count = 0

    def next_notice(self, used: float, remaining: str) -> str:
        passed = sum(used >= threshold for threshold in WARN_AT)
        if passed <= self._passed_count:
            return ""
        self._passed_count = passed
        return f"Budget: {remaining} are left. Plan the rest of the work accordingly."


def estimate_worst_tokens(estimate: RequestEstimate) -> tuple[int, int]:
    """The most that the next request could use: tokens in, and out."""
    asked = int(estimate.request_chars / CHARS_PER_TOKEN) + 1
    return min(asked, estimate.card.window), estimate.max_output


def _get_prices(card: ModelCard) -> tuple[float, float] | None:
    if card.input_price is None or card.output_price is None:
        return None
    dearest = max(card.input_price, card.cache_write_price or 0.0)
    return dearest, card.output_price


def _compute_cost(prices: tuple[float, float], input_tokens: int, output_tokens: int) -> float:
    return (input_tokens * prices[0] + output_tokens * prices[1]) / 1e6


def _find_last_round(transcript: Sequence[Item]) -> object | None:
    """The calls of the newest reply with their answers, or None if it called for nothing."""
    answers: list[tuple[str, str]] = []
    for position in range(len(transcript) - 1, -1, -1):
        item = transcript[position]
        if isinstance(item, ToolResultItem):
            answers.append((item.name, item.text))
        elif isinstance(item, AssistantItem):
            calls = [(call.name, call.raw) for call in item.calls]
            return (tuple(calls), tuple(answers)) if calls else None
    return None

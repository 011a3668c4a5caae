"""Budgets: gates that run before each model call.

    RoundLimit       tool rounds of a turn        CallLimit   tool calls of a turn
    TokenBudget      tokens of a session          TimeLimit   seconds of a turn
    CostBudget       USD of a session             (tokens and cost: with all child sessions)
    RepetitionGuard  the same calls with the same results in a row, or in turn

Tokens and cost are reserved before the request, at its worst case: a request that could exceed the
budget is not sent. When little is left, the provider is asked for a shorter reply, so that every
request can be paid; below a useful length nothing is sent. From the second request of a turn on,
one short closing reply without tools stays affordable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from time import monotonic
from typing import TypeVar

from treadle.core.contracts.gate import Admit, BaseGate, RequestEstimate, Stop
from treadle.core.contracts.model import ModelCard
from treadle.core.errors import ConfigError
from treadle.core.session_cache import SessionCache
from treadle.core.text import plural
from treadle.core.transcript.items import AssistantItem, Item, SummaryItem, ToolResultItem, UserItem
from treadle.core.transcript.usage import Usage

# A low number of characters per token: the estimate of tokens is rather too large.
CHARS_PER_TOKEN = 2.5
CLOSING_TOKENS = 1_000
MIN_OUTPUT_TOKENS = 1_000  # a shorter reply is of no use
WARN_AT = (0.5, 0.8, 0.95)
Number = TypeVar("Number", int, float)
MAX_CYCLE = 3  # rounds that are repeated together


def _check_limit(name: str, value: Number) -> Number:
    given: object = value
    is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not is_number or not value >= 0:  # also NaN
        raise ConfigError(f"the {name} is {value!r}; it must be a number, 0 or more")
    return value


def _check_count(name: str, value: int) -> int:
    if _check_limit(name, value) != inf and not isinstance(value, int):
        raise ConfigError(f"the {name} is {value!r}; it must be a whole number, 0 or more")
    return value


class RoundLimit(BaseGate):
    """Limits the tool rounds of a turn: `RoundLimit(3)` allows exactly three, and the answer
    after them. A model that calls tools once more is asked to sum up without them."""

    def __init__(self, limit: int) -> None:
        self.limit = _check_count("limit of tool rounds", limit)

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        if estimate.rounds < self.limit:
            return Admit()
        detail = f"the limit of {plural(self.limit, 'tool round')} is reached"
        return Admit(call_stop=Stop("max_turns", detail, CLOSING_TOKENS))


class CallLimit(BaseGate):
    """Limits the tool calls of a turn."""

    def __init__(self, limit: int) -> None:
        self.limit = _check_count("limit of tool calls", limit)

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        if estimate.calls < self.limit:
            return Admit()
        detail = f"{plural(estimate.calls, 'tool call')} made; the limit is {self.limit}"
        return Stop("budget_exceeded", detail, closing_tokens=CLOSING_TOKENS)


class TimeLimit(BaseGate):
    """Limits the seconds of a turn; checked before each model call."""

    def __init__(self, seconds: float, now: Callable[[], float] = monotonic) -> None:
        self.seconds = _check_limit("time limit", seconds)
        self._now = now
        self._turn_starts = SessionCache(lambda: ("", 0.0))  # turn id and start

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        turn, began = self._turn_starts[estimate.session_id]
        if turn != estimate.turn_id:
            began = self._now()
            self._turn_starts[estimate.session_id] = (estimate.turn_id, began)
        if self._now() - began < self.seconds:
            return Admit()
        return Stop("budget_exceeded", f"the time limit of {self.seconds:g} s is reached")


class SharedBudget:
    """An amount that an agent and its children share. Each reserves before it spends."""

    def __init__(self, limit: float) -> None:
        self.limit = _check_limit("budget", limit)
        self.spent = 0.0
        self.spent_before = 0.0  # the part of `spent` from before this run
        self.reserved = 0.0
        self.owner = ""  # the first session that used it: the parent of all others
        self.owner_closing = 0.0  # what a closing reply of the owner may cost

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

    def set_owner(self, session_id: str, closing: float) -> None:
        """The parent of all sessions, known before it makes a request: after a crash its children
        continue first. They leave it what a closing reply may cost."""
        self.owner = session_id
        self.owner_closing = closing


# What a number of input and output tokens costs, in the unit of a budget.
ComputePrice = Callable[[int, int], float]


class _Reservations:
    """Reserves what each request is allowed to use, and tells the model what is left."""

    def __init__(self, budget: SharedBudget, describe: Callable[[float], str], verb: str) -> None:
        self._budget = budget
        self._describe = describe
        self._verb = verb
        # By the id of the estimate, which is the value's first part: of one session several calls
        # may be reserved at once, its closing reply and the summary of a mutator.
        self._reserved: dict[int, tuple[RequestEstimate, float]] = {}
        self._passed_counts = SessionCache(lambda: 0)  # of the thresholds in WARN_AT

    def admit(self, estimate: RequestEstimate, price: ComputePrice) -> Admit | Stop:
        input_tokens = estimate_worst_input(estimate)
        closing = price(input_tokens, CLOSING_TOKENS)
        left_to_owner = self._find_share_of_owner(estimate, closing)
        minimum = min(MIN_OUTPUT_TOKENS, estimate.max_output)
        needed_closing = closing if estimate.rounds else 0.0  # a new turn has nothing to sum up
        for own in dict.fromkeys((closing, needed_closing)):
            kept = own + left_to_owner
            output = self._find_affordable_output(estimate, price, input_tokens, kept)
            if output >= minimum and self._reserve(estimate, price(input_tokens, output)):
                max_output = output if output < estimate.max_output else None
                return Admit(self._make_notice(estimate.session_id), max_output)
        kept = needed_closing + left_to_owner
        detail = self._explain(price(input_tokens, minimum), kept)
        has_room = needed_closing > 0.0 and self._budget.remaining >= kept
        if has_room:
            self._reserve(estimate, needed_closing)
        return Stop("budget_exceeded", detail, closing_tokens=CLOSING_TOKENS * has_room)

    def settle(self, estimate: RequestEstimate, spent: float) -> None:
        _, reserved = self._reserved.pop(id(estimate), (estimate, 0.0))
        self._budget.settle(reserved, spent)

    def _find_share_of_owner(self, estimate: RequestEstimate, closing: float) -> float:
        """What a child must leave, so that its parent can report what the children did."""
        budget = self._budget
        budget.owner = budget.owner or estimate.session_id
        if estimate.session_id != budget.owner:
            return 2 * budget.owner_closing  # the results of the children make it longer
        budget.owner_closing = closing
        return 0.0

    def _reserve(self, estimate: RequestEstimate, amount: float) -> bool:
        if not self._budget.reserve(amount):
            return False
        self._reserved[id(estimate)] = (estimate, amount)
        return True

    def _find_affordable_output(
        self, estimate: RequestEstimate, price: ComputePrice, input_tokens: int, kept: float
    ) -> int:
        room = self._budget.remaining - kept - price(input_tokens, 0)
        token_price = price(0, 1)
        if room >= token_price * estimate.max_output:
            return estimate.max_output
        return int(room / token_price) if token_price else 0

    def _make_notice(self, session_id: str) -> str:
        """About the rest of the budget, at each threshold once in each session."""
        limit, left = self._budget.limit, self._budget.limit - self._budget.spent
        used = 1 - max(0.0, left) / (limit or 1.0)
        passed = sum(used >= threshold for threshold in WARN_AT)
        if passed <= self._passed_counts[session_id]:
            return ""
        self._passed_counts[session_id] = passed
        left_text, limit_text = self._describe(left), self._describe(limit)
        return f"Budget: {left_text} of {limit_text} are left. Plan the rest accordingly."

    def _explain(self, needed: float, kept: float) -> str:
        budget, describe = self._budget, self._describe
        left, limit = describe(max(0.0, budget.remaining)), describe(budget.limit)
        before = ""
        if budget.spent_before:
            before = f" ({describe(budget.spent_before)} used before this run)"
        is_first = budget.spent == budget.spent_before
        sent = "nothing was sent" if is_first else "it was not sent"
        what = "the next request and a closing reply" if kept else "the next request"
        needs = describe(needed + kept)
        about = "slightly more than" if needs == left else "about"
        needs = f"{what} may {self._verb} {about} {needs}"
        return f"{needs}, but the limit of {limit} leaves only {left}{before}; {sent}"


class TokenBudget:
    """Limits the tokens of an agent and its children, as the provider counts them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._budget = SharedBudget(limit)
        self._reservations = _Reservations(self._budget, _format_tokens, "use")

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        return self._reservations.admit(estimate, lambda given, returned: given + returned)

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        self._reservations.settle(estimate, usage.total)

    def add_earlier(self, usage: Usage) -> None:
        """Count what a resumed session has used before."""
        self._budget.add_earlier(usage.total)

    def set_owner(self, session_id: str, input_tokens: int) -> None:
        """See SharedBudget; `input_tokens` is the length of its last request."""
        closing = input_tokens + CLOSING_TOKENS if input_tokens else 0
        self._budget.set_owner(session_id, closing)


class CostBudget:
    """Limits the cost, in USD: of one agent, or of all that share the budget. What a request may
    cost is reserved before it is sent.

    For a model without a known price, `assumed_prices` are used (input and output, USD per million
    tokens); without them the request is not sent.
    """

    def __init__(
        self, budget: SharedBudget | float, assumed_prices: tuple[float, float] | None = None
    ) -> None:
        self.budget = budget if isinstance(budget, SharedBudget) else SharedBudget(budget)
        self._assumed_prices = assumed_prices
        self._reservations = _Reservations(self.budget, _format_cost, "cost")

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        prices = get_worst_prices(estimate.card) or self._assumed_prices
        if prices is None:
            name = estimate.card.name
            detail = f"the price of {name} is not known, so the cost cannot be limited; "
            return Stop("budget_exceeded", detail + "nothing was sent; limit the tokens instead")
        return self._reservations.admit(estimate, partial(_compute_cost, prices))

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        self._reservations.settle(estimate, self._compute_cost(usage, estimate.card))

    def add_earlier(self, usage: Usage, card: ModelCard) -> None:
        """Count what a resumed session has spent before, at the price of `card` if unknown."""
        self.budget.add_earlier(self._compute_cost(usage, card))

    def set_owner(self, session_id: str, input_tokens: int, card: ModelCard) -> None:
        """See SharedBudget; `input_tokens` is the length of its last request."""
        prices = get_worst_prices(card) or self._assumed_prices or (0.0, 0.0)
        closing = _compute_cost(prices, input_tokens, CLOSING_TOKENS) if input_tokens else 0.0
        self.budget.set_owner(session_id, closing)

    def _compute_cost(self, usage: Usage, card: ModelCard) -> float:
        if usage.cost is not None:
            return usage.cost
        prices = get_worst_prices(card) or self._assumed_prices or (0.0, 0.0)
        return _compute_cost(prices, usage.total_input, usage.output)


class RepetitionGuard(BaseGate):
    """Detects repeated calls with the same results, also of two or three rounds in turn (A-B-A-B):
    warns the model, then stops the turn."""

    def __init__(self, warn_after: int = 3, stop_after: int = 6) -> None:
        self.warn_after = warn_after
        self.stop_after = stop_after
        self._last_warned = SessionCache(lambda: ("", 0))  # turn id and round

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        most = min(estimate.rounds, MAX_CYCLE * self.stop_after)
        rounds = _find_last_rounds(estimate.transcript, most)
        times, length = 0, 0
        for candidate in range(1, MAX_CYCLE + 1):
            if (repeated := _count_repetitions(rounds, candidate)) > times:
                times, length = repeated, candidate
        what = "the same call has" if length == 1 else f"the same {length} rounds of calls have"
        detail = f"{what} given the same result {plural(times, 'time')}"
        if times >= self.stop_after:
            return Stop("repetition", detail)
        this_round = (estimate.turn_id, estimate.rounds)
        if times < self.warn_after or self._last_warned[estimate.session_id] == this_round:
            return Admit()
        self._last_warned[estimate.session_id] = this_round
        return Admit(f"{detail[0].upper()}{detail[1:]}. Try something else.")


def estimate_worst_input(estimate: RequestEstimate) -> int:
    """The highest number of input tokens that the next request can have."""
    input_tokens = int(estimate.request_chars / CHARS_PER_TOKEN) + 1
    return min(input_tokens, estimate.card.window)


def get_worst_prices(card: ModelCard) -> tuple[float, float] | None:
    """The highest price of input and output, USD per million tokens, if known."""
    if card.input_price is None or card.output_price is None:
        return None
    return max(card.input_price, card.cache_write_price or 0.0), card.output_price


def _compute_cost(prices: tuple[float, float], input_tokens: int, output_tokens: int) -> float:
    return (input_tokens * prices[0] + output_tokens * prices[1]) / 1e6


def _format_tokens(count: float) -> str:
    return plural(round(count), "token")


def _format_cost(amount: float) -> str:
    """`$12.35`, `$0.02`, `$0.0047`: cents, or two digits that are not zero."""
    if amount >= 0.1:
        return f"${amount:.2f}"
    whole, _, decimals = f"{float(f'{amount:.2g}'):.6f}".partition(".")
    return f"${whole}.{decimals.rstrip('0'):0<2}"


def _find_last_rounds(transcript: Sequence[Item], most: int) -> list[object]:
    """The calls and results of the last rounds since the user's last message, newest first."""
    rounds: list[object] = []
    results: list[tuple[str, str]] = []
    for item in reversed(transcript):
        if len(rounds) >= most or isinstance(item, (UserItem, SummaryItem)):
            break
        if isinstance(item, ToolResultItem):
            results.append((item.name, item.text))
        elif isinstance(item, AssistantItem) and item.calls:
            calls = [(call.name, call.raw) for call in item.calls]
            rounds.append((tuple(calls), tuple(results)))
            results.clear()
    return rounds


def _count_repetitions(rounds: Sequence[object], length: int) -> int:
    """How often the last `length` rounds were carried out in a row."""
    if len(rounds) < length:
        return 0
    times = 1
    while rounds[times * length : (times + 1) * length] == rounds[:length]:
        times += 1
    return times

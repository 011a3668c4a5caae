"""Budgets: gates that run before each model call.

    RoundLimit       tool rounds of a turn        CallLimit   tool calls of a turn
    TokenBudget      tokens of all runs           TimeLimit   seconds of a turn
    CostBudget       USD of all runs              (that have this gate; or of each session)
    RepetitionGuard  the same calls with the same results in a row, or in turn

Tokens and cost are reserved before the request, at its worst case: a request that could exceed the
budget is not sent. When little is left, the provider is asked for a shorter reply, so that every
request can be paid; below a useful length nothing is sent. From the second request of a turn on,
one short closing reply without tools stays affordable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic

from treadle.budgets.shared_budget import (
    COUNT_LIMIT,
    LIMIT,
    ROUNDING,
    SharedBudget,
    WhenReserved,
)
from treadle.core.argument_checks import check
from treadle.core.contracts.gate import Admit, BaseGate, RequestEstimate, Stop, Wait
from treadle.core.contracts.model import ModelCard
from treadle.core.errors import ConfigError
from treadle.core.session_cache import SessionCache
from treadle.core.transcript.items import AssistantItem, Item, SummaryItem, ToolResultItem, UserItem
from treadle.core.transcript.usage import UNKNOWN_USAGE, Usage
from treadle.lib.text.text import format_dollars, plural

# A low number of characters per token: the estimate of tokens is rather too large.
CHARS_PER_TOKEN = 2.5
CLOSING_TOKENS = 1_000
MIN_OUTPUT_TOKENS = 1_000  # a shorter reply is of no use
WARN_AT = (0.5, 0.8, 0.95)
MAX_CYCLE = 3  # rounds that are repeated together


class RoundLimit(BaseGate):
    """Limits the tool rounds of a turn: `RoundLimit(3)` allows exactly three, and the answer
    after them. A model that calls tools once more is asked to sum up without them."""

    reads_size = False

    def __init__(self, limit: int) -> None:
        check("limit of tool rounds", limit, COUNT_LIMIT)
        self.limit = limit

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        if estimate.rounds < self.limit:
            return Admit()
        detail = f"the limit of {plural(self.limit, 'tool round')} is reached"
        return Admit(call_stop=Stop("max_turns", detail, CLOSING_TOKENS))


class CallLimit(BaseGate):
    """Limits the tool calls of a turn."""

    def __init__(self, limit: int) -> None:
        check("limit of tool calls", limit, COUNT_LIMIT)
        self.limit = limit

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        if estimate.calls < self.limit:
            return Admit()
        detail = f"{plural(estimate.calls, 'tool call')} made; the limit is {self.limit}"
        return Stop("budget_exceeded", detail, closing_tokens=CLOSING_TOKENS)


class TimeLimit(BaseGate):
    """Limits the seconds of a turn; checked before each model call."""

    def __init__(self, seconds: float, now: Callable[[], float] = monotonic) -> None:
        check("time limit", seconds, LIMIT)
        self.seconds = seconds
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


# What a number of input and output tokens costs, in the unit of a budget.
ComputePrice = Callable[[int, int], float]


class _BudgetGate:
    """Reserves what each request is allowed to use, and tells the model what is left."""

    def __init__(
        self,
        budget: SharedBudget,
        describe: Callable[[float], str],
        verb: str,
        *,
        per_session: bool,
    ) -> None:
        self.budget = budget
        self._describe = describe
        self._verb = verb
        self._accounts: SessionCache[SharedBudget] | None = None
        if per_session:
            limit, when_reserved = budget.limit, budget.when_reserved
            self._accounts = SessionCache(lambda: SharedBudget(limit, when_reserved))

    def _find_account(self, estimate: RequestEstimate) -> SharedBudget:
        """The budget, or that of the session; children use the one of their first parent."""
        if self._accounts is None:
            return self.budget
        with self.budget.lock:
            return self._accounts[(estimate.session_id, *estimate.parent_ids)[-1]]

    def _admit(
        self, estimate: RequestEstimate, price: ComputePrice, session_spent: float
    ) -> Admit | Stop | Wait:
        account = self._find_account(estimate)
        with account.lock:
            is_first = self._accounts is not None and not account.has_session
            if is_first and not estimate.parent_ids:
                account.has_session = True
                # It may be reopened, and its children may have continued before it.
                account.add_earlier(max(0.0, session_spent - account.spent))
            return self._reserve(account, estimate, price)

    def _settle(self, estimate: RequestEstimate, usage: Usage, spent: float) -> None:
        is_known = usage != UNKNOWN_USAGE
        account = self._find_account(estimate)
        account.settle_request(self, estimate, spent if is_known else None)

    def _reserve(
        self, account: SharedBudget, estimate: RequestEstimate, price: ComputePrice
    ) -> Admit | Stop | Wait:
        input_tokens = estimate_worst_input(estimate)
        closing = price(input_tokens, CLOSING_TOKENS)
        if estimate.purpose in ("turn", "closing"):
            account.closings[estimate.session_id] = closing
        # A child leaves what its parents need to report what it did; its result makes that longer.
        left_to_parents = 2 * sum(account.closings[parent] for parent in estimate.parent_ids)
        minimum = min(MIN_OUTPUT_TOKENS, estimate.max_output)
        needed_closing = closing if estimate.rounds else 0.0  # a new turn has nothing to sum up
        for own in dict.fromkeys((closing, needed_closing)):
            room = account.remaining - own - left_to_parents
            output = _find_affordable_output(estimate, price, input_tokens, room)
            reserved = price(input_tokens, output)
            if output >= minimum and account.reserve_request(self, estimate, reserved):
                max_output = output if output < estimate.max_output else None
                return Admit(self._make_notice(account, estimate.session_id), max_output)
        kept = needed_closing + left_to_parents
        needed = price(input_tokens, minimum) + kept
        detail = self._explain(account, needed, has_closing=kept > 0.0)
        until_freed = account.find_wait(estimate, needed)
        if until_freed is not None:
            return Wait(f"{detail}; it waits for one of them to end", until_freed)
        has_room = needed_closing > 0.0 and account.remaining >= kept
        if has_room:
            account.reserve_request(self, estimate, needed_closing)
        sent = "it was not sent" if estimate.usage.requests else "nothing was sent"
        return Stop("budget_exceeded", f"{detail}; {sent}", CLOSING_TOKENS * has_room)

    def _make_notice(self, account: SharedBudget, session_id: str) -> str:
        """About the rest of the budget, at each threshold once in each session."""
        limit, left = account.limit, account.limit - account.spent
        used = 1 - max(0.0, left) / (limit or 1.0)
        passed = sum(used >= threshold for threshold in WARN_AT)
        if passed <= account.notice_counts[session_id]:
            return ""
        account.notice_counts[session_id] = passed
        left_text, limit_text = self._describe(left), self._describe(limit)
        return f"Budget: {left_text} of {limit_text} are left. Plan the rest accordingly."

    def _explain(self, account: SharedBudget, needed: float, *, has_closing: bool) -> str:
        describe = self._describe
        left, limit = describe(max(0.0, account.remaining)), describe(account.limit)
        notes: list[str] = []
        if account.spent_before:
            notes.append(f"{describe(account.spent_before)} used before this run")
        if account.reserved > ROUNDING:
            notes.append(f"{describe(account.reserved)} reserved by other requests")
        why = f" ({', '.join(notes)})" if notes else ""
        what = "the next request and a closing reply" if has_closing else "the next request"
        needs = describe(needed)
        about = "slightly more than" if needs == left else "about"
        needs = f"{what} may {self._verb} {about} {needs}"
        return f"{needs}, but the limit of {limit} leaves only {left}{why}"


class TokenBudget(_BudgetGate):
    """Limits the tokens, as the provider counts them, of all runs that have this gate, with their
    children. With `per_session`, each session has this many, also when it is reopened.

    `when_reserved`: see SharedBudget.
    """

    def __init__(
        self, limit: int, *, per_session: bool = False, when_reserved: WhenReserved = "refuse"
    ) -> None:
        self.limit = limit
        budget = SharedBudget(limit, when_reserved)
        super().__init__(budget, _format_tokens, "use", per_session=per_session)

    def admit(self, estimate: RequestEstimate) -> Admit | Stop | Wait:
        spent = estimate.session_usage.total
        return self._admit(estimate, lambda given, returned: given + returned, spent)

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        self._settle(estimate, usage, usage.total)

    def add_earlier(self, usage: Usage) -> None:
        """Count what a resumed session has used before."""
        self.budget.add_earlier(usage.total)

    def expect_closing(self, session_id: str, input_tokens: int) -> None:
        """A resumed session whose last request had `input_tokens`: its children may continue before
        it makes a request, and leave it what a closing reply needs."""
        self.budget.closings[session_id] = input_tokens + CLOSING_TOKENS


class CostBudget(_BudgetGate):
    """Limits the cost, in USD, of all runs that have this gate or share its budget, with their
    children. With `per_session`, each session may cost this much, also when it is reopened.

    For a model without a known price, `assumed_prices` are used (input and output, USD per million
    tokens); without them the request is not sent. `when_reserved`: see SharedBudget.
    """

    def __init__(
        self,
        budget: SharedBudget | float,
        assumed_prices: tuple[float, float] | None = None,
        *,
        per_session: bool = False,
        when_reserved: WhenReserved = "refuse",
    ) -> None:
        self._assumed_prices = assumed_prices
        if not isinstance(budget, SharedBudget):
            budget = SharedBudget(budget, when_reserved)
        elif per_session or when_reserved != "refuse":
            raise ConfigError(
                "a SharedBudget is one account and has its own when_reserved; give CostBudget the "
                "amount in USD for a limit of each session"
            )
        super().__init__(budget, format_dollars, "cost", per_session=per_session)

    def admit(self, estimate: RequestEstimate) -> Admit | Stop | Wait:
        prices = get_worst_prices(estimate.card) or self._assumed_prices
        if prices is None:
            name = estimate.card.name
            detail = f"the price of {name} is not known, so the cost cannot be limited; nothing "
            advice = "was sent; give CostBudget assumed_prices, or limit the tokens instead"
            return Stop("budget_exceeded", detail + advice)
        spent = self._compute_cost(estimate.session_usage, estimate.card)
        return self._admit(estimate, partial(_compute_cost, prices), spent)

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        self._settle(estimate, usage, self._compute_cost(usage, estimate.card))

    def add_earlier(self, usage: Usage, card: ModelCard) -> None:
        """Count what a resumed session has spent before, at the price of `card` if unknown."""
        self.budget.add_earlier(self._compute_cost(usage, card))

    def expect_closing(self, session_id: str, input_tokens: int, card: ModelCard) -> None:
        """A resumed session whose last request had `input_tokens`: its children may continue before
        it makes a request, and leave it what a closing reply costs."""
        closing = Usage(input_tokens, CLOSING_TOKENS, cost=None)
        self.budget.closings[session_id] = self._compute_cost(closing, card)

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


def _find_affordable_output(
    estimate: RequestEstimate, price: ComputePrice, input_tokens: int, room: float
) -> int:
    """The longest reply that `room` pays, besides the input."""
    if price(input_tokens, estimate.max_output) <= room + ROUNDING:
        return estimate.max_output
    token_price = price(0, 1)
    return int((room - price(input_tokens, 0)) / token_price) if token_price else 0


def get_worst_prices(card: ModelCard) -> tuple[float, float] | None:
    """The highest price of input and output, USD per million tokens, if known."""
    if card.input_price is None or card.output_price is None:
        return None
    return max(card.input_price, card.cache_write_price or 0.0), card.output_price


def _compute_cost(prices: tuple[float, float], input_tokens: int, output_tokens: int) -> float:
    return (input_tokens * prices[0] + output_tokens * prices[1]) / 1e6


def _format_tokens(count: float) -> str:
    return plural(round(count), "token")


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

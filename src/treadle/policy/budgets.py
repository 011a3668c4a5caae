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

from treadle.core.contracts.gate import Account, Pass, Stop
from treadle.core.contracts.model import ModelCard
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem
from treadle.core.transcript.usage import Usage

# Text has at least so many characters a token; fewer make the estimate larger, never smaller.
CHARS_PER_TOKEN = 2.5
CLOSING_TOKENS = 1_000
TELL_AT = (0.5, 0.8, 0.95)


class Rounds:
    """At most so many tool rounds a turn: `Rounds(3)` allows exactly three."""

    def __init__(self, most: int) -> None:
        self.most = most

    def admit(self, account: Account) -> Pass | Stop:
        if account.rounds < self.most:
            return Pass()
        return Stop("max_turns", f"{self.most} tool rounds are done, which is the limit")

    def settle(self, account: Account, used: Usage) -> None:
        return None


class Calls:
    """At most so many tool calls a turn."""

    def __init__(self, most: int) -> None:
        self.most = most

    def admit(self, account: Account) -> Pass | Stop:
        if account.calls < self.most:
            return Pass()
        detail = f"{account.calls} tool calls are made; the limit is {self.most}"
        return Stop("budget_exceeded", detail, closing=CLOSING_TOKENS)

    def settle(self, account: Account, used: Usage) -> None:
        return None


class Elapsed:
    """At most so many seconds a turn, looked at before each model call."""

    def __init__(self, seconds: float, now: Callable[[], float] = monotonic) -> None:
        self.seconds = seconds
        self._now = now
        self._began: dict[str, tuple[str, float]] = {}  # by session: its turn, and since when

    def admit(self, account: Account) -> Pass | Stop:
        turn, began = self._began.get(account.session_id, ("", 0.0))
        if turn != account.turn_id:
            began = self._now()
            self._began[account.session_id] = (account.turn_id, began)
        if self._now() - began < self.seconds:
            return Pass()
        return Stop("budget_exceeded", f"{self.seconds:g} s have passed, which is the limit")

    def settle(self, account: Account, used: Usage) -> None:
        return None


class Purse:
    """What a whole tree of agents may spend: what one has reserved, no other can."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.spent = 0.0
        self.earlier = 0.0  # the part of it that was spent before this run
        self.reserved = 0.0

    @property
    def left(self) -> float:
        return self.limit - self.spent - self.reserved

    def reserve(self, amount: float) -> bool:
        """Whether it could be set aside; float dust does not count."""
        if amount > self.left + 1e-9:
            return False
        self.reserved += amount
        return True

    def settle(self, reserved: float, spent: float) -> None:
        self.reserved = max(0.0, self.reserved - reserved)
        self.spent += spent

    def count_earlier(self, spent: float) -> None:
        """The session goes on: what it has spent before counts."""
        self.earlier += spent
        self.spent += spent


class Tokens:
    """At most so many tokens for an agent and its children, counted as the provider counts."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._purse = Purse(most)
        self._reserved: dict[str, float] = {}
        self._told = _Thresholds()

    def admit(self, account: Account) -> Pass | Stop:
        asked, answered = worst_tokens(account)
        closing = asked + CLOSING_TOKENS
        if not self._reserve(account, asked + answered + closing):
            detail = f"{self._purse.spent:,.0f} of {self.most:,} tokens are used"
            if self._purse.earlier:
                detail += f", {self._purse.earlier:,.0f} of them before this run"
            has_room = self._reserve(account, closing)
            return Stop("budget_exceeded", detail, closing=CLOSING_TOKENS * has_room)
        left = self.most - self._purse.spent
        used = 1 - left / self.most
        return Pass(self._told.line(used, f"{left:,.0f} of {self.most:,} tokens"))

    def settle(self, account: Account, used: Usage) -> None:
        self._purse.settle(self._reserved.pop(account.session_id, 0.0), used.total)

    def count_earlier(self, used: Usage) -> None:
        """The session goes on: what it has used before counts."""
        self._purse.count_earlier(used.total)

    def _reserve(self, account: Account, amount: float) -> bool:
        if not self._purse.reserve(amount):
            return False
        self._reserved[account.session_id] = amount
        return True


class Money:
    """A share of a purse. Every request is reserved at its worst case before it is sent.

    A model whose price is not known cannot be held to a budget in money: then `assumed` prices
    (input and output, USD a million tokens) are used, or without them the request is not sent.
    """

    def __init__(self, purse: Purse, assumed: tuple[float, float] | None = None) -> None:
        self.purse = purse
        self._assumed = assumed
        self._reserved: dict[str, float] = {}
        self._told = _Thresholds()

    def admit(self, account: Account) -> Pass | Stop:
        prices = _prices(account.card) or self._assumed
        if prices is None:
            return Stop(
                "budget_exceeded",
                f"the price of {account.card.name} is not known, so a budget in money cannot be "
                "kept; set its price in the configuration, or a limit in tokens instead",
            )
        asked, answered = worst_tokens(account)
        closing = _cost(prices, asked, CLOSING_TOKENS)
        if not self._reserve(account, _cost(prices, asked, answered) + closing):
            spent = f"{self.purse.spent:.4f} of {self.purse.limit:g} USD are spent"
            if self.purse.earlier:
                spent += f", {self.purse.earlier:.4f} of them before this run"
            has_room = self._reserve(account, closing)
            return Stop("budget_exceeded", spent, closing=CLOSING_TOKENS * has_room)
        used = 1 - max(0.0, self.purse.limit - self.purse.spent) / (self.purse.limit or 1.0)
        left = self.purse.limit - self.purse.spent
        return Pass(self._told.line(used, f"{left:.2f} of {self.purse.limit:g} USD"))

    def settle(self, account: Account, used: Usage) -> None:
        self._release(account, self._cost(used, account.card))

    def count_earlier(self, used: Usage, card: ModelCard) -> None:
        """The session goes on: what it has spent before counts, at this price if none is known."""
        self.purse.count_earlier(self._cost(used, card))

    def _cost(self, used: Usage, card: ModelCard) -> float:
        if used.cost is not None:
            return used.cost
        prices = _prices(card) or self._assumed or (0.0, 0.0)
        return _cost(prices, used.total_input, used.output)

    def _reserve(self, account: Account, amount: float) -> bool:
        if not self.purse.reserve(amount):
            return False
        self._reserved[account.session_id] = amount
        return True

    def _release(self, account: Account, spent: float) -> None:
        self.purse.settle(self._reserved.pop(account.session_id, 0.0), spent)


class Repetition:
    """Notices a model that goes in circles: tells it first, then stops the turn."""

    def __init__(self, tell_after: int = 3, stop_after: int = 6) -> None:
        self.tell_after = tell_after
        self.stop_after = stop_after
        self._last: dict[str, tuple[int, int, int]] = {}  # the round, its print, how many times

    def admit(self, account: Account) -> Pass | Stop:
        seen = _last_round(account.transcript)
        counted, before, times = self._last.get(account.session_id, (0, 0, 0))
        if seen is None or account.rounds == 0:
            self._last.pop(account.session_id, None)
            return Pass()
        if counted == account.rounds:
            return Pass()  # the same round, asked about again
        times = times + 1 if hash(seen) == before else 1
        self._last[account.session_id] = (account.rounds, hash(seen), times)
        if times >= self.stop_after:
            return Stop("budget_exceeded", f"the same call gave the same answer {times} times")
        if times >= self.tell_after:
            return Pass(f"The same call has now given the same answer {times} times. Try another.")
        return Pass()

    def settle(self, account: Account, used: Usage) -> None:
        return None


class _Thresholds:
    """Says what is left when a threshold is passed, once for each."""

    def __init__(self) -> None:
        self._passed = 0

    def line(self, used: float, left: str) -> str:
        passed = sum(used >= threshold for threshold in TELL_AT)
        if passed <= self._passed:
            return ""
        self._passed = passed
        return f"Budget: {left} are left. Plan the rest of the work accordingly."


def worst_tokens(account: Account) -> tuple[int, int]:
    """The most that the next request could use: tokens in, and out."""
    asked = int(account.request_chars / CHARS_PER_TOKEN) + 1
    return min(asked, account.card.window), account.max_output


def _prices(card: ModelCard) -> tuple[float, float] | None:
    if card.input_price is None or card.output_price is None:
        return None
    dearest = max(card.input_price, card.cache_write_price or 0.0)
    return dearest, card.output_price


def _cost(prices: tuple[float, float], asked: int, answered: int) -> float:
    return (asked * prices[0] + answered * prices[1]) / 1e6


def _last_round(transcript: Sequence[Item]) -> object | None:
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

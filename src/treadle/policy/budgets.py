"""Budgets: gates before each model call.

Rounds is the first of them; a text answer never counts, only a finished tool round does.
"""

from __future__ import annotations

from treadle.core.contracts.gate import Account, Pass, Stop
from treadle.core.transcript.usage import Usage


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

"""Limits of a run: rounds, calls, time, tokens, money. Each is a gate: `Agent(gates=[…])`."""

from __future__ import annotations

from treadle.budgets.gates import (
    CallLimit,
    CostBudget,
    RepetitionGuard,
    RoundLimit,
    TimeLimit,
    TokenBudget,
)
from treadle.budgets.shared_budget import SharedBudget

__all__ = [
    "CallLimit",
    "CostBudget",
    "RepetitionGuard",
    "RoundLimit",
    "SharedBudget",
    "TimeLimit",
    "TokenBudget",
]

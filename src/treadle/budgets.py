"""Limits of a run: rounds, calls, time, tokens, money. Each is a gate: `Agent(gates=[…])`."""

from __future__ import annotations

from treadle.policy.budgets import (
    CallLimit,
    CostBudget,
    RepetitionGuard,
    RoundLimit,
    SharedBudget,
    TimeLimit,
    TokenBudget,
)

__all__ = [
    "CallLimit",
    "CostBudget",
    "RepetitionGuard",
    "RoundLimit",
    "SharedBudget",
    "TimeLimit",
    "TokenBudget",
]

from __future__ import annotations

from treadle.budgets import (
    CallLimit,
    CostBudget,
    RepetitionGuard,
    RoundLimit,
    SharedBudget,
    TimeLimit,
    TokenBudget,
)
from treadle.testing import check_gate


async def test_the_limits_keep_the_promises_of_a_gate():
    await check_gate(lambda: RoundLimit(3))
    await check_gate(lambda: CallLimit(3))
    await check_gate(lambda: TimeLimit(1_000))
    await check_gate(lambda: TimeLimit(0))
    await check_gate(RepetitionGuard)


async def test_the_budgets_keep_the_promises_of_a_gate():
    # A request of the suite may take 4,001 tokens of input and 1,000 of output: 0.014001 USD.
    await check_gate(lambda: TokenBudget(12_000), at_once=2)
    await check_gate(lambda: CostBudget(SharedBudget(0.03)), at_once=2)
    await check_gate(lambda: CostBudget(SharedBudget(0.0)), at_once=0)
    await check_gate(lambda: CostBudget(0.03, per_session=True), at_once=2)
    await check_gate(lambda: CostBudget(0.03, when_reserved="wait"), at_once=2)

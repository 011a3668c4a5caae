"""What a parent gives a child of its budget: a limit of the child; the rest is the parent's."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest

from tests.agents.test_child_agents import answers, messages, task
from treadle import Agent, AgentDefinition, Usage
from treadle.budgets import CostBudget, SharedBudget
from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.models import Say, Scripted
from treadle.testing.tools import RecordingTool


async def test_a_call_gives_a_child_a_part_of_the_budget_and_more_when_it_continues():
    card = ModelCard("priced", max_output=5_000, input_price=0.0, output_price=10.0)
    used = Usage(0, 5_000, requests=1, cost=0.05)
    kind = AgentDefinition("cheap", "cheap", "Be cheap.", max_cost=0.95)
    calls = [
        task("child", subagent_type="cheap", max_cost=0.35, name="one"),
        task("go on", continue_agent="one"),  # it has spent what it got
        task("go on", continue_agent="One", max_cost=0.65),
        task("go on", continue_agent="one", max_cost=5.0),  # its definition has less
    ]
    spent: list[float] = []
    budget = SharedBudget(10.0)

    def answer(request: ModelRequest) -> Say:
        if messages(request)[0] == "parent":
            spent.append(budget.spent)
            return Say("ok", calls=calls[:1], usage=used) if calls else Say("ok", usage=used)
        if request.options.tool_choice == "none":
            return Say("closing", usage=used)
        return Say(calls=[("record", {"n": len(request.transcript)})], usage=used)

    def take(request: ModelRequest) -> Say:
        said = answer(request)
        if messages(request)[0] == "parent" and calls:
            calls.pop(0)
        return said

    model = Scripted(take, card=card)
    gates = [CostBudget(budget)]
    result = await Agent(model, [RecordingTool()], subagents=[kind], gates=gates).run("parent")
    texts = answers(result.transcript)
    assert "max_cost" in str(model.requests[0].tools)
    assert all(text.startswith("[ended early: budget_exceeded") for text in texts), texts
    parts = [after - before - 0.05 for before, after in pairwise(spent)]  # the parent's own: 0.05
    totals = list(accumulate(parts))
    for total, granted in zip(totals, (0.35, 0.35, 0.65, 0.95), strict=True):
        assert granted - 0.1 < total < granted + 0.05, totals
    assert budget.remaining == pytest.approx(10.0 - totals[-1] - 5 * 0.05)  # it is the parent's


async def test_a_part_below_nothing_is_refused():
    calls = [task("child", max_cost=-1)]
    card = ModelCard("priced", max_output=5_000, input_price=0.0, output_price=10.0)
    model = Scripted([Say(calls=calls), "ok"], card=card)
    result = await Agent(model, subagents=[], gates=[CostBudget(1.0)]).run("parent")
    assert "max_cost" in answers(result.transcript)[0]

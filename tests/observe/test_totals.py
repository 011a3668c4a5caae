"""Totals of a run: everything counted once, children too."""

from __future__ import annotations

import pytest

from treadle import Agent, Usage
from treadle.core.contracts.hook import HookInput
from treadle.core.contracts.model import ModelRequest
from treadle.core.errors import Overloaded
from treadle.core.transcript import Transcript, UserItem
from treadle.core.transcript.items import to_user_item
from treadle.hooks import hook
from treadle.models import Say, Scripted
from treadle.observe.totals import Totals
from treadle.testing.clock import ManualClock
from treadle.testing.tools import RecordingTool

PRICED = Usage(100, 10, requests=1, cost=0.25)


async def test_tokens_money_calls_errors_and_retries():
    totals = Totals()
    model = Scripted(
        [
            Say(calls=[("record", {}), ("nothing", {})], usage=PRICED),
            Overloaded("busy"),
            Say("done", usage=PRICED),
        ]
    )
    agent = Agent(model, [RecordingTool()], observers=[totals], clock=ManualClock())
    await agent.run("go")
    assert (totals.usage.total_input, totals.usage.output, totals.usage.cost) == (200, 20, 0.5)
    assert totals.calls_by_tool == {"record": 1, "nothing": 1}
    assert (totals.tool_calls, totals.tool_errors) == (2, 1)
    assert (totals.requests, totals.failed_requests) == (3, 1)
    assert (totals.turns, totals.turn_reasons) == (1, {"end_turn": 1})
    assert str(totals) == "200 tokens in, 20 out, $0.50; 3 model calls, 2 tool calls, 1 error"


async def test_children_are_counted_in():
    def answer(request):
        first = request.transcript[0]
        assert isinstance(first, UserItem)
        if first.text == "child":
            return Say("found", usage=PRICED)
        if len(request.transcript) > 1:
            return Say("done", usage=PRICED)
        work = {"description": "look", "prompt": "child"}
        return Say(calls=[("task", work), ("task", work)], usage=PRICED)

    totals = Totals()
    result = await Agent(Scripted(answer), subagents=[], observers=[totals]).run("parent")
    assert (result.cost, result.turn.usage.cost) == (1.0, 0.5)
    assert totals.usage.cost == pytest.approx(1.0)
    assert len(totals.child_sessions) == 2
    assert (totals.turns, totals.turn_reasons) == (1, {"end_turn": 1})


async def test_calls_beside_the_turn_are_counted_in_also_those_of_children():
    @hook("pre_tool_use")
    async def judge(hook_input: HookInput) -> None:
        request = ModelRequest(Transcript([to_user_item("may it?")]))
        await hook_input.call_model(request, "judge", Scripted([Say("yes", usage=PRICED)]))

    def answer(request):
        text, is_first = request.transcript[0].text, len(request.transcript) == 1
        call = ("task", {"description": "x", "prompt": "child"}) if text == "go" else ("record", {})
        return Say(calls=[call], usage=PRICED) if is_first else "done"

    totals = Totals()
    agent = Agent(
        Scripted(answer), [RecordingTool()], subagents=[], observers=[totals], hooks=[judge]
    )
    driver = agent.start("go")
    await agent.finish_turn(driver)
    await driver.ask_aside("how is it?")
    assert totals.usage == driver.total_usage
    assert totals.usage.cost == pytest.approx(1.0)  # two replies, and two judges


async def test_an_unknown_price_makes_the_whole_unknown_and_keeps_what_is_known():
    totals = Totals()
    unknown = Usage(1, 1, requests=1, cost=None)
    model = Scripted([Say(calls=[("record", {})], usage=PRICED), Say("done", usage=unknown)])
    await Agent(model, [RecordingTool()], observers=[totals]).run("go")
    assert totals.usage.cost is None
    assert totals.known_cost == 0.25
    assert "$0.25 + unknown" in str(totals)

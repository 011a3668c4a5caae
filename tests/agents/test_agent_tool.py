"""An agent as a tool of another: one budget, one log, one person who is asked."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from treadle import Agent, ChildEvent, PendingApproval, ToolContext, tool
from treadle.budgets import CostBudget
from treadle.core.contracts.hook import Block, HookAnswer, HookInput
from treadle.core.contracts.model import Model, ModelCard, ModelOptions
from treadle.core.errors import ConfigError, LoopError
from treadle.core.steps import ApprovalRequest
from treadle.core.transcript import ToolResultItem
from treadle.core.transcript.usage import Usage
from treadle.events import TextDelta, unwrap
from treadle.hooks import hook
from treadle.models import Say, Scripted
from treadle.models.scripted import ScriptElement
from treadle.testing.observers import RecordingObserver

PAID = Usage(input=100, output=10, requests=1, cost=1.0)


class City(msgspec.Struct):
    name: str
    people: int


@tool(effect="irreversible", approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def ask(prompt: str) -> ScriptElement:
    return Say(calls=[("helper", {"prompt": prompt})], usage=PAID)


def read_result(transcript: object) -> str:
    [result] = [item for item in transcript if isinstance(item, ToolResultItem)]  # type: ignore[attr-defined]
    return result.text


async def test_its_answer_is_the_result_and_what_it_used_is_the_callers():
    inner = Agent(Scripted([Say("found", usage=PAID)]), name="inner", instructions="Find.")
    seen = RecordingObserver()
    model = Scripted([ask("look"), Say("done", usage=PAID)])
    outer = Agent(model, [inner.as_tool("helper", "Finds things.")], observers=[seen])
    result = await outer.run("x")
    assert read_result(result.transcript) == "found"
    assert result.cost == 3.0
    children = [event for event in seen.events if isinstance(event, ChildEvent)]
    assert children
    assert model.requests[0].tools[0].name == "helper"


@pytest.mark.parametrize("kind", ["as_tool", "as_handoff"])
async def test_an_override_holds_for_the_tool_that_was_made_of_the_agent(kind: str):
    @tool
    async def name(context: ToolContext[str]) -> str:
        """Tell the name."""
        return context.deps

    inner = Agent(Scripted([]), [name], deps_type=str)
    outer = Agent(
        Scripted([ask("look"), "done"]), [getattr(inner, kind)("helper", "Finds.")], deps_type=str
    )
    other = Scripted([Say(calls=[("name", {})]), "from the test"])
    with inner.override(model=other, deps="forced"):
        result = await outer.run("x", deps="given")
    assert read_result(result.transcript) == "from the test"
    assert read_result(other.requests[-1].transcript) == "forced"


async def test_an_answer_has_the_output_type_of_the_agent():
    replies: list[ScriptElement] = [
        Say(calls=[("final_answer", {"name": "Graz"})]),
        Say(calls=[("final_answer", {"name": "Graz", "people": 300_000})]),
    ]
    inner = Agent(Scripted(replies), output_type=City)
    outer = Agent(Scripted([ask("which"), "done"]), [inner.as_tool("helper", "Knows cities.")])
    result = await outer.run("x")
    assert msgspec.json.decode(read_result(result.transcript), type=City).people == 300_000


async def test_what_an_output_function_returns_is_the_result_of_the_call():
    @dataclass
    class Weather:
        degrees: int

    def measure(city: str) -> Weather:
        """Measure."""
        return Weather(len(city))

    measuring = Agent(Scripted(['{"city": "Graz"}']), output_type=measure)
    call = Say(calls=[("measure", {"prompt": "How warm is it in Graz?"})])
    asking = Agent(
        Scripted([call, lambda request: read_result(request.transcript)]),
        [measuring.as_tool("measure", "Measures.")],
    )
    assert (await asking.run("How warm is it?")).text == '{"degrees":4}'


async def test_the_person_who_is_asked_is_that_of_the_caller():
    asked: list[str] = []

    def approve(approval: PendingApproval) -> bool:
        asked.append(approval.summary)
        return True

    inner = Agent(Scripted([Say(calls=[("pay", {"amount": 5})]), "paid"]), [pay])
    helper = inner.as_tool("helper", "Pays.")
    outer = Agent(Scripted([ask("pay"), "done"]), [helper], approve=approve)
    result = await outer.run("x")
    assert asked == ["[pay: 5]"]
    assert read_result(result.transcript) == "paid"


CARD = ModelCard("priced", max_output=100, input_price=0.0, output_price=1_000.0)
TENTH = Usage(0, 100, requests=1, cost=0.1)


@pytest.mark.parametrize("of_run", [True, False])
async def test_the_budget_of_the_caller_holds_for_it(of_run: bool):
    inner_model = Scripted([Say("found", usage=TENTH)], card=CARD)
    helper = Agent(inner_model).as_tool("helper", "Finds.")
    model = Scripted([Say(calls=[("helper", {"prompt": "look"})], usage=TENTH)], card=CARD)
    gates = [CostBudget(0.15)]
    outer = Agent(model, [helper], gates=() if of_run else gates)
    result = await outer.run("x", gates=gates if of_run else ())
    assert result.reason == "budget_exceeded"
    [item] = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    assert item.text.startswith("[ended early: budget_exceeded: the next request")
    assert item.is_error
    assert inner_model.requests == []


async def test_the_limits_of_a_run_hold_for_the_children_that_it_starts():
    task = Say(calls=[("task", {"description": "d", "prompt": "p"})], usage=TENTH)
    model = Scripted([task], card=CARD)
    result = await Agent(model, subagents=[]).run("x", gates=[CostBudget(0.15)])
    assert "budget" in read_result(result.transcript)
    assert len(model.requests) == 1


@pytest.mark.parametrize("kind", ["as_tool", "as_handoff", "task"])
async def test_options_and_metadata_of_a_run_reach_the_agents_that_it_starts(kind: str):
    @tool(effect="pure")
    def look(context: ToolContext) -> str:
        """Look."""
        return str(context.metadata["tenant"])

    replies: list[ScriptElement] = [Say(calls=[("look", {})]), "seen"]
    model = Scripted(replies)
    child = Agent(model, [look], options=ModelOptions(seed=7, temperature=0.5))
    if kind == "task":
        calling = Say(calls=[("task", {"description": "d", "prompt": "p"})])
        model = Scripted([calling, *replies, "done"])
        agent = Agent(model, [look], subagents=[], options=child.config.options)
    else:
        agent = Agent(Scripted([ask("go"), "done"]), [getattr(child, kind)("helper", "Looks.")])
    options = ModelOptions(temperature=0.0, service_tier="flex")
    await agent.run("go", options=options, metadata={"tenant": "graz"})
    requests = model.requests[1:3] if kind == "task" else model.requests
    found = [(one.options.seed, one.options.temperature) for one in requests]
    assert found == [(7, 0.0)] * 2
    assert {one.options.service_tier for one in requests} == {"flex"}
    assert [one.metadata["tenant"] for one in requests] == ["graz"] * 2
    assert read_result(requests[-1].transcript) == "graz"


async def test_a_call_of_a_child_that_a_crash_left_in_doubt_is_settled_at_the_parent(
    tmp_path: Path,
):
    paid: list[int] = []

    async def copy_and_pay(amount: int) -> str:
        """Pay, at the moment at which the process is killed."""
        paid.append(amount)
        shutil.copytree(tmp_path / "before", tmp_path / "killed")
        return "paid"

    def make(replies: list[ScriptElement], of_outer: list[ScriptElement]) -> Agent:
        inner = Agent(Scripted(replies), [tool(copy_and_pay, name="pay", effect="irreversible")])
        return Agent(Scripted(of_outer), [inner.as_tool("helper", "Pays.")])

    first = make([Say(calls=[("pay", {"amount": 5})]), "paid"], [ask("pay"), "done"])
    await first.replace(store=tmp_path / "before").run("go", session="s")
    later = make(["it is paid"], ["all done"]).replace(store=tmp_path / "killed")
    seen = (await later.sessions.read("s")).doubts
    async with later.session("s") as session:
        assert session.doubts == seen
        of_parent, of_child = seen
        assert (of_parent.tool, of_child.tool) == ("helper", "pay")
        session.settle(of_child.call.id, "The bank has it.", session_id=of_child.session_id)
        assert session.doubts == (of_parent,)
        with pytest.raises(LoopError, match="is in doubt"):
            session.settle(of_child.call.id, "again", session_id=of_child.session_id)
        result = await session.run()
    assert (result.text, read_result(result.transcript)) == ("all done", "it is paid")
    assert paid == [5]


async def test_a_call_that_waited_for_an_approval_goes_on_in_another_process(tmp_path: Path):
    def make(replies: list[ScriptElement], of_outer: list[ScriptElement]) -> Agent:
        inner = Agent(Scripted(replies), [pay])
        return Agent(Scripted(of_outer), [inner.as_tool("helper", "Pays.")])

    first = make([Say(calls=[("pay", {"amount": 5})])], [ask("pay")])
    async with first.session("s", store=tmp_path / "before") as session:
        session.submit("go")
        assert isinstance(await session.next(), ApprovalRequest)
        await session.driver.log.flush()
        shutil.copytree(tmp_path / "before", tmp_path / "killed")
    later = make(["paid it"], ["done"])
    async with later.session("s", store=tmp_path / "killed") as session:
        [approval] = session.approvals
        session.approve(approval.call.id, session_id=approval.session_id)
        result = await session.run()
    assert result.text == "done"
    assert read_result(result.transcript) == "paid it"


@pytest.mark.parametrize("deps_type", [None, int])
def test_an_agent_that_needs_other_deps_is_refused(deps_type: type | None):
    inner = Agent(Scripted([]), deps_type=City).as_tool("helper", "Looks.")
    settings = {} if deps_type is None else {"deps_type": deps_type}
    with pytest.raises(ConfigError, match=r"'helper'.*City"):
        Agent(Scripted([]), [inner], **settings)  # type: ignore[call-overload]


async def test_it_gets_the_deps_of_the_run_if_it_has_a_type_for_them():
    seen: list[object] = []

    @tool
    def look(context: ToolContext[City]) -> str:
        """Look."""
        seen.append(context.deps)
        return "ok"

    city = City("Graz", 3)
    with_deps = Agent(Scripted([Say(calls=[("look", {})]), "a"]), [look], deps_type=City)
    without = Agent(Scripted(["b"]))
    tools = [with_deps.as_tool("helper", "Looks."), without.as_tool("other", "Says b.")]
    calls = Say(calls=[("helper", {"prompt": "x"}), ("other", {"prompt": "y"})])
    outer = Agent(Scripted([calls, "done"]), tools, deps_type=City)
    result = await outer.run("x", deps=city)
    assert seen == [city]
    found = [item.text for item in result.transcript if isinstance(item, ToolResultItem)]
    assert found == ["a", "b"]


def test_a_tool_needs_a_name_and_a_description():
    agent = Agent(Scripted(["x"]))
    with pytest.raises(ConfigError, match="give a name"):
        agent.as_tool(description="Finds.")
    with pytest.raises(ConfigError, match="description"):
        agent.as_tool("helper")
    with pytest.raises(ConfigError, match="not a name"):
        agent.as_tool("not a name", "Finds.")


async def test_the_hooks_of_the_caller_run_for_it_and_a_host_can_limit_its_model():
    seen: list[str] = []

    @hook("pre_tool_use")
    async def guard(given: HookInput) -> HookAnswer | None:
        seen.append(str(given.data["tool_name"]))
        return Block("not here") if given.data["tool_name"] == "pay" else None

    wrapped: list[Model] = []

    def wrap(model: Model) -> Model:
        wrapped.append(model)
        return model

    inner_model = Scripted([Say(calls=[("pay", {"amount": 5})]), "I may not"])
    inner = Agent(inner_model, [pay], approve=lambda approval: True)
    helper = inner.as_tool("helper", "Pays.")
    outer = Agent(Scripted([ask("pay"), "done"]), [helper], hooks=[guard])
    driver = outer.start("x")
    driver.children.wrap_model = wrap
    await outer.finish_turn(driver)
    assert seen == ["helper", "pay"]
    assert wrapped == [inner_model]
    assert read_result(driver.transcript) == "I may not"
    await driver.aclose()


async def test_the_event_of_a_child_of_a_child_is_unwrapped_with_its_session():
    inner = Agent(Scripted(["Deep."])).as_tool("inner", "Knows.")
    outer = Agent(Scripted([Say(calls=[("inner", {"prompt": "p"})]), "x"]), [inner])
    model = Scripted([Say(calls=[("outer", {"prompt": "p"})]), "y"])
    agent = Agent(model, [outer.as_tool("outer", "Asks.")])
    async with agent.stream("go") as events:
        texts = [
            (one.text, one.session_id)
            for event in [e async for e in events]
            if isinstance(one := unwrap(event), TextDelta)
        ]
    assert [text for text, _ in texts] == ["Deep.", "x", "y"]
    assert len({session for _, session in texts}) == 3

"""A run is one operation on the one driver of a session: its message is in a turn, or nowhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, TextDelta, ToolContext, tool
from treadle.agents.agent_definition import AgentDefinition
from treadle.budgets import CostBudget
from treadle.core.contracts.gate import BaseGate, RequestEstimate, Stop
from treadle.core.contracts.model import ModelCard, ModelOptions
from treadle.core.contracts.policy import Ask, BasePolicy, PermissionRequest
from treadle.core.errors import ApprovalPending, ConfigError, DriverBusy, LoopError, Overloaded
from treadle.core.events import ApprovalRequired
from treadle.core.steps import ApprovalRequest
from treadle.core.transcript import UserItem
from treadle.core.transcript.usage import Usage
from treadle.models import Pause, Say, Scripted
from treadle.testing.observers import RecordingObserver
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import RecordingTool
from treadle.tools.federation import StaticSource

USED = Usage(input=100, output=10, requests=1, cost=1.0)
THREE = Say(calls=[("final_answer", {"value": 3})], usage=USED)


class Slow:
    """A tool that goes to the background at once and ends when it is released."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.ends: list[str] = []

    def make(self):
        @tool(detachable=True, detach_after=0.0)
        async def build() -> str:
            "Build."
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.ends.append("cancelled")
                raise
            self.ends.append("built")
            return "built"

        return build


async def test_a_run_with_an_output_type_costs_what_it_used_itself(tmp_path: Path):
    model = Scripted([Say("a", usage=USED), THREE, Say("b", usage=USED)])
    async with Agent(model, store=tmp_path).session("s") as session:
        first, number = await session.run("x"), await session.run("n", output=int)
        last = await session.run("y")
    assert (first.cost, number.cost, last.cost) == (1.0, 1.0, 1.0)
    assert number.output == 3


async def test_the_metadata_of_a_run_is_in_every_attempt_at_its_answer():
    card = ModelCard("m", abilities=frozenset({"schema"}))
    model = Scripted(["no json", '{"value": 3}'], card=card)
    result = await Agent(model).run("n", output=int, metadata={"tenant": "a"})
    assert [request.metadata for request in model.requests] == [{"tenant": "a"}] * 2
    assert result.turn.metadata == {"tenant": "a"}


async def test_background_tasks_outlive_a_run_with_an_output_type(tmp_path: Path):
    slow, store = Slow(), MemoryStore("s")
    model = Scripted([Say(calls=[("build", {})]), "started", THREE, "seen"])
    async with Agent(model, [slow.make()]).session("s", store=store) as session:
        await session.run("build")
        assert (await session.run("n", output=int)).output == 3
        [task] = session.driver.tasks.list()
        assert (task.state, slow.ends) == ("running", [])
        slow.release.set()
        await session.driver.tasks.wait()
        await session.run("and?")
        reports = [one for one in session.history if getattr(one, "kind", "") == "task"]
    assert slow.ends == ["built"]
    assert len(reports) == 1


async def test_a_message_that_was_answered_is_not_answered_again_after_reopening(tmp_path: Path):
    slow, pay = Slow(), RecordingTool("pay", effect="irreversible")

    def agent(*replies) -> Agent:
        return Agent(Scripted([*replies]), [slow.make(), pay], store=tmp_path)

    first = agent(Say(calls=[("build", {})]), "started", Say(calls=[("pay", {"n": 5})]), THREE)
    async with first.session("s") as session:
        await session.run("build")
        await session.run("pay 5", output=int)
    async with agent("nothing to do").session("s") as session:
        assert session.queued_messages == ()
    assert len(pay.calls) == 1


async def test_a_chosen_model_and_observers_stay_over_runs_with_an_output_type(tmp_path: Path):
    chosen, observer = Scripted([THREE, "b"], name="chosen"), RecordingObserver()
    async with Agent(Scripted([]), store=tmp_path).session("s") as session:
        session.driver.use_model(chosen)
        session.driver.watch(observer)
        await session.run("n", output=int)
        seen = len(observer.events)
        await session.run("x")
    assert len(chosen.requests) == 2
    assert len(observer.events) > seen > 0


async def test_a_child_in_memory_is_continued_in_a_run_with_an_output_type():
    start = {"description": "x", "prompt": "p", "name": "bob"}
    again = {"description": "x", "prompt": "more", "continue_agent": "bob"}
    model = Scripted(
        [Say(calls=[("task", start)]), "child", "done", Say(calls=[("task", again)]), "more", THREE]
    )
    async with Agent(model, subagents=[]).session("s", store=MemoryStore("s")) as session:
        await session.run("go")
        assert (await session.run("on", output=int)).output == 3
        results = [one.text for one in session.history if getattr(one, "name", "") == "task"]
    assert results == ["child", "more"]


async def test_a_second_run_at_once_is_refused_whatever_its_output(tmp_path: Path):
    pause = Pause()
    model = Scripted([[pause, "one"]])
    async with Agent(model, store=tmp_path).session("s") as session:
        first = asyncio.create_task(session.run("x"))
        await pause.reached.wait()
        for output in (None, int):
            with pytest.raises(DriverBusy, match="is running"):
                await session.run("y", output=output)
        pause.release()
        assert (await first).text == "one"


class FailsToOpen(StaticSource):
    def __init__(self) -> None:
        super().__init__([], "server")
        self.failures = 2

    async def open(self) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the server is starting")


async def test_a_run_that_fails_before_its_turn_leaves_no_message_behind(tmp_path: Path):
    model = Scripted(["paid"])
    async with Agent(model, [FailsToOpen()], store=tmp_path).session("s") as session:
        for _ in range(2):
            with pytest.raises(ConnectionError):
                await session.run("pay 5 EUR")
        await session.run("pay 5 EUR")
    sent = [item.text for item in model.requests[0].transcript if isinstance(item, UserItem)]
    assert sent == ["pay 5 EUR"]


class AsksAlways(BasePolicy):
    async def decide(self, request: PermissionRequest) -> Ask:
        return Ask("sure?")


async def test_a_run_while_an_approval_waits_leaves_no_message_behind(tmp_path: Path):
    agent = Agent(
        Scripted([Say(calls=[("pay", {})])]),
        [RecordingTool("pay")],
        policy=AsksAlways(),
        store=tmp_path,
    )
    async with agent.session("s") as session:
        session.submit("go")
        assert isinstance(await session.next(), ApprovalRequest)
        with pytest.raises(ApprovalPending):
            await session.run("pay 5 EUR")
        assert session.queued_messages == ()


async def test_a_run_waits_for_calls_in_the_background_and_names_them():
    slow, pause = Slow(), Pause()
    model = Scripted([Say(calls=[("build", {})]), [pause, "started"]])
    run = asyncio.create_task(Agent(model, [slow.make()]).run("go"))
    await pause.reached.wait()
    asyncio.get_running_loop().call_soon(slow.release.set)
    pause.release()
    result = await run
    assert slow.ends == ["built"]
    assert [(task.name, task.state) for task in result.background] == [("build", "done")]


async def test_a_run_that_does_not_wait_says_what_was_running():
    slow = Slow()
    model = Scripted([Say(calls=[("build", {})]), "started"])
    result = await Agent(model, [slow.make()]).run("go", background_wait=0)
    assert [(task.name, task.state) for task in result.background] == [("build", "running")]
    assert slow.ends == ["cancelled"]


async def test_an_error_that_leaves_a_run_carries_it():
    model = Scripted([Say(calls=[("record", {})], usage=USED), *[Overloaded("busy")] * 9])
    agent = Agent(model, [RecordingTool()], clock=NoWait())
    with pytest.raises(Overloaded) as caught:
        await agent.run("go")
    error = caught.value
    assert error.transcript is not None
    assert len(error.transcript) == 3
    assert (error.cost, error.session_id != "") == (1.0, True)


class NoWait:
    def now(self) -> float:
        return 0.0

    def random(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


async def test_an_error_of_other_code_carries_the_run_too(tmp_path: Path):
    with pytest.raises(ConnectionError) as caught:
        await Agent(Scripted([]), [FailsToOpen()]).run("go")
    assert vars(caught.value)["usage"] == Usage()
    assert vars(caught.value)["cost"] == 0.0


async def test_an_answer_to_a_call_that_never_asked_is_an_error():
    tool = RecordingTool(effect="irreversible")
    model = Scripted([Say(calls=[("record", {})]), "done"])
    async with Agent(model, [tool], policy=AsksAlways()).stream("go") as events:
        async for event in events:
            if isinstance(event, ApprovalRequired):
                with pytest.raises(LoopError, match="no call 'typo' of this run has asked"):
                    events.approve("typo")
                assert events.approve(event.call.id)
                assert not events.approve(event.call.id)  # it is answered
    assert len(tool.calls) == 1


async def test_a_run_has_a_model_options_and_limits_of_its_own(tmp_path: Path):
    usual, other = Scripted(lambda request: "usual"), Scripted(lambda request: "other")
    agent = Agent(usual, options=ModelOptions(max_tokens=50, temperature=0.5), store=tmp_path)
    result = await agent.run("x", model=other, options=ModelOptions(temperature=0.0))
    assert result.text == "other"
    sent = other.requests[0].options
    assert (sent.max_tokens, sent.temperature) == (50, 0.0)
    assert (await agent.run("x")).text == "usual"
    assert usual.requests[0].options.temperature == 0.5
    async with agent.session("s") as session:
        assert (await session.run("1", model=other)).text == "other"
        assert (await session.run("2")).text == "usual"
        async with session.stream("3", model=other) as events:
            assert [event.text async for event in events if isinstance(event, TextDelta)] == [
                "other"
            ]
        assert (await session.run("4")).text == "usual"
    stopped = await agent.run("x", gates=[Refuse()])
    assert (stopped.reason, stopped.detail) == ("budget_exceeded", "no more today")
    assert (await agent.run("x")).reason == "end_turn"


class Refuse(BaseGate):
    def admit(self, estimate: RequestEstimate) -> Stop:
        return Stop("budget_exceeded", "no more today")


async def test_a_model_that_is_named_for_a_run_is_closed_after_it(
    monkeypatch: pytest.MonkeyPatch,
):
    made = Scripted(["named"])
    closed: list[bool] = []

    async def aclose() -> None:
        closed.append(True)

    monkeypatch.setattr(made, "aclose", aclose)
    monkeypatch.setattr("treadle.models.registry.model", lambda name: made)
    agent = Agent(Scripted(["usual"]))
    assert (await agent.run("x", model="maker/name")).text == "named"
    assert closed == [True]


@pytest.mark.parametrize("wrong", [{"model": 3}, {"options": {}}, {"gates": CostBudget(1.0)}])
async def test_a_wrong_setting_of_a_run_is_named(wrong: dict[str, Any]):
    agent = Agent(Scripted(["usual"]))
    with pytest.raises(ConfigError, match=f"^{next(iter(wrong))} is"):
        await agent.run("x", **wrong)


async def test_a_tool_sees_the_metadata_of_its_run_and_what_was_used():
    seen: list[ToolContext] = []

    @tool
    def look(context: ToolContext) -> str:
        """Look."""
        seen.append(context)
        return "ok"

    model = Scripted([Say(calls=[("look", {})], usage=Usage(input=7)), "done"])
    await Agent(model, [look]).run("x", metadata={"user": "7"})
    [context] = seen
    assert context.metadata == {"user": "7"}
    assert context.usage.input == 7


async def test_the_model_of_a_run_is_that_of_children_without_one_of_their_own():
    """Also of their children; not of agents that are tools, which have one."""
    task = Say(calls=[("task", {"description": "d", "prompt": "p"})])
    named = Say(calls=[("task", {"description": "d", "prompt": "p", "subagent_type": "own"})])
    asked = Say(calls=[("expert", {"prompt": "p"})])
    agent_model, own = Scripted(["agent"] * 9), Scripted(["own"] * 9)
    expert = Agent(own).as_tool("expert", "Knows.")
    definition = AgentDefinition("own", "Has a model.", "Work.", model=own)
    agent = Agent(agent_model, [expert], subagents=[definition])
    of_run = Scripted([task, task, "grandchild", "child", named, asked, "done"])
    result = await agent.run("go", model=of_run)
    assert result.text == "done"
    assert (len(agent_model.requests), len(own.requests), len(of_run.requests)) == (0, 2, 7)
    assert (await agent.run("go")).text == "agent"

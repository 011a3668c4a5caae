"""Stories of hooks, policies and approvers that swallow a cancellation, or do not stop at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from treadle import Agent, Transcript
from treadle.core.contracts.hook import HookAnswer, HookInput, HookPoint
from treadle.core.contracts.model import ModelEvent, ModelRequest
from treadle.core.contracts.mutator import MutationContext
from treadle.core.contracts.policy import Allow, AllowAll, Ask, PermissionRequest, Verdict
from treadle.core.events import WarningRaised
from treadle.core.loop.driver import Driver
from treadle.core.steps import Finished, PendingApproval
from treadle.core.transcript import ToolResultItem
from treadle.lib import tasks as lib_tasks
from treadle.models import Say, Scripted
from treadle.testing.observers import RecordingObserver
from treadle.testing.tools import ChangingSource, RecordingTool


class Deaf(AllowAll):
    """A hook, a mutator, a policy and an approver. It swallows `count` cancellations and then
    lets everything pass."""

    name = "deaf"

    def __init__(self, *points: str, timeout: float | None = None, count: int = 1) -> None:
        self.points = frozenset(points)
        self.timeout = timeout
        self.entered = asyncio.Event()
        self.left = asyncio.Event()
        self._count = count

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        await self.wait()
        return None

    async def mutate(self, context: MutationContext) -> Transcript | None:
        await self.wait()
        return None

    async def decide(self, request: PermissionRequest) -> Verdict:
        await self.wait()
        return Allow()

    async def approve(self, approval: PendingApproval) -> bool:
        await self.wait()
        return True

    async def wait(self) -> None:
        self.entered.set()
        while self._count:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self._count -= 1
        self.left.set()


class AsksAlways(AllowAll):
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Ask("sure?")


HOOK_POINTS: list[HookPoint] = [
    "session_start",
    "user_prompt_submit",
    "pre_tool_use",
    "permission_request",
    "before_effect",
]
PLACES = [*HOOK_POINTS, "before_model", "policy", "approver"]


def make_agent(deaf: Deaf, place: str, record: RecordingTool, witness: RecordingObserver) -> Agent:
    asks = place in ("permission_request", "approver")
    policy = AsksAlways() if asks else None
    return Agent(
        Scripted([Say(calls=[("record", {})]), "done"]),
        [record],
        hooks=[deaf] if place in HOOK_POINTS else [],  # type: ignore[list-item]
        mutators=[deaf] if place == "before_model" else [],  # type: ignore[list-item]
        policy=deaf if place == "policy" else policy,
        approve=deaf.approve if place == "approver" else lambda approval: True,
        observers=[witness],
    )


async def drive(agent: Agent, driver: Driver) -> str:
    return (await agent.finish_turn(driver)).reason


@pytest.mark.parametrize("place", PLACES)
async def test_after_an_interrupt_no_effect_starts_though_code_swallows_the_cancellation(place):
    deaf, record = Deaf(place), RecordingTool(effect="irreversible")
    agent = make_agent(deaf, place, record, RecordingObserver())
    driver = agent.start(prompt="go")
    run = asyncio.create_task(drive(agent, driver))
    await deaf.entered.wait()
    driver.interrupt()
    assert await run == "aborted"
    assert record.calls == []
    await driver.aclose()


@pytest.mark.parametrize("place", PLACES)
async def test_a_cancellation_from_outside_is_raised_though_code_swallows_it(place):
    deaf, record = Deaf(place), RecordingTool(effect="irreversible")
    run = asyncio.create_task(make_agent(deaf, place, record, RecordingObserver()).run("go"))
    await deaf.entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert record.calls == []


@pytest.mark.parametrize("place", PLACES)
async def test_code_that_never_stops_is_abandoned_at_an_interrupt(place, monkeypatch):
    monkeypatch.setattr(lib_tasks, "STOP_GRACE_SECONDS", 0.01)
    deaf, record = Deaf(place, count=2), RecordingTool(effect="irreversible")
    witness = RecordingObserver()
    agent = make_agent(deaf, place, record, witness)
    driver = agent.start(prompt="go")
    run = asyncio.create_task(drive(agent, driver))
    await deaf.entered.wait()
    driver.interrupt()
    assert await run == "aborted"
    assert not deaf.left.is_set()
    warnings = [event.text for event in witness.events_of(WarningRaised)]
    assert warnings or place == "approver"
    assert all(text.endswith("does not stop; it was abandoned") for text in warnings)
    [abandoned] = lib_tasks._abandoned
    abandoned.cancel()  # once more: now it ends
    await deaf.left.wait()
    await asyncio.wait([abandoned])
    assert record.calls == []
    await driver.aclose()


@pytest.mark.parametrize("count", [1, 2])
async def test_a_hook_over_its_timeout_denies_the_call_whatever_it_returns(count, monkeypatch):
    monkeypatch.setattr(lib_tasks, "STOP_GRACE_SECONDS", 0.01)
    deaf, record = Deaf("pre_tool_use", timeout=0.01, count=count), RecordingTool()
    agent = make_agent(deaf, "pre_tool_use", record, RecordingObserver())
    result = await agent.run("go")
    [answer] = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    assert answer.outcome == "denied"
    assert "it did not finish within 0.01 s" in answer.text
    assert record.calls == []
    for task in lib_tasks._abandoned:
        task.cancel()
    await deaf.left.wait()


async def test_a_hook_that_interrupts_the_run_keeps_the_call_from_running():
    class Interrupts:
        points: frozenset[HookPoint] = frozenset({"pre_tool_use"})

        async def run(self, hook_input: HookInput) -> HookAnswer | None:
            driver.interrupt()
            return None

    record = RecordingTool(effect="irreversible")
    model = Scripted([Say(calls=[("record", {})])])
    driver = Agent(model, [record], hooks=[Interrupts()]).start(prompt="go")
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.reason == "aborted"
    assert record.calls == []


async def test_a_cancellation_that_a_model_swallows_is_raised_and_its_reply_is_kept():
    entered = asyncio.Event()

    class DeafModel(Scripted):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            entered.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                async for event in super().stream(request):
                    yield event

    record = RecordingTool(effect="irreversible")
    driver = Agent(DeafModel([Say(calls=[("record", {})])]), [record]).start(prompt="go")
    step = asyncio.create_task(driver.next())
    await entered.wait()
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert record.calls == []
    assert driver.transcript[1].text == ""
    assert isinstance(driver.transcript[2], ToolResultItem)


async def test_a_cancellation_that_a_source_of_tools_swallows_is_raised():
    entered = asyncio.Event()

    class DeafSource(ChangingSource):
        async def open(self) -> None:
            await super().open()
            entered.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return

    model = Scripted(["never"])
    run = asyncio.create_task(Agent(model, [DeafSource([RecordingTool()])]).run("go"))
    await entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert model.requests == []

"""Stories of stopping between two steps, while a child agent waits for a decision."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from treadle import Agent
from treadle.core.contracts.model import ModelRequest
from treadle.core.contracts.observer import BaseObserver
from treadle.core.contracts.policy import Allow, AllowAll, Ask, PermissionRequest, Verdict
from treadle.core.events import ChildEvent, Event, TaskFinished, TurnFinished
from treadle.core.loop.driver import Driver
from treadle.core.steps import ApprovalRequest, Finished
from treadle.core.transcript import UserItem
from treadle.core.transcript.integrity import find_violations
from treadle.models import Pause, Say, Scripted
from treadle.models.scripted import ScriptElement
from treadle.testing.observers import RecordingObserver
from treadle.testing.tools import RecordingTool


class AsksForRecord(AllowAll):
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Ask("sure?") if request.tool.name == "record" else Allow()


def task(prompt: str, **more: object) -> tuple[str, dict[str, object]]:
    return "task", {"description": "a piece of work", "prompt": prompt, **more}


def by_prompt(**replies: list[ScriptElement]) -> Scripted:
    """A model that serves parent and children: it answers by the first message."""

    def answer(request: ModelRequest) -> ScriptElement:
        first = request.transcript[0]
        assert isinstance(first, UserItem)
        return replies[first.text].pop(0)

    return Scripted(answer)


class ChildrenEnd(BaseObserver):
    """`ended` is set when the turns of two children have ended."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.ended = asyncio.Event()

    def on_event(self, event: Event) -> None:
        if isinstance(event, ChildEvent) and isinstance(event.child, TurnFinished):
            self.reasons.append(event.child.result.reason)
            if len(self.reasons) == 2:
                self.ended.set()


async def start(agent: Agent) -> tuple[Driver, ApprovalRequest]:
    """The driver, and the request of a child for which it waits."""
    driver = agent.start()
    driver.submit("parent")
    request = await driver.next()
    assert isinstance(request, ApprovalRequest)
    return driver, request


async def test_an_interruption_between_two_steps_stops_the_child_that_works_at_once():
    works = Pause()
    model = by_prompt(
        parent=[Say(calls=[task("asks"), task("works")]), "never"],
        asks=[Say(calls=[("record", {})]), "never"],
        works=[["thinking", works], "never"],
    )
    children = ChildrenEnd()
    agent = Agent(
        model, [RecordingTool()], subagents=[], policy=AsksForRecord(), observers=[children]
    )
    driver, _ = await start(agent)
    await works.reached.wait()
    driver.interrupt()
    await children.ended.wait()
    assert children.reasons == ["aborted", "aborted"]
    assert len(model.requests) == 3
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.reason == "aborted"
    assert find_violations(driver.transcript) == []
    await driver.aclose()


@pytest.mark.parametrize("through_the_driver", [True, False])
async def test_an_approval_after_an_interruption_does_not_run_the_call_of_a_child(
    through_the_driver: bool,
):
    model = by_prompt(
        parent=[Say(calls=[task("asks")]), "never"], asks=[Say(calls=[("record", {})]), "never"]
    )
    record = RecordingTool(effect="irreversible")
    driver, request = await start(Agent(model, [record], subagents=[], policy=AsksForRecord()))
    call = request.calls[0]
    driver.interrupt()
    approve = driver.approve if through_the_driver else request.approve
    assert not approve(call.id)
    assert (request.unresolved, driver.approvals) == ((), ())
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.reason == "aborted"
    assert record.calls == []
    await driver.aclose()


@pytest.mark.parametrize("ticks", range(30))
@pytest.mark.parametrize("depth", [1, 2])
async def test_no_call_of_a_descendant_begins_after_an_interruption(depth: int, ticks: int):
    """The host approves, and interrupts in the same instant or a little later."""
    asks: list[ScriptElement] = [Say(calls=[("record", {})]), "never"]
    delegates: list[ScriptElement] = [Say(calls=[task("grandchild")]), "never"]
    child = asks if depth == 1 else delegates
    model = by_prompt(parent=[Say(calls=[task("child")]), "never"], child=child, grandchild=asks)
    record = RecordingTool(effect="irreversible")
    driver, request = await start(Agent(model, [record], subagents=[], policy=AsksForRecord()))
    assert request.approve(request.calls[0].id)
    for _ in range(ticks):
        await asyncio.sleep(0)
    began = list(record.calls)
    driver.interrupt()
    step = await driver.next()
    assert isinstance(step, Finished)
    assert (step.result.reason, record.calls) == ("aborted", began)
    await driver.aclose()


async def test_an_interruption_leaves_the_request_of_a_child_in_the_background_open():
    works = Pause()
    model = by_prompt(
        parent=[Say(calls=[task("asks", run_in_background=True), task("works")]), "never"],
        asks=[Say(calls=[("record", {})]), "done in the background"],
        works=[["thinking", works], "never"],
    )
    record, observer = RecordingTool(effect="irreversible"), RecordingObserver()
    agent = Agent(model, [record], subagents=[], policy=AsksForRecord(), observers=[observer])
    driver, request = await start(agent)
    await works.reached.wait()
    driver.interrupt()
    assert request.approve(request.calls[0].id)
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.reason == "aborted"
    await driver.tasks.wait()
    assert len(record.calls) == 1
    assert [event.is_error for event in observer.events if isinstance(event, TaskFinished)] == [
        False
    ]
    await driver.aclose()


async def test_an_interruption_stops_the_children_while_the_approver_does_not_stop():
    works, asked, release = Pause(), asyncio.Event(), asyncio.Event()
    model = by_prompt(
        parent=[Say(calls=[task("asks"), task("works")]), "never"],
        asks=[Say(calls=[("record", {})]), "never"],
        works=[["thinking", works], "never"],
    )

    async def decide(request: ApprovalRequest) -> None:
        asked.set()
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    children = ChildrenEnd()
    agent = Agent(
        model, [RecordingTool()], subagents=[], policy=AsksForRecord(), observers=[children]
    )
    driver, request = await start(agent)
    await works.reached.wait()
    resolving = asyncio.create_task(driver.resolve(request, decide))
    await asked.wait()
    driver.interrupt()
    await children.ended.wait()
    assert children.reasons == ["aborted", "aborted"]
    release.set()
    await resolving
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.reason == "aborted"
    await driver.aclose()

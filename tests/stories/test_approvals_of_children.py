"""Stories of approvals: a call is known by its session and its id, at any depth."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, LoopError, Session
from treadle.agents.stream import Stream
from treadle.core.contracts.model import ModelRequest
from treadle.core.contracts.observer import BaseObserver
from treadle.core.contracts.policy import Allow, AllowAll, Ask, PermissionRequest, Verdict
from treadle.core.events import ApprovalRequired, ApprovalResolved, ChildEvent, Event
from treadle.core.steps import ApprovalRequest, Finished
from treadle.core.transcript import ToolCall
from treadle.models import Say, Scripted
from treadle.testing.tools import RecordingTool

# What each agent calls, by its prompt: the same ids, as some providers make them.
ONE_CHILD = {"parent": ["child"], "child": []}
TWO_CHILDREN = {"parent": ["child one", "child two"], "child": []}
GRANDCHILD = {"parent": ["middle"], "middle": ["child"], "child": []}


class AsksForRecord(AllowAll):
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Ask("sure?") if request.tool.name == "record" else Allow()


def make_agent(family: dict[str, list[str]], **settings: Any) -> tuple[Agent, RecordingTool]:
    """A family of agents, each of which begins its call ids anew; the last ones call `record`."""

    def answer(request: ModelRequest) -> Any:
        prompt = request.transcript[0].text
        if len(request.transcript) > 1:
            return f"{prompt} is done"
        tasks = [f'{{"description": "d", "prompt": "{one}"}}' for one in family[prompt.split()[0]]]
        calls = [ToolCall(f"call_{n}", "task", text) for n, text in enumerate(tasks)]
        return Say(calls=calls or [ToolCall("call_0", "record", f'{{"of": "{prompt}"}}')])

    record = RecordingTool(effect="irreversible")
    agent = Agent(Scripted(answer), [record], subagents=[], policy=AsksForRecord(), **settings)
    return agent, record


async def read(events: Stream[str], on_asked: Callable[[ApprovalRequired], None]) -> int:
    """Read all events; how often the reader was asked."""
    count = 0
    async for event in events:
        inner: Event = event
        while isinstance(inner, ChildEvent):
            inner = inner.child
        if isinstance(inner, ApprovalRequired):
            count += 1
            on_asked(inner)
    return count


@pytest.mark.parametrize("family", [ONE_CHILD, TWO_CHILDREN, GRANDCHILD])
async def test_calls_that_the_reader_of_a_stream_does_not_answer_are_denied(family):
    agent, record = make_agent(family)
    async with agent.stream("parent") as events:
        asked = await read(events, lambda one: None)
    assert events.result.text == "parent is done"
    assert asked == (2 if family is TWO_CHILDREN else 1)
    assert record.calls == []


@pytest.mark.parametrize("family", [ONE_CHILD, TWO_CHILDREN, GRANDCHILD])
async def test_the_reader_of_a_stream_answers_by_session_and_call(family):
    agent, record = make_agent(family)
    async with agent.stream("parent") as events:

        def answer(asked: ApprovalRequired) -> None:
            if (asked.call.arguments or {})["of"] == "child two":
                assert events.deny(asked.call.id, "not you", session_id=asked.session_id)
            else:
                assert events.approve(asked.call.id, session_id=asked.session_id)

        await read(events, answer)
    assert events.result.text == "parent is done"
    [called] = record.calls
    assert called["of"] != "child two"


async def test_a_call_of_one_child_waits_for_an_answer_and_that_of_the_other_is_denied():
    agent, record = make_agent(TWO_CHILDREN)
    kept: list[ApprovalRequired] = []
    async with agent.stream("parent") as events:
        async for event in events:
            match event:
                case ChildEvent(child=ApprovalRequired() as asked) if not kept:
                    kept.append(asked)
                    events.answer_later(asked.call.id, asked.session_id)
                case ChildEvent(child=ApprovalResolved(session_id=other, decision="deny")):
                    assert other != kept[0].session_id
                    assert events.approve("call_0", session_id=kept[0].session_id)
    assert record.calls == [kept[0].call.arguments]


class ChildrenAsk(BaseObserver):
    """Waits until so many children have asked."""

    def __init__(self, count: int) -> None:
        self.have_asked = asyncio.Event()
        self._count = count
        self._sessions: set[str] = set()

    def on_event(self, event: Event) -> None:
        if isinstance(event, ChildEvent) and isinstance(event.child, ApprovalRequired):
            self._sessions.add(event.child.session_id)
            if len(self._sessions) == self._count:
                self.have_asked.set()


async def test_a_stream_asks_about_a_child_that_has_waited_in_the_background(tmp_path: Path):
    def answer(request: ModelRequest) -> Any:
        last = request.transcript[-1].text
        background = '{"description": "d", "prompt": "child", "run_in_background": true}'
        calls = {"go": ToolCall("a", "task", background), "child": ToolCall("b", "record", "{}")}
        return Say(calls=[calls[last]]) if last in calls else "done"

    record, waits = RecordingTool(effect="irreversible"), asyncio.Event()

    class Watch(BaseObserver):
        def on_event(self, event: Event) -> None:
            if isinstance(event, ChildEvent) and isinstance(event.child, ApprovalRequired):
                waits.set()

    agent = Agent(Scripted(answer), [record], subagents=[], policy=AsksForRecord(), store=tmp_path)
    async with agent.session("a") as session:
        session.driver.watch(Watch())
        await session.run("go")
        await waits.wait()
        async with session.stream("and now?") as events:

            def approve(asked: ApprovalRequired) -> None:
                assert events.approve(asked.call.id, session_id=asked.session_id)

            assert await read(events, approve) == 1
        await session.driver.tasks.wait()
    assert record.calls == [{}]


async def test_a_session_answers_two_children_that_use_the_same_call_id(tmp_path: Path):
    agent, record = make_agent(TWO_CHILDREN, store=tmp_path)
    async with agent.session("s") as session:
        both = ChildrenAsk(2)
        session.driver.watch(both)
        session.submit("parent")
        assert isinstance(await session.next(), ApprovalRequest)
        await both.have_asked.wait()
        one, two = session.approvals
        assert one.call.id == two.call.id == "call_0"
        with pytest.raises(LoopError, match=f"several calls .* call_0 .session {one.session_id}"):
            session.approve("call_0")
        session.approve("call_0", session_id=one.session_id)
        with pytest.raises(LoopError, match=f"no call 'call_0' of session '{one.session_id}'"):
            session.deny("call_0", session_id=one.session_id)
        session.deny("call_0", session_id=two.session_id)
        while not isinstance(step := await session.next(), Finished):
            assert not isinstance(step, ApprovalRequest)
    assert record.calls == [one.call.arguments]


async def test_a_call_of_a_child_is_answered_while_its_parent_asks_with_the_same_id():
    def answer(request: ModelRequest) -> Any:
        record = ToolCall("call_0", "record", f'{{"of": "{request.caller}"}}')
        if len(request.transcript) == 1 and request.caller != "child":
            work = '{"description": "d", "prompt": "child", "run_in_background": true}'
            return Say(calls=[ToolCall("call_1", "task", work)])
        has_asked = any(getattr(one, "call_id", "") == "call_0" for one in request.transcript)
        return "done" if has_asked else Say(calls=[record])

    record = RecordingTool(effect="irreversible")
    agent = Agent(Scripted(answer), [record], subagents=[], policy=AsksForRecord())
    driver, child_asks = agent.start("parent"), ChildrenAsk(1)
    driver.watch(child_asks)
    while not isinstance(await driver.next(), ApprovalRequest):
        pass
    await child_asks.have_asked.wait()
    [child] = [one for one in driver.approvals if one.session_id != driver.session_id]
    assert driver.approve("call_0", session_id=child.session_id)
    await driver.tasks.wait()
    assert record.calls == [{"of": "child"}]
    await driver.aclose()


# --- a session that is opened again ------------------------------------------------------


async def leave_waiting(agent: Agent, count: int) -> None:
    """What the first process does: it ends while calls of children wait."""
    async with agent.session("s") as session:
        asked = ChildrenAsk(count) if count > 1 else None
        if asked is not None:
            session.driver.watch(asked)
        session.submit("parent")
        assert isinstance(await session.next(), ApprovalRequest)
        if asked is not None:
            await asked.have_asked.wait()
        await session.driver.log.flush()
        kill(session)


def kill(session: Session[None, str]) -> None:
    """As after `kill -9`: what is on the disk stays as it is now."""
    place = session._location
    assert isinstance(place, Path)
    shutil.copytree(place, place.with_name("left"))


@pytest.mark.parametrize("family", [ONE_CHILD, TWO_CHILDREN, GRANDCHILD])
async def test_the_calls_of_children_that_waited_are_answered_after_a_restart(
    tmp_path: Path, family: dict[str, list[str]], no_leaks: None
):
    first, _ = make_agent(family, store=tmp_path / "first")
    await leave_waiting(first, 2 if family is TWO_CHILDREN else 1)
    agent, record = make_agent(family, store=tmp_path / "left")
    async with agent.session("s") as session:
        for approval in session.approvals:
            session.approve("call_0", session_id=approval.session_id)
        assert not session.approvals
    assert record.calls == []
    agent, record = make_agent(family, store=tmp_path / "left")
    async with agent.session("s") as session:  # decisions are in the logs of the children
        assert not session.approvals
        assert (await session.run()).text == "parent is done"
    assert len(record.calls) == (2 if family is TWO_CHILDREN else 1)


@pytest.mark.parametrize("family", [ONE_CHILD, GRANDCHILD])
async def test_a_child_asks_again_if_nobody_answered_before_it_continues(
    tmp_path: Path, family: dict[str, list[str]], no_leaks: None
):
    first, _ = make_agent(family, store=tmp_path / "first")
    await leave_waiting(first, 1)
    agent, record = make_agent(family, store=tmp_path / "left")
    async with agent.session("s") as session:
        [before] = session.approvals
        request = await session.next()
        assert isinstance(request, ApprovalRequest)
        assert [one.session_id for one in request.pending] == [before.session_id]
        [asked] = session.approvals
        request.approve(asked.call.id)
        while not isinstance(step := await session.next(), Finished):
            assert not isinstance(step, ApprovalRequest)
        assert step.result.text == "parent is done"
    assert len(record.calls) == 1


async def test_a_restored_child_whose_call_is_interrupted_is_not_asked_about(tmp_path: Path):
    first, _ = make_agent(ONE_CHILD, store=tmp_path / "first")
    await leave_waiting(first, 1)
    agent, record = make_agent(ONE_CHILD, store=tmp_path / "left")
    async with agent.session("s") as session:
        assert session.approvals
        await session.rewind()
        assert not session.approvals
    assert record.calls == []

"""AG-UI: events that its SDK reads, in an order that its clients expect, each message once."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ag_ui.core import (
    Event,
    EventType,
    ImagePart,
    Message,
    ResumeEntry,
    RunAgentInput,
    UserMessage,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from treadle import Agent, Image, ModelError, UserItem, tool
from treadle.apps.agui import stream_events, stream_sse
from treadle.contracts import ModelRequest
from treadle.errors import Overloaded
from treadle.models import Pause, Say, Scripted
from treadle.testing import ManualClock

EVENT: TypeAdapter[Any] = TypeAdapter(Event)
added: list[int] = []


@tool(effect="pure")
def add(number: int) -> str:
    "Add a number."
    added.append(number)
    return f"added {number}"


@tool
def fail() -> str:
    "Fail."
    raise ValueError("secret of the code")


@tool(approval=True)
def pay(euros: int) -> str:
    "Pay."
    return f"paid {euros} euros"


def make_agent(replies: Any, store: Path | str) -> Agent[None, str]:
    return Agent(Scripted(replies), [add, fail, pay], store=Path(store), clock=ManualClock())


def make_input(messages: Sequence[Message], resume: Sequence[ResumeEntry] = ()) -> RunAgentInput:
    return RunAgentInput(
        thread_id="thread-1",
        run_id="run-1",
        messages=[*messages],
        resume=[*resume] or None,
        state={},
        tools=[],
        context=[],
    )


def say(text: str, message_id: str) -> UserMessage:
    return UserMessage(id=message_id, content=text)


class Page:
    """A client: checks the order of the events, and has the messages that they describe."""

    def __init__(self, agent: Agent[None, str]) -> None:
        self.agent = agent
        self.users: list[str] = []
        self.texts: dict[str, str] = {}
        self.calls: dict[str, list[str]] = {}
        self.results: dict[str, str] = {}
        self.kinds: list[EventType] = []
        self.last: Any = None

    async def send(self, *messages: Message, resume: Sequence[ResumeEntry] = ()) -> Any:
        """The last event. What is read are the bytes of the response."""
        self.kinds.clear()
        self.texts_open: set[str] = set()
        self.calls_open: set[str] = set()
        self.reasoning: str | None = None
        self.users += [one.content for one in messages if isinstance(one.content, str)]
        async for line in stream_sse(self.agent, make_input(messages, resume)):
            assert line.startswith(b"data: ")
            assert line.endswith(b"\n\n")
            event = EVENT.validate_json(line[6:])
            assert not event.model_extra  # fields that the protocol does not have
            assert self.last_kind not in (EventType.RUN_FINISHED, EventType.RUN_ERROR)
            assert (event.type == EventType.RUN_STARTED) is (not self.kinds)
            self.apply(event)
            self.kinds.append(event.type)
            self.last = event
        assert self.last_kind in (EventType.RUN_FINISHED, EventType.RUN_ERROR)
        assert not self.texts_open
        assert not self.calls_open
        assert self.reasoning is None
        return self.last

    @property
    def last_kind(self) -> EventType | None:
        return self.kinds[-1] if self.kinds else None

    def apply(self, event: Any) -> None:
        match event.type:
            case EventType.TEXT_MESSAGE_START:
                assert event.message_id not in self.texts
                assert self.reasoning is None
                self.texts[event.message_id] = ""
                self.texts_open.add(event.message_id)
            case EventType.TEXT_MESSAGE_CONTENT:
                assert event.message_id in self.texts_open
                assert event.delta
                self.texts[event.message_id] += event.delta
            case EventType.TEXT_MESSAGE_END:
                self.texts_open.remove(event.message_id)
            case EventType.REASONING_START | EventType.REASONING_END:
                assert (self.reasoning is None) is (event.type == EventType.REASONING_START)
                self.reasoning = event.message_id if self.reasoning is None else None
            case EventType.REASONING_MESSAGE_CONTENT:
                assert self.reasoning == event.message_id
            case EventType.TOOL_CALL_START:
                assert event.tool_call_id not in self.calls
                self.calls[event.tool_call_id] = [event.tool_call_name, ""]
                self.calls_open.add(event.tool_call_id)
            case EventType.TOOL_CALL_ARGS:
                assert event.tool_call_id in self.calls_open
                self.calls[event.tool_call_id][1] += event.delta
            case EventType.TOOL_CALL_END:
                self.calls_open.remove(event.tool_call_id)
            case EventType.TOOL_CALL_RESULT:
                assert event.tool_call_id in self.calls.keys() - self.calls_open
                assert event.tool_call_id not in self.results
                self.results[event.tool_call_id] = event.content
            case EventType.MESSAGES_SNAPSHOT:
                assert not self.texts_open
                assert not self.calls_open
                self.read(event.messages)

    def read(self, messages: Sequence[Any]) -> None:
        self.users = [one.content for one in messages if one.role == "user"]
        replies = [one for one in messages if one.role == "assistant"]
        self.texts = {one.id: one.content for one in replies if one.content}
        calls = [call for one in replies for call in one.tool_calls or ()]
        self.calls = {one.id: [one.function.name, one.function.arguments] for one in calls}
        self.results = {one.tool_call_id: one.content for one in messages if one.role == "tool"}

    @property
    def content(self) -> object:
        return self.users, "".join(self.texts.values()), self.calls, self.results


texts = st.text("abc", min_size=1, max_size=40)
calls = st.lists(
    st.one_of(
        st.builds(lambda number: ("add", {"number": number}), st.integers(0, 9)),
        st.just(("fail", {})),
        st.builds(lambda euros: ("pay", {"euros": euros}), st.integers(0, 9)),
        st.just(("unknown", {})),
        st.just(("add", "{broken")),
    ),
    min_size=1,
    max_size=4,
)
says = st.builds(Say, st.one_of(st.just(""), texts), st.one_of(st.just(""), texts), calls)
failing = st.tuples(texts, says, st.just(Overloaded("busy")))
rounds = st.lists(st.one_of(says, says, failing), max_size=3)  # the fourth failure ends a run
ends = st.one_of(texts, st.tuples(texts, st.just(ModelError("broken"))), st.just(ModelError("no")))


@settings(max_examples=40, deadline=None)
@given(rounds, ends, st.lists(st.booleans(), min_size=1, max_size=5))
async def test_a_page_has_what_the_session_has_after_every_run(rounds, end, answers):
    """Also after errors, retries, parallel calls, and approvals that another run answers."""
    with tempfile.TemporaryDirectory() as store:
        page = Page(make_agent([*rounds, end], store))
        last = await page.send(say("Go", "m1"))
        decisions = iter(answers * 20)
        while last.type == EventType.RUN_FINISHED and last.outcome.type == "interrupt":
            waiting = last.outcome.interrupts
            assert {one.tool_call_id for one in waiting} <= page.calls.keys() - page.results.keys()
            answered = [
                ResumeEntry(
                    interrupt_id=one.id, status="resolved", payload={"approved": next(decisions)}
                )
                for one in waiting
            ]
            last = await page.send(say("Go", "m1"), resume=answered)
        has_failed = isinstance(end, (ModelError, tuple))
        assert last.type == (EventType.RUN_ERROR if has_failed else EventType.RUN_FINISHED)
        async with page.agent.session("thread-1") as session:
            reader = Page(page.agent)
            items = [*session.history]
        texts = "".join(one.text for one in items if hasattr(one, "calls"))
        assert "".join(page.texts.values()) == texts
        called = [call.id for one in items if hasattr(one, "calls") for call in one.calls]
        assert {*page.calls} == {*called} == {*page.results}
        assert page.users == ["Go"]
        if not has_failed:
            await reader.send(say("Go", "m1"))
            assert reader.kinds[1:] == [EventType.MESSAGES_SNAPSHOT, EventType.RUN_FINISHED]
            assert reader.content == page.content


async def test_a_message_that_the_session_has_is_not_sent_again(tmp_path: Path):
    model = Scripted(lambda request: f"answer {len(request.transcript)}")
    page = Page(Agent(model, store=tmp_path))
    first, second = say("Hi", "m1"), say("And now?", "m2")
    await page.send(first)
    await page.send(first)
    assert len(model.requests) == 1
    await page.send(first, second)
    assert len(model.requests) == 2
    assert [one.text for one in model.requests[1].transcript] == ["Hi", "answer 1", "And now?"]


async def test_several_new_messages_and_an_image_are_one_prompt(tmp_path: Path):
    model = Scripted(["Seen."])
    image = ImagePart.model_validate(
        {"source": {"type": "data", "value": "AAEC", "mimeType": "image/png"}}
    )
    page = Page(Agent(model, store=tmp_path))
    await page.send(say("Look", "m1"), UserMessage(id="m2", content=[image]))
    [item] = model.requests[0].transcript
    assert isinstance(item, UserItem)
    assert item.content[1] == Image("image/png", b"\x00\x01\x02")
    last = await page.send(UserMessage(id="m2", content=[image]), say("Look", "m1"))
    assert (last.type, len(model.requests)) == (EventType.RUN_FINISHED, 1)


async def test_an_approval_can_be_answered_by_another_agent_and_only_once(tmp_path: Path):
    page = Page(make_agent([Say(calls=[("pay", {"euros": 12})])], tmp_path))
    last = await page.send(say("Pay", "m1"))
    [interrupt] = last.outcome.interrupts
    assert interrupt.message.startswith("pay(euros: 12)") or "12" in interrupt.message
    page.agent = make_agent(["Paid."], tmp_path)
    again = await page.send(say("Pay", "m1"))  # without an answer: it still waits
    assert again.outcome == last.outcome
    payload = {"approved": True, "arguments": {"euros": 5}}
    answer = ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload=payload)
    last = await page.send(say("Pay", "m1"), resume=[answer])
    assert last.outcome.type == "success"
    assert [*page.results.values()] == ["paid 5 euros"]
    last = await page.send(say("Pay", "m1"), resume=[answer])
    assert last.outcome.type == "success"


async def test_an_approval_of_a_child_agent_is_an_interrupt_of_the_thread(tmp_path: Path):
    child = make_agent([Say(calls=[("pay", {"euros": 7})]), "Paid 7."], tmp_path)
    model = Scripted([Say(calls=[("cashier", {"prompt": "Pay 7"})]), "All is paid."])
    page = Page(Agent(model, [child.as_tool("cashier", "Pays bills.")], store=tmp_path))
    last = await page.send(say("Pay", "m1"))
    [interrupt] = last.outcome.interrupts
    assert interrupt.tool_call_id is None  # the page has not seen the calls of the child
    answer = ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload={"approved": True})
    last = await page.send(say("Pay", "m1"), resume=[answer])
    assert last.outcome.type == "success"
    assert [*page.results.values()] == ["Paid 7."]


async def test_a_page_that_goes_away_interrupts_the_run_and_the_next_one_continues(tmp_path: Path):
    pause = Pause()
    agent = make_agent([["Half ", pause], "Whole."], tmp_path)
    events = stream_events(agent, make_input([say("Go", "m1")]))
    async for event in events:
        if event.type == EventType.TEXT_MESSAGE_CONTENT:
            break
    await events.aclose()
    page = Page(agent)
    last = await page.send(say("Go", "m1"))
    assert last.outcome.type == "success"
    assert [*page.texts.values()][-1] == "Whole."


async def test_an_interrupted_run_is_cancelled(tmp_path: Path):
    async def stop(request: ModelRequest) -> str:
        opened.interrupt()
        await asyncio.Event().wait()
        return ""

    agent = make_agent([stop], tmp_path)
    opened: Any = None

    def note(driver: Any) -> None:
        nonlocal opened
        opened = driver

    last = await Page(agent.replace(on_start=note)).send(say("Go", "m1"))
    assert last.outcome.type == "cancelled"


async def test_errors_are_told_without_the_secrets_of_the_code(tmp_path: Path, caplog):
    agent = make_agent([Say(calls=[("fail", {})])], tmp_path).replace(tool_errors="raise")
    last = await Page(agent).send(say("Go", "m1"))
    assert (last.type, "secret" in last.message) == (EventType.RUN_ERROR, False)
    assert "secret of the code" in caplog.text
    async with agent.session("thread-1"):
        last = await Page(agent).send(say("Again", "m2"))
    assert last.code == "SessionBusy"


@pytest.mark.parametrize("part", [{"type": "audio"}, {"type": "image"}])
async def test_a_part_that_no_agent_reads_is_an_error(tmp_path: Path, part: dict[str, Any]):
    content = [{**part, "source": {"type": "file", "value": "file-7"}}]
    message = UserMessage.model_validate({"id": "m1", "content": content})
    last = await Page(make_agent([], tmp_path)).send(message)
    assert (last.type, "send texts" in last.message) == (EventType.RUN_ERROR, True)

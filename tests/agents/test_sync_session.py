"""A session for programs without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from tests.patience import PATIENCE
from treadle import Agent, ApprovalRequired, TextDelta, TurnFinished, tool
from treadle.contracts import ModelRequest
from treadle.errors import DriverBusy, LoopError, ModelError, SessionBusy, SessionNotFound
from treadle.models import Pause, Say, Scripted

paid: list[int] = []


@tool(approval=True)
def pay(euros: int) -> str:
    "Pay."
    paid.append(euros)
    return f"paid {euros} euros"


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    paid.clear()
    yield
    assert not [one for one in threading.enumerate() if one.name == "treadle-loop"]


def test_a_session_continues_after_it_was_closed(tmp_path: Path):
    agent = Agent(Scripted(lambda request: f"{len(request.transcript)} items"), store=tmp_path)
    with agent.session_sync("talk") as session:
        assert session.run("Hi").output == "1 items"
        with pytest.raises(SessionBusy), agent.session_sync("talk"):
            pass
    with agent.session_sync("talk", must_exist=True) as session:
        assert session.run("Again").output == "3 items"
        session.rewind()
        assert (len(session.transcript), session.can_continue) == (2, False)
    with pytest.raises(SessionNotFound), agent.session_sync("other", must_exist=True):
        pass


def test_the_events_of_a_run_are_a_plain_iterator(tmp_path: Path):
    agent = Agent(Scripted([Say("Hello", deltas=2), "Bye"]), store=tmp_path)
    with agent.session_sync() as session:
        events = session.stream("Hi")
        assert "".join(one.text for one in events if isinstance(one, TextDelta)) == "Hello"
        assert events.result.output == "Hello"
        assert list(events) == []
        with session.stream("Go") as events:
            assert isinstance(list(events)[-1], TurnFinished)


def test_leaving_the_events_early_interrupts_the_run(tmp_path: Path):
    started, stopped = threading.Event(), threading.Event()

    @tool
    async def wait() -> None:
        "Wait."
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            raise

    agent = Agent(Scripted([Say(calls=[("wait", {})]), "Next."]), [wait], store=tmp_path)
    with agent.session_sync() as session:
        events = session.stream("Go")
        next(events)
        with pytest.raises(DriverBusy):
            session.run("Another")
        with pytest.raises(DriverBusy), session.stream("Another") as others:
            next(others)
        assert started.wait(PATIENCE)
        events.close()
        assert stopped.is_set()
        assert session.run("Go on").output == "Next."


def test_the_reader_of_the_events_answers_an_approval(tmp_path: Path):
    payments = [Say(calls=[("pay", {"euros": euros})]) for euros in (12, 9)]
    agent = Agent(Scripted([payments[0], "Paid.", payments[1], "No."]), [pay], store=tmp_path)
    with agent.session_sync() as session:
        with session.stream("Pay 12") as events:
            for event in events:
                if isinstance(event, ApprovalRequired):
                    events.approve(event.call.id)
        assert (events.result.output, paid) == ("Paid.", [12])
        with session.stream("Pay 9") as events:
            for event in events:
                if isinstance(event, ApprovalRequired):
                    events.deny(event.call.id, "too much")
        assert (events.result.output, paid) == ("No.", [12])


def test_an_approval_waits_for_another_request(tmp_path: Path):
    """As two views of a web application do it."""
    agent = Agent(Scripted([Say(calls=[("pay", {"euros": 12})]), "Paid."]), [pay], store=tmp_path)
    with agent.session_sync("bill") as session:
        events = session.stream("Pay 12", suspend=True)
        list(events)
        [waiting] = events.waiting
    with agent.session_sync("bill") as session:
        assert [one.call.id for one in session.approvals] == [waiting.call.id]
        session.approve(waiting.call.id)
        assert session.run().output == "Paid."
    assert paid == [12]


def test_another_thread_interrupts_a_run(tmp_path: Path):
    asked = threading.Event()

    async def reply(request: ModelRequest) -> str:
        asked.set()
        await asyncio.Event().wait()
        return "never"

    agent = Agent(Scripted(reply), store=tmp_path)
    with agent.session_sync() as session, ThreadPoolExecutor(1) as pool:
        running = pool.submit(session.run, "Go")
        assert asked.wait(PATIENCE)
        session.interrupt()
        assert running.result(PATIENCE).reason == "aborted"


def test_types_and_errors_are_those_of_a_run(tmp_path: Path):
    class Order(msgspec.Struct):
        seats: int

    model = Scripted(['{"seats": 2}', ModelError("strange"), ModelError("strange")])
    agent = Agent(model, store=tmp_path)
    with agent.session_sync() as session:
        assert session.run("Two", output=Order).output.seats == 2
        with pytest.raises(ModelError, match="strange"):
            session.run("Two")
        events = session.stream("Two")
        list(events)  # a failure is the last event
        with pytest.raises(ModelError, match="strange"):
            _ = events.result


async def test_inside_an_event_loop_it_is_refused(tmp_path: Path):
    agent = Agent(Scripted([]), store=tmp_path)
    with pytest.raises(LoopError, match="inside an event loop"), agent.session_sync():
        pass


def test_a_session_that_is_not_open_says_so(tmp_path: Path):
    session = Agent(Scripted([]), store=tmp_path).session_sync()
    with pytest.raises(LoopError, match="enter the session first"):
        session.run("Hi")


def test_a_run_without_a_session_streams_without_an_event_loop():
    agent = Agent(Scripted([["Hello ", "world"], "Bye"]))
    threads = threading.active_count()
    with agent.stream_sync("Hi") as events:
        assert "".join(events.texts()) == "Hello world"
    assert events.result.text == "Hello world"
    events = agent.stream_sync("And now?", output=str)  # it ends by itself
    assert [type(event) for event in events][-1] is TurnFinished
    assert events.result.output == "Bye"
    assert threading.active_count() == threads
    with pytest.raises(TypeError, match=r"agent\.stream"):
        agent.stream_sync("Hi", outputs=str)  # type: ignore[call-overload]
    assert threading.active_count() == threads


def test_a_stream_that_is_left_early_is_interrupted():
    agent = Agent(Scripted([["Hello ", Pause(), "world"]]))
    with agent.stream_sync("Hi") as events:
        assert next(events.texts()) == "Hello "
    assert events.result.reason == "aborted"


async def test_a_stream_for_plain_code_is_refused_in_an_event_loop():
    with pytest.raises(LoopError, match=r"use agent\.stream"):
        Agent(Scripted(["x"])).stream_sync("Hi")

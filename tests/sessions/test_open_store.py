"""Opening, closing and forking sessions, in every kind of store."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from treadle import Agent, tool
from treadle.core.errors import DriverBusy, LoopError, StoreError
from treadle.core.events import WarningRaised
from treadle.core.steps import Finished
from treadle.core.transcript.content import Text
from treadle.core.transcript.entries import ItemAdded, TurnBegan
from treadle.core.transcript.items import AssistantItem, ToolResultItem, to_user_item
from treadle.core.transcript.recover import FORKED_CALL, FORKED_EFFECT
from treadle.core.transcript.usage import Usage
from treadle.lib.files.sqlite import open_sqlite
from treadle.models import Pause, Say, Scripted
from treadle.sessions.history import fork
from treadle.sessions.library import Library
from treadle.sessions.open_store import open_store
from treadle.testing.observers import RecordingObserver

PLACES = ["folder", "sessions.db"]
USED = Usage(input=100, output=10, requests=1, cost=1.0)


@pytest.mark.parametrize("place", PLACES)
async def test_a_turn_that_lacks_only_its_end_is_over_in_every_store(tmp_path: Path, place: str):
    opened = await open_store(tmp_path / place, "s")
    opened.store.append(TurnBegan("turn-1"))
    opened.store.append(ItemAdded(to_user_item("one", {"user": "alice"})))
    opened.store.append(ItemAdded(AssistantItem((Text("reply"),))))
    await opened.store.aclose()
    model = Scripted(["two"])
    async with Agent(model, store=tmp_path / place).session("s") as session:
        result = await session.run("two")
        assert (result.turn.turn_id, model.requests[0].metadata) == ("turn-2", {})
        await session.rewind()
        assert len(session.transcript) == 2


@pytest.mark.parametrize("place", PLACES)
async def test_an_opening_that_is_cancelled_holds_nothing(tmp_path: Path, place: str):
    agent = Agent(Scripted(lambda request: "ok"), store=tmp_path / place)
    await agent.run("x", session="s")

    async def use() -> None:
        async with agent.session("s"):
            await asyncio.Event().wait()

    for steps in range(12):
        task = asyncio.create_task(use())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await agent.run("y", session="s")  # SessionBusy if the lock were held


async def test_closing_a_session_stops_its_run_before_the_lock_is_free(tmp_path: Path):
    began, effects = asyncio.Event(), []

    @tool
    async def pay() -> str:
        "Pay."
        began.set()
        await asyncio.Event().wait()
        effects.append("paid")
        return "paid"

    agent = Agent(Scripted([Say(calls=[("pay", {})]), "x"]), [pay], store=tmp_path)
    async with agent.session("s") as session:
        run = asyncio.create_task(session.run("go"))
        await began.wait()
    assert run.done()
    assert (await run).reason == "aborted"
    async with agent.session("s") as session:
        assert (session.doubts, effects) == ((), [])


async def test_a_driver_that_is_closed_during_a_step_ends_it():
    began, effects = asyncio.Event(), []

    @tool
    async def act() -> str:
        "Act."
        began.set()
        await asyncio.Event().wait()
        effects.append(1)
        return "x"

    agent = Agent(Scripted([Say(calls=[("act", {})])]), [act])
    driver = agent.start("go")
    step = asyncio.create_task(driver.next())
    await began.wait()
    await driver.aclose()
    assert step.done()
    assert effects == []
    with pytest.raises(LoopError, match="closed"):
        driver.submit("more")


async def test_what_does_not_stop_is_named_when_a_session_is_closed(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("treadle.core.loop.driver.CLOSE_SECONDS", 0.0)
    began, release, observer = asyncio.Event(), asyncio.Event(), RecordingObserver()

    @tool
    async def stubborn() -> str:
        "Ignore a cancellation."
        began.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "x"

    agent = Agent(Scripted([Say(calls=[("stubborn", {})])]), [stubborn], observers=[observer])
    driver = agent.start("go")
    step = asyncio.create_task(driver.next())
    await began.wait()
    await driver.aclose()
    release.set()
    await asyncio.wait([step])
    warnings = [event.text for event in observer.events_of(WarningRaised)]
    assert "the session is closed, but stubborn still runs" in warnings


async def test_a_rewind_during_a_run_is_refused_and_the_session_goes_on(tmp_path: Path):
    pause = Pause()
    model = Scripted(["one", [pause, "two"], "three"])
    async with Agent(model, store=tmp_path).session("s") as session:
        await session.run("a")
        run = asyncio.create_task(session.run("b"))
        await pause.reached.wait()
        with pytest.raises(DriverBusy):
            await session.rewind()
        pause.release()
        assert (await run).text == "two"
        await session.rewind()
        assert (await session.run("c")).text == "three"


@pytest.mark.parametrize("place", PLACES)
async def test_a_fork_during_a_round_pays_nothing_and_takes_no_message(tmp_path: Path, place: str):
    began, gate, paid = asyncio.Event(), asyncio.Event(), []

    @tool
    async def pay(n: int) -> str:
        "Pay."
        began.set()
        await gate.wait()
        paid.append(n)
        return "paid"

    model = Scripted([Say(calls=[("pay", {"n": 1}), ("pay", {"n": 2})]), "fork", "done"])
    async with Agent(model, [pay], store=tmp_path / place).session("s") as session:
        run = asyncio.create_task(session.run("go"))
        await began.wait()
        session.steer("and then?")
        forked = await session.fork()
        async with Agent(model, [pay], store=tmp_path / place).session(forked) as other:
            assert (other.queued_messages, other.cost) == ((), 0.0)
            results = [item for item in other.transcript if isinstance(item, ToolResultItem)]
            assert [(result.outcome, result.text) for result in results] == [
                ("unknown", FORKED_EFFECT),
                ("interrupted", FORKED_CALL),
            ]
            assert (await other.run("what is open?")).text == "fork"
        gate.set()
        await run
    assert paid == [1, 2]


async def test_the_fork_of_the_command_line_ends_the_open_round_too(tmp_path: Path):
    began, gate, paid = asyncio.Event(), asyncio.Event(), []

    @tool
    async def pay(n: int) -> str:
        "Pay."
        began.set()
        await gate.wait()
        paid.append(n)
        return "paid"

    library = Library(tmp_path / "sessions")
    journal = library.create(tmp_path)
    calls = Say(calls=[("pay", {"n": 1}), ("pay", {"n": 2})])
    driver = Agent(Scripted([calls, "done"]), [pay]).start("go", store=journal)
    step = asyncio.create_task(driver.next())
    await began.wait()
    await journal.flush()
    forked, state = fork(library, journal.session_dir, folder=tmp_path)
    other = Agent(Scripted(["fork"]), [pay]).start("what?", state=state, store=forked)
    assert isinstance(await other.next(), Finished)
    await other.aclose()
    gate.set()
    await step
    await driver.aclose()
    assert paid == [1, 2]


@pytest.mark.parametrize("place", PLACES)
async def test_what_a_session_and_its_children_spent_is_not_counted_in_a_fork(
    tmp_path: Path, place: str
):
    task = ("task", {"description": "x", "prompt": "count"})
    model = Scripted(
        [Say(calls=[task], usage=USED), Say("child", usage=USED), Say("end", usage=USED)]
    )
    agent = Agent(model, subagents=[], store=tmp_path / place)
    async with agent.session("s") as session:
        await session.run("go")
        assert session.cost == 3.0
        forked = await session.fork()
    async with agent.session(forked) as session:
        assert session.cost == 0.0


@pytest.mark.parametrize("place", PLACES)
async def test_a_fork_continues_the_children_of_its_parent(tmp_path: Path, place: str):
    start = {"description": "x", "prompt": "p", "name": "bob"}
    again = {"description": "x", "prompt": "more", "continue_agent": "bob"}
    model = Scripted(
        [Say(calls=[("task", start)]), "child", "done", Say(calls=[("task", again)]), "again", "ok"]
    )
    agent = Agent(model, subagents=[], store=tmp_path / place)
    async with agent.session("s") as session:
        await session.run("go")
        forked = await session.fork()
    async with agent.session(forked) as session:
        await session.run("on")
        results = [one.text for one in session.history if getattr(one, "name", "") == "task"]
    assert results == ["child", "again"]


async def test_a_stream_is_no_observer_any_more_after_its_block(tmp_path: Path):
    async with Agent(Scripted(lambda request: "hi"), store=tmp_path).session("s") as session:
        before = len(session.driver._emitter._observers)
        for _ in range(3):
            async with session.stream("x") as events:
                async for _event in events:
                    pass
        assert len(session.driver._emitter._observers) == before


async def test_a_database_from_which_an_entry_is_lost_says_so(tmp_path: Path) -> None:
    place = tmp_path / "sessions.db"
    agent = Agent(Scripted(["one", "two"]), store=place)
    await agent.run("first", session="s")
    with contextlib.closing(sqlite3.connect(place)) as database:
        database.execute("DELETE FROM entries WHERE seq = 2")
        database.execute("UPDATE entries SET entry = '5' WHERE seq = 3")  # a text, not bytes
        database.commit()
    async with agent.session("s") as session:
        lost, missing = session.warnings
        assert "entry 2 cannot be decoded" in lost
        assert "1 entry is missing" in missing
        assert (await session.run("go on")).text == "two"


def test_a_new_file_may_be_opened_by_many_at_once(tmp_path: Path):
    def run(number: int) -> str:
        agent = Agent(Scripted(["Hello."]), store=tmp_path / "new.db")
        return agent.run_sync("Hi", session=f"s{number}").text

    with ThreadPoolExecutor(12) as threads:
        assert list(threads.map(run, range(12))) == ["Hello."] * 12


def test_the_log_of_a_database_is_waited_for(tmp_path: Path):
    path = tmp_path / "held.db"
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("CREATE TABLE x (y)")
    holder.execute("BEGIN EXCLUSIVE")
    threading.Timer(0.3, holder.close).start()
    open_sqlite(path, busy_seconds=60).close()
    holder = sqlite3.connect(path)
    assert holder.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    holder.close()


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_database_that_is_removed_while_it_is_open_is_an_error_before_the_next_effect(
    tmp_path: Path, is_replaced: bool
):
    done: list[str] = []

    @tool(effect="irreversible")
    async def work() -> str:
        """Work."""
        done.append("work")
        place.unlink()
        if is_replaced:
            place.touch()
        return "done"

    place = tmp_path / "sessions.db"
    again = Say(calls=[("work", {})])
    agent = Agent(Scripted([again, again, "done"]), [work], store=place)
    with pytest.raises(StoreError, match="it was removed or replaced while it was open"):
        await agent.run("go", session="s")
    assert done == ["work"]

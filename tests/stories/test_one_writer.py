"""Stories of two runs on one store: a session has one writer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from treadle import Agent
from treadle.core.errors import LoopError, SessionBusy
from treadle.core.steps import Finished
from treadle.core.transcript import Item, to_user_item
from treadle.models import Pause, Say, Scripted
from treadle.sessions import Journal, resume
from treadle.testing.tools import RecordingTool


@pytest.mark.parametrize("way", ["run", "history", "start", "stream"])
async def test_a_second_run_on_the_store_of_a_running_one_is_an_error(way: str, tmp_path: Path):
    pause, store = Pause(), Journal.create(tmp_path / "s")
    agent = Agent(Scripted([[pause, "one"]]))
    first = asyncio.create_task(agent.run("first", session=store))
    await pause.reached.wait()
    history: list[Item] = [to_user_item("second")]
    second = {
        "run": lambda: agent.run("second", session=store),
        "history": lambda: agent.run(history=history, session=store),
        "start": lambda: agent.start(history=history, store=store).next(),
        "stream": lambda: agent.stream("second", session=store).__aenter__(),
    }
    with pytest.raises(SessionBusy, match="a session has one writer"):
        await second[way]()
    pause.release()
    assert (await first).text == "one"
    view = resume(tmp_path / "s").state
    assert [item.text for item in view.transcript] == ["first", "one"]
    assert view.queued == ()


async def test_a_driver_that_was_made_before_the_other_began_is_refused_and_keeps_it_open(
    tmp_path: Path,
):
    pause, store = Pause(), Journal.create(tmp_path / "s")
    model = Scripted([Say(calls=[("record", {})]), [pause, "one"]])
    agent = Agent(model, [RecordingTool()])
    one, two = agent.start(store=store), agent.start(store=store)
    one.submit("first")
    first = asyncio.create_task(agent.finish_turn(one))
    await pause.reached.wait()
    with pytest.raises(SessionBusy):
        two.submit("second")
    with pytest.raises(SessionBusy):
        await two.next()
    await two.aclose()
    pause.release()
    assert (await first).text == "one"
    await one.aclose()
    view = resume(tmp_path / "s").state
    assert [item.text for item in view.transcript] == ["first", "", "ok", "one"]


async def test_a_driver_may_continue_the_session_of_one_that_does_not_run(tmp_path: Path):
    store = Journal.create(tmp_path / "s")
    one = Agent(Scripted(["one"])).start(prompt="first", store=store)
    await one.next()
    two = Agent(Scripted(["two"])).start(state=one.state, store=store)
    two.submit("second")
    assert isinstance(await two.next(), Finished)
    with pytest.raises(SessionBusy, match="another driver has continued"):
        one.submit("third")
    await two.aclose()


async def test_a_snapshot_or_a_transcript_is_not_written_into_a_session_that_has_entries(
    tmp_path: Path,
):
    store = Journal.create(tmp_path / "s")
    driver = Agent(Scripted(["one"])).start(store=store)
    driver.submit("first")
    await driver.next()
    for given in ({"snapshot": driver.snapshot()}, {"history": driver.transcript}):
        with pytest.raises(LoopError, match="has entries already"):
            Agent(Scripted(["two"])).start(**given, store=store)
    await driver.aclose()
    view = resume(tmp_path / "s").state
    assert [item.text for item in view.transcript] == ["first", "one"]

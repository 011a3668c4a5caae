"""How runs end: cancelled in their check, with texts that no database keeps, of a newer version."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.apps.fleet.agents import mark, read_marks
from tests.apps.fleet.conftest import working
from tests.apps.fleet.processes import POLL, until_marked, until_state
from tests.patience import until
from treadle import Agent, tool
from treadle.apps.fleet.database import open_database
from treadle.apps.fleet.folders.workspaces import get_default_folder
from treadle.apps.fleet.sql.sql_database import SqlDatabase
from treadle.apps.fleet.task import FleetTask
from treadle.apps.fleet.worker import Worker
from treadle.core.errors import StoreRefused
from treadle.models.scripted import Say, Scripted


def make_silent_agent(task: FleetTask, folder: Path) -> Agent:
    return Agent(Scripted(["done"]))


async def test_a_cancelled_run_stops_its_check(store: str) -> None:
    database = await open_database(store)
    check = "echo begin >> check.log; while [ ! -e go ]; do sleep 0.1; done; echo on >> check.log"
    await database.submit([FleetTask(id="r", prompt="x", check=check)])
    folder = get_default_folder() / database.fleet_id / "r/files"
    async with working(database, make_agent=make_silent_agent, lease=3.0) as worker:
        await until((folder / "check.log").exists)
        await database.cancel(["r"])
        await until(lambda: not worker.active_runs)  # it does not wait for the check
        (folder / "go").touch()
        await database.submit([FleetTask(id="next", prompt="x")])
        await until_state(database, "next", "done")
    run = await database.run("r")
    await database.aclose()
    assert run is not None
    assert (run.state, (folder / "check.log").read_text()) == ("cancelled", "begin\n")


@tool(effect="pure")
async def slow() -> str:
    """Its end takes a while, and swallows cancellations."""
    mark("begun", "slow")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        for _ in range(20):
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                pass
        mark("ended", "slow")
        raise
    return "x"


async def test_a_worker_waits_for_what_it_cancelled(store: str) -> None:
    database = await open_database(store)
    await database.submit([FleetTask(id="r", prompt="x")])

    def make(task: FleetTask, folder: Path) -> Agent:
        return Agent(Scripted([Say(calls=[("slow", {})]), "done"]), [slow])

    async with working(database, make_agent=make, grace=0.05):
        await until_marked("begun")
    run = await database.run("r")
    left = [one for one in asyncio.all_tasks() if "Worker." in repr(one.get_coro())]
    await database.aclose()
    assert (read_marks("ended"), left) == (["slow"], [])
    assert run is not None
    assert (run.state, run.attempts) == ("queued", 1), "no step was completed"


@tool(approval=True)
async def send(text: str) -> str:
    """Send it."""
    return "sent"


def make_odd_agent(task: FleetTask, folder: Path) -> Agent:
    if task.id == "ask":
        return Agent(
            Scripted([Say(calls=[("send", {"text": "a\0b"})]), "done"]),
            [send],
            approve=lambda approval: False,
        )
    if task.id == "raises":
        raise RuntimeError("bad \0 byte")
    return Agent(Scripted(["done \ud83d \0"]))


async def test_texts_that_no_database_keeps_are_escaped_in_every_column(store: str) -> None:
    database = await open_database(store)
    check = "printf 'a\\0b\\n'; exit 1"
    tasks = [FleetTask(id=name, prompt="x") for name in ("ask", "raises", "text")]
    await database.submit([*tasks, FleetTask(id="check", prompt="x", check=check)])
    async with working(database, make_agent=make_odd_agent):
        await until_state(database, "ask", "waiting")
        (approval,) = await database.approvals()
        assert "a\\u0000b" in approval.arguments or "␀" in approval.arguments
        assert await database.answer_approval(approval.id, allow=False, reason="no \0 \ud83d")
        raises = await until_state(database, "raises", "failed")
        text = await until_state(database, "text", "done")
        failed = await until_state(database, "check", "failed")
    await database.aclose()
    assert "bad ␀ byte" in raises.error
    assert text.result is not None
    assert text.result.text.startswith("done �")
    assert failed.result is not None
    assert failed.result.check is not None
    assert failed.result.check.exit_code == 1


async def test_a_result_that_the_database_refuses_ends_the_run_and_is_not_tried_for_ever(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from treadle.apps.fleet.worker_runs import WorkerRuns

    finish = WorkerRuns.finish

    async def refuse(self, run, state, result, error=""):
        if state == "done":
            raise StoreRefused("the database does not take this")
        return await finish(self, run, state, result, error)

    monkeypatch.setattr(WorkerRuns, "finish", refuse)
    database = await open_database(store)
    await database.submit([FleetTask(id="r", prompt="x")])
    async with working(database, make_agent=make_silent_agent):
        run = await until_state(database, "r", "failed")
    await database.aclose()
    assert (run.error, run.attempts) == ("the database does not take this", 1)


async def test_a_run_of_a_newer_version_is_named_and_nobody_waits_for_it(store: str) -> None:
    database = await open_database(store)
    assert isinstance(database, SqlDatabase)
    await database.submit([FleetTask(id="r", prompt="x")])
    await database.connection.execute(
        "UPDATE fleet_runs SET version = '99.0.0', version_number = 99000000"
    )
    said: list[str] = []
    worker = Worker(database, make_agent=make_silent_agent, poll=POLL, report=said.append)
    await worker.run(until_idle=True)
    run = await database.run("r")
    await database.aclose()
    assert run is not None
    assert run.state == "queued"
    assert [text.partition(";")[0] for text in said] == ["run r was begun by treadle 99.0.0"]


async def test_an_agent_function_that_returns_no_agent_is_told(store: str) -> None:
    database = await open_database(store)
    await database.submit([FleetTask(id="r", prompt="x")])
    async with working(database, make_agent=lambda task, folder: 42):
        await until_state(database, "r", "failed")
    run = await database.run("r")
    await database.aclose()
    assert run is not None
    assert "the agent function returned 42; it must return an Agent" in run.error

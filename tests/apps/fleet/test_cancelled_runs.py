"""Runs that are cancelled and retried, and workers that end, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.apps.fleet.agents import read_marks
from tests.apps.fleet.conftest import working
from tests.apps.fleet.processes import until_marked, until_state
from tests.patience import until
from treadle.apps.fleet.database import open_database
from treadle.apps.fleet.folders.workspaces import (
    RestoredWorkspace,
    RunWorkspaces,
    get_default_folder,
)
from treadle.apps.fleet.sql.sql_database import SqlDatabase
from treadle.apps.fleet.task import FleetTask
from treadle.apps.fleet.worker_registry import WorkerRegistry

T = TypeVar("T")


async def test_a_cancelled_run_stops_before_its_next_tool_and_can_be_retried(store: str) -> None:
    database = await open_database(store)
    await database.submit([FleetTask(id="c", prompt="wait+note")])
    async with working(database, concurrency=1) as worker:
        await until_marked("waiting")
        # Of two that are submitted in the same moment, either may be taken first.
        await database.submit([FleetTask(id="q", prompt="look")])
        assert await database.cancel(["c", "q"]) == ["c", "q"]
        await until(lambda: not worker.active_runs)
        assert read_marks("note") == []
        assert (await database.totals()).states == {"cancelled": 2}
        await database.retry(["c"])
        await until_state(database, "c", "done")
    await database.aclose()
    assert len(read_marks("note")) == 1


async def test_a_call_of_a_cancelled_run_does_not_wait_and_a_retry_asks_again(store: str) -> None:
    database = await open_database(store)
    await database.submit([FleetTask(id="c", prompt="ask")])
    async with working(database):
        await until_state(database, "c", "waiting")
        (approval,) = await database.approvals()
        await database.cancel(["c"])
        assert await database.approvals() == []
        assert not await database.answer_approval(approval.id, allow=True)
        await database.retry(["c"])
        await until_state(database, "c", "waiting")
        assert await database.answer_approval(approval.id, allow=True)
        await until_state(database, "c", "done")
    await database.aclose()
    assert len(read_marks("note")) == 1


class SlowFolders(RunWorkspaces):
    """Filling a folder for the first time waits for `go`; `at_once` is how many did it together."""

    def __init__(self, database: SqlDatabase) -> None:
        super().__init__(get_default_folder(), database)
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.now = self.at_once = 0

    async def prepare(self, task: FleetTask, run_id: str) -> Path:
        self.begun.set()
        return await self._count(self._wait_and_prepare(task, run_id))

    async def restore(self, task: FleetTask, run_id: str) -> RestoredWorkspace:
        return await self._count(super().restore(task, run_id))

    async def _wait_and_prepare(self, task: FleetTask, run_id: str) -> Path:
        await self.go.wait()
        return await super().prepare(task, run_id)

    async def _count(self, work: Coroutine[Any, Any, T]) -> T:
        self.now += 1
        self.at_once = max(self.at_once, self.now)
        try:
            return await work
        finally:
            self.now -= 1


async def test_a_retry_waits_until_the_worker_has_let_go_of_the_cancelled_attempt(
    store: str,
) -> None:
    database = await open_database(store)
    assert isinstance(database, SqlDatabase)
    folders = SlowFolders(database)
    await database.submit([FleetTask(id="c", prompt="note")])
    async with working(database, folders=folders):
        await folders.begun.wait()
        await database.cancel(["c"])
        await database.retry(["c"])
        again = await until_state(database, "c", "running")
        (beats,) = await read_beats(database)
        while (await read_beats(database))[0] < beats + 3:
            assert folders.at_once == 1
        folders.go.set()
        run = await until_state(database, "c", "done")
    await database.aclose()
    assert run.epoch == again.epoch, "the run was put back into the queue while it was worked on"
    assert (folders.at_once, len(read_marks("note"))) == (1, 1)


async def read_beats(database: SqlDatabase) -> list[int]:
    return [row[0] for row in await database.connection.execute("SELECT beats FROM fleet_workers")]


async def test_a_worker_ends_although_one_of_its_tasks_loses_the_cancellation(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.apps.fleet.run_control.AGAIN_SECONDS", 0.01)
    losing = asyncio.Event()

    async def lose_first_cancellation(*_: object) -> list[str]:
        is_first = not losing.is_set()
        losing.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:  # as `asyncio.wait_for` of Python 3.11 may do
            if not is_first:
                raise
        return []

    monkeypatch.setattr(WorkerRegistry, "find_dead", lose_first_cancellation)
    database = await open_database(store)
    async with working(database):
        await losing.wait()
    assert await database.workers() == []
    await database.aclose()


async def test_a_test_that_waits_for_a_state_says_how_the_run_ended_instead(store: str) -> None:
    database = await open_database(store)
    await database.submit([FleetTask(id="c", prompt="look", check="exit 3")])
    async with working(database):
        with pytest.raises(
            AssertionError, match=r"c is failed, .*: the check ended with exit code"
        ):
            await until_state(database, "c", "waiting")
    await database.aclose()

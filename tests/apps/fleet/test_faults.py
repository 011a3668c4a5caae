"""Faults 93 to 104: workers that die, are cut off or are out of date, and databases that fail."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.apps.fleet.agents import marks, read_marks
from tests.apps.fleet.conftest import working
from tests.apps.fleet.processes import (
    LEASE,
    POLL,
    kill,
    opened,
    until_marked,
    until_state,
    worker_process,
)
from tests.patience import until
from tests.postgres import PostgresServer
from treadle import Agent, tool
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.fleet import Fleet
from treadle.apps.fleet.folders.workspaces import RunWorkspaces
from treadle.apps.fleet.run_record import FleetLimits
from treadle.apps.fleet.sql.sql_database import SqlDatabase
from treadle.apps.fleet.task import FleetTask
from treadle.core.transcript.entries import NoticeShown
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.items import ToolResultItem, UserItem
from treadle.core.transcript.state import fold_entries
from treadle.models.scripted import Say, Scripted

pytest.importorskip("psycopg_pool", reason="the extra `fleet` is not installed")


async def read_results(database: FleetDatabase, run_id: str) -> list[ToolResultItem]:
    transcript = fold_entries(await database.load_session(run_id)).transcript
    return [item for item in transcript if isinstance(item, ToolResultItem)]


async def test_fault_93_a_worker_killed_in_a_model_call_is_replaced(store: str) -> None:
    async with opened(store) as database:
        await database.submit([FleetTask(id="r", prompt="note hang_model put")])
        with worker_process(store) as process:
            await until_marked("hang_model")
            kill(process)
        async with working(database):
            run = await until_state(database, "r", "done")
        assert (run.attempts, run.epoch > 1) == (1, True)  # the second one has completed a step
        assert run.result is not None
        assert run.result.usage.requests == 4  # of the replies that there were
        assert run.result.cost == pytest.approx(0.04)
        assert await database.workers() == []
    assert read_marks("model") == ["r 0", "r 1", "r 1", "r 2", "r 3"]
    assert len(read_marks("note")) == len(read_marks("put")) == 1


async def test_fault_94_a_tool_call_is_not_repeated_after_its_worker_is_killed(store: str) -> None:
    async with opened(store) as database:
        await database.submit([FleetTask(id="r", prompt="hang_note look")])
        with worker_process(store) as process:
            await until_marked("hang_note")
            kill(process)
        async with working(database):
            await until_state(database, "r", "done")
        results = await read_results(database, "r")
    assert len(read_marks("note")) == 1
    assert "Interrupted, outcome unknown" in results[0].text
    assert results[0].outcome == "unknown"


class Proxy:
    """Between a worker and the server; `cut` is a network that is gone."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._writers: set[asyncio.StreamWriter] = set()
        self._listener: asyncio.Server | None = None

    async def open(self) -> None:
        path = str(self._folder / ".s.PGSQL.5432")
        self._listener = await asyncio.start_unix_server(self._serve, path)

    async def cut(self) -> None:
        if self._listener is not None:
            self._listener.close()
            (self._folder / ".s.PGSQL.5432").unlink(missing_ok=True)
        for writer in [*self._writers]:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = str(self._server.folder / ".s.PGSQL.5432")
        there, back = await asyncio.open_unix_connection(path)
        self._writers |= {writer, back}
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()
        self._writers.discard(writer)


async def test_fault_95_a_worker_that_is_cut_off_stops_before_its_next_tool(
    shared_postgres: PostgresServer, postgres_url: str, own_place: Path
) -> None:
    socket_folder = own_place / "run"
    proxy = Proxy(shared_postgres, socket_folder)
    await proxy.open()
    real = quote(str(shared_postgres.folder), safe="")
    cut_url = postgres_url.replace(real, quote(str(socket_folder), safe=""))
    async with opened(postgres_url) as database, opened(cut_url) as cut_database:
        assert isinstance(cut_database, SqlDatabase)
        cut_database.connection._pool.retry_seconds = 0.1  # type: ignore[attr-defined]
        await database.submit([FleetTask(id="r", prompt="wait+note+note put")])
        async with working(cut_database) as slow:
            await until_marked("waiting")
            await proxy.cut()
            with worker_process(postgres_url):
                await until_state(database, "r", "done")
                before = read_marks("note"), read_marks("put")
                await proxy.open()  # the network is back, and the worker was only slow
                (marks() / "go").touch()
                await until(lambda: not slow.active_runs)
        log = await database.load_session("r")
    assert (read_marks("note"), read_marks("put")) == before
    assert len(before[0]) == 2
    assert find_violations(fold_entries(log).transcript) == []
    await proxy.cut()


async def test_fault_96_a_restart_of_the_database_loses_and_repeats_nothing(
    postgres_server: PostgresServer,
) -> None:
    url = postgres_server.create_database()
    async with opened(url) as database:
        await database.submit([FleetTask(id=f"r{n}", prompt="wait+note put") for n in range(3)])
        async with working(database, lease=30.0):
            await until_marked("waiting", 3)
            await asyncio.to_thread(postgres_server.stop, mode="immediate")
            (marks() / "go").touch()  # the steps end while there is no database
            await asyncio.to_thread(postgres_server.start)
            for number in range(3):
                await until_state(database, f"r{number}", "done")
        for number in range(3):
            results = await read_results(database, f"r{number}")
            assert [result.outcome for result in results] == ["finished"] * 3
    assert len(read_marks("note")) == len(set(read_marks("note"))) == 3
    assert len(read_marks("put")) == len(set(read_marks("put"))) == 3


FULL = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON treadle_entries EXECUTE FUNCTION refuse();
"""


async def test_fault_97_a_full_database_stops_a_run_before_its_next_effect_and_loses_nothing(
    shared_postgres: PostgresServer, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = postgres_url.partition("?")[0].rpartition("/")[2]
    async with opened(postgres_url) as database:
        await database.submit([FleetTask(id="r", prompt="look wait+note put")])
        async with working(database):
            await until_marked("waiting")
            await asyncio.to_thread(shared_postgres.query, FULL, name)
            (marks() / "go").touch()
            await until(lambda: "is full (could not extend file)" in caplog.text)
            assert read_marks("note") == []
            drop = "DROP TRIGGER full_disk ON treadle_entries"
            await asyncio.to_thread(shared_postgres.query, drop, name)
            await until_state(database, "r", "done")
        outcomes = [one.outcome for one in await read_results(database, "r")]
    assert outcomes == ["finished"] * 4
    assert len(read_marks("note")) == len(read_marks("put")) == 1


async def test_fault_98_all_runs_of_a_dead_worker_are_resumed(store: str) -> None:
    async with opened(store) as database:
        ids = [f"r{number}" for number in range(6)]
        await database.submit([FleetTask(id=one, prompt="note hang_model") for one in ids])
        with worker_process(store, concurrency=6) as process:
            await until_marked("hang_model", 6)
            assert (await database.workers())[0].runs == 6
            kill(process)
        async with working(database):
            for one in ids:
                await until_state(database, one, "done")
    assert len(read_marks("note")) == len(set(read_marks("note"))) == 6


async def test_fault_99_a_run_moves_to_a_newer_version_at_a_step_and_never_to_an_older_one(
    store: str,
) -> None:
    async with opened(store) as database:
        await database.submit([FleetTask(id="r", prompt="wait note")])
        async with working(database, version="2.0.0", grace=30.0) as worker:
            await until_marked("waiting")
            worker.stop()
            (marks() / "go").touch()
        async with working(database, version="1.9.9") as older:
            await database.submit([FleetTask(id="other", prompt="look")])
            await until_state(database, "other", "done")
            await until(lambda: older.active_runs == 0)
        run = await database.run("r")
        assert run is not None
        assert (run.state, run.version) == ("queued", "2.0.0")
        async with working(database, version="2.1.0"):
            await until_state(database, "r", "done")
        notices = [e for e in await database.load_session("r") if isinstance(e, NoticeShown)]
    assert [one.text for one in notices] == ["treadle 2.1.0 continues this run; 2.0.0 began it"]
    assert len(read_marks("note")) == 1


async def test_fault_99_a_log_that_this_version_does_not_know_is_not_continued(
    shared_postgres: PostgresServer, postgres_url: str
) -> None:
    name = postgres_url.partition("?")[0].rpartition("/")[2]
    async with opened(postgres_url) as database:
        await database.submit([FleetTask(id="r", prompt="note")])
        shared_postgres.query(
            "INSERT INTO treadle_entries VALUES ('fleet-r', 1, 0, '{\"kind\": \"dream\"}')", name
        )
        async with working(database):
            run = await until_state(database, "r", "failed")
    assert "has entries that this version does not know: dream" in run.error
    assert read_marks("model") == []


async def test_fault_100_an_error_of_a_tool_is_a_result_and_no_reason_to_try_again(
    store: str,
) -> None:
    async with opened(store) as database:
        await database.submit([FleetTask(id="r", prompt="raise note")])
        async with working(database):
            run = await until_state(database, "r", "done")
        results = await read_results(database, "r")
    assert "raise failed: a fault in its code (RuntimeError)" in results[0].text
    assert run.attempts == 1
    assert read_marks("model") == ["r 0", "r 1", "r 2"]


async def test_fault_101_the_same_task_submitted_twice_is_one_run(store: str) -> None:
    task = FleetTask(id="r", prompt="note")
    async with opened(store) as database, opened(store) as other:
        answers = await asyncio.gather(*(one.submit([task, task]) for one in (database, other)))
        assert [[run.id for run in runs] for runs in answers] == [["r"], ["r"]]
        with worker_process(store):
            async with working(database):
                await until_state(database, "r", "done")
        assert await database.submit([task]) == await database.runs(state="done")
    assert len(read_marks("note")) == 1


async def test_fault_102_many_runs_at_once_keep_to_the_limit_of_calls_in_order(
    postgres_url: str,
) -> None:
    """benchmarks/fleet.py does the same with 1,000 runs and a limit of 50."""
    now = most = 0
    is_full = asyncio.Event()

    async def answer(request: object) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if most == 6:
            is_full.set()
        await is_full.wait()
        await asyncio.sleep(0.002)
        now -= 1
        return "done"

    def make(task: FleetTask, folder: Path) -> Agent:
        return Agent(Scripted(answer, name="fake/model"))

    tasks = [FleetTask(id=f"r{number}", prompt="go") for number in range(120)]
    limits = FleetLimits(concurrent_calls=6)
    options: dict[str, Any] = {"agent": make, "poll": POLL, "concurrency": 60, "limits": limits}
    async with Fleet(postgres_url, workers=2, **options) as fleet:
        states = [run.state async for run in fleet.run(tasks)]
        assert isinstance(fleet.database, SqlDatabase)
        rows = await fleet.database.connection.execute(
            "SELECT number, admitted FROM fleet_calls ORDER BY admitted, number"
        )
    assert states == ["done"] * 120
    assert most == 6
    # The longest wait is that of the calls before it: none is overtaken.
    assert [number for number, _ in rows] == sorted(number for number, _ in rows)
    assert len(rows) == 120


@tool(effect="irreversible")
async def write(folder: str, name: str) -> str:
    """Write a file."""
    path = Path(folder, name)
    await asyncio.to_thread(path.write_text, name)
    return "written"


def make_writer(task: FleetTask, folder: Path) -> Agent:
    """Writes a, then b, and then the machine is gone."""

    async def reply(request: Any) -> Any:
        rounds = sum(isinstance(item, ToolResultItem) for item in request.transcript)
        if rounds < 2:
            return Say(calls=[("write", {"folder": str(folder), "name": "ab"[rounds]})])
        if not (marks() / "second").exists():
            (marks() / "written").touch()
            await asyncio.Event().wait()
        return "done"

    return Agent(Scripted(reply), [write])


async def test_fault_103_a_lost_machine_is_restored_from_its_last_snapshot(
    store: str, own_place: Path
) -> None:
    async with opened(store) as database:
        task = FleetTask(id="r", prompt="go", check="ls")
        await database.submit([task])

        class FirstSnapshotOnly(RunWorkspaces):
            async def snapshot(self, run_id: str, step: int) -> str:
                (self._files(run_id) / "large").write_text("above max_file_bytes")
                return await super().snapshot(run_id, step) if step == 1 else ""

        folders = FirstSnapshotOnly(own_place / "lost", database, max_file_bytes=10)
        options: dict[str, Any] = {"make_agent": make_writer, "snapshot_seconds": 0.0}
        async with working(database, folders=folders, grace=0.01, **options):
            await until((marks() / "written").exists)
        (marks() / "second").touch()
        other = RunWorkspaces(own_place / "other", database)
        async with working(database, folders=other, **options):
            run = await until_state(database, "r", "done")
        transcript = fold_entries(await database.load_session("r")).transcript
    assert run.result is not None
    assert run.result.check is not None
    assert run.result.check.output.split() == ["a"]
    told = transcript[-2]
    assert isinstance(told, UserItem)
    assert told.text == (
        "The run continues on another machine: the machine was lost; the files are as they were "
        "at the end of step 1, and later changes of files are lost; "
        "1 path had no room in the snapshot and must be made again: large."
    )


async def test_fault_104_a_run_that_kills_its_worker_is_set_aside(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.apps.fleet.processes import ROOT

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    agent = "tests.apps.fleet.agents:make_agent"
    options: dict[str, Any] = {"agent": agent, "lease": LEASE, "poll": POLL, "max_attempts": 2}
    tasks = [FleetTask(id="poison", prompt="die"), FleetTask(id="good", prompt="look note put")]
    async with Fleet(store, **options) as fleet:
        runs = {run.id: run async for run in fleet.run(tasks)}
    assert (runs["poison"].state, runs["good"].state) == ("set_aside", "done")
    assert "no step was completed in 2 attempts" in runs["poison"].error
    assert read_marks("died") == ["poison", "poison"]
    assert len(read_marks("note")) <= 1  # the first worker may have died with the call in its hand

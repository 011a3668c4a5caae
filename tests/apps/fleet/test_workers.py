"""Workers that are paused, stopped or kept waiting, and databases that cannot be written."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.apps.fleet.agents import marks, read_marks
from tests.apps.fleet.conftest import working
from tests.apps.fleet.processes import (
    LEASE,
    POLL,
    ROOT,
    PlayedWorker,
    until_marked,
    until_state,
    worker_process,
)
from tests.patience import until
from tests.postgres import PostgresServer
from treadle import Agent
from treadle.apps.console.exit_codes import exit_code_for
from treadle.apps.fleet.database import open_database
from treadle.apps.fleet.fleet import Fleet
from treadle.apps.fleet.run_record import FleetSchedule
from treadle.apps.fleet.sql.sql_database import SqlDatabase
from treadle.apps.fleet.sql.sqlite_connection import SqliteConnection
from treadle.apps.fleet.task import FleetTask
from treadle.apps.fleet.tasks.schedule import start_due_schedules
from treadle.apps.fleet.worker_processes import WorkerProcesses
from treadle.core.contracts.store import Store
from treadle.core.errors import ConfigError, RateLimited, SessionBusy, StoreError
from treadle.core.transcript.entries import NoticeShown
from treadle.models.scripted import Scripted
from treadle.testing import check_store


async def test_a_worker_that_was_only_paused_runs_no_further_tool(store: str) -> None:
    database = await open_database(store)
    await database.submit([FleetTask(id="r", prompt="wait+note put")])
    with worker_process(store) as paused:
        await until_marked("waiting")
        paused.send_signal(signal.SIGSTOP)
        async with working(database):
            await until_state(database, "r", "done")
        effects = read_marks("note"), read_marks("put")
        (marks() / "go").touch()
        paused.send_signal(signal.SIGCONT)
        await database.submit([FleetTask(id="next", prompt="look")])
        run = await until_state(database, "next", "done")  # by the one that was paused
        assert (run.result is not None, paused.poll()) == (True, None)
    await database.aclose()
    assert (read_marks("note"), read_marks("put")) == effects
    assert len(effects[0]) == len(effects[1]) == 1


async def test_a_client_that_stops_in_a_transaction_keeps_no_row_from_others(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg_pool", reason="the extra `fleet` is not installed")
    from treadle.sessions.postgres import postgres_pool
    from treadle.sessions.postgres.postgres_pool import PostgresPool, ServerConnection

    monkeypatch.setattr(postgres_pool, "IDLE_SECONDS", 0.1)
    stopped, other = PostgresPool(postgres_url), PostgresPool(postgres_url)
    await stopped.open()
    await other.open()
    await other.execute("CREATE TABLE things (n int)")
    await other.execute("INSERT INTO things VALUES (1)")
    tries = 0

    async def work(connection: ServerConnection) -> None:
        nonlocal tries
        tries += 1
        async with connection.transaction():
            await connection.execute("UPDATE things SET n = n + 1")
            if tries == 1:  # the client does nothing more; another one gets the row
                await other.execute("UPDATE things SET n = n + 10")
            await connection.execute("SELECT 1")

    await stopped.run(work)
    rows = await other.execute("SELECT n FROM things")
    await stopped.aclose()
    await other.aclose()
    assert rows == [(12,)]
    assert tries > 1  # on a slow machine the second one is cut, too


async def test_sigterm_lets_a_run_end_its_step_and_puts_it_back(store: str) -> None:
    database = await open_database(store)
    await database.submit([FleetTask(id="r", prompt="wait+note put")])
    with worker_process(store) as process:
        await until_marked("waiting")
        process.send_signal(signal.SIGTERM)
        (marks() / "go").touch()
        assert process.wait() == 143
    run = await database.run("r")
    assert run is not None
    assert (run.state, run.attempts, await database.workers()) == ("queued", 0, [])
    assert (len(read_marks("note")), read_marks("put")) == (1, [])
    async with working(database):
        await until_state(database, "r", "done")
    await database.aclose()
    assert len(read_marks("note")) == len(read_marks("put")) == 1


async def test_workers_of_a_program_import_no_module_of_its_folder_but_the_agent(
    own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own_place)
    for name in ("json", "treadle", "psycopg", "sqlite3"):
        (own_place / f"{name}.py").write_text(
            "open('imported', 'a').close()\nraise SystemExit(1)\n"
        )
    (own_place / "my_agents.py").write_text(
        "from treadle import Agent\nfrom treadle.models import Scripted\n"
        "def make(task, folder):\n    return Agent(Scripted(['Hello.']))\n"
    )
    async with Fleet("sqlite:fleet.db", agent="my_agents:make", poll=POLL, folder="runs") as fleet:
        (run,) = [run async for run in fleet.run([FleetTask(prompt="Say hello")])]
    assert run.result is not None
    assert (run.result.text, (own_place / "imported").exists()) == ("Hello.", False)


FULL_DISK = """
import sqlite3
from tests.apps.fleet.agents import make_agent, marks
from treadle.apps.fleet.sql.sqlite_connection import SqliteConnection

execute_all = SqliteConnection._execute_all

def execute_unless_full(self, statements):
    if (marks() / "full").exists():
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error
    return execute_all(self, statements)

SqliteConnection._execute_all = execute_unless_full
"""


async def check_until_an_error(workers: WorkerProcesses) -> None:
    while True:
        await workers.check()
        await asyncio.sleep(POLL)


async def test_a_full_disk_is_said_once_by_the_workers_that_go_on_and_ends_those_that_begin(
    own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (own_place / "full_disk.py").write_text(FULL_DISK)
    agent = ["--agent", "full_disk:make_agent", "--agent-folder", str(own_place)]
    said: list[str] = []
    database = await open_database(f"sqlite:{own_place / 'fleet.db'}")
    times = ["--lease", str(LEASE), "--poll", str(POLL)]
    workers = WorkerProcesses(database, 1, [*agent, *times], said.append)
    try:
        await workers.start()
        await database.submit([FleetTask(id="r", prompt="wait look")])
        await until_marked("waiting")
        (marks() / "full").touch()
        await until(lambda: bool(said))
        assert f"{own_place / 'fleet.db'}: no space is left; free some" in said[0]
        (marks() / "full").unlink()
        (marks() / "go").touch()
        await until_state(database, "r", "done")
        assert len(said) == 1
        (marks() / "full").touch()
        await workers.aclose()
        await workers.start()
        with pytest.raises(StoreError, match="no space is left") as raised:
            await check_until_an_error(workers)
        assert exit_code_for(raised.value) == 74
    finally:
        (marks() / "full").unlink(missing_ok=True)
        await workers.aclose()
        await database.aclose()


async def test_a_wrong_agent_of_a_program_is_named(own_place: Path) -> None:
    store = f"sqlite:{own_place / 'fleet.db'}"
    async with Fleet(store, agent="no_such_module:make", poll=POLL) as fleet:
        with pytest.raises(ConfigError, match="agent function 'no_such_module:make' cannot be"):
            _ = [run async for run in fleet.run([FleetTask(prompt="x")])]


async def test_a_long_rate_limit_parks_a_run_without_a_worker_and_it_wakes_by_itself(
    store: str,
) -> None:
    replies: list[RateLimited | str] = [
        RateLimited("too many requests", retry_after=3600.0),
        "done at last",
    ]

    def make(task: FleetTask, folder: Path) -> Agent:
        return Agent(Scripted([replies.pop(0)]))

    database = await open_database(store)
    assert isinstance(database, SqlDatabase)
    await database.submit([FleetTask(id="r", prompt="go")])
    async with working(database, make_agent=make):
        run = await until_state(database, "r", "parked")
        assert run.wake is not None
        assert 3500 < run.wake - time.time() < 3700
        while [(job.id, job.state) for job in await database.engine.list()] != [
            (run.job_id, "delayed")
        ]:
            pass  # the engine has it a little later
        wake_now = (
            "UPDATE fleet_runs SET wake = 0, epoch = epoch + 1, job = epoch + 1 WHERE id = 'r'"
        )
        await database.connection.execute(wake_now)
        await database.dispatch()
        run = await until_state(database, "r", "done")
    await database.aclose()
    assert run.result is not None
    assert run.result.text == "done at last"


async def test_a_clock_that_jumps_makes_no_worker_dead(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await open_database(store)
    await database.submit([FleetTask(id="r", prompt="wait note")])
    async with working(database):
        await until_marked("waiting")
        stack = ExitStack()
        stack.enter_context(worker_process(store))
        while len(await database.workers()) < 2:
            pass  # the other one has to start
        for seconds in (86400.0, -86400.0):
            real = time.time
            monkeypatch.setattr(time, "time", lambda real=real, by=seconds: real() + by)
            before = {one.heartbeat for one in await database.workers()}
            while before & {one.heartbeat for one in await database.workers()}:
                pass  # the next heartbeat of each
        (marks() / "go").touch()
        run = await until_state(database, "r", "done")
        stack.close()
    await database.aclose()
    assert (run.attempts, run.epoch) == (1, 1)
    assert len(read_marks("note")) == 1


async def test_of_two_workers_one_starts_what_is_due(store: str) -> None:
    database, other = await open_database(store), await open_database(store)
    assert isinstance(database, SqlDatabase)
    assert isinstance(other, SqlDatabase)
    task = FleetTask(prompt="look")
    await database.set_schedule(FleetSchedule("nightly", "@daily", task, next=1000.0))
    for one in (database, other):
        await start_due_schedules(one, now=2000.0)
    runs = await database.runs(labels={"schedule": "nightly"})
    (schedule,) = await other.schedules()
    for one in (database, other):
        await one.aclose()
    assert [run.id for run in runs] == ["nightly-19700101T0016Z"]
    assert schedule.next > 2000.0


async def test_a_schedule_that_is_due_runs(store: str) -> None:
    database = await open_database(store)
    due = time.time() + 3600.0
    task = FleetTask(prompt="look note")
    await database.set_schedule(FleetSchedule("nightly", "@daily", task, next=due))
    async with working(database, clock=lambda: due - 1.0):
        await database.submit([FleetTask(id="before", prompt="look")])
        await until_state(database, "before", "done")
    assert await database.runs(labels={"schedule": "nightly"}) == []
    async with working(database, clock=lambda: due):
        while not (runs := await database.runs(labels={"schedule": "nightly"}, state="done")):
            pass
    (schedule,) = await database.schedules()
    await database.aclose()
    assert len(runs) == len(read_marks("note")) == 1
    assert due < schedule.next <= due + 90_000


async def test_the_log_of_a_run_keeps_the_promises_of_a_store_behind_its_fence(store: str) -> None:
    database = await open_database(store)
    assert isinstance(database, SqlDatabase)
    worker = PlayedWorker(database, "w")
    await worker.registry.beat()
    claimed: dict[str, Store] = {}

    async def open_session(session_id: str) -> Store:
        name = session_id.replace(" ", "-")
        await database.submit([FleetTask(id=name, prompt="x")])
        run = await database.run(name)
        assert run is not None
        if run.epoch == 0:
            (run,) = await worker.claim()
        assert isinstance(database, SqlDatabase)
        sql = "UPDATE fleet_runs SET session = ? WHERE id = ?"
        await database.connection.execute(sql, [session_id, name])
        run = await database.run(name)
        assert run is not None
        claimed[session_id] = await worker.runs.open_session(run)
        return claimed[session_id]

    await check_store(open_session)
    await database.aclose()


async def test_the_earlier_writer_of_a_log_is_refused(store: str) -> None:
    database = await open_database(store)
    assert isinstance(database, SqlDatabase)
    worker = PlayedWorker(database, "w")
    queue = worker.runs
    await database.submit([FleetTask(id="r", prompt="x")])
    (run,) = await worker.claim()
    early = await queue.open_session(run)
    early.append(NoticeShown("kept"))
    await early.flush()
    await queue.release(run)
    (again,) = await worker.claim()
    late = await queue.open_session(again)
    early.append(NoticeShown("refused"))
    with pytest.raises(SessionBusy, match="was taken over by another worker"):
        await early.flush()
    late.append(NoticeShown("also kept"))
    await late.aclose()
    with pytest.raises(SessionBusy):
        await early.aclose()
    assert not await queue.finish(run, "done", None)
    texts = [e.text for e in await database.load_session("r") if isinstance(e, NoticeShown)]
    await database.aclose()
    assert texts == ["kept", "also kept"]


async def test_a_read_only_database_is_named(
    shared_postgres: PostgresServer, postgres_url: str
) -> None:
    name = postgres_url.partition("?")[0].rpartition("/")[2]
    shared_postgres.query(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(StoreError, match="is read-only; use the primary server"):
        await open_database(postgres_url)


async def test_a_transaction_whose_caller_was_cancelled_ends_before_its_database_is_closed(
    own_place: Path,
) -> None:
    connection = SqliteConnection(own_place / "fleet.db")
    await connection.open(create=True)
    slow = (
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000) "
        "SELECT count(*) FROM n"
    )
    insert = "INSERT INTO fleet_settings VALUES ('cancelled', 'but complete')"
    cancelled = asyncio.create_task(connection.execute_all([(insert, []), (slow, [])]))
    await until(lambda: connection._lock.locked())
    cancelled.cancel()
    await asyncio.wait([cancelled])
    await connection.aclose()
    again = SqliteConnection(own_place / "fleet.db")
    await again.open(create=False)
    rows = await again.execute("SELECT value FROM fleet_settings WHERE name = 'cancelled'")
    await again.aclose()
    assert rows == [("but complete",)]


async def test_tables_of_a_newer_version_are_not_touched(store: str) -> None:
    database = await open_database(store)
    assert isinstance(database, SqlDatabase)
    await database.connection.execute("UPDATE fleet_settings SET value = '99' WHERE name='tables'")
    await database.aclose()
    with pytest.raises(StoreError, match=r"tables have version 99; .* install the newer treadle"):
        await open_database(store)


async def test_a_session_in_postgresql_goes_on_in_another_program(postgres_url: str) -> None:
    pytest.importorskip("psycopg_pool", reason="the extra `fleet` is not installed")
    first = Agent(Scripted(["One."]), store=postgres_url)
    async with first.session("s") as session:
        await session.run("Say one")
        with pytest.raises(SessionBusy, match="is open in another run of this process"):
            async with first.session("s"):
                pass
    second = Agent(Scripted(["Two."]), store=postgres_url)
    async with second.session("s") as session:
        result = await session.run("Say two")
        assert len(session.history) == 4
        fork = await session.fork()
    async with Agent(Scripted(["Three."]), store=postgres_url).session(fork) as session:
        await session.run("Say three")
        assert len(session.history) == 6
    assert result.text == "Two."

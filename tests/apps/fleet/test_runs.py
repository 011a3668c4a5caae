"""Runs of a fleet as a user sees them, on both databases."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.apps.fleet.agents import make_agent, marks, read_marks
from tests.apps.fleet.conftest import working
from tests.apps.fleet.processes import (
    LEASE,
    POLL,
    PlayedWorker,
    kill,
    until_marked,
    until_state,
    worker_process,
)
from tests.patience import until
from treadle import Agent
from treadle.apps.fleet import limits
from treadle.apps.fleet.database import open_database
from treadle.apps.fleet.fleet import Fleet
from treadle.apps.fleet.reports.live_table import format_open, format_progress
from treadle.apps.fleet.reports.report import make_report
from treadle.apps.fleet.run_record import FleetLimits
from treadle.apps.fleet.sql.sql_connection import ADDED_COLUMNS, READ_VERSION
from treadle.apps.fleet.sql.sql_database import SqlDatabase
from treadle.apps.fleet.task import FleetTask
from treadle.apps.fleet.worker import Worker
from treadle.apps.fleet.worker_registry import WorkSoFar
from treadle.core.contracts.model import ModelCard
from treadle.core.errors import ConfigError, QuotaExhausted, StoreError
from treadle.core.transcript.items import ToolResultItem
from treadle.core.transcript.state import fold_entries
from treadle.models.scripted import Scripted


async def test_each_task_ends_with_its_result(store: str) -> None:
    tasks = [FleetTask(id=f"t{n}", prompt="look note put") for n in range(5)]
    async with Fleet(store, agent=make_agent, poll=POLL) as fleet:
        runs = {run.id: run async for run in fleet.run(tasks)}
        totals = await fleet.database.totals()
    assert {run.state for run in runs.values()} == {"done"}
    result = runs["t3"].result
    assert result is not None
    assert (result.text, result.reason, result.usage.requests) == ("done t3", "end_turn", 4)
    assert result.cost == pytest.approx(0.04)
    assert totals.states == {"done": 5}
    assert totals.cost == pytest.approx(0.2)
    assert len(read_marks("note")) == len(set(read_marks("note"))) == 5


async def test_a_run_whose_check_fails_has_failed_and_a_retry_continues_its_session(
    store: str,
) -> None:
    task = FleetTask(id="c", prompt="look", check="test -e fixed || { echo not yet; exit 3; }")
    database = await open_database(store)
    await database.submit([task])
    async with working(database):
        run = await until_state(database, "c", "failed")
        assert run.result is not None
        assert run.result.check is not None
        assert (run.result.cause, run.result.check.exit_code) == ("check_failed", 3)
        assert run.result.check.output.strip() == "not yet"
        assert run.error == "the check ended with exit code 3"
        (row,) = make_report([run], 0.0).runs
        assert (row.attempts, row.error) == (1, "the check ended with exit code 3\nnot yet")
        assert await database.retry(["c", "unknown"]) == ["c"]
        again = await until_state(database, "c", "failed")
        while again.result is not None and again.result.turns == 1:  # still the first end
            again = await until_state(database, "c", "failed")
    history = fold_entries(await database.load_session("c")).transcript
    await database.aclose()
    assert "The check `test -e fixed" in str(history[-2])
    assert again.result is not None
    assert again.result.turns == 2
    assert make_report([again], 0.0).runs[0].attempts == 2


async def test_an_approval_waits_without_a_worker_and_is_carried_out_once(store: str) -> None:
    database = await open_database(store)
    await database.submit([FleetTask(id="yes", prompt="ask"), FleetTask(id="no", prompt="ask")])
    async with working(database) as worker:
        await until_state(database, "yes", "waiting")
        await until_state(database, "no", "waiting")
        await until(lambda: not worker.active_runs)
    approvals = {approval.run: approval for approval in await database.approvals()}
    assert approvals["yes"].tool == "ask"
    assert await database.answer_approval(approvals["yes"].id, allow=True)
    assert await database.answer_approval(approvals["no"].id, allow=False, reason="Not today.")
    assert not await database.answer_approval(approvals["no"].id, allow=True)
    async with working(database):
        await until_state(database, "yes", "done")
        await until_state(database, "no", "done")
    texts = {
        run: [
            item.content[0].text  # type: ignore[union-attr]
            for item in fold_entries(await database.load_session(run)).transcript
            if isinstance(item, ToolResultItem)
        ]
        for run in ("yes", "no")
    }
    await database.aclose()
    assert texts["yes"] == ["approved and done"]
    assert "Not today." in texts["no"][0]
    assert len(read_marks("note")) == 1


async def test_an_approval_that_is_not_answered_in_time_is_denied(store: str) -> None:
    database = await open_database(store)
    await database.submit([FleetTask(id="late", prompt="ask")])
    async with working(database, approval_seconds=0.1):
        await until_state(database, "late", "done")
    assert await database.approvals() == []
    assert read_marks("note") == []
    assert "not approved within" in str(await database.load_session("late"))
    await database.aclose()


async def test_the_time_and_the_cost_of_a_run_are_known_while_it_runs(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.apps.fleet.worker.BEAT_SECONDS", 0.02)
    database = await open_database(store)
    await database.submit([FleetTask(id="r", prompt="wait")])
    async with working(database, lease=3600.0):
        run = await until_state(database, "r", "running")
        while not (run.seconds and run.cost):  # if the worker is killed now, this is what counts
            run = await until_state(database, "r", "running")
        assert (run.cost, (await database.totals()).cost) == (0.01, 0.01)
        assert format_progress([run], 0.0).endswith("1 running · $0.01")
        assert format_open(run).startswith("r: running, ")
        assert format_open(run).endswith(", $0.01 so far")
        (marks() / "go").touch()
        await until_state(database, "r", "done")
    await database.aclose()


async def test_a_worker_that_stops_gives_its_runs_back_at_their_next_step(store: str) -> None:
    database = await open_database(store)
    await database.submit([FleetTask(id="s", prompt="wait note")])
    async with working(database, grace=30.0) as worker:
        await until_marked("waiting")
        worker.stop()
        (marks() / "go").touch()
    run = await database.run("s")
    assert run is not None
    assert (run.state, run.worker, run.attempts) == ("queued", "", 0)
    assert await database.workers() == []
    async with working(database):
        await until_state(database, "s", "done")
    await database.aclose()
    assert len(read_marks("note")) == 1


async def test_the_time_of_a_run_is_counted_over_all_its_workers(store: str) -> None:
    """The first worker dies; the seconds that it wrote with its heartbeat count."""
    database = await open_database(store)
    assert isinstance(database, SqlDatabase)
    dead = PlayedWorker(database, "dead")
    await dead.registry.beat()
    tasks = [
        FleetTask(id="long", prompt="look", timeout=500.0),
        FleetTask(id="short", prompt="look", timeout=5000.0),
        FleetTask(id="other", prompt="look"),
        FleetTask(id="stopped", prompt="look", timeout=500.0),
    ]
    await database.submit(tasks)
    await dead.claim(4)
    worked = {name: WorkSoFar(1000.0) for name in ("short", "stopped")}
    await dead.registry.beat({"long": WorkSoFar(1000.0, 0.5), **worked})
    await database.cancel(["stopped"])
    async with working(database):
        late = await until_state(database, "long", "failed")
        short = await until_state(database, "short", "done")
        other = await until_state(database, "other", "done")
        assert late.result is not None
        assert (late.result.cause, late.result.seconds > 1000.0) == ("timeout", True)
        assert short.result is not None
        assert short.result.seconds > 1000.0
        assert other.result is not None
        assert other.result.seconds < 1000.0
        await until_state(database, "stopped", "cancelled")
        await database.retry(["long", "stopped"])  # they have their time again
        again = await until_state(database, "long", "done")
        await until_state(database, "stopped", "done")
    await database.aclose()
    assert again.result is not None
    assert again.result.seconds > late.result.seconds


async def test_the_same_id_with_another_prompt_is_a_conflict_and_nothing_is_queued(
    store: str,
) -> None:
    database = await open_database(store)
    task = FleetTask(id="a", prompt="look")
    await database.submit([task, task])
    await database.submit([FleetTask(id="a", prompt="look", max_turns=9, labels={"x": "y"})])
    for tasks in (
        [FleetTask(id="b", prompt="look"), FleetTask(id="a", prompt="note")],
        [FleetTask(id="b", prompt="look"), FleetTask(id="b", prompt="note")],
    ):
        with pytest.raises(ConfigError, match=r"'[ab]' \(another prompt\); nothing was queued"):
            await database.submit(tasks)
    runs = await database.runs()
    await database.aclose()
    assert [run.id for run in runs] == ["a"]


async def test_runs_of_a_worker_that_was_killed_on_purpose_go_on_at_once(store: str) -> None:
    """A worker is known by its id: one with the same host and pid keeps its runs."""
    database = await open_database(store)
    assert isinstance(database, SqlDatabase)
    await database.submit([FleetTask(id="r", prompt="wait look"), FleetTask(id="s", prompt="look")])
    with worker_process(store, lease=3600.0, concurrency=1, name="killed") as killed:
        await until_marked("waiting")
        kill(killed)
    await PlayedWorker(database, "alive").registry.beat()  # of the same host, with the same pid
    await database.forget_workers(["killed"])
    assert [one.id for one in await database.workers()] == ["alive"]
    async with working(database, lease=3600.0):
        run = await until_state(database, "r", "done")
    await database.aclose()
    assert (run.attempts, run.epoch > 1) == (1, True)


async def test_a_claim_that_arrives_after_its_worker_was_buried_is_not_lost(store: str) -> None:
    database = await open_database(store)
    await database.submit([FleetTask(id="r", prompt="look")])
    late, other = PlayedWorker(database, "late"), PlayedWorker(database, "other")
    await late.registry.beat()
    await database.forget_workers(["late"])
    assert len(await late.claim()) == 1  # its last statement, which the server had received
    await other.registry.beat()
    dead = await other.registry.find_dead(0.0)
    assert dead == ["late"]
    await database.forget_workers(dead)
    [run] = await database.runs()
    await database.aclose()
    assert (run.state, run.worker) == ("queued", "")


async def make_first_version(database: SqlDatabase) -> None:
    for table, column, _ in ADDED_COLUMNS:
        await database.connection.execute("DROP INDEX IF EXISTS fleet_runs_unsubmitted")
        await database.connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    await database.connection.execute("UPDATE fleet_settings SET value = '1' WHERE name='tables'")


async def test_tables_of_the_first_version_are_upgraded_by_a_worker_only(store: str) -> None:
    """Several programs may open them at once, and those who only look change nothing."""
    database = await open_database(store)
    assert isinstance(database, SqlDatabase)
    tasks = [FleetTask(id="r", prompt="look"), FleetTask(id="running", prompt="look")]
    await database.submit(tasks)
    sql = "UPDATE fleet_runs SET state = 'running', worker = 'old', epoch = 1 WHERE id = 'running'"
    await database.connection.execute(sql)
    await make_first_version(database)
    with pytest.raises(StoreError, match="tables have version 1; this program needs version 3"):
        await open_database(store, create=False)
    assert await database.connection.execute(READ_VERSION) == [("1",)]
    opened = await asyncio.gather(*(open_database(store) for _ in range(4)))
    runs = await opened[0].runs()
    assert [(run.state, run.epoch, run.job) for run in runs] == [("queued", 0, 0), ("queued", 2, 2)]
    for one in opened[1:]:
        await one.aclose()
    async with working(opened[0]):
        await until_state(opened[0], "r", "done")
        await until_state(opened[0], "running", "done")
    await opened[0].aclose()
    await database.aclose()


async def test_an_upgrade_that_was_interrupted_is_completed(store: str) -> None:
    """An earlier version wrote the columns and the number in two transactions."""
    database = await open_database(store)
    assert isinstance(database, SqlDatabase)
    await database.connection.execute("UPDATE fleet_settings SET value = '1' WHERE name='tables'")
    await database.aclose()
    for _ in range(2):
        await (await open_database(store)).aclose()


async def test_a_limit_that_is_given_later_takes_the_place_of_the_earlier_one(store: str) -> None:
    database = await open_database(store)
    first = FleetTask(id="r", prompt="look", max_cost=0.1, timeout=60.0, batch=True)
    await database.submit([first])
    later = FleetTask(id="r", prompt="look", max_cost=1.0, memory=4.0, permission_mode="auto")
    (run,) = await database.submit([later])
    await database.aclose()
    assert (run.task.max_cost, run.task.memory, run.task.permission_mode) == (1.0, 4.0, "auto")
    assert (run.task.timeout, run.task.batch) == (60.0, True), "what is not given stays"


async def test_old_runs_are_deleted_with_all_that_belongs_to_them(store: str) -> None:
    database = await open_database(store)
    assert isinstance(database, SqlDatabase)
    tasks = [FleetTask(id=name, prompt="look") for name in ("old", "kept", "young")]
    await database.submit([*tasks, FleetTask(id="open", prompt="ask")])
    async with working(database):
        for name in ("old", "kept", "young"):
            await until_state(database, name, "done")
        await until_state(database, "open", "waiting")
    await database.connection.execute(
        "UPDATE fleet_runs SET ended = 1000, created = 900 WHERE id <> 'young'"
    )
    assert await database.delete_runs(["old", "young", "open", "unknown"], 2000.0) == ["old"]
    assert await database.load_session("kept")
    assert await database.load_session("open")
    left = {}
    for name in ("old", "kept", "open"):
        left[name] = await database.get_blob(f"workspaces/{name}/place") is not None
    assert left == {"old": False, "kept": True, "open": True}
    await database.submit([FleetTask(id="old", prompt="note")])  # a new run, no conflict
    assert await database.load_session("old") == []
    async with working(database):
        run = await until_state(database, "old", "done")
    await database.aclose()
    assert run.result is not None
    assert run.result.text == "done old"


async def test_without_a_fleet_nothing_is_made_for_a_reader(store: str) -> None:
    for _ in range(2):
        with pytest.raises(ConfigError, match="there is no fleet at"):
            await open_database(store, create=False)
    await (await open_database(store)).aclose()
    await (await open_database(store, create=False)).aclose()


def make_dear_agent(task: FleetTask, folder: Path) -> Agent:
    """The largest possible reply of its model costs far more than a real one."""
    agent = make_agent(task, folder)
    model = agent.config.model
    assert isinstance(model, Scripted)
    model.card = ModelCard("dear/model", max_output=100_000, output_price=15.0)
    return agent


async def test_runs_go_on_until_the_money_is_spent_and_the_rest_stays_in_the_queue(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REFRESH_SECONDS", 0.0)
    tasks = [FleetTask(id=f"m{n}", prompt="look look look") for n in range(3)]
    async with Fleet(store, agent=make_dear_agent, limits=FleetLimits(max_cost=0.045)) as fleet:
        with pytest.raises(
            QuotaExhausted, match=r"the fleet has spent \$0.05 of \$0.045; .* in the queue"
        ):
            _ = [run async for run in fleet.run(tasks)]
        totals = await fleet.database.totals()
        assert totals.states.get("failed") is None
        assert totals.unfinished > 0
    database = await open_database(store)
    idle = Worker(database, make_agent=make_dear_agent, lease=LEASE, poll=POLL)
    await idle.run(until_idle=True)  # it does not wait for more money
    await database.aclose()
    assert len(read_marks("model")) == 5
    async with Fleet(store, agent=make_dear_agent, limits=FleetLimits(max_cost=1.0)) as fleet:
        runs = [run async for run in fleet.run(tasks)]
    assert [run.state for run in runs] == ["done"] * 3
    assert len(read_marks("model")) == 12, "no call was made twice"
    assert len(read_marks("look")) == 9


@pytest.mark.parametrize("address", ["mysql://x", "sqlite:", "fleet.db"])
async def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="use sqlite:PATH or postgresql://"):
        await open_database(address)


async def test_a_database_that_cannot_be_opened_is_named(own_place) -> None:
    (own_place / "text.db").write_text("This is not a database, however long it may be." * 50)
    with pytest.raises(StoreError, match=r"text.db is not a SQLite database"):
        await open_database(f"sqlite:{own_place / 'text.db'}")
    with pytest.raises(StoreError, match=r"cannot be reached: .*check that it runs"):
        await open_database(f"postgresql://treadle@/x?host={own_place}")

"""Runs with tools of every effect class, on workers that are killed again and again.

By default a few runs, whose agents kill their own workers at set moments. The whole takes some
minutes: a worker is killed each time it holds runs, until there were 30 takeovers.

    TREADLE_FLEET_RUNS=200 ./check tests/apps/fleet/test_kills.py
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.apps.fleet.agents import marks, read_marks
from tests.apps.fleet.processes import worker_process
from tests.postgres import PostgresServer
from treadle.apps.fleet.database import FleetDatabase, open_database
from treadle.apps.fleet.run_record import END_STATES
from treadle.apps.fleet.task import FleetTask
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.items import ToolResultItem
from treadle.core.transcript.state import fold_entries

pytest.importorskip("psycopg_pool", reason="the extra `fleet` is not installed")

WHOLE = int(os.environ.get("TREADLE_FLEET_RUNS", "0"))
# The moments at which a worker dies: in a model call, and before, in and after an effect.
MOMENTS = ("model", "note_before", "note_after", "put_before", "put_after", "look")
FEW_RUNS = 24
TAKEOVERS = 30
AGENT = "tests.apps.fleet.agents:make_mortal_agent"


def make_tasks(count: int) -> Iterator[FleetTask]:
    """The first runs kill their workers, one at each moment."""
    for number in range(count):
        moments = ("write",) if WHOLE else (*MOMENTS, "write")
        labels = {"dies": moments[number]} if number < len(moments) else {}
        yield FleetTask(id=f"r{number}", prompt="look note put look+note+put", labels=labels)


async def count_ended(database: FleetDatabase) -> int:
    states = (await database.totals()).states
    return sum(states.get(state, 0) for state in END_STATES)


async def keep_two_workers(store: str, database: FleetDatabase, count: int) -> int:
    """Until all runs ended: replace dead workers, and kill one that holds runs, some times. How
    many died with runs."""
    takeovers, names = 0, [0, 0]
    with ExitStack() as stack:

        def start(place: int) -> subprocess.Popen[bytes]:
            names[place] += 1
            return stack.enter_context(
                # A run may be at work in several of the workers that die.
                worker_process(
                    store,
                    agent=AGENT,
                    lease=2.0 if WHOLE else 1.0,
                    max_attempts=100,
                    name=f"w{place}-{names[place]}",
                )
            )

        workers = [start(0), start(1)]
        while await count_ended(database) < count:
            holders = [one.id for one in await database.workers() if one.runs]
            for place, worker in enumerate(workers):
                is_holder = f"w{place}-{names[place]}" in holders
                if WHOLE and is_holder and takeovers < TAKEOVERS:
                    worker.send_signal(signal.SIGKILL)
                    worker.wait()
                if worker.poll() is not None:
                    takeovers += is_holder or not WHOLE
                    workers[place] = start(place)
            await asyncio.sleep(0.05)
    return takeovers


async def check_ends(database: FleetDatabase, count: int) -> Counter[str]:
    """Every run ended as without the kills, and no effect was repeated. The outcomes of calls."""
    runs = await database.runs()
    assert len(runs) == count
    assert {run.state for run in runs} == {"done"}, [run for run in runs if run.state != "done"]
    outcomes: Counter[str] = Counter()
    for run in runs:
        assert run.result is not None
        assert run.result.text == f"done {run.id}"
        transcript = fold_entries(await database.load_session(run.id)).transcript
        assert find_violations(transcript) == []
        results = [item for item in transcript if isinstance(item, ToolResultItem)]
        assert [item.name for item in results] == ["look", "note", "put", "look", "note", "put"]
        for item in results:
            outcomes[f"{item.name} {item.outcome}"] += 1
            times = read_marks(item.name).count(f"{run.id} {item.call_id}")
            if item.outcome == "unknown":
                assert (item.name, times <= 1) == ("note", True)
            elif item.name != "look":
                assert times == 1, f"{run.id}: {item.name} had its effect {times} times"
    return outcomes


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_runs_survive_the_deaths_of_their_workers_and_a_restart_of_the_database(
    kind: str, request: pytest.FixtureRequest, own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = WHOLE or FEW_RUNS
    monkeypatch.setenv("FLEET_MODEL_SECONDS", "0.2" if WHOLE else "0.02")
    monkeypatch.setenv("FLEET_TOOL_SECONDS", "0.2" if WHOLE else "0.01")
    server: PostgresServer | None = None
    store = f"sqlite:{own_place / 'fleet.db'}"
    if kind == "postgresql":
        server = request.getfixturevalue("postgres_server")
        store = server.create_database()
    database = await open_database(store)
    await database.submit(make_tasks(count))

    async def restart_in_the_middle(server: PostgresServer) -> None:
        while await count_ended(database) < count // 2:  # noqa: ASYNC110 - other processes do it
            await asyncio.sleep(0.02)
        await asyncio.to_thread(server.stop, mode="immediate")
        await asyncio.to_thread(server.start)

    restart = asyncio.create_task(restart_in_the_middle(server)) if server is not None else None
    deaths = await keep_two_workers(store, database, count)
    if restart is not None:
        await restart
    outcomes = await check_ends(database, count)
    attempts = Counter(run.attempts for run in await database.runs())
    await database.aclose()
    print(f"{count} runs, {deaths} takeovers, outcomes {dict(outcomes)}, attempts {attempts}")
    # Two runs that kill their worker may be at work in the same one.
    assert deaths >= (TAKEOVERS if WHOLE else len(MOMENTS) // 2)
    if kind == "sqlite":
        assert (marks() / "first-death-r0").exists()

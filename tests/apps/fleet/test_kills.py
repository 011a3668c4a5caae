"""Runs with tools of every effect class, on workers that are killed again and again.

By default a few runs, whose agents kill their own workers at set moments. The whole, with a kill
-9 every 5 seconds from outside, takes some minutes:

    TREADLE_FLEET_RUNS=200 ./check tests/apps/fleet/test_kills.py
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.apps.fleet.agents import read_marks
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
KILL_SECONDS = 5.0
AGENT = "tests.apps.fleet.agents:make_mortal_agent"


def make_tasks(count: int) -> Iterator[FleetTask]:
    """The first runs kill their workers, one at each moment."""
    for number in range(count):
        labels = {"dies": MOMENTS[number]} if number < len(MOMENTS) and not WHOLE else {}
        yield FleetTask(id=f"r{number}", prompt="look note put look+note+put", labels=labels)


async def count_ended(database: FleetDatabase) -> int:
    states = (await database.totals()).states
    return sum(states.get(state, 0) for state in END_STATES)


async def keep_two_workers(store: str, database: FleetDatabase, count: int) -> int:
    """Until all runs ended: replace dead workers, and kill one every 5 s. How many died."""
    deaths = 0
    next_kill = asyncio.get_running_loop().time() + KILL_SECONDS
    with ExitStack() as stack:
        lease = 2.0 if WHOLE else 1.0
        # A run may be at work in several of the workers that die.
        start = lambda: stack.enter_context(  # noqa: E731
            worker_process(store, agent=AGENT, lease=lease, max_attempts=100)
        )
        workers = [start(), start()]
        while await count_ended(database) < count:
            if WHOLE and asyncio.get_running_loop().time() >= next_kill:
                workers[deaths % 2].send_signal(signal.SIGKILL)
                next_kill += KILL_SECONDS
            for place, worker in enumerate(workers):
                if worker.poll() is not None:
                    deaths += 1
                    workers[place] = start()
            await asyncio.sleep(0.05)
    return deaths


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
@pytest.mark.timeout(1200)
async def test_runs_survive_the_deaths_of_their_workers_and_a_restart_of_the_database(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = WHOLE or FEW_RUNS
    monkeypatch.setenv("FLEET_MODEL_SECONDS", "0.2" if WHOLE else "0.02")
    monkeypatch.setenv("FLEET_TOOL_SECONDS", "0.2" if WHOLE else "0.01")
    store = postgres_server.create_database()
    database = await open_database(store)
    await database.submit(make_tasks(count))

    async def restart_in_the_middle() -> None:
        while await count_ended(database) < count // 2:  # noqa: ASYNC110 - other processes do it
            await asyncio.sleep(0.02)
        await asyncio.to_thread(postgres_server.stop, mode="immediate")
        await asyncio.to_thread(postgres_server.start)

    restart = asyncio.create_task(restart_in_the_middle())
    deaths = await keep_two_workers(store, database, count)
    await restart
    outcomes = await check_ends(database, count)
    attempts = Counter(run.attempts for run in await database.runs())
    await database.aclose()
    print(f"{count} runs, {deaths} dead workers, outcomes {dict(outcomes)}, attempts {attempts}")
    # Two runs that kill their worker may be at work in the same one.
    assert deaths >= (1 if WHOLE else len(MOMENTS) // 2)

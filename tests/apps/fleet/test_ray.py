"""A fleet on a cluster of Ray: processes, nodes, the head and the driver die, and nothing is lost.

./check skips these tests; scripts/ray-tests installs Ray and runs them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.apps.fleet.agents import marks, read_marks
from tests.apps.fleet.processes import PROGRAM, ROOT, until_marked, until_state, worker_process
from tests.apps.fleet.test_kills import WHOLE, check_ends, count_ended, make_tasks
from tests.postgres import PostgresServer
from tests.ray_cluster import MISSING, RayCluster, ray_cluster
from treadle.apps.fleet.database import FleetDatabase, open_database
from treadle.apps.fleet.task import FleetTask

pytest.importorskip("ray", reason=MISSING)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

LEASE = 5.0
RUNS = WHOLE or 12
TAKEOVERS = 30 if WHOLE else 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """A head and two nodes, for all tests: a start takes a minute. The last test kills them."""
    folder = tmp_path_factory.mktemp("ray") / "marks"
    times = {"FLEET_MODEL_SECONDS": "0.2", "FLEET_TOOL_SECONDS": "0.2"}
    with ray_cluster(nodes=2, redis=True, FLEET_MARKS=str(folder), **times) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def marks_folder(cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The processes of the cluster have one folder."""
    folder = Path(cluster.environment["FLEET_MARKS"])
    monkeypatch.setenv("FLEET_MARKS", str(folder))
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    return folder


async def find_holders(database: FleetDatabase) -> set[int]:
    """The processes that have runs."""
    return {one.pid for one in await database.workers() if one.runs}


async def test_runs_survive_the_deaths_of_their_processes_and_a_restart_of_the_database(
    postgres_server: PostgresServer,
) -> None:
    store = postgres_server.create_database()
    database = await open_database(store, engine="ray")
    await database.submit(make_tasks(RUNS))
    agent = "tests.apps.fleet.agents:make_mortal_agent"
    killed = set[int]()
    with worker_process(
        store, agent=agent, lease=LEASE, max_attempts=100, concurrency=1000
    ) as driver:
        while (ended := await count_ended(database)) < RUNS or len(killed) < TAKEOVERS:
            assert driver.poll() is None, "the driver ended"
            assert ended < RUNS, f"the runs ended after {len(killed)} takeovers"
            if len(killed) < TAKEOVERS:
                for process in await find_holders(database) - killed:
                    with contextlib.suppress(ProcessLookupError):  # the agent was faster
                        os.kill(process, signal.SIGKILL)
                    killed.add(process)
                    if len(killed) == TAKEOVERS // 2:
                        await asyncio.to_thread(postgres_server.stop, mode="immediate")
                        await asyncio.to_thread(postgres_server.start)
            await asyncio.sleep(0.1)
        outcomes = await check_ends(database, RUNS)
    await database.aclose()
    print(f"{RUNS} runs, {len(killed)} takeovers, outcomes {dict(outcomes)}")


async def test_a_run_whose_process_was_only_paused_has_no_further_effect(postgres_url: str) -> None:
    database = await open_database(postgres_url, engine="ray")
    await database.submit([FleetTask(id="paused", prompt="wait+note put")])
    with worker_process(postgres_url, lease=LEASE):
        await until_marked("waiting")
        [paused] = await find_holders(database)
        os.kill(paused, signal.SIGSTOP)
        await until_state(database, "paused", "done")
        transcript = await database.load_session("paused")
        (marks() / "go").touch()
        os.kill(paused, signal.SIGCONT)
        while await database.engine.list():  # type: ignore[attr-defined]  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert await database.load_session("paused") == transcript
    await database.aclose()
    for kind in ("note", "put"):
        assert len([one for one in read_marks(kind) if one.startswith("paused ")]) == 1


@contextmanager
def run_command(store: str, tasks: Path, cluster: RayCluster) -> Iterator[subprocess.Popen[bytes]]:
    """`treadle fleet run`, which is killed at the end, if it has not ended."""
    words = ["--store", store, "--engine", "ray", "--address", cluster.address]
    agent = ["--agent", "tests.apps.fleet.agents:make_agent"]
    process = subprocess.Popen(
        [*PROGRAM, "fleet", "run", str(tasks), *words, *agent],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_a_node_the_head_and_the_driver_may_die(
    cluster: RayCluster, postgres_url: str, own_place: Path
) -> None:
    (marks() / "go").unlink(missing_ok=True)
    names = [f"n{number}" for number in range(4)]
    lines = [{"id": name, "prompt": "note wait note", "cpus": 1} for name in names]
    tasks = own_place / "tasks.jsonl"
    tasks.write_text("\n".join(map(json.dumps, lines)))

    def count_marks(kind: str) -> int:
        return len([one for one in read_marks(kind) if one.split()[0] in names])

    with run_command(postgres_url, tasks, cluster) as first:
        while count_marks("waiting") < len(names):  # noqa: ASYNC110 - other processes do it
            await asyncio.sleep(0.05)
        await asyncio.to_thread(cluster.kill, "b")
        await asyncio.to_thread(cluster.kill, "head")
        await asyncio.to_thread(cluster.start, "head")
        await asyncio.to_thread(cluster.start, "b", cpus=2)
        assert first.poll() is None, "the command ended with the head"
    (marks() / "go").touch()
    with run_command(postgres_url, tasks, cluster) as second:
        assert await asyncio.to_thread(second.wait) == 0
    database = await open_database(postgres_url, create=False)
    assert {run.id: run.state for run in await database.runs()} == dict.fromkeys(names, "done")
    await database.aclose()
    assert count_marks("note") == 2 * len(names)

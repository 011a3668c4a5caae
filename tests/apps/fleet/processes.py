"""Worker processes for the tests, and what the tests wait for. No test waits for a time."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import treadle
from tests.apps.fleet.agents import read_marks
from tests.patience import until
from treadle.apps.fleet.database import FleetDatabase, open_database
from treadle.apps.fleet.run_record import FleetRun
from treadle.apps.fleet.sql.sql_database import SqlDatabase
from treadle.apps.fleet.worker_registry import WorkerRegistry
from treadle.apps.fleet.worker_runs import WorkerIdentity, WorkerRuns

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = (sys.executable, "-P", str(Path(treadle.__file__).parent / "__main__.py"))
LEASE = 0.6
POLL = 0.05


@asynccontextmanager
async def opened(store: str) -> AsyncIterator[FleetDatabase]:
    database = await open_database(store)
    try:
        yield database
    finally:
        await database.aclose()


@contextmanager
def worker_process(
    store: str,
    *,
    concurrency: int = 4,
    agent: str = "tests.apps.fleet.agents:make_agent",
    lease: float = LEASE,
    max_attempts: int = 5,
    name: str = "",
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that is killed at the end, if the test did not do it."""
    options = ["--store", store, "--agent", agent, "--runs-at-once", str(concurrency)]
    times = ["--lease", str(lease), "--poll", str(POLL), "--max-attempts", str(max_attempts)]
    times += ["--name", name] if name else []
    process = subprocess.Popen(
        [*PROGRAM, "fleet", "worker", *options, *times],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


async def until_marked(kind: str, count: int = 1) -> None:
    await until(lambda: len(read_marks(kind)) >= count)


async def until_state(database: FleetDatabase, run_id: str, *states: str) -> FleetRun:
    """The run, once it is in one of these states; an error if it ends in another one."""
    while True:
        run = await database.run(run_id)
        if run is not None and run.state in states:
            return run
        if run is not None and run.has_ended:
            raise AssertionError(f"the run {run_id} is {run.state}, not {states}: {run.error}")
        await asyncio.sleep(0.01)


class PlayedWorker:
    """A worker that the test plays: it takes runs as if an engine had delivered them."""

    def __init__(self, database: FleetDatabase, name: str, version: str = "0.0.1") -> None:
        assert isinstance(database, SqlDatabase)
        identity = WorkerIdentity(name, "here", 4711, version)
        self.registry = WorkerRegistry(database.connection, identity)
        self.runs = WorkerRuns(database.connection, identity)
        self._database = database

    async def claim(self, count: int = 1) -> list[FleetRun]:
        queued = (await self._database.runs(state="queued"))[:count]
        claimed = [await self.runs.claim(run.id, run.job, 9) for run in queued]
        return [run for run in claimed if run is not None]

"""Worker processes for the tests, and what the tests wait for. No test waits for a time."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import treadle
from tests.apps.fleet.agents import read_marks
from tests.patience import until
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.run_record import FleetRun

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = (sys.executable, "-P", str(Path(treadle.__file__).parent / "__main__.py"))
LEASE = 0.6
POLL = 0.05


@contextmanager
def worker_process(
    store: str,
    *,
    concurrency: int = 4,
    agent: str = "tests.apps.fleet.agents:make_agent",
    lease: float = LEASE,
    max_attempts: int = 5,
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that is killed at the end, if the test did not do it."""
    options = ["--store", store, "--agent", agent, "--runs-at-once", str(concurrency)]
    times = ["--lease", str(lease), "--poll", str(POLL), "--max-attempts", str(max_attempts)]
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

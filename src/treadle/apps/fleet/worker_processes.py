"""The workers that a program or `treadle fleet run` starts on this machine: processes of their own.

A worker that is killed is replaced; its runs are continued by the others. So is, a few times, one
that found no database. One that ends with another error is not: its last lines say why. What a
worker reports while it goes on, such as a full disk, is reported here once. Workers end with the
process that started them. Used by fleet.py and commands/run_tasks.py.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import treadle
from treadle.apps.console.exit_codes import ERROR, IO_ERROR, TERMINATED
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.store_address import split_password
from treadle.apps.fleet.worker_runs import make_worker_name
from treadle.core.errors import ConfigError, StoreError
from treadle.lib.logger import logger

STOP_SECONDS = 75.0  # a worker lets its runs end their steps
MAX_REPLACED = 50
MAX_WITHOUT_DATABASE = 5
ERROR_LINES = 8
READ_SECONDS = 5.0  # for the last lines of a worker that ended
COMMAND = "treadle fleet: "  # begins the line of an error
REPORT = "treadle fleet worker: "  # begins a line of a worker that its starter is to report


class WorkerProcesses:
    """`count` workers for a database; `aclose` stops them. `arguments` are those of `treadle fleet
    worker`; `report` is called with each problem that a worker reports, once."""

    def __init__(
        self,
        database: FleetDatabase,
        count: int,
        arguments: Sequence[str] = (),
        report: Callable[[str], None] = logger.warning,
    ) -> None:
        self._database = database
        self._store, self._password = split_password(database.url)
        self._arguments = arguments
        self._count = count
        self._report = report
        self._reported: set[str] = set()
        self._running: list[tuple[Process, _Output]] = []
        self._names: dict[int, str] = {}  # pid -> worker
        self._replaced = self._without_database = 0

    async def start(self) -> None:
        for _ in range(self._count):
            await self._start_one()

    async def check(self) -> None:
        """Replace workers that were killed. ConfigError if all ended with an error; StoreError if
        the database was the reason."""
        for process, output in [*self._running]:
            if process.returncode is None:
                continue
            self._running.remove((process, output))
            problem = await output.read_end()
            is_killed = process.returncode < 0 or process.returncode == TERMINATED
            has_no_database = process.returncode == ERROR  # the caller has just used it
            if is_killed or has_no_database:
                self._replaced += 1
                self._without_database += has_no_database
            is_hopeless = self._without_database > MAX_WITHOUT_DATABASE
            if (
                (is_killed or has_no_database)
                and self._replaced <= MAX_REPLACED
                and not is_hopeless
            ):
                await self._start_one()
            elif process.returncode > 0 and not self._running:
                text = f"the workers ended with an error: {problem}"
                if process.returncode == IO_ERROR:
                    raise StoreError(text) from OSError(problem)
                raise ConfigError(text)
        if not self._running:  # they saw no run that was left; the caller does
            await self.start()

    async def aclose(self, hurry: asyncio.Event | None = None) -> None:
        """Runs that are at work end their step and go back to the queue. If this is cancelled or
        `hurry` is set, the workers are killed, and their runs go back to the queue as they are."""
        for process, _ in self._running:
            if process.returncode is None:
                process.terminate()
        ends = [
            asyncio.create_task(self._wait_for_ends()),
            asyncio.create_task((hurry or asyncio.Event()).wait()),
        ]
        try:
            first = asyncio.FIRST_COMPLETED
            await asyncio.wait(ends, timeout=STOP_SECONDS, return_when=first)
        finally:
            for end in ends:
                end.cancel()
            running, self._running = self._running, []
            killed = [process for process, _ in running if process.returncode is None]
            for process in killed:
                process.kill()
            for _, output in running:
                output.close()
            if killed:
                for process in killed:
                    await process.wait()
                await self._database.forget_workers([self._names[one.pid] for one in killed])

    async def _wait_for_ends(self) -> bool:
        for process, _ in self._running:
            await process.wait()
        return True

    async def _start_one(self) -> None:
        # -P: the current folder may have files with the names of modules.
        program = (sys.executable, "-P", str(Path(treadle.__file__).parent / "__main__.py"))
        name = make_worker_name()
        environment = {**os.environ, **({"PGPASSWORD": self._password} if self._password else {})}
        process = await asyncio.create_subprocess_exec(
            *(*program, "fleet", "worker", "--store", self._store, *self._arguments),
            *("--parent", str(os.getpid()), "--name", name),
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=PIPE,  # no file: a full disk can be reported
            env=environment,
            start_new_session=True,  # ctrl-c in the terminal reaches only the command
        )
        self._names[process.pid] = name
        self._running.append((process, _Output(process, self._report_once)))

    def _report_once(self, problem: str) -> None:
        if problem not in self._reported:
            self._reported.add(problem)
            self._report(problem)


class _Output:
    """What a worker writes to stderr: its reports, and the last lines."""

    def __init__(self, process: Process, report: Callable[[str], None]) -> None:
        assert process.stderr is not None, "it is a pipe"
        self._lines: deque[str] = deque(maxlen=ERROR_LINES)
        self._report = report
        self._reading = asyncio.create_task(self._read(process.stderr))

    async def _read(self, stream: asyncio.StreamReader) -> None:
        rest = b""
        while data := await stream.read(65_536):
            *lines, rest = (rest[-65_536:] + data).split(b"\n")
            for line in lines:
                self._add(line)
        self._add(rest)

    def _add(self, data: bytes) -> None:
        line = data.decode(errors="replace").strip()
        if line:
            self._lines.append(line)
        if line.startswith(REPORT):
            self._report(line.removeprefix(REPORT))

    async def read_end(self) -> str:
        """The last lines of a worker that ended; a process that it started may still write."""
        await asyncio.wait([self._reading], timeout=READ_SECONDS)
        self.close()
        lines = [line.removeprefix(REPORT).removeprefix(COMMAND) for line in self._lines]
        return "\n".join(dict.fromkeys(lines))

    def close(self) -> None:
        self._reading.cancel()


def find_agent_folder(name: str) -> Path:
    """Where this process finds the module of MODULE:FUNCTION, for the workers."""
    package = name.partition(":")[0].partition(".")[0]
    try:
        spec = find_spec(package) if package else None
    except ValueError:  # `__main__`, which a worker cannot import
        spec = None
    if spec is None:
        return Path.cwd()
    places = [*(spec.submodule_search_locations or ())]
    return Path(places[0] if places else spec.origin or ".").absolute().parent

"""The workers that a program or `treadle fleet run` starts on this machine: processes of their own.

A worker that is killed is replaced; its runs are continued by the others. One that ends with an
error is not: its last lines say why. Workers end with the process that started them. Used by
fleet.py and commands/run_tasks.py.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import treadle
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.store_address import split_password
from treadle.apps.services.exit_codes import TERMINATED
from treadle.core.errors import ConfigError

STOP_SECONDS = 75.0  # a worker lets its runs end their steps
MAX_REPLACED = 50
ERROR_LINES = 8


class WorkerProcesses:
    """`count` workers for a database; `aclose` stops them. `arguments` are those of `treadle fleet
    worker`."""

    def __init__(self, database: FleetDatabase, count: int, arguments: Sequence[str] = ()) -> None:
        self._database = database
        self._store, self._password = split_password(database.url)
        self._arguments = arguments
        self._count = count
        self._running: list[tuple[Process, IO[bytes]]] = []
        self._replaced = 0

    async def start(self) -> None:
        for _ in range(self._count):
            await self._start_one()

    async def check(self) -> None:
        """Replace workers that were killed. ConfigError if all ended with an error."""
        for process, log in [*self._running]:
            if process.returncode is None:
                continue
            self._running.remove((process, log))
            problem = _read_end(log)
            is_killed = process.returncode < 0 or process.returncode == TERMINATED
            if is_killed and self._replaced < MAX_REPLACED:
                self._replaced += 1
                await self._start_one()
            elif process.returncode > 0 and not self._running:
                raise ConfigError(f"the workers ended with an error: {problem}")
        if not self._running:  # they saw no run that was left; the caller does
            await self.start()

    async def aclose(self) -> None:
        """Runs that are at work end their step and go back to the queue. If this is cancelled, the
        workers are killed, and their runs go back to the queue as they are."""
        for process, _ in self._running:
            if process.returncode is None:
                process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                for process, _ in self._running:
                    await process.wait()
        finally:
            running, self._running = self._running, []
            killed = [process for process, _ in running if process.returncode is None]
            for process in killed:
                process.kill()
            for _, log in running:
                log.close()
            if killed:
                for process in killed:
                    await process.wait()
                pids = [process.pid for process in killed]
                await self._database.forget_workers(socket.gethostname(), pids)

    async def _start_one(self) -> None:
        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        # -P: the current folder may have files with the names of modules.
        program = (sys.executable, "-P", str(Path(treadle.__file__).parent / "__main__.py"))
        environment = {**os.environ, **({"PGPASSWORD": self._password} if self._password else {})}
        process = await asyncio.create_subprocess_exec(
            *(*program, "fleet", "worker", "--store", self._store, *self._arguments),
            *("--parent", str(os.getpid())),
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=log,
            env=environment,
            start_new_session=True,  # ctrl-c in the terminal reaches only the command
        )
        self._running.append((process, log))


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


def _read_end(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    log.close()
    return "\n".join(lines[-ERROR_LINES:])

"""The workers that `treadle fleet run` starts on this machine: processes of their own.

A worker that is killed is replaced; its runs are continued by the others. One that ends with an
error is not: its last lines say why. Used by run_tasks.py.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import DEVNULL, Process
from pathlib import Path
from typing import IO

import treadle
from treadle.apps.fleet.worker_process import split_password
from treadle.core.errors import ConfigError

STOP_SECONDS = 75.0  # a worker lets its runs end their steps
MAX_REPLACED = 50
ERROR_LINES = 8


class WorkerProcesses:
    """`count` workers for a store; `aclose` stops them."""

    def __init__(self, store: str, count: int, arguments: tuple[str, ...] = ()) -> None:
        self._store, self._password = split_password(store)
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
            if process.returncode < 0 and self._replaced < MAX_REPLACED:
                self._replaced += 1
                await self._start_one()
            elif process.returncode > 0 and not self._running:
                raise ConfigError(f"the workers ended with an error: {problem}")
        if not self._running:  # they saw no run that was left; the caller does
            await self.start()

    async def aclose(self) -> None:
        """Runs that are at work end their step and go back to the queue."""
        for process, _ in self._running:
            if process.returncode is None:
                process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                for process, _ in self._running:
                    await process.wait()
        finally:
            for process, log in self._running:
                if process.returncode is None:
                    process.kill()
                log.close()
            self._running.clear()

    async def _start_one(self) -> None:
        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        program = Path(treadle.__file__).parent / "__main__.py"
        environment = {**os.environ, **({"PGPASSWORD": self._password} if self._password else {})}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", str(program), "fleet", "worker", "--store", self._store),
            *("--until-idle", *self._arguments),
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=log,
            env=environment,
            start_new_session=True,  # ctrl-c in the terminal reaches only the command
        )
        self._running.append((process, log))


def _read_end(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    log.close()
    return "\n".join(lines[-ERROR_LINES:])

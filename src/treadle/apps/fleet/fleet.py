"""`treadle.Fleet`: many runs from a program.

    async with Fleet("sqlite:fleet.db", workers=2) as fleet:
        async for run in fleet.run(tasks):
            print(run.id, run.state, run.result)

Workers are processes; with `agent` as a function there is one, in this process. Others may join on
any machine with `treadle fleet worker`. A second program with the same tasks continues the first.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.fleet.database import FleetDatabase, open_database
from treadle.apps.fleet.folders.workspaces import RunWorkspaces, get_default_folder
from treadle.apps.fleet.limits import find_spent_money
from treadle.apps.fleet.run_record import END_STATES, FleetLimits, FleetRun
from treadle.apps.fleet.store_address import DEFAULT_STORE
from treadle.apps.fleet.task import FleetTask
from treadle.apps.fleet.worker_processes import WorkerProcesses, find_agent_folder
from treadle.apps.fleet.worker_registry import DEFAULT_LEASE
from treadle.core.errors import ConfigError, LoopError, QuotaExhausted
from treadle.lib.text.text import plural

if TYPE_CHECKING:
    from typing import Self

    from treadle.apps.fleet.run_task import MakeAgent
    from treadle.apps.fleet.worker import Worker


class Fleet:
    """Workers, and the database that they share. Use it in an `async with` block.

    store         sqlite:PATH, or postgresql://... for many machines
    workers       how many work for this program; 0: only those that join from elsewhere
    concurrency   runs at once of each worker
    limits        for all runs; they are kept in the database
    agent         makes the agent of a run: a function of a task and a folder, or MODULE:FUNCTION;
                  by default the coding agent
    lease         seconds without a heartbeat after which others continue the runs of a worker
    poll          seconds between two looks at the queue
    max_attempts  how often a worker may die with a run before the run is set aside
    folder        where the folders of runs are made; by default beside the user's sessions
    engine        what delivers the runs of a new fleet: local, dbos or ray; `ray` needs an agent of
                  the form MODULE:FUNCTION, or none
    """

    def __init__(
        self,
        store: str = DEFAULT_STORE,
        *,
        workers: int = 1,
        concurrency: int = 4,
        limits: FleetLimits | None = None,
        agent: MakeAgent | str | None = None,
        lease: float = DEFAULT_LEASE,
        poll: float = 0.5,
        max_attempts: int = 5,
        folder: str | os.PathLike[str] | None = None,
        engine: str = "",
    ) -> None:
        if workers < 0 or concurrency < 1:
            raise ConfigError(f"Fleet(workers={workers}, concurrency={concurrency}): too few")
        self.store = store
        self._count, self._concurrency = workers, concurrency
        self._limits = limits
        self._agent = agent
        self._lease, self._poll, self._max_attempts = lease, poll, max_attempts
        self._folder = Path(folder) if folder is not None else get_default_folder()
        self._engine = engine
        self._database: FleetDatabase | None = None
        self._worker: Worker | None = None
        self._task: asyncio.Task[None] | None = None
        self._processes: WorkerProcesses | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def database(self) -> FleetDatabase:
        """Runs, approvals, totals and the rest; while the fleet is open."""
        if self._database is None:
            raise LoopError("enter the fleet first: async with Fleet(...) as fleet")
        return self._database

    async def __aenter__(self) -> Self:
        self._database = await open_database(self.store, engine=self._engine)
        try:
            if self._limits is not None:
                await self._database.set_limits(self._limits)
            await self._start_workers()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Let the workers end their steps; runs that are not done stay in the database."""
        if self._worker is not None:
            self._worker.stop()
        try:
            if self._watch is not None:
                self._watch.cancel()
                await asyncio.wait([self._watch])
            if self._processes is not None:
                await self._processes.aclose()
            if self._task is not None:
                await asyncio.wait([self._task])
        finally:
            self._worker = self._task = self._watch = self._processes = None
            database, self._database = self._database, None
            if database is not None:
                await database.aclose()

    async def run(self, tasks: Iterable[FleetTask]) -> AsyncIterator[FleetRun]:
        """Submit the tasks; each run, as it ends. A task that has a run already is not repeated.
        QuotaExhausted if the money of the limits is spent: the other runs stay in the queue."""
        database = self.database
        waiting = {run.id for run in await database.submit(tasks)}
        while waiting:
            before = time.monotonic()
            for run in await database.runs(ids=waiting, state=END_STATES):
                waiting.discard(run.id)
                yield run
            self._check_workers()
            if waiting:
                await self._check_money(waiting)
                # With many runs the look itself takes time: it is not to be the work.
                await asyncio.sleep(max(self._poll, 4 * (time.monotonic() - before)))

    async def _check_money(self, waiting: Collection[str]) -> None:
        if problem := await find_spent_money(self.database):
            runs = await self.database.runs(ids=waiting)
            if not any(run.has_ended or run.state == "running" for run in runs):
                left = plural(len(runs), "run stays", "runs stay")
                raise QuotaExhausted(f"{problem}; {left} in the queue: raise max_cost")

    # --- workers ---------------------------------------------------------------------------

    async def _start_workers(self) -> None:
        from treadle.apps.fleet.worker import Worker

        if self._agent is None or isinstance(self._agent, str):
            self._processes = WorkerProcesses(self.database, self._count, self._list_arguments())
            await self._processes.start()
            self._watch = asyncio.create_task(self._watch_processes(self._processes))
            return
        if self._count:
            self._worker = Worker(
                self.database,
                concurrency=self._concurrency * self._count,
                lease=self._lease,
                poll=self._poll,
                max_attempts=self._max_attempts,
                make_agent=self._agent,
                folders=RunWorkspaces(self._folder, self.database),
            )
            self._task = asyncio.create_task(self._worker.run())

    def _list_arguments(self) -> list[str]:
        options: dict[str, object] = {
            "--runs-at-once": self._concurrency,
            "--lease": self._lease,
            "--poll": self._poll,
            "--max-attempts": self._max_attempts,
            "--workspaces": self._folder,
        }
        if isinstance(self._agent, str):
            folder = find_agent_folder(self._agent)
            options |= {"--agent": self._agent, "--agent-folder": folder}
        return [str(word) for option in options.items() for word in option]

    async def _watch_processes(self, processes: WorkerProcesses) -> None:
        while True:
            await asyncio.sleep(self._poll)
            await processes.check()

    def _check_workers(self) -> None:
        """Raise what ended a worker."""
        for task in (self._task, self._watch):
            if task is not None and task.done() and not task.cancelled():
                task.result()

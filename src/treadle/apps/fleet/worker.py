"""A worker of a fleet: takes runs from the queue, drives them, gives signs of life.

    claim    as many runs as there is room for; each is a task of this process
    beat     at least every third of the lease, with the time and the cost of the runs; a run that
             the database does not list any more is stopped
    sweep    runs of dead workers, at every poll
    tidy     parked runs, expired approvals and schedules that are due, every third of the lease

A worker that dies is replaced by any other. `stop` lets each run end its step and puts it back.
While the database is gone the worker waits; its runs stop before the next effect.

A run that kills its worker takes the others of that worker along. So the last attempt at a run is
made alone: what is set aside after it has killed a worker by itself.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable

import msgspec

from treadle._version import __version__
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.limits import CallLimiter, cancel_tasks
from treadle.apps.fleet.run_control import Lease, RunControl
from treadle.apps.fleet.run_queue import DEFAULT_LEASE, RunQueue, WorkerIdentity, WorkSoFar
from treadle.apps.fleet.run_record import FleetResult, FleetRun
from treadle.apps.fleet.run_task import (
    APPROVAL_SECONDS,
    SNAPSHOT_SECONDS,
    MakeAgent,
    RunFolders,
    RunOutcome,
    RunParts,
    run_task,
)
from treadle.apps.fleet.sql_database import SqlDatabase
from treadle.apps.fleet.tasks.schedule import make_scheduled_task, next_time
from treadle.core.errors import (
    ConfigError,
    SessionBusy,
    SessionTooNew,
    StoreError,
    TreadleError,
    error_text,
)
from treadle.lib.logger import logger

DEFAULT_CONCURRENCY = 4
DEFAULT_POLL = 1.0
DEFAULT_ATTEMPTS = 5
GRACE_SECONDS = 30.0  # for the steps of runs when the worker stops
RETRY_SECONDS = 1.0
BEAT_SECONDS = 2.0  # at most: what a worker that is killed has worked since is not counted

ActiveRun = tuple[RunControl, asyncio.Task[None]]


class Worker:
    """One process of a fleet; `run` works until `stop`."""

    def __init__(
        self,
        database: FleetDatabase,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        lease: float = DEFAULT_LEASE,
        poll: float = DEFAULT_POLL,
        max_attempts: int = DEFAULT_ATTEMPTS,
        make_agent: MakeAgent | None = None,
        folders: RunFolders | None = None,
        approval_seconds: float | None = APPROVAL_SECONDS,
        snapshot_seconds: float = SNAPSHOT_SECONDS,
        grace: float = GRACE_SECONDS,
        version: str = __version__,
        clock: Callable[[], float] = time.time,
        report: Callable[[str], None] = logger.warning,
    ) -> None:
        if not isinstance(database, SqlDatabase):
            raise ConfigError("a worker needs a database of `open_database`")
        if concurrency < 1 or not lease > 0 or not poll > 0 or max_attempts < 1:
            raise ConfigError("a worker needs 1 run or more, and a lease and a poll above 0 s")
        host = socket.gethostname()
        name = f"{host}-{os.getpid()}-{os.urandom(3).hex()}"
        self.identity = WorkerIdentity(name, host, os.getpid(), version)
        self._database = database
        self._concurrency, self._poll, self._grace = concurrency, poll, grace
        self._clock = clock  # for schedules
        self._report, self._reported = report, ""  # the last problem of the database
        self._max_attempts = max_attempts
        self._last_attempt = (max(1, max_attempts - 1), 10**9)  # what such a run has had
        self._lease = Lease(lease)
        self._queue = RunQueue(database.connection, self.identity)
        self._parts = RunParts(
            self._queue,
            CallLimiter(database.connection, name),
            folders if folders is not None else make_run_folders(database),
            make_agent,
            version,
            approval_seconds,
            snapshot_seconds,
        )
        self._active: dict[str, ActiveRun] = {}
        self._claiming = asyncio.Lock()  # between a claim and the start of its runs
        self._wake = asyncio.Event()
        self._is_stopping = self._has_last_attempts = False
        self._paused_until = 0.0

    async def run(self, *, until_idle: bool = False) -> None:
        """Work until `stop`, or until no run is left that could be worked on."""
        await self._beat()
        third = self._lease.seconds / 3
        helpers = [
            asyncio.create_task(self._repeat(self._beat, min(third, BEAT_SECONDS))),
            asyncio.create_task(self._repeat(self._sweep, min(self._poll, third))),
            asyncio.create_task(self._repeat(self._tidy, third)),
        ]
        try:
            while not self._is_stopping:
                self._wake.clear()
                await self._tolerate(self._claim)
                if until_idle and not self._active and await self._is_idle():
                    break
                await self._wait_for_work()
        finally:
            await cancel_tasks(helpers)
            await self._drain()

    def stop(self) -> None:
        """Take no more runs; those at work go back to the queue at their next step."""
        self._is_stopping = True
        for control, _ in self._active.values():
            control.is_stopping = True
        self._wake.set()

    @property
    def active_runs(self) -> int:
        return len(self._active)

    # --- runs ------------------------------------------------------------------------------

    async def _claim(self) -> None:
        free = self._concurrency - len(self._active)
        if free <= 0 or self._is_stopping or time.monotonic() < self._paused_until:
            return
        if self._has_last_attempts and self._active:
            return  # until none is active: see above
        if await self._parts.limiter.is_money_spent():
            return
        async with self._claiming:
            runs: list[FleetRun] = []
            if self._has_last_attempts:
                runs = await self._queue.claim(1, attempts=self._last_attempt)
                self._has_last_attempts = bool(runs)
            if not runs:
                runs = await self._queue.claim(free, attempts=(0, self._last_attempt[0] - 1))
            for run in runs:
                control = RunControl(run, self._queue, self._lease)
                control.is_stopping = self._is_stopping
                earlier = self._active.get(run.id)
                task = asyncio.create_task(self._work(run, control, earlier))
                self._active[run.id] = (control, task)

    async def _work(self, run: FleetRun, control: RunControl, earlier: ActiveRun | None) -> None:
        try:
            if earlier is not None:  # cancelled and retried, say, before this worker let go of it
                earlier[0].lose_to_other()
                await asyncio.wait([earlier[1]])
            outcome = await self._try_run(run, control)
            if outcome is not None:
                worked = msgspec.structs.replace(run, seconds=control.seconds, cost=control.cost)
                await self._insist(lambda: self._write(worked, outcome))
            if outcome is not None and outcome.state in ("done", "failed"):
                await self._parts.folders.remove(run.id)
        finally:
            if run.id in self._active and self._active[run.id][0] is control:
                del self._active[run.id]
            self._wake.set()

    async def _try_run(self, run: FleetRun, control: RunControl) -> RunOutcome | None:
        """What came of it; None if another worker has the run, or the database is gone."""
        try:
            return await run_task(run, self._parts, control)
        except SessionTooNew as error:
            return _fail(control, error)
        except SessionBusy as error:
            logger.info("run %s: %s", run.id, error)
        except StoreError as error:
            logger.info("run %s stops here for now: %s", run.id, error)
            self._report_store(error)
            self._paused_until = time.monotonic() + RETRY_SECONDS
        except TreadleError as error:
            return _fail(control, error)
        except Exception as error:  # noqa: BLE001 - of the program's own agent, say
            logger.exception("run %s failed", run.id)
            return _fail(control, error)
        return None

    async def _write(self, run: FleetRun, outcome: RunOutcome) -> None:
        match outcome.state:
            case "queued" | "parked":
                await self._queue.release(run, wake=outcome.wake)
            case "waiting":
                await self._queue.wait(run, outcome.approvals)
            case _:
                await self._queue.finish(run, outcome.state, outcome.result, outcome.error)

    # --- signs of life ---------------------------------------------------------------------

    async def _beat(self) -> None:
        async with self._claiming:
            sent = time.monotonic()
            worked = {
                run_id: WorkSoFar(control.seconds, control.cost)
                for run_id, (control, _) in self._active.items()
            }
            mine = await self._queue.beat(worked)
            self._lease.confirm(sent)
            self._reported = ""
            for control, _ in [*self._active.values()]:
                if mine.get(control.run.id) != control.run.epoch:
                    control.lose_to_other()
            for run_id, epoch in mine.items():
                if run_id not in self._active:  # the database was gone when this worker let go
                    await self._queue.requeue(run_id, epoch)

    async def _sweep(self) -> None:
        for worker in await self._queue.sweep(self._lease.seconds, self._max_attempts):
            logger.warning("worker %s is dead: others continue its runs", worker)
            self._wake.set()

    async def _tidy(self) -> None:
        await self._queue.sweep_leftovers()
        if not self._has_last_attempts:
            found = await self._queue.has_claimable(attempts=self._last_attempt)
            self._has_last_attempts = found
        await start_due_schedules(self._database, self._clock())

    def _report_store(self, error: StoreError) -> None:
        """The worker waits and tries again: the problem is said once, until a beat succeeds."""
        if str(error) != self._reported:
            self._reported = str(error)
            self._report(str(error))

    # --- details ---------------------------------------------------------------------------

    async def _wait_for_work(self) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), self._poll)
        except TimeoutError:
            pass

    async def _is_idle(self) -> bool:
        try:
            states = (await self._database.totals()).states
            is_money_spent = await self._parts.limiter.is_money_spent()
        except StoreError:
            return False
        left = ("running",) if is_money_spent else ("queued", "running", "parked", "waiting")
        return not any(states.get(state) for state in left)

    async def _repeat(self, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            await self._tolerate(work)

    async def _tolerate(self, work: Callable[[], Awaitable[None]]) -> None:
        """The database may be gone for a while; the next time comes."""
        try:
            await work()
        except StoreError as error:
            self._report_store(error)
        except Exception:  # noqa: BLE001 - a schedule that is wrong, say; the worker goes on
            logger.exception("a worker of the fleet could not do a part of its work")

    async def _insist(self, work: Callable[[], Awaitable[None]]) -> None:
        """Until the database has it, or this worker stops: then another one repeats the step."""
        while True:
            try:
                return await work()
            except StoreError as error:
                if self._is_stopping:
                    return None
                self._report_store(error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _drain(self) -> None:
        """Let each run end its step, for a while; then let go of all."""
        self.stop()
        beating = asyncio.create_task(self._repeat(self._beat, self._lease.seconds / 3))
        try:
            if tasks := [task for _, task in self._active.values()]:
                await asyncio.wait(tasks, timeout=self._grace)
            for control, _ in [*self._active.values()]:
                control.lose("the worker stops")
            if tasks := [task for _, task in self._active.values()]:
                await asyncio.wait(tasks, timeout=self._grace)
            for task in tasks:
                task.cancel()
            await self._parts.limiter.aclose()
            await self._tolerate(self._queue.leave)
        finally:
            await cancel_tasks([beating])


def make_run_folders(database: SqlDatabase) -> RunFolders:
    """Folders of this machine; their snapshots are in the database."""
    from treadle.apps.fleet.folders.workspaces import RunWorkspaces, get_default_folder

    return RunWorkspaces(get_default_folder(), database)


async def start_due_schedules(database: SqlDatabase, now: float) -> None:
    """Submit the tasks whose time has come; of several workers, one does."""
    for schedule in await database.schedules():
        if schedule.next <= now:
            task = make_scheduled_task(schedule.name, schedule.task, schedule.next)
            try:
                await database.submit([task])  # first: a repeated id is one run
            except ConfigError as error:
                logger.warning("the schedule %s starts nothing this time: %s", schedule.name, error)
            await database.advance_schedule(schedule, next_time(schedule.cron, now))


def _fail(control: RunControl, error: BaseException) -> RunOutcome:
    """An error around the turn; those of the turn are in its result."""
    earlier, usage = control.run.result or FleetResult("error"), control.usage
    result = FleetResult(
        "error",
        cost=earlier.cost if usage is None else usage.cost,
        usage=earlier.usage if usage is None else usage,
        seconds=control.seconds,
        cause="error",
        turns=earlier.turns,
        attempts=control.run.all_attempts,
    )
    return RunOutcome("failed", result, error_text(error))

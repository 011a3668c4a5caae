"""A worker of a fleet: drives the runs that an engine delivers, gives signs of life.

    deliver  by the engine: the run is claimed and driven, and what comes of it is written
    beat     at least every third of the lease, with the time and the cost of the runs; a run that
             the database does not list any more is stopped
    sweep    what dead workers had goes to others, at every poll
    tidy     schedules that are due, and runs that were not submitted, every third of the lease

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
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from treadle._version import __version__
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.limits import CallLimiter
from treadle.apps.fleet.metrics import FleetMetrics
from treadle.apps.fleet.run_control import Lease, RunControl, cancel_tasks
from treadle.apps.fleet.run_record import FleetResult, FleetRun, parse_job_id
from treadle.apps.fleet.run_task import (
    APPROVAL_SECONDS,
    SNAPSHOT_SECONDS,
    MakeAgent,
    RunFolders,
    RunOutcome,
    RunParts,
    run_task,
)
from treadle.apps.fleet.sql.run_rows import describe_newer, is_newer_version
from treadle.apps.fleet.sql.sql_batches import SqlBatches
from treadle.apps.fleet.sql.sql_database import SqlDatabase
from treadle.apps.fleet.tasks.schedule import start_due_schedules
from treadle.apps.fleet.worker_registry import DEFAULT_LEASE, WorkerRegistry, WorkSoFar
from treadle.apps.fleet.worker_runs import WorkerIdentity, WorkerRuns, make_worker_name
from treadle.core.contracts.run_engine import Deliver
from treadle.core.errors import (
    ConfigError,
    SessionBusy,
    SessionTooNew,
    StoreError,
    StoreRefused,
    TreadleError,
    error_text,
)
from treadle.lib.logger import logger
from treadle.models.batches.batch_queue import BatchQueue

DEFAULT_POLL = 1.0
DEFAULT_ATTEMPTS = 5
GRACE_SECONDS = 30.0  # for the steps of runs when the worker stops
BEAT_SECONDS = 2.0  # at most: what a worker that is killed has worked since is not counted

ActiveRun = tuple[RunControl, asyncio.Task[None]]


class Worker:
    """One process of a fleet; `run` works until `stop`."""

    def __init__(
        self,
        database: FleetDatabase,
        *,
        name: str = "",
        concurrency: int = 0,
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
        elsewhere: Deliver | None = None,
        has_metrics: bool = False,
    ) -> None:
        if not isinstance(database, SqlDatabase):
            raise ConfigError("a worker needs a database of `open_database`")
        if concurrency < 0 or not lease > 0 or not poll > 0 or max_attempts < 1:
            raise ConfigError("a worker needs 1 run or more, and a lease and a poll above 0 s")
        name = name or make_worker_name()
        self.identity = WorkerIdentity(name, socket.gethostname(), os.getpid(), version)
        self._database = database
        self._concurrency, self._poll, self._grace = concurrency, poll, grace
        self._elsewhere = elsewhere  # what an engine with processes of its own calls in those
        self._clock = clock  # for schedules
        self._report, self._reported = report, ""  # the last problem of the database
        self._max_attempts = max_attempts
        self._lease = Lease(lease)
        self._metrics = FleetMetrics(database, name) if has_metrics else None
        self._registry = WorkerRegistry(database.connection, self.identity)
        self._runs = WorkerRuns(database.connection, self.identity)
        self._parts = RunParts(
            self._runs,
            CallLimiter(database.connection, name),
            folders if folders is not None else make_run_folders(database),
            make_agent,
            version,
            approval_seconds,
            snapshot_seconds,
            BatchQueue(SqlBatches(database.connection), count_running=lambda: self._deliveries),
        )
        self._deliveries = 0
        self._active: dict[str, ActiveRun] = {}
        self._changed = asyncio.Condition()  # of the two numbers below
        self._turns = self._alone = 0  # runs that have their turn; that are alone, or wait for it
        self._claiming = asyncio.Lock()  # between a claim and the start of its run
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._newer: set[str] = set()  # runs of a newer version that were reported

    async def run(self, *, until_idle: bool = False) -> None:
        """Work until `stop`, or until no run is left that could be worked on."""
        await self._beat()
        third = self._lease.seconds / 3
        helpers = [
            asyncio.create_task(self._repeat(self._beat, self._beat_seconds)),
            asyncio.create_task(self._repeat(self._sweep, min(self._poll, third))),
            asyncio.create_task(self._repeat(self._tidy, third)),
        ]
        try:
            await self._tolerate(self._tidy)
            await self._tolerate(self._parts.folders.remove_all_lost)
            await self._start_engine()
            while not self._is_stopping:
                self._wake.clear()
                if until_idle and not self._active and await self._is_idle():
                    break
                try:
                    async with asyncio.timeout(self._poll):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            await cancel_tasks(helpers)
            await self._drain()

    async def _start_engine(self) -> None:
        engine = self._database.engine
        deliver = self._elsewhere if engine.is_remote else self._deliver
        if deliver is None:
            raise ConfigError(
                f"the engine {engine.name} runs agents in processes of its own: name the function "
                "that makes the agent, as MODULE:FUNCTION"
            )
        concurrency = self._concurrency or engine.default_concurrency
        await engine.start(self.identity.id, concurrency, deliver, poll=self._poll)

    async def work_on(self, job_id: str) -> None:
        """Do one job that an engine has brought to this process. When this is cancelled, the run
        ends its step and goes back to the queue."""
        await self._beat()
        beating = asyncio.create_task(self._repeat(self._beat, self._beat_seconds))
        delivery = asyncio.create_task(self._deliver(job_id))
        try:
            await asyncio.wait([delivery])
        finally:
            await cancel_tasks([beating])
            await self._drain()
            await cancel_tasks([delivery])
        delivery.result()

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

    async def _deliver(self, job_id: str) -> None:
        """What the engine calls. It returns when the record of the run says what came of it, and
        raises if the job has to be delivered again."""
        self._deliveries += 1
        try:
            await self._deliver_job(job_id)
        finally:
            self._deliveries -= 1

    async def _deliver_job(self, job_id: str) -> None:
        run_id, job = parse_job_id(job_id)
        found = await self._database.run(run_id)
        if found is None or found.job != job or found.has_ended:
            return
        is_last = found.attempts >= max(1, self._max_attempts - 1)
        async with self._take_turn(alone=is_last):
            if self._is_stopping:
                await asyncio.Event().wait()  # the engine gives the job to others
            is_newer = is_newer_version(found.version, self.identity.version)
            if is_newer:
                self._report_newer(found)
            if is_newer or await self._parts.limiter.is_money_spent():
                await self._runs.defer(run_id, job)
                return
            async with self._claiming:
                run = await self._runs.claim(run_id, job, self._max_attempts)
                if run is None:
                    return
                control = RunControl(run, self._runs, self._lease)
                control.is_stopping = self._is_stopping
                earlier = self._active.get(run.id)
                task = asyncio.create_task(self._work(run, control, earlier))
                self._active[run.id] = (control, task)
            try:
                await asyncio.wait([task])
            finally:
                await cancel_tasks([task])
            task.result()

    def _report_newer(self, run: FleetRun) -> None:
        """Once a run: a worker of a newer version has begun it, and one of those continues it."""
        if run.id not in self._newer:
            self._newer.add(run.id)
            self._report(describe_newer(run, self.identity.version))

    @asynccontextmanager
    async def _take_turn(self, *, alone: bool) -> AsyncIterator[None]:
        """The last attempt at a run waits until no other one is made, and they wait for it."""
        async with self._changed:
            self._alone += alone
            try:
                await self._changed.wait_for(lambda: not (self._turns if alone else self._alone))
                self._turns += 1
            except BaseException:
                self._alone -= alone
                self._changed.notify_all()
                raise
        try:
            yield
        finally:
            async with self._changed:
                self._turns -= 1
                self._alone -= alone
                self._changed.notify_all()

    async def _work(self, run: FleetRun, control: RunControl, earlier: ActiveRun | None) -> None:
        try:
            if earlier is not None:  # cancelled and retried, say, before this worker let go of it
                earlier[0].lose_to_other()
                await asyncio.wait([earlier[1]])
            outcome = await self._try_run(run, control)
            if self._metrics is not None:
                self._metrics.count_calls(control.calls)
            if outcome is None:
                await self._parts.folders.remove_lost(run.id)
                return
            worked = msgspec.structs.replace(run, seconds=control.seconds, cost=control.cost)
            try:
                await self._write(worked, outcome)
            except StoreRefused as error:  # its text, say; another attempt would end as this one
                await self._write(worked, _fail(control, error))
            if outcome.state in ("done", "failed"):
                await self._parts.folders.remove(run.id)
        except StoreError as error:
            self._report_store(error)
            raise
        finally:
            if run.id in self._active and self._active[run.id][0] is control:
                del self._active[run.id]
            self._wake.set()

    async def _try_run(self, run: FleetRun, control: RunControl) -> RunOutcome | None:
        """What came of it; None if another worker has the run, or it was cancelled. StoreError if
        the database is gone, or this worker stops: then the run is delivered again."""
        try:
            return await run_task(run, self._parts, control)
        except (SessionTooNew, StoreRefused) as error:
            return _fail(control, error)
        except SessionBusy as error:
            logger.info("run %s: %s", run.id, error)
            if await self._runs.is_mine(run):
                raise
            return None
        except StoreError as error:
            logger.info("run %s stops here for now: %s", run.id, error)
            raise
        except TreadleError as error:
            return _fail(control, error)
        except Exception as error:  # noqa: BLE001 - of the program's own agent, say
            logger.exception("run %s failed", run.id)
            return _fail(control, error)

    async def _write(self, run: FleetRun, outcome: RunOutcome) -> None:
        match outcome.state:
            case "queued" | "parked":
                await self._runs.release(run, wake=outcome.wake)
            case "waiting":
                await self._runs.wait(run, outcome.approvals)
            case _:
                await self._runs.finish(run, outcome.state, outcome.result, outcome.error)
                return
        await self._tolerate(self._dispatch)

    # --- signs of life ---------------------------------------------------------------------

    async def _beat(self) -> None:
        async with self._claiming:
            sent = time.monotonic()
            worked = {
                run_id: WorkSoFar(control.seconds, control.cost)
                for run_id, (control, _) in self._active.items()
            }
            mine = await self._registry.beat(worked)
            self._lease.confirm(sent)
            self._reported = ""
            for control, _ in [*self._active.values()]:
                if mine.get(control.run.id) != control.run.epoch:
                    control.lose_to_other()
        await self._parts.limiter.settle()

    @property
    def _beat_seconds(self) -> float:
        return min(self._lease.seconds / 3, BEAT_SECONDS)

    async def _sweep(self) -> None:
        for worker in await self._registry.find_dead(self._lease.seconds):
            logger.warning("worker %s is dead: others continue its runs", worker)
            await self._database.forget_workers([worker])

    async def _tidy(self) -> None:
        await self._dispatch()
        await start_due_schedules(self._database, self._clock())
        if self._metrics is not None:
            await self._metrics.update()

    async def _dispatch(self) -> None:
        await self._database.dispatch(self.identity.version)

    def _report_store(self, error: StoreError) -> None:
        """The worker waits and tries again: the problem is said once, until a beat succeeds."""
        if str(error) != self._reported and not isinstance(error, SessionBusy):
            self._reported = str(error)
            self._report(str(error))

    # --- details ---------------------------------------------------------------------------

    async def _is_idle(self) -> bool:
        try:
            states = (await self._database.totals()).states
            is_money_spent = await self._parts.limiter.is_money_spent()
            newer = await self._runs.find_newer() if states.get("queued") else []
        except StoreError:
            return False
        if is_money_spent:
            return not states.get("running")
        if any(states.get(state) for state in ("running", "parked", "waiting")):
            return False
        for run in newer:
            self._report_newer(run)
        return states.get("queued", 0) <= len(newer)

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

    async def _drain(self) -> None:
        """Let each run end its step, for a while; then let go of all, and wait for their ends."""
        self.stop()
        beating = asyncio.create_task(self._repeat(self._beat, self._lease.seconds / 3))
        try:
            if tasks := [task for _, task in self._active.values()]:
                await asyncio.wait(tasks, timeout=self._grace)
            for control, _ in [*self._active.values()]:
                control.lose("the worker stops")
            if tasks := [task for _, task in self._active.values()]:
                await asyncio.wait(tasks, timeout=self._grace)
            await cancel_tasks(tasks)
            await self._parts.limiter.aclose()
            await self._tolerate(self._parts.limiter.settle)
            if self._metrics is not None:
                await self._tolerate(self._metrics.update)
                await asyncio.to_thread(self._metrics.close)
        finally:
            await cancel_tasks([beating])
            await self._tolerate(self._database.engine.stop)
            await self._tolerate(lambda: self._database.forget_workers([self.identity.id]))


def make_run_folders(database: SqlDatabase) -> RunFolders:
    """Folders of this machine; their snapshots are in the database."""
    from treadle.apps.fleet.folders.workspaces import RunWorkspaces, get_default_folder

    return RunWorkspaces(get_default_folder(), database)


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

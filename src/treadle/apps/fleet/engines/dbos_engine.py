"""The run engine of many machines: queues of DBOS in the fleet's PostgreSQL database.

A job is a workflow of DBOS without steps: its id is the id of the job, its executor the worker.
DBOS queues, delays and delivers it, and `dbos workflow list` shows it. What DBOS leaves to its
users is `abandon`: jobs of a dead worker are found and resumed, by two public calls. Needs the
extra `fleet`; imports take about a second, so this module is imported at the first use.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar, cast

import sqlalchemy
from dbos import DBOS, DBOSClient, WorkflowStatus
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import QueuePool

from treadle.core.contracts.run_engine import Deliver, JobRecord, JobState, RunJob
from treadle.core.errors import ConfigError, StoreError
from treadle.lib.logger import logger
from treadle.lib.shielded import complete
from treadle.sessions.postgres.postgres_pool import describe_address

QUEUE = "treadle-fleet"
WORKFLOW = "treadle_run"
APPLICATION = "treadle"
VERSION = "1"  # of the jobs: an id. All versions of the program deliver to each other
AGAIN_SECONDS = 1.0  # after a delivery that raised
END_SECONDS = 5.0  # for DBOS to write that a job ended, when the worker stops
POOL_SIZE = 5  # connections in each process, of DBOS and of its client
_STATES: dict[str, JobState] = {
    "DELAYED": "delayed",
    "ENQUEUED": "queued",
    "PENDING": "delivered",
}
T = TypeVar("T")

_started: DbosEngine | None = None  # DBOS is one a process


class DbosEngine:
    name = "dbos"
    is_remote = False
    default_concurrency = 4

    def __init__(self, url: str) -> None:
        self._address = describe_address(url)
        self._url = url.replace("postgres://", "postgresql://", 1)
        self._opening = asyncio.Lock()
        self._client: tuple[DBOSClient, sqlalchemy.Engine] | None = None
        self._worker = ""
        self._deliver: Deliver | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._room = asyncio.Semaphore(0)  # DBOS has one number for all workers, the last one's
        self._jobs: dict[str, asyncio.Task[Any]] = {}  # taken here, and not ended

    async def submit(self, jobs: Sequence[RunJob]) -> None:
        def enqueue(client: DBOSClient, sql: sqlalchemy.Engine) -> None:
            with sql.begin() as transaction:
                for job in jobs:
                    client.enqueue_in_transaction(transaction, _make_options(job), job.id)

        if jobs:
            await self._use(enqueue)

    async def start(
        self, worker: str, concurrency: int, deliver: Deliver, *, poll: float = 1.0
    ) -> None:
        global _started
        if _started is not None:
            raise ConfigError(
                f"this process works for {_started._address} already: a process has one worker "
                "of a fleet on PostgreSQL; start another one with `treadle fleet worker`"
            )
        _started = self
        self._worker, self._deliver = worker, deliver
        self._room = asyncio.Semaphore(concurrency)
        self._loop = asyncio.get_running_loop()
        # DBOS may drop a job that it takes up while it stops; `abandon` delivers it again.
        warnings.filterwarnings("ignore", "coroutine 'execute_dequeued_workflow", RuntimeWarning)

        def launch(client: DBOSClient, sql: sqlalchemy.Engine) -> None:
            client.register_queue(  # before the launch: DBOS takes jobs from then on
                QUEUE, worker_concurrency=concurrency, polling_interval_sec=poll
            )
            DBOS(
                config={
                    "name": APPLICATION,
                    "system_database_url": self._url,
                    "system_database_engine": sql,
                    "executor_id": worker,
                    "application_version": VERSION,
                    "log_level": "CRITICAL",  # what matters to a user is said by the worker
                    "run_migrations": False,
                }
            )
            DBOS.listen_queues([QUEUE])
            DBOS.launch()

        try:
            await self._use(launch)
        except BaseException:
            _started = None
            raise

    async def stop(self) -> None:
        global _started
        if _started is not self:
            return
        try:
            self._deliver = None
            await self._wait_for_ends()
            await asyncio.to_thread(DBOS.destroy)
            for task in [*self._jobs.values()]:  # not before: DBOS would write that they ended
                task.cancel()
            if self._jobs:
                await asyncio.wait([*self._jobs.values()])
            self._jobs.clear()
        finally:
            _started = None
        await self.abandon(self._worker)

    async def abandon(self, worker: str) -> None:
        def resume(client: DBOSClient, _: object) -> None:
            if ids := [found.workflow_id for found in _find(client, "PENDING", executor_id=worker)]:
                client.resume_workflows(ids, queue_name=QUEUE)

        await self._use(resume)

    async def cancel(self, ids: Collection[str]) -> None:
        def cancel(client: DBOSClient, _: object) -> None:
            waiting = _find(client, "ENQUEUED", "DELAYED", workflow_ids=[*ids])
            if found := [one.workflow_id for one in waiting]:
                client.cancel_workflows(found)

        if ids:
            await self._use(cancel)

    async def delete(self, ids: Collection[str]) -> None:
        def delete(client: DBOSClient, _: object) -> None:
            if found := [one.workflow_id for one in _find(client, workflow_ids=[*ids])]:
                client.delete_workflows(found)

        if ids:
            await self._use(delete)

    async def list(self) -> Sequence[JobRecord]:
        found = await self._use(lambda client, _: _find(client, *_STATES))
        records = []
        for one in found:
            state = _STATES[one.status]
            worker = (one.executor_id or "") if state == "delivered" else ""
            records.append(JobRecord(one.workflow_id, state, worker))
        return records

    async def aclose(self) -> None:
        await self.stop()
        async with self._opening:
            opened, self._client = self._client, None
        if opened is not None:
            client, sql = opened
            await asyncio.to_thread(client.destroy)
            while cast(QueuePool, sql.pool).checkedout():  # noqa: ASYNC110 - by a thread of DBOS
                await asyncio.sleep(0.02)
            await asyncio.to_thread(sql.dispose)

    # --- deliveries ------------------------------------------------------------------------

    async def receive(self, job_id: str) -> None:
        """In the loop of DBOS: let the loop of the worker do it."""
        assert self._loop is not None, "it is started"
        work = asyncio.run_coroutine_threadsafe(self._repeat(job_id), self._loop)
        await asyncio.wrap_future(work)

    async def _repeat(self, job_id: str) -> None:
        task = asyncio.current_task()
        assert task is not None, "this is one"
        self._jobs[job_id] = task
        while True:
            try:
                async with self._room:
                    if self._deliver is not None:  # else it stops: others get the job from `stop`
                        await self._deliver(job_id)
                        if self._jobs[job_id] is task:
                            del self._jobs[job_id]
                        return
            except Exception as error:  # noqa: BLE001 - whatever it was, the job is not done
                logger.debug("the job %s is delivered again: %s", job_id, error)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _wait_for_ends(self) -> None:
        """Until DBOS has written the end of each job that ended here."""
        try:
            async with asyncio.timeout(END_SECONDS):
                while True:
                    mine = await self._use(
                        lambda client, _: _find(client, "PENDING", executor_id=self._worker)
                    )
                    if {one.workflow_id for one in mine} <= self._jobs.keys():
                        return
                    await asyncio.sleep(0.02)
        except (TimeoutError, StoreError):
            pass  # then they are delivered again, and there is nothing to do for them

    # --- the client ------------------------------------------------------------------------

    async def _use(self, work: Callable[[DBOSClient, sqlalchemy.Engine], T]) -> T:
        """In a thread, which gives its connection back before this returns. StoreError if the
        database cannot be used."""
        try:
            async with self._opening:
                if self._client is None:
                    self._client = await complete(asyncio.to_thread(self._open))
                client, sql = self._client
            return await complete(asyncio.to_thread(work, client, sql))
        except SQLAlchemyError as error:
            text = " ".join(str(getattr(error, "orig", None) or error).split())
            raise StoreError(f"{self._address} cannot be used by DBOS: {text}") from error

    def _open(self) -> tuple[DBOSClient, sqlalchemy.Engine]:
        DBOS.migrate(self._url)
        url = sqlalchemy.make_url(self._url).set(drivername="postgresql+psycopg")
        sql = sqlalchemy.create_engine(url, pool_size=POOL_SIZE, max_overflow=0, pool_pre_ping=True)
        client = DBOSClient(
            system_database_engine=sql,
            application_name=APPLICATION,
            retry_connection_errors=False,
        )
        client.register_queue(QUEUE, on_conflict="never_update", application_name=APPLICATION)
        return client, sql


@DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)
async def _receive_job(job_id: str) -> None:
    assert _started is not None, "DBOS is stopped before"
    await _started.receive(job_id)


def _make_options(job: RunJob) -> Any:
    options: dict[str, object] = {
        "workflow_name": WORKFLOW,
        "queue_name": QUEUE,
        "workflow_id": job.id,
        "app_version": VERSION,
    }
    return options | ({"delay_seconds": job.delay} if job.delay > 0 else {})


def _find(client: DBOSClient, *states: str, **conditions: Any) -> list[WorkflowStatus]:
    return client.list_workflows(
        status=[*states] or None, name=WORKFLOW, load_input=False, load_output=False, **conditions
    )

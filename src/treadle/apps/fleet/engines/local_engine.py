"""The run engine of one machine: jobs are rows of the fleet's SQLite file. See run_engine.py.

A claim is one statement. Workers look at the table at intervals; processes of one machine need no
more. On PostgreSQL the table is what is durable of the engine `ray` (ray_engine.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import msgspec

from treadle.apps.fleet.sql.sql_connection import SqlConnection, make_placeholders
from treadle.core.contracts.run_engine import Deliver, JobRecord, RunJob
from treadle.core.errors import StoreError
from treadle.lib.logger import logger
from treadle.lib.tasks import cancel_all

AGAIN_SECONDS = 1.0  # after a delivery that raised
CANCEL_SECONDS = 1.0  # a cancellation may get lost in a call of the database


class LocalEngine:
    name = "local"
    is_remote = False
    default_concurrency = 4

    def __init__(self, connection: SqlConnection) -> None:
        self._connection = connection
        self._worker = ""
        self._kick = asyncio.Event()
        self._claiming: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, jobs: Sequence[RunJob]) -> None:
        sql = (
            "INSERT INTO fleet_jobs (id, due, resources) VALUES (?, {now} + ?, ?) "
            "ON CONFLICT (id) DO NOTHING"
        )
        if jobs:
            await self._connection.execute_all(
                [
                    (sql, [job.id, job.delay, msgspec.json.encode(job.resources).decode()])
                    for job in jobs
                ]
            )
            self._kick.set()

    async def start(
        self, worker: str, concurrency: int, deliver: Deliver, *, poll: float = 1.0
    ) -> None:
        self._worker = worker
        self._claiming = asyncio.create_task(self._claim_jobs(concurrency, deliver, poll))

    async def stop(self) -> None:
        claiming, self._claiming = self._claiming, None
        if claiming is None:
            return
        await cancel_all([claiming], CANCEL_SECONDS)
        if tasks := [*self._tasks]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await self.abandon(self._worker)

    async def abandon(self, worker: str) -> None:
        sql = "UPDATE fleet_jobs SET worker = '' WHERE worker = ?"
        await self._connection.execute(sql, [worker])

    async def cancel(self, ids: Collection[str]) -> None:
        sql = f"DELETE FROM fleet_jobs WHERE worker = '' AND id IN {make_placeholders([*ids])}"
        await self._connection.execute(sql, [*ids])

    async def delete(self, ids: Collection[str]) -> None:
        sql = f"DELETE FROM fleet_jobs WHERE id IN {make_placeholders([*ids])}"
        await self._connection.execute(sql, [*ids])

    async def list(self) -> Sequence[JobRecord]:
        sql = (
            "SELECT id, CASE WHEN worker <> '' THEN 'delivered' WHEN due <= {now} THEN 'queued' "
            "ELSE 'delayed' END, worker FROM fleet_jobs ORDER BY number"
        )
        return [JobRecord(*row) for row in await self._connection.execute(sql)]

    async def aclose(self) -> None:
        await self.stop()

    # --- deliveries ------------------------------------------------------------------------

    async def _claim_jobs(self, concurrency: int, deliver: Deliver, poll: float) -> None:
        sql = (
            "UPDATE fleet_jobs SET worker = ?, delivery = delivery + 1 WHERE id IN ("
            "SELECT id FROM fleet_jobs WHERE worker = '' AND due <= {now} ORDER BY number LIMIT ? "
            "{skip_locked}) RETURNING id, resources, delivery"
        )
        while True:
            self._kick.clear()
            try:
                if (room := concurrency - len(self._tasks)) > 0:
                    rows = await self._connection.execute(sql, [self._worker, room])
                    for job_id, resources, delivery in rows:
                        job = RunJob(job_id, resources=msgspec.json.decode(resources))
                        task = asyncio.create_task(self._deliver(job, delivery, deliver))
                        self._tasks.add(task)
                        task.add_done_callback(self._end)
            except StoreError as error:
                logger.debug("the queue cannot be read for the moment: %s", error)
            try:
                async with asyncio.timeout(poll):
                    await self._kick.wait()
            except TimeoutError:
                pass

    async def _deliver(self, job: RunJob, delivery: int, deliver: Deliver) -> None:
        sql = "DELETE FROM fleet_jobs WHERE id = ? AND delivery = ?"
        while True:
            try:
                await self._hand_over(job, deliver)
                await self._connection.execute(sql, [job.id, delivery])
                return
            except Exception as error:  # noqa: BLE001 - whatever it was, the job is not done
                logger.debug("the job %s is delivered again: %s", job.id, error)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _hand_over(self, job: RunJob, deliver: Deliver) -> None:
        await deliver(job.id)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._kick.set()

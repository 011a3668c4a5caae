"""The promises of a RunEngine (core/contracts/run_engine.py), as checks.

    await check_run_engine(open_engine)      open_engine() opens one more engine on the same place

Each engine that it returns stands for a process. If a process can have one worker only, the checks
stop one before they start the next.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from treadle.core.contracts.run_engine import JobRecord, RunEngine, RunJob
from treadle.testing.conformance.promises import Promise, keep_promises, opened

OpenEngine = Callable[[], RunEngine | Awaitable[RunEngine]]
LIMIT = 60.0  # seconds until what has to happen has happened
POLL = 0.05


async def check_run_engine(open_engine: OpenEngine) -> None:
    """Raise an AssertionError that names the first broken promise."""
    await keep_promises("run engine", RUN_ENGINE_PROMISES, open_engine)


class Deliveries:
    """What a worker of these checks was given; it holds a job until `release`, if it is to."""

    def __init__(self, *, hold: bool = False, fail: int = 0) -> None:
        self.jobs: list[str] = []
        self.at_once = 0
        self._open = 0
        self._fail = fail
        self._released = asyncio.Event()
        if not hold:
            self._released.set()

    async def __call__(self, job_id: str) -> None:
        self.jobs.append(job_id)
        self._open += 1
        self.at_once = max(self.at_once, self._open)
        try:
            await self._released.wait()
            if self._fail:
                self._fail -= 1
                raise RuntimeError("this delivery fails")
        finally:
            self._open -= 1

    def release(self) -> None:
        self._released.set()

    async def until(self, count: int) -> None:
        try:
            async with asyncio.timeout(LIMIT):
                while len(self.jobs) < count:  # noqa: ASYNC110 - another process may do it
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{count} deliveries were expected: {self.jobs}") from None


def make_ids(count: int) -> list[str]:
    prefix = os.urandom(4).hex()
    return [f"{prefix}-{number}/0" for number in range(count)]


async def find(engine: RunEngine, ids: list[str]) -> list[JobRecord]:
    return [record for record in await engine.list() if record.id in ids]


async def until_ended(engine: RunEngine, ids: list[str]) -> None:
    async with asyncio.timeout(LIMIT):
        while await find(engine, ids):  # noqa: ASYNC110 - the engine does it
            await asyncio.sleep(0.01)


async def a_job_is_delivered_to_a_worker_that_starts_later(open_engine: OpenEngine) -> None:
    ids, got = make_ids(3), Deliveries()
    async with opened(open_engine) as engine:
        await engine.submit([RunJob(one) for one in ids])
    async with opened(open_engine) as other:
        assert [one.state for one in await find(other, ids)] == ["queued"] * 3, "not listed"
        await other.start("later", 3, got, poll=POLL)
        await got.until(3)
        await until_ended(other, ids)
    assert sorted(got.jobs) == ids, f"delivered were {got.jobs}"


async def the_same_id_twice_is_one_job(open_engine: OpenEngine) -> None:
    ids, got = make_ids(2), Deliveries(hold=True)
    async with opened(open_engine) as engine:
        for _ in range(2):
            await engine.submit([RunJob(ids[0])])
        assert len(await find(engine, ids)) == 1, "it is listed twice"
        await engine.start("once", 2, got, poll=POLL)
        await got.until(1)
        await engine.submit([RunJob(ids[0]), RunJob(ids[1])])  # while it is delivered
        await got.until(2)
        got.release()
        await until_ended(engine, ids)
    assert got.jobs == ids, f"delivered were {got.jobs}"


async def a_worker_has_at_most_its_number_of_jobs(open_engine: OpenEngine) -> None:
    ids, got = make_ids(5), Deliveries(hold=True)
    async with opened(open_engine) as engine:
        await engine.submit([RunJob(one) for one in ids])
        await engine.start("two", 2, got, poll=POLL)
        await got.until(2)
        states = {one.id: (one.state, one.worker) for one in await find(engine, ids)}
        assert sorted(states.values()) == [
            *[("delivered", "two")] * 2,
            *[("queued", "")] * 3,
        ], f"it lists {states}"
        got.release()
        await got.until(5)
        await until_ended(engine, ids)
    assert got.at_once == 2, f"{got.at_once} jobs were delivered at once"


async def jobs_of_a_worker_that_stops_go_to_others(open_engine: OpenEngine) -> None:
    ids, first, second = make_ids(2), Deliveries(hold=True), Deliveries()
    async with opened(open_engine) as engine:
        await engine.submit([RunJob(one) for one in ids])
        await engine.start("first", 2, first, poll=POLL)
        await first.until(2)
        await engine.stop()
    async with opened(open_engine) as other:
        await other.start("second", 2, second, poll=POLL)
        await second.until(2)
        await until_ended(other, ids)
    assert sorted(second.jobs) == ids, f"delivered were {second.jobs}"


async def jobs_of_an_abandoned_worker_go_to_others(open_engine: OpenEngine) -> None:
    """`abandon` comes from another process; the worker itself knows nothing of it."""
    ids, got = make_ids(2), Deliveries(hold=True)
    async with opened(open_engine) as engine, opened(open_engine) as other:
        await engine.submit([RunJob(one) for one in ids])
        await engine.start("dead", 4, got, poll=POLL)
        await got.until(2)
        await other.abandon("another")
        assert {one.worker for one in await find(other, ids)} == {"dead"}, "others lost theirs"
        await other.abandon("dead")
        await got.until(4)
        got.release()
        await until_ended(other, ids)
    assert sorted(got.jobs) == sorted(ids * 2), f"delivered were {got.jobs}"


async def a_delivery_that_raises_is_repeated(open_engine: OpenEngine) -> None:
    ids, got = make_ids(1), Deliveries(fail=2)
    async with opened(open_engine) as engine:
        await engine.submit([RunJob(ids[0])])
        await engine.start("fails", 1, got, poll=POLL)
        await until_ended(engine, ids)
    assert got.jobs == ids * 3, f"delivered were {got.jobs}"


async def a_delayed_job_waits(open_engine: OpenEngine) -> None:
    ids, got = make_ids(3), Deliveries()
    async with opened(open_engine) as engine:
        await engine.submit(
            [RunJob(ids[0], delay=3600.0), RunJob(ids[1], delay=0.5), RunJob(ids[2])]
        )
        await engine.start("waits", 3, got, poll=POLL)
        await got.until(2)
        assert {one.id: one.state for one in await find(engine, ids[:1])} == {ids[0]: "delayed"}
        await engine.cancel(ids[:1])
        await until_ended(engine, ids)
    assert got.jobs == [ids[2], ids[1]], f"delivered were {got.jobs}"


async def a_cancelled_job_is_not_delivered(open_engine: OpenEngine) -> None:
    ids, got = make_ids(3), Deliveries()
    async with opened(open_engine) as engine:
        await engine.submit([RunJob(one) for one in ids])
        await engine.cancel([*ids[:2], "unknown/0"])
        assert [one.id for one in await find(engine, ids)] == ids[2:], "it is listed"
        await engine.start("third", 3, got, poll=POLL)
        await got.until(1)
        await until_ended(engine, ids)
    assert got.jobs == ids[2:], f"delivered were {got.jobs}"


async def the_id_of_a_deleted_job_may_come_again(open_engine: OpenEngine) -> None:
    ids, got = make_ids(1), Deliveries()
    async with opened(open_engine) as engine:
        await engine.start("again", 1, got, poll=POLL)
        for count in (1, 2):
            await engine.submit([RunJob(ids[0])])
            await got.until(count)
            await until_ended(engine, ids)
            await engine.delete([*ids, "unknown/0"])


RUN_ENGINE_PROMISES: tuple[Promise, ...] = (
    a_job_is_delivered_to_a_worker_that_starts_later,
    the_same_id_twice_is_one_job,
    a_worker_has_at_most_its_number_of_jobs,
    jobs_of_a_worker_that_stops_go_to_others,
    jobs_of_an_abandoned_worker_go_to_others,
    a_delivery_that_raises_is_repeated,
    a_delayed_job_waits,
    a_cancelled_job_is_not_delivered,
    the_id_of_a_deleted_job_may_come_again,
)

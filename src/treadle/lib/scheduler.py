"""Runs several jobs at once, and gives their results in their order.

A concurrent job waits only for earlier ones that write what it touches, or touch what it writes.
Any other job waits for all jobs before it, and all after it wait for it. Used by the loop, for the
calls of a reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from treadle.lib.tasks import cancel_all, forget_result

T = TypeVar("T")


class Job(msgspec.Struct, Generic[T], frozen=True):
    """How to run it, whether it is concurrent, and what it touches."""

    run: Callable[[], Awaitable[T]]
    is_concurrent: bool
    reads: frozenset[str]
    writes: frozenset[str]

    def conflicts_with(self, other: Job[T]) -> bool:
        if not (self.is_concurrent and other.is_concurrent):
            return True
        touched = other.writes | other.reads
        return not (self.writes.isdisjoint(touched) and self.reads.isdisjoint(other.writes))


async def run_jobs(
    jobs: Sequence[Job[T]],
    max_parallel: int,
    on_result: Callable[[T], None],
    on_early_result: Callable[[T], None],
) -> None:
    """Run all. `on_result` gets each result in order, `on_early_result` one before its turn."""
    limit = asyncio.Semaphore(max_parallel)
    done = [asyncio.Event() for _ in jobs]
    results: dict[int, T] = {}  # by position
    reported = 0
    is_over = False

    async def one(position: int) -> None:
        nonlocal reported
        job = jobs[position]
        for earlier in range(position):
            if job.conflicts_with(jobs[earlier]):
                await done[earlier].wait()
        async with limit:
            result = await job.run()
        if is_over:
            return  # it ignored its cancellation, and nobody waits for its result
        results[position] = result
        done[position].set()
        if reported != position:
            on_early_result(result)
        while reported in results:
            reported += 1
            on_result(results[reported - 1])

    loop = asyncio.get_running_loop()
    work = [loop.create_task(one(position)) for position in range(len(jobs))]
    try:
        finished, _ = await asyncio.wait(work, return_when=asyncio.FIRST_EXCEPTION)
        for task in finished:
            task.result()
    except BaseException:
        try:
            await cancel_all(work)
        finally:
            is_over = True
        for task in work:
            forget_result(task)
        raise

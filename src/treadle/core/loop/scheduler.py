"""Runs several calls at once, and gives their results in the model's order.

A concurrent call waits only for earlier calls that write what it touches, or touch what it writes.
Any other call waits for all calls before it, and all after it wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from treadle.core.loop.background import cancel_all
from treadle.core.transcript.items import ToolResultItem


class ScheduledCall(msgspec.Struct, frozen=True):
    """One call: how to run it, whether it is concurrent, and what it touches."""

    run: Callable[[], Awaitable[ToolResultItem]]
    is_concurrent: bool
    reads: frozenset[str]
    writes: frozenset[str]


def conflicts(one: ScheduledCall, two: ScheduledCall) -> bool:
    if not (one.is_concurrent and two.is_concurrent):
        return True
    return bool(one.writes & two.writes or one.writes & two.reads or one.reads & two.writes)


async def run_calls(
    calls: Sequence[ScheduledCall],
    max_parallel: int,
    on_result: Callable[[ToolResultItem], None],
    on_early_result: Callable[[ToolResultItem], None],
) -> None:
    """Run all. `on_result` gets each result in order, `on_early_result` one before its turn."""
    limit = asyncio.Semaphore(max_parallel)
    done = [asyncio.Event() for _ in calls]
    results: list[ToolResultItem | None] = [None] * len(calls)
    reported = 0
    is_over = False

    async def one(position: int) -> None:
        nonlocal reported
        slot = calls[position]
        for earlier in range(position):
            if conflicts(calls[earlier], slot):
                await done[earlier].wait()
        async with limit:
            result = await slot.run()
        if is_over:
            return  # it ignored its cancellation; the call has a result already
        results[position] = result
        done[position].set()
        if reported != position:
            on_early_result(result)
        while reported < len(calls) and (ready := results[reported]) is not None:
            reported += 1
            on_result(ready)

    loop = asyncio.get_running_loop()
    work = [loop.create_task(one(position)) for position in range(len(calls))]
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
            if task.done() and not task.cancelled():
                task.exception()  # retrieved, or asyncio would log it
        raise

"""Several calls at once: who may run beside whom, and answers in the model's order.

A safe call waits only for earlier calls that write what it touches, or touch what it writes.
One that is not declared safe waits for all before it, and all behind it wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from treadle.core.loop.tasks import end_all
from treadle.core.transcript.items import ToolResultItem


class Slot(msgspec.Struct, frozen=True):
    """One call: its work, whether it is safe, and what it touches."""

    work: Callable[[], Awaitable[ToolResultItem]]
    is_safe: bool
    reads: frozenset[str]
    writes: frozenset[str]


def conflict(one: Slot, two: Slot) -> bool:
    if not (one.is_safe and two.is_safe):
        return True
    return bool(one.writes & two.writes or one.writes & two.reads or one.reads & two.writes)


async def run_in_order(
    slots: Sequence[Slot],
    most: int,
    on_result: Callable[[ToolResultItem], None],
    on_early: Callable[[ToolResultItem], None],
) -> None:
    """Run all. `on_result` gets each answer in order, `on_early` one that must wait its turn."""
    limit = asyncio.Semaphore(most)
    done = [asyncio.Event() for _ in slots]
    results: list[ToolResultItem | None] = [None] * len(slots)
    told = 0
    is_over = False

    async def one(position: int) -> None:
        nonlocal told
        slot = slots[position]
        for earlier in range(position):
            if conflict(slots[earlier], slot):
                await done[earlier].wait()
        async with limit:
            result = await slot.work()
        if is_over:
            return  # it did not heed its cancellation, and was answered for
        results[position] = result
        done[position].set()
        if told != position:
            on_early(result)
        while told < len(slots) and (ready := results[told]) is not None:
            told += 1
            on_result(ready)

    loop = asyncio.get_running_loop()
    work = [loop.create_task(one(position)) for position in range(len(slots))]
    try:
        finished, _ = await asyncio.wait(work, return_when=asyncio.FIRST_EXCEPTION)
        for task in finished:
            task.result()
    except BaseException:
        try:
            await end_all(work)
        finally:
            is_over = True
        for task in work:
            if task.done() and not task.cancelled():
                task.exception()  # looked at, so that nobody complains about it later
        raise

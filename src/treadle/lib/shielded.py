"""Work that is completed although its caller is cancelled.

For opening and closing: half of either would hold a lock, or lose what is not written. Used by
sessions/ and agents/.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def complete(work: Coroutine[Any, Any, T] | asyncio.Task[T]) -> T:
    """Await the work to its end; a cancellation of the caller is raised after that."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # retrieved, or asyncio would log it
    raise cancelled


async def open_in_thread(
    open_it: Callable[[], T], close: Callable[[T], Coroutine[Any, Any, None]]
) -> T:
    """What `open_it` returns, which runs in a thread; closed again if the caller is cancelled."""
    opening = asyncio.get_running_loop().create_task(asyncio.to_thread(open_it))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await complete(_undo(opening, close))
        raise


async def _undo(opening: asyncio.Task[T], close: Callable[[T], Coroutine[Any, Any, None]]) -> None:
    await asyncio.wait([opening])
    if not opening.cancelled() and opening.exception() is None:
        await close(opening.result())

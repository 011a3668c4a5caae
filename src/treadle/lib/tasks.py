"""Tasks of asyncio: end them for certain, run the code of others in one, give many a time limit.

    cancel_all        cancel tasks and wait until they are gone
    supervise         keep a task running for the life of a program
    await_contained   await code of others, so that a cancellation is not lost in it
    Deadlines         one timer of the event loop for many futures

Used wherever tasks are started. Work that must be completed is shielded.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from treadle.lib.contained import as_exception, call_contained

T = TypeVar("T")

RESTART_SECONDS = 1.0
STOP_GRACE_SECONDS = 1.0  # for the code of others, after its cancellation
_abandoned: set[asyncio.Task[Any]] = set()  # asyncio itself has only weak references


async def cancel_all(tasks: list[asyncio.Task[Any]], grace: float = 5.0) -> None:
    """Cancel tasks and wait until they are gone, even if we are cancelled meanwhile."""
    for task in tasks:
        task.cancel()
    await wait_cancelled(tasks, grace)


async def wait_cancelled(tasks: list[asyncio.Task[Any]], grace: float = 5.0) -> None:
    """Wait until cancelled tasks are gone, even if we are cancelled meanwhile.

    Those that are left after `grace` seconds are cancelled once more: not each time that we are,
    because a scope of anyio cancels us again at every step of the event loop, and tasks that got
    the same could never clean up.
    """
    running = [task for task in tasks if not task.done()]
    loop = asyncio.get_running_loop()
    cancelled = False
    while running:
        deadline, left = loop.time() + grace, set(running)
        while left and (rest := deadline - loop.time()) > 0:
            try:
                _, left = await asyncio.wait(left, timeout=rest)
            except asyncio.CancelledError:
                cancelled, left = True, {task for task in left if not task.done()}
        if len(left) == len(running):
            break  # they swallow cancellation: waiting longer would block the user
        running = list(left)
        for task in running:
            task.cancel()
    if cancelled:
        raise asyncio.CancelledError


async def supervise(
    run: Callable[[], Awaitable[None]],
    on_error: Callable[[Exception], None],
    delay: float = RESTART_SECONDS,
) -> None:
    """Run what should never end, for the life of a program: an error is told, and it is started
    again after a moment."""
    while True:
        try:
            await run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the others need this task
            on_error(error)
        await asyncio.sleep(delay)


def mark_done(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def forget_result(task: asyncio.Task[Any]) -> None:
    """How the task ended does not matter: without this, asyncio would log its exception."""
    if task.done() and not task.cancelled():
        task.exception()


async def await_contained(
    work: Awaitable[T],
    timeout: float | None = None,
    on_abandoned: Callable[[], None] = lambda: None,
) -> T:
    """Await code of others in a task of its own.

    A cancellation of ours and the timeout are raised, also if the code swallows its cancellation
    and returns. Code that does not stop is abandoned. A CancelledError or SystemExit that it raises
    by itself is its failure, a RuntimeError; it does not cancel us.
    """
    loop, current = asyncio.get_running_loop(), asyncio.current_task()
    assert current is not None, "this runs inside a task"
    before = current.cancelling()
    # Awaiting the task directly would forward our cancellation to it.
    done: asyncio.Future[None] = loop.create_future()
    task = loop.create_task(_run_and_mark(work, done))
    timer = loop.call_later(timeout, mark_done, done) if timeout is not None else None
    try:
        await done
    except asyncio.CancelledError:
        await _stop(task, work, on_abandoned)
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if current.cancelling() > before:
        raise asyncio.CancelledError
    if not task.done():
        await _stop(task, work, on_abandoned)
        raise TimeoutError(f"it did not finish within {timeout:g} s")
    if task.cancelled():
        raise RuntimeError("it was cancelled from inside")
    return call_contained(task.result)


async def _run_and_mark(work: Awaitable[T], done: asyncio.Future[None]) -> T:
    try:
        return await work
    except SystemExit as raised:  # a task would hand it to the event loop, which ends with it
        raise as_exception(raised) from raised
    finally:
        mark_done(done)


async def _stop(
    task: asyncio.Task[T], work: Awaitable[T], on_abandoned: Callable[[], None]
) -> None:
    """Cancel the task and wait a moment for its end. What it returns or raises now is ignored."""
    task.cancel()
    try:
        await asyncio.wait([task], timeout=STOP_GRACE_SECONDS)
    finally:
        if not task.done():
            _abandoned.add(task)
            on_abandoned()
        task.add_done_callback(partial(_forget, work))


def _forget(work: Awaitable[T], task: asyncio.Task[T]) -> None:
    _abandoned.discard(task)
    forget_result(task)
    if asyncio.iscoroutine(work):
        work.close()  # it may not have begun


class Deadlines:
    """Marks a future as done when its time is over. Almost all work ends long before, and a timer
    for each would cost as much as a small piece of work."""

    def __init__(self) -> None:
        self._deadlines: dict[asyncio.Future[None], float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None  # of the timer
        self._timer: asyncio.TimerHandle | None = None  # fires at the first deadline, or before it
        self._fires_at = 0.0

    def add(self, done: asyncio.Future[None], seconds: float) -> None:
        loop = done.get_loop()
        deadline = self._deadlines[done] = loop.time() + seconds
        if self._loop is not loop or deadline < self._fires_at:
            self._set_timer(loop, deadline)

    def remove(self, done: asyncio.Future[None]) -> None:
        del self._deadlines[done]

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._loop = self._timer = None

    def _set_timer(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        self.close()
        self._loop, self._fires_at = loop, deadline
        self._timer = loop.call_at(deadline, self._mark_expired, loop)

    def _mark_expired(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = self._timer = None
        for done, deadline in self._deadlines.items():
            if deadline <= self._fires_at:
                mark_done(done)
        left = [deadline for deadline in self._deadlines.values() if deadline > self._fires_at]
        if left:
            self._set_timer(loop, min(left))

"""Interruption: cancels the task that runs `next()`, and tells our cancellation from others.

Our own cancellations are counted; one that came from outside is raised again. Requested from inside
that very task (by an observer or a tool), the task is cancelled at its next await, unless it checks
`is_requested` before. `await_contained` runs the code of others, so that a cancellation is not lost
in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from treadle.core.errors import DriverBusy, LoopError
from treadle.core.events import WarningRaised
from treadle.core.loop.emitter import Emitter

T = TypeVar("T")

STOP_GRACE_SECONDS = 1.0  # for the code of others, after its cancellation
_abandoned: set[asyncio.Task[Any]] = set()  # asyncio itself has only weak references


async def await_contained(
    work: Awaitable[T], who: str, emitter: Emitter | None, timeout: float | None = None
) -> T:
    """Await code of a hook, a mutator, a policy, an approver or a tool, in a task of its own.

    A cancellation of ours and the timeout are raised, also if the code swallows its cancellation
    and returns. Code that does not stop is abandoned. A CancelledError that it raises by itself is
    its failure, a RuntimeError; it does not cancel the run.
    """
    loop, current = asyncio.get_running_loop(), asyncio.current_task()
    assert current is not None, "the loop runs inside a task"
    before = current.cancelling()
    # Awaiting the task directly would forward our cancellation to it.
    done: asyncio.Future[None] = loop.create_future()
    task = loop.create_task(_run_and_mark(work, done))
    timer = loop.call_later(timeout, mark_done, done) if timeout is not None else None
    try:
        await done
    except asyncio.CancelledError:
        await _stop(task, work, who, emitter)
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if current.cancelling() > before:
        raise asyncio.CancelledError
    if not task.done():
        await _stop(task, work, who, emitter)
        raise TimeoutError(f"it did not finish within {timeout:g} s")
    if task.cancelled():
        raise RuntimeError("it was cancelled from inside")
    return task.result()


def mark_done(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


async def _run_and_mark(work: Awaitable[T], done: asyncio.Future[None]) -> T:
    try:
        return await work
    finally:
        mark_done(done)


async def _stop(
    task: asyncio.Task[T], work: Awaitable[T], who: str, emitter: Emitter | None
) -> None:
    """Cancel the task and wait a moment for its end. What it returns or raises now is ignored."""
    task.cancel()
    try:
        await asyncio.wait([task], timeout=STOP_GRACE_SECONDS)
    finally:
        if not task.done():
            _abandoned.add(task)
            if emitter is not None:
                emitter.emit(WarningRaised, f"{who} does not stop; it was abandoned")
        task.add_done_callback(partial(_forget, work))


def _forget(work: Awaitable[T], task: asyncio.Task[T]) -> None:
    _abandoned.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, or asyncio would log it
    if asyncio.iscoroutine(work):
        work.close()  # it may not have begun


class Interruption:
    def __init__(self) -> None:
        self.reason: str | None = None
        # Of a child agent: whether the call that it runs in is being stopped. Its own cancellation
        # arrives a little later.
        self.is_parent_stopping: Callable[[], bool] | None = None
        self._task: asyncio.Task[object] | None = None
        self._outer_cancellations = 0  # that were there when `next()` began
        self._own_cancellations = 0
        self._is_acknowledged = False
        self._left: asyncio.Future[None] | None = None  # done when the step has ended

    @property
    def is_running(self) -> bool:
        return self._task is not None

    def check_loop(self, method: str) -> None:
        """LoopError if a step is running in another event loop, as that of another thread is."""
        if self._task is None:
            return
        try:
            is_same = asyncio.get_running_loop() is self._task.get_loop()
        except RuntimeError:
            is_same = False
        if not is_same:
            raise LoopError(
                f"{method}() was called from another thread than that of the run; call "
                f"loop.call_soon_threadsafe({method}, ...) with the event loop of the run"
            )

    def is_stopping(self) -> bool:
        """Whether nothing new may begin."""
        if self.reason is not None:
            return True
        return self.is_parent_stopping is not None and self.is_parent_stopping()

    def enter(self) -> None:
        if self._task is not None:
            raise DriverBusy("next() is already running on this driver; await it first")
        task = asyncio.current_task()
        assert task is not None, "next() is awaited inside a task"
        self._task, self._outer_cancellations, self._own_cancellations, self._is_acknowledged = (
            task,
            task.cancelling(),
            0,
            False,
        )

    def leave(self, *, is_handled: bool = True) -> None:
        """End of `next()`: take back our own cancellations of the task. An interruption that is
        not handled yet waits for the next `next()`."""
        if self._task is not None:
            for _ in range(self._own_cancellations):
                self._task.uncancel()
        self._task = None
        if self._left is not None:
            mark_done(self._left)
        if is_handled:
            self.reason = None

    async def stop_step(
        self, reason: str, seconds: float, caller: asyncio.Task[object] | None
    ) -> bool:
        """Interrupt the step that runs and wait until it has ended; False if it did not in time, or
        runs in the task of the caller, which waits for this."""
        if self._task is None:
            return True
        if self._task is caller:
            return False
        self._left = asyncio.get_running_loop().create_future()
        self.request(reason)
        await asyncio.wait([self._left], timeout=seconds)
        return self._left.done()

    def request(self, reason: str) -> None:
        self.reason = reason
        task = self._task
        if task is None:
            return
        is_own = task is asyncio.current_task()
        if is_own:
            asyncio.get_running_loop().call_soon(self._cancel_unless_acknowledged, task)
        else:
            self._cancel(task)

    def raise_if_cancelled(self) -> None:
        """Raise a cancellation from outside that some code has swallowed."""
        task = self._task
        if task is None:
            return
        if task.cancelling() - self._own_cancellations > self._outer_cancellations:
            raise asyncio.CancelledError

    def is_requested(self) -> bool:
        """Whether to stop. A caller that gets True stops by itself and is not cancelled."""
        if self.reason is None:
            return False
        self._is_acknowledged = True
        return True

    @property
    def is_only_interruption(self) -> bool:
        """Whether every cancellation of the task was ours."""
        task = self._task
        if self.reason is None or task is None:
            return False
        return task.cancelling() - self._own_cancellations <= self._outer_cancellations

    def _cancel_unless_acknowledged(self, task: asyncio.Task[object]) -> None:
        if self._task is task and self.reason is not None and not self._is_acknowledged:
            self._cancel(task)

    def _cancel(self, task: asyncio.Task[object]) -> None:
        self._own_cancellations += 1
        task.cancel()

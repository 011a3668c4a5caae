"""Interruption: cancels the task that runs `next()`, and tells our cancellation from others.

Our own cancellations are counted; one that came from outside is raised again. Requested from inside
that very task (by an observer or a tool), the task is cancelled at its next await, unless it checks
`is_requested` before. Used by driver.py and by what it calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from treadle.core.errors import DriverBusy, LoopError
from treadle.lib.tasks import mark_done


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

    def is_step(self, task: asyncio.Task[object] | None) -> bool:
        """Whether the step runs in this task."""
        return self._task is not None and self._task is task

    def check_loop(self, method: str) -> None:
        """LoopError if a step is running in another event loop, as that of another thread is."""
        task = self._task
        with suppress(RuntimeError):  # no event loop runs here
            if task is None or asyncio.get_running_loop() is task.get_loop():
                return
        raise LoopError(
            f"{method}() was called from another thread than that of the run; call it there, with "
            "loop.call_soon_threadsafe, or asyncio.run_coroutine_threadsafe if it is async"
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
        self._task, self._outer_cancellations = task, task.cancelling()
        self._own_cancellations, self._is_acknowledged = 0, False

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
        if self.is_step(caller):
            return False
        if self._left is None or self._left.done():
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

    def check(self) -> bool:
        """Whether to stop, as `is_requested`; raises a cancellation from outside that some code has
        swallowed."""
        task = self._task
        if (
            task is not None
            and task.cancelling() - self._own_cancellations > self._outer_cancellations
        ):
            raise asyncio.CancelledError
        return self.reason is not None and self.is_requested()

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

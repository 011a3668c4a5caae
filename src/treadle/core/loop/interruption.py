"""Interruption: cancels the task that runs `next()`, and tells our cancellation from others.

Our own cancellations are counted; one that came from outside is raised again. Requested from inside
that very task (by an observer or a tool), the task is cancelled at its next await, unless it checks
`is_requested` before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from treadle.core.errors import DriverBusy

T = TypeVar("T")


async def await_contained(work: Awaitable[T]) -> T:
    """Await code of a hook, a mutator, a policy or a tool. A CancelledError that it raises by
    itself is its failure, a RuntimeError; it does not cancel the run."""
    task = asyncio.current_task()
    assert task is not None, "the loop runs inside a task"
    before = task.cancelling()
    try:
        return await work
    except asyncio.CancelledError as error:
        if task.cancelling() > before:
            raise
        raise RuntimeError("it was cancelled from inside") from error


class Interruption:
    def __init__(self) -> None:
        self.reason: str | None = None
        self._task: asyncio.Task[object] | None = None
        self._outer_cancellations = 0  # that were there when `next()` began
        self._own_cancellations = 0
        self._is_acknowledged = False

    @property
    def is_running(self) -> bool:
        return self._task is not None

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
        if is_handled:
            self.reason = None

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

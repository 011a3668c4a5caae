"""Stopping: who is inside the loop, and how it is asked to leave.

An interruption cancels the task that is inside. Our cancellations are counted, so that somebody
else's is told apart and goes on its way. From inside that very task (an observer, a tool) it
cannot be cancelled on the spot: then it is cut where it next waits, or stops where it next looks.
"""

from __future__ import annotations

import asyncio

from treadle.core.errors import DriverBusy


class Interruption:
    def __init__(self) -> None:
        self.reason: str | None = None
        self._task: asyncio.Task[object] | None = None
        self._outer_cancellations = 0  # cancellations that were there before we came
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

    def leave(self) -> None:
        """What was asked for is done; the task is as it came."""
        if self._task is not None:
            for _ in range(self._own_cancellations):
                self._task.uncancel()
        self._task = self.reason = None

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
        """Whether to stop. Who looks here stops by itself and need not be cut."""
        if self.reason is None:
            return False
        self._is_acknowledged = True
        return True

    @property
    def is_only_interruption(self) -> bool:
        """Whether the cancellation was an interruption, and not also somebody else's."""
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

"""The deadlines of calls, with one timer of the event loop for all of them.

Almost every call ends long before its deadline, and a timer for each would cost as much as a small
tool. Used by tool_runner.py.
"""

from __future__ import annotations

import asyncio

from treadle.core.loop.interruption import mark_done


class Deadlines:
    """Marks a future as done when its time is over."""

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

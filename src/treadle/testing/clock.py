"""A clock for tests, without waiting."""

from __future__ import annotations

import asyncio


class ManualClock:
    """Sleeping takes no time; the requested seconds are in `sleeps`.

    With `blocked=True` every sleep waits until `release()`, so that a test can act meanwhile.
    """

    def __init__(self, *, blocked: bool = False, random_value: float = 0.5) -> None:
        self.time = 0.0
        self.sleeps: list[float] = []
        self.sleeping = asyncio.Event()
        self._random_value = random_value
        self._released = asyncio.Event()
        if not blocked:
            self._released.set()

    def now(self) -> float:
        return self.time

    def random(self) -> float:
        return self._random_value

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.sleeping.set()
        await self._released.wait()
        self.time += seconds

    def release(self) -> None:
        self._released.set()

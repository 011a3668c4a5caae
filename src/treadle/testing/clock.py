"""A clock that stands still until it is told otherwise."""

from __future__ import annotations

import asyncio


class ManualClock:
    """Sleeping takes no time; what was asked for is kept in `slept`.

    With `held=True` every sleep waits until `release()`, so that a test can act meanwhile.
    """

    def __init__(self, *, held: bool = False, chance: float = 0.5) -> None:
        self.time = 0.0
        self.slept: list[float] = []
        self.sleeping = asyncio.Event()
        self._chance = chance
        self._open = asyncio.Event()
        if not held:
            self._open.set()

    def now(self) -> float:
        return self.time

    def chance(self) -> float:
        return self._chance

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.sleeping.set()
        await self._open.wait()
        self.time += seconds

    def release(self) -> None:
        self._open.set()

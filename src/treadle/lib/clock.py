"""Time and chance, as something that can be replaced: waits and jitter of retries, in tests too."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds that only grow."""

    def random(self) -> float:
        """A number in [0, 1)."""

    async def sleep(self, seconds: float) -> None: ...


class RealClock:
    def now(self) -> float:
        return time.monotonic()

    def random(self) -> float:
        import random  # only for retries

        return random.random()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

"""How tests wait: for a condition, with a limit that a busy machine does not reach, and for the end
of a time limit without its seconds. No test sleeps, looks once, or depends on how fast it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import MethodType
from typing import TypeVar

PATIENCE = 120.0
"""Seconds that a test waits for what must come, also beside other work on the machine."""

SOON = 60.0
"""Seconds for what must not wait for something that takes longer, as the end of `sleep 1000`."""

LIMITS = (0.3, 1.0, 4.0, 16.0, 64.0)
INTERVAL = 0.005


R = TypeVar("R")


async def until(holds: Callable[[], object], what: str = "the condition") -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come within {PATIENCE:.0f} s"
        await asyncio.sleep(INTERVAL)


def until_in_thread(holds: Callable[[], object], what: Callable[[], str] = str) -> None:
    """The same outside an event loop; `what` says what is there instead."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"it did not come within {PATIENCE:.0f} s\n{what()}"
        time.sleep(4 * INTERVAL)


async def run_into_limit(
    run: Callable[[float], Awaitable[R]], has_begun: Callable[[R], object]
) -> R:
    """What a command says that a time limit ended: `run(limit)`, with a longer limit as long as it
    ended before the command had begun its work."""
    for limit in LIMITS:
        done = await run(limit)
        if has_begun(done):
            return done
    raise AssertionError(f"it did not begin within {LIMITS[-1]:.0f} s")


def pass_time(seconds: float) -> None:
    """Let this time pass at once for the running event loop: its timers, sleeps and time limits."""
    loop = asyncio.get_running_loop()
    shift = getattr(loop, "shift", 0.0) + seconds
    loop.shift = shift  # type: ignore[attr-defined]
    loop.time = MethodType(lambda _: time.monotonic() + shift, loop)  # type: ignore[method-assign]
    loop.call_soon(lambda: None)

"""An event loop in a thread of its own, for programs that have none.

    LoopThread        runs coroutines for plain code, and what they leave at work between calls
    has_running_loop  plain code that waits must not be called inside an event loop

Used by the `_sync` functions of the library.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def has_running_loop() -> bool:
    """Whether this thread runs an event loop, which plain code that waits would block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class LoopThread:
    """The thread runs from the construction until `close`; it does not keep the process alive."""

    def __init__(self) -> None:
        self._is_ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._end: asyncio.Event
        self._thread = threading.Thread(target=self._serve, name="treadle-loop", daemon=True)
        self._thread.start()
        self._is_ready.wait()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the coroutine. An interruption of the caller cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # nothing happens if it is what raised
            raise

    def call(self, function: Callable[[], T]) -> T:
        """The result of a function that has to run in the thread of the loop."""

        async def work() -> T:
            return function()

        return self.run(work())

    def close(self) -> None:
        """End the loop, and wait for its thread. May be repeated."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    def _serve(self) -> None:
        asyncio.run(self._wait_for_end())

    async def _wait_for_end(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._is_ready.set()
        await self._end.wait()

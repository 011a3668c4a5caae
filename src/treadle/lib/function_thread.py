"""A thread for each running plain function; one that is free is used again for a while.

Not asyncio's executor: that one has few threads, the log of a session and others wait behind its
queue, and a program cannot end before all of them do. The loop limits how many calls run at once
(`max_parallel`). Used by tools/function.py and hooks/function_hook.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

from treadle.lib.contained import as_exception

# Most functions end sooner; to be woken by another thread costs the event loop about as much.
SHORT_SECONDS = 0.0001
IDLE_SECONDS = 10.0  # how long a free thread waits for another function


async def run_in_thread(
    function: Callable[[], Any], on_cancel: Callable[[], object] | None = None
) -> Any:
    """The result of the function, which runs in a thread.

    A cancellation calls `on_cancel` and waits for the function: what it returns is still its
    result. A second cancellation leaves it running. The thread does not keep the process alive.
    """
    call = _Call(function)
    _start(call)
    if not call.ends_soon():
        try:
            await call.wait()
        except asyncio.CancelledError:
            if on_cancel is not None:
                on_cancel()
            await call.wait()
    return call.take_result()


class _Call:
    """One call of a function: made in the event loop, run in a thread, awaited in the loop."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._value: Any = None
        self._error: Exception | None = None
        self._function = function
        self._loop = asyncio.get_running_loop()
        self._run_in_context = contextvars.copy_context().run
        self._running = threading.Lock()
        self._running.acquire()  # until the function has ended
        self._waiter: asyncio.Future[None] | None = None

    def run(self) -> None:
        try:
            self._value = self._run_in_context(self._function)
        except BaseException as raised:  # noqa: BLE001 - becomes the result of the call
            self._error = as_exception(raised)
            if self._error is not raised:
                self._error.__cause__ = raised

    def report(self) -> None:
        self._running.release()
        if self._waiter is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._loop.call_soon_threadsafe(_mark_done, self._waiter)

    def ends_soon(self) -> bool:
        """Whether the function has ended after a very short while, in which the loop is blocked.
        Not waited for while an earlier one runs that did not end soon: many that start together
        would block the loop one after the other."""
        global _long_running
        if _long_running.locked():
            return self._running.acquire(blocking=False)
        if self._running.acquire(timeout=SHORT_SECONDS):
            return True
        _long_running = self._running
        return False

    async def wait(self) -> None:
        # The waiter first: `report` looks for it when the lock is free.
        self._waiter = self._loop.create_future()
        if self._running.locked():
            await self._waiter

    def take_result(self) -> Any:
        error, self._error = self._error, None
        if error is None:
            return self._value
        try:
            raise error
        finally:
            del error  # its traceback has this frame


# The lock of a call that did not end soon, held while it runs. One for all event loops: a call that
# is not waited for costs its loop a little more, and nothing else.
_long_running = threading.Lock()


def _mark_done(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class _Worker:
    """A thread that runs one function after another."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="treadle-function", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                call = self.calls.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                try:
                    _idle.remove(self)
                except ValueError:
                    continue  # it was taken at this moment: its call is on the way
                return
            call.run()
            _idle.append(self)  # before the report: the next call finds this thread
            call.report()
            del call  # with all that the function holds


_idle: list[_Worker] = []  # each operation on it is atomic


def _forget_threads() -> None:
    """The threads of the parent are not in a forked process."""
    global _long_running
    _idle.clear()
    _long_running = threading.Lock()


os.register_at_fork(after_in_child=_forget_threads)


def _start(call: _Call) -> None:
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    worker.calls.put(call)

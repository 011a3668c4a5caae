"""A thread for each running plain function.

Not asyncio's executor: that one has few threads, the log of a session and others wait behind its
queue, and a program cannot end before all of them do. The loop limits how many calls run at once
(`max_parallel`). Used by tools/function.py and policy/hooks/function_hook.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any


async def run_in_thread(function: Callable[[], Any], cancelled: threading.Event) -> Any:
    """The result of the function, which runs in a thread.

    A cancellation sets the event and waits for the function: what it returns is still its result.
    A second cancellation leaves it running. The thread does not keep the process alive.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    done.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # retrieved
    run = contextvars.copy_context().run

    def work() -> None:
        value, error = None, None
        try:
            value = run(function)
        except BaseException as raised:  # noqa: BLE001 - becomes the result of the call
            error = _as_exception(raised)
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(_resolve, done, value, error)

    threading.Thread(target=work, name="treadle-function", daemon=True).start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        cancelled.set()
        return await asyncio.shield(done)


def _as_exception(raised: BaseException) -> Exception:
    """StopIteration cannot pass through a future, and SystemExit must not end the process."""
    if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
        return raised
    error = RuntimeError(f"the function raised {type(raised).__name__}: {raised}")
    error.__cause__ = raised
    return error


def _resolve(done: asyncio.Future[Any], value: object, error: Exception | None) -> None:
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(value)

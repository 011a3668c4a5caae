"""Ends the program when its terminal is gone or a signal ends it, whatever its event loop does.

The writer of the screen is dead when its terminal is closed, and the main thread may wait for it
forever. So a thread waits for the hang-up, and a timer ends the process if it does not end itself.
The commands of the process end with it (workspace/supervisor). Used by screen.py and plain.py.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import threading
from collections.abc import Callable

END_SECONDS = 1.5  # from the hang-up: commands end with the process, within two seconds
EXIT_TERMINATED = 143


def end_with_terminal(close: Callable[[], None]) -> None:
    """From now on a hang-up, SIGHUP or SIGTERM calls `close` in the running loop, once, and the
    process ends within END_SECONDS. Only in a process of its own: not in a test of the app."""
    loop, begun = asyncio.get_running_loop(), threading.Event()

    def end() -> None:
        if begun.is_set():
            return
        begun.set()
        timer = threading.Timer(END_SECONDS, os._exit, (EXIT_TERMINATED,))
        timer.daemon = True
        timer.start()
        try:
            loop.call_soon_threadsafe(close)
        except RuntimeError:
            pass  # the loop is closed: the process ends already

    # Not `loop.add_signal_handler`: its callback waits for the loop, which may not run any more.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: end())
    threading.Thread(target=_wait_for_hang_up, args=(end,), daemon=True).start()


def _wait_for_hang_up(end: Callable[[], None]) -> None:
    if not os.isatty(0):
        return
    poll = select.poll()
    poll.register(0, 0)  # no input: only the end
    poll.poll()
    end()

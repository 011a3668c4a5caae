"""Signals, the death of the parent process, and closed streams.

    SIGINT            interrupt the turn, exit with 130; a second one exits at once
    SIGTERM, SIGHUP   the same with 143, within two seconds
    parent dies       as SIGTERM, unless the run was detached on purpose (nohup, setsid)

Used by headless.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from treadle.apps.console import exit_codes

GRACE_SECONDS = 1.5  # from SIGTERM until the process exits, whatever still runs

_EXIT_CODES = {
    signal.SIGINT: exit_codes.ABORTED,
    signal.SIGTERM: exit_codes.TERMINATED,
    signal.SIGHUP: exit_codes.TERMINATED,
}


class SignalListener:
    """Interrupts a run on signals. `exit_code` is the code for the signal received, or None."""

    def __init__(self, interrupt: Callable[[str], None]) -> None:
        self._interrupt = interrupt
        self.exit_code: int | None = None

    def listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _EXIT_CODES:
            # SIGHUP (nohup) and SIGINT (background job of a shell) are ignored on purpose.
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        code = _EXIT_CODES[number]
        if self.exit_code is not None and number == signal.SIGINT:
            os._exit(self.exit_code)  # the journal is append-only, so it is intact
        if self.exit_code is None:
            self.exit_code = code
        if number != signal.SIGINT:
            asyncio.get_running_loop().call_later(GRACE_SECONDS, os._exit, code)
        self._interrupt(number.name)


def reopen_closed_streams() -> bool:
    """Open closed streams, so that no other file gets their numbers; returns whether stdout was
    open."""
    was_open = True
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            was_open = was_open and number != 1
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
    return was_open


_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4


def harden_process() -> None:
    """End with the parent; other processes of the user must not read our memory, which has keys."""
    parent = os.getppid()
    try:
        import ctypes

        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (ImportError, OSError, AttributeError):
        return  # not Linux
    prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    is_detached = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN or os.getsid(0) == os.getpid()
    if not is_detached and parent != 1:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:  # it died before the call
            os.kill(os.getpid(), signal.SIGTERM)

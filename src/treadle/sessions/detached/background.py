"""Sessions in the background: what they run with, and how another program takes one over.

    background.json   beside the log: the choices of the user, as long as it is in the background
    background.log    what its last run printed

The lock of the session says whether a run works on it now. Another program asks that run to leave:
it finishes the round that runs, leaves the turn open and releases the lock. Nothing here depends on
the supervisor (apps/console/supervisor.py), which only starts the runs.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from treadle.lib.files.locks import LockHolder, is_file_locked
from treadle.lib.files.private_files import write_private_file
from treadle.sessions.log.lock import BACKGROUND_PROGRAM, is_locked, read_lock_holder

OUTPUT = "background.log"
LEAVE_SIGNAL, STAY_SIGNAL = signal.SIGUSR1, signal.SIGUSR2
_FILE = "background.json"
_POLL_SECONDS = 0.1


class BackgroundChoices(msgspec.Struct, frozen=True):
    """What the user chose for the session beside the settings. `flags` are settings by name."""

    flags: dict[str, Any] = {}
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    until: str = ""


NO_CHOICES = BackgroundChoices()


def save_choices(session_dir: Path, choices: BackgroundChoices) -> int:
    """The session is in the background from now on. A descriptor as of `open_choices`."""
    output = os.open(session_dir / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        mark_start(output)
        write_private_file(session_dir / _FILE, msgspec.json.encode(choices))
        return open_choices(session_dir)
    finally:
        os.close(output)


def read_choices(session_dir: Path) -> BackgroundChoices | None:
    """None if the session is not in the background."""
    try:
        return msgspec.json.decode((session_dir / _FILE).read_bytes(), type=BackgroundChoices)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError):
        return NO_CHOICES


def forget_choices(session_dir: Path) -> None:
    """The session is not in the background any more: another program has it."""
    (session_dir / _FILE).unlink(missing_ok=True)


def open_choices(session_dir: Path) -> int:
    """A descriptor: while it is open, a run starts. FileNotFoundError: not in the background."""
    choices = os.open(session_dir / _FILE, os.O_RDWR | os.O_CLOEXEC)
    mark_start(choices)
    return choices


def mark_start(output: int) -> None:
    """A run starts as long as this descriptor is open, also as the output of the run."""
    with suppress(BlockingIOError):
        fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)


def end_start() -> None:
    """In the run, when it has the lock of the session."""
    with suppress(OSError):  # its output is no file
        fcntl.flock(1, fcntl.LOCK_UN)


def is_starting(session_dir: Path) -> bool:
    """Whether a run starts that does not have the lock of the session yet."""
    return is_file_locked(session_dir / _FILE) or is_file_locked(session_dir / OUTPUT)


def find_run(session_dir: Path) -> LockHolder | None:
    """The run that works on the session now, if it is one of this machine."""
    holder = read_lock_holder(session_dir)
    if holder is None or (holder.program, holder.host) != (
        BACKGROUND_PROGRAM,
        socket.gethostname(),
    ):
        return None
    return holder if is_locked(session_dir) else None


def signal_run(session_dir: Path, number: signal.Signals) -> bool:
    """Whether a run is there, and gets the signal."""
    run = find_run(session_dir)
    if run is not None:
        with suppress(ProcessLookupError):
            os.kill(run.pid, number)
    return run is not None


async def take_over(session_dir: Path, on_wait: Callable[[], None] = lambda: None) -> bool:
    """Return when no run has the session: whether one had it. `on_wait` is called once if that
    takes a moment."""
    is_first = True
    while signal_run(session_dir, LEAVE_SIGNAL):  # again: it may just have started
        await asyncio.sleep(_POLL_SECONDS)
        if is_first and find_run(session_dir) is not None:
            on_wait()
        is_first = False
    return not is_first

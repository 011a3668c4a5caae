"""One writer per session: a lock that the kernel releases when its process ends.

The lock is a flock on a file beside the journal; the content of the file is only shown to a user
who finds the session locked. A lock never expires by age.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path

import msgspec

from treadle.core.errors import SessionBusy
from treadle.sessions.log.files import Files

LOCK_NAME = "lock"


class LockHolder(msgspec.Struct, frozen=True):
    """The process that has a session open. `program` is its name, if it gave one."""

    pid: int
    host: str
    since: float
    program: str = ""

    def __str__(self) -> str:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        where = "" if self.host == socket.gethostname() else f" on {self.host}"
        name = f"{self.program}, " if self.program else ""
        return f"{name}pid {self.pid}{where} since {at}"


_program = ""


def set_program_name(name: str) -> None:
    """What this process is called where another one finds a session locked."""
    global _program
    _program = name


def acquire_lock(session_dir: Path, files: Files, *, take_over: bool = False) -> int:
    """The lock of a session, as a descriptor to close; SessionBusy if another process has it."""
    path = session_dir / LOCK_NAME
    if take_over:
        # The old holder keeps a lock on the unlinked file; the new epoch in the journal stops it.
        path.unlink(missing_ok=True)
    while True:
        fd = files.open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            files.close(fd)
            raise _make_busy_error(session_dir) from None
        if _is_same_file(fd, path):
            break
        files.close(fd)  # another process took over between the two calls: try again
    holder = LockHolder(os.getpid(), socket.gethostname(), time.time(), _program)
    os.ftruncate(fd, 0)
    os.pwrite(fd, msgspec.json.encode(holder), 0)
    return fd


def _make_busy_error(session_dir: Path) -> SessionBusy:
    holder = read_lock_holder(session_dir)
    if holder is not None and (holder.pid, holder.host) == (os.getpid(), socket.gethostname()):
        return SessionBusy(
            f"session {session_dir.name} is open in another run of this process "
            f"(pid {holder.pid}); close it there"
        )
    return SessionBusy(
        f"session {session_dir.name} is open in {holder or 'another process'}. "
        "Close it there, or end that process, or read it with `treadle sessions show`."
    )


def _is_same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def read_lock_holder(session_dir: Path) -> LockHolder | None:
    """The last process that locked the session; it may have ended, see is_locked."""
    try:
        return msgspec.json.decode((session_dir / LOCK_NAME).read_bytes(), type=LockHolder)
    except (OSError, msgspec.DecodeError):
        return None


def is_locked(session_dir: Path) -> bool:
    """Whether a process has the session open now."""
    return is_file_locked(session_dir / LOCK_NAME)


def is_file_locked(file: Path) -> bool:
    """Whether a process has a lock on the file now; False if there is no such file."""
    try:
        fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False

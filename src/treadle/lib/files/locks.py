"""Locks on files that the kernel releases when their process ends; they never expire by age.

A lock is a flock; the content of the file only says who has it. No program waits for such a lock:
that is flock.py. Used by the logs of sessions, and for drafts.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path

import msgspec

from treadle.lib.files.file_system import Files


class LockHolder(msgspec.Struct, frozen=True):
    """The process that has a lock. `program` is its name, if it gave one."""

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
    """What this process is called where another one finds a lock of it."""
    global _program
    _program = name


def lock_file(path: Path, files: Files) -> int | None:
    """The lock of a file, as a descriptor to close; None if another process has it."""
    while True:
        fd = files.open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            files.close(fd)
            return None
        if _is_same_file(fd, path):
            break
        files.close(fd)  # another process removed it between the two calls: try again
    holder = LockHolder(os.getpid(), socket.gethostname(), time.time(), _program)
    os.ftruncate(fd, 0)
    os.pwrite(fd, msgspec.json.encode(holder), 0)
    return fd


def _is_same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def read_holder(path: Path) -> LockHolder | None:
    """The last process that locked the file; it may have ended, see is_file_locked."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=LockHolder)
    except (OSError, msgspec.DecodeError):
        return None


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

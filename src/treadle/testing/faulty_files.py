"""A file system that fails, shortens or stops at any chosen call.

It implements lib/files/file_system.py with real calls, so the files are what a disk would hold
after the fault. Calls are counted and named; a plan says which one fails. After a kill each later
call raises Killed too, because a dead process does nothing more.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec


class FileFault(msgspec.Struct, frozen=True):
    """The fault of one call.

    error   the call fails with `errno` and does nothing
    part    a write writes half of its data; with an errno the next write fails
    kill    the process ends before the call
    torn    the process ends after a write has written half of its data
    done    the process ends right after the call
    """

    kind: Literal["error", "part", "kill", "torn", "done"]
    errno: int = 0


FaultPlan = Mapping[int, FileFault] | Callable[[int, str], FileFault | None]


class Killed(BaseException):
    """The process would have ended here. Only the test may catch it."""


class FaultyFiles:
    """The local file system, with faults at the calls in `plan` (the first is 1).

    `send_sigkill` ends this process with SIGKILL instead of raising Killed.
    """

    def __init__(self, plan: FaultPlan | None = None, *, send_sigkill: bool = False) -> None:
        self._plan: FaultPlan = plan or {}
        self._send_sigkill = send_sigkill
        self._is_dead = False
        self._next_error = 0
        self._paths: dict[int, Path] = {}
        self._synced_sizes: dict[Path, int] = {}
        self.calls: list[str] = []

    # --- the file layer --------------------------------------------------------------------

    def make_folder(self, path: Path) -> None:
        if path.is_dir():
            return
        if path.parent != path:
            self.make_folder(path.parent)
        with _CountedCall(self, f"mkdir {path.name}"):
            path.mkdir(mode=0o700, exist_ok=True)

    def open(self, path: Path, flags: int) -> int:
        with _CountedCall(self, f"open {path.name}"):
            fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
            self._paths[fd] = path
            self._synced_sizes.setdefault(path, path.stat().st_size)
        return fd

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if self._next_error:
            number, self._next_error = self._next_error, 0
            raise OSError(number, os.strerror(number))
        step = _CountedCall(self, f"write {self._name(fd)}")
        with step:
            if step.fault is not None and step.fault.kind in ("part", "torn"):
                self._next_error = step.fault.errno
                return os.write(fd, data[: max(1, len(data) // 2)])
            return os.write(fd, data)

    def sync(self, fd: int) -> None:
        with _CountedCall(self, f"sync {self._name(fd)}"):
            os.fdatasync(fd)
            if fd in self._paths:
                self._synced_sizes[self._paths[fd]] = os.fstat(fd).st_size

    def sync_folder(self, path: Path) -> None:
        with _CountedCall(self, f"sync {path.name}/"):
            pass

    def size(self, fd: int) -> tuple[int, bool]:
        self._check_alive()
        status = os.fstat(fd)
        return status.st_size, status.st_nlink > 0

    def truncate(self, fd: int, size: int) -> None:
        with _CountedCall(self, f"truncate {self._name(fd)}"):
            os.ftruncate(fd, size)

    def rename(self, old: Path, new: Path) -> None:
        with _CountedCall(self, f"rename {new.name}"):
            old.replace(new)
            self._synced_sizes[new] = self._synced_sizes.pop(old, 0)
            for fd, path in self._paths.items():
                if path == old:
                    self._paths[fd] = new

    def unlink(self, path: Path) -> None:
        self._check_alive()
        path.unlink(missing_ok=True)

    def close(self, fd: int) -> None:
        """Never fails: the kernel closes the files of a dead process too."""
        self._paths.pop(fd, None)
        os.close(fd)

    # --- for the test ----------------------------------------------------------------------

    def count_call(self, name: str) -> None:
        """Count a point in the test's own code as a call, such as a tool's effect."""
        with _CountedCall(self, name):
            pass

    def close_all(self) -> None:
        """Close all files, as the kernel does when a process ends."""
        for fd in list(self._paths):
            self.close(fd)

    def lose_power(self, rng: random.Random) -> None:
        """Lose a part of the unsynced data; zeros may replace it."""
        self.close_all()
        for path, synced in self._synced_sizes.items():
            if not path.exists() or (size := path.stat().st_size) <= synced:
                continue
            remaining = rng.randint(synced, size)
            with path.open("r+b") as file:
                file.truncate(remaining)
                if remaining < size and rng.random() < 0.3:
                    file.truncate(size)  # the length was on disk, the data was not

    def _name(self, fd: int) -> str:
        return self._paths[fd].name if fd in self._paths else str(fd)

    def _check_alive(self) -> None:
        if self._is_dead:
            raise Killed("dead")

    def _next_fault(self, name: str) -> FileFault | None:
        self._check_alive()
        self.calls.append(name)
        number = len(self.calls)
        return self._plan(number, name) if callable(self._plan) else self._plan.get(number)

    def _kill(self, name: str) -> None:
        if self._send_sigkill:
            os.kill(os.getpid(), signal.SIGKILL)
        self._is_dead = True
        raise Killed(f"call {len(self.calls)}: {name}")


class _CountedCall:
    """One counted call, with its fault before or after it."""

    def __init__(self, files: FaultyFiles, name: str) -> None:
        self._files = files
        self._name = name
        self.fault = files._next_fault(name)
        if self.fault is None:
            return
        if self.fault.kind == "kill":
            files._kill(name)
        if self.fault.kind == "error":
            raise OSError(self.fault.errno, os.strerror(self.fault.errno))

    def __enter__(self) -> _CountedCall:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self.fault is not None and self.fault.kind in ("done", "torn"):
            self._files._kill(self._name)

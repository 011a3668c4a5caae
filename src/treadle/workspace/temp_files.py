"""Temporary files and folders: those of a killed program are removed by the next one.

A temporary file lies beside the file it will replace, anywhere in a tree that is too large to
search. So its path is registered first, as a symlink in a folder of the agent. `files.py`
registers; `local.py` removes stale files when it starts.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = ".treadle-tmp-"
_LOCK_FILE_FLAGS = os.O_RDWR | os.O_CREAT


class TempFiles:
    """The entries of one writer. It holds a lock while it lives: a free lock means it is dead."""

    def __init__(self, registry_dir: Path) -> None:
        self._registry_dir = registry_dir
        self._writer = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._lock: int | None = None
        self._opening = threading.Lock()  # writes run in threads

    @contextmanager
    def reserve_name(self, folder: Path) -> Iterator[str]:
        """A new name in `folder`, registered until the end of the block."""
        with self._opening:
            if self._lock is None:
                self._registry_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._lock = try_lock(self._registry_dir / f"{self._writer}.lock", _LOCK_FILE_FLAGS)
        name = PREFIX + secrets.token_hex(8)
        entry = self._registry_dir / f"{self._writer}.{name.removeprefix(PREFIX)}"
        entry.symlink_to(folder / name)
        try:
            yield name
        finally:
            entry.unlink(missing_ok=True)

    def close(self) -> None:
        if self._lock is not None:
            (self._registry_dir / f"{self._writer}.lock").unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def remove_stale(self) -> list[Path]:
        """Remove the temporary files of killed writers; returns the removed files."""
        removed: list[Path] = []
        if not self._registry_dir.is_dir():
            return removed
        for lock in self._registry_dir.glob("*.lock"):
            fd = try_lock(lock, _LOCK_FILE_FLAGS)
            if fd is None:
                continue
            for entry in self._registry_dir.glob(f"{lock.stem}.*"):
                if entry.is_symlink() and _remove_temp(entry.readlink()):
                    removed.append(entry.readlink())
                entry.unlink(missing_ok=True)
            os.close(fd)
        return removed


def try_lock(path: Path, flags: int) -> int | None:
    """The descriptor of a file or folder, locked; None if another process has the lock, or if the
    path is gone."""
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.stat()
    except (BlockingIOError, FileNotFoundError):
        os.close(fd)
        return None
    return fd


def _remove_temp(path: Path) -> bool:
    if not path.name.startswith(PREFIX):
        return False
    try:
        path.unlink()
    except OSError:
        return False
    return True


PREFIX = "treadle-ws-"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY


class ScratchDir:
    """The folder, and the lock that marks it as in use."""

    def __init__(self) -> None:
        self._lock: int | None = None
        while self._lock is None:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
            # None: another agent removed it before it was locked.
            self._lock = try_lock(self.path, _FOLDER_FLAGS)
        self.temp_dir = self.path / "tmp"
        self.outputs_dir = self.path / "outputs"
        self.temp_dir.mkdir()
        self.outputs_dir.mkdir()

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @staticmethod
    def remove_stale() -> None:
        """Remove the folders of agents that were killed."""
        for path in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
            try:
                if path.is_symlink() or path.stat().st_uid != os.getuid():
                    continue
                lock = try_lock(path, _FOLDER_FLAGS)
            except OSError:
                continue  # gone already, or not accessible
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)

"""Names of temporary files in use, on record, so that a killed writer's are found and removed.

A temporary file lies beside the file it will replace, anywhere in a tree that is too large to
search. So its path is noted first, as a link in a folder of the agent's own. `files.py` notes;
`local.py` sweeps when it starts.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = ".treadle-tmp-"


class TempFiles:
    """One writer's notes. They are locked while it lives: a lock without owner marks the dead."""

    def __init__(self, registry_dir: Path) -> None:
        self._registry_dir = registry_dir
        self._writer = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._lock: int | None = None

    @contextmanager
    def reserve_name(self, folder: Path) -> Iterator[str]:
        """A fresh name in `folder`, on record until the block is left."""
        if self._lock is None:
            self._registry_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = _try_lock(self._registry_dir / f"{self._writer}.lock")
        name = PREFIX + secrets.token_hex(8)
        note = self._registry_dir / f"{self._writer}.{name.removeprefix(PREFIX)}"
        note.symlink_to(folder / name)
        try:
            yield name
        finally:
            note.unlink(missing_ok=True)

    def close(self) -> None:
        if self._lock is not None:
            (self._registry_dir / f"{self._writer}.lock").unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def remove_stale(self) -> list[Path]:
        """Remove what killed writers left behind; the files that were removed."""
        removed: list[Path] = []
        if not self._registry_dir.is_dir():
            return removed
        for lock in self._registry_dir.glob("*.lock"):
            fd = _try_lock(lock)
            if fd is None:
                continue
            for note in self._registry_dir.glob(f"{lock.stem}.*"):
                if note.is_symlink() and _remove_temp(note.readlink()):
                    removed.append(note.readlink())
                note.unlink(missing_ok=True)
            os.close(fd)
        return removed


def _try_lock(path: Path) -> int | None:
    """The file's descriptor with its lock; None while another process has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
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

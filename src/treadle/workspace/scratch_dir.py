"""A folder of the workspace's own: the temp of sandboxed commands, and what they printed.

Removed when the workspace closes; one that a killed agent left is removed by the next. Locked
while in use, so that nobody removes a living one. `local.py` stands above.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "treadle-ws-"


class ScratchDir:
    """The folder and the lock that says it is in use."""

    def __init__(self) -> None:
        self._lock: int | None = None
        while self._lock is None:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
            self._lock = _try_lock(self.path)  # or somebody swept it before it was locked: another
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
                lock = _try_lock(path)
            except OSError:
                continue  # gone already, or not ours to touch
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _try_lock(path: Path) -> int | None:
    """The folder's descriptor, locked; None while somebody else has it, or if it is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.stat()
    except (BlockingIOError, FileNotFoundError):
        os.close(fd)
        return None
    return fd

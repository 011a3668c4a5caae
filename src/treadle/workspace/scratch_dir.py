"""A private folder of the workspace: the temp folder of sandboxed commands, and long outputs.

Removed when the workspace closes; the next agent removes the folder of a killed one. Locked while
in use, so that no other agent removes it. Used by `local.py`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from treadle.workspace.temp_files import try_lock

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

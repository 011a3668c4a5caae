"""Reads of files that may come from anybody: a named pipe does not block, a device or an endless
file does not fill the memory. What cannot be read is None, never an error.

Code that can be shown other files than those of this machine, such as rule cases, reads through a
FileView. Used by lib/git, the permissions and the sandbox.
"""

from __future__ import annotations

import os
import stat
from itertools import islice
from pathlib import Path
from typing import ClassVar

import msgspec

MAX_TEXT_BYTES = 1 << 20
MAX_DIR_ENTRIES = 4000
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileView(msgspec.Struct, frozen=True):
    """The files of this machine. A subclass may have another `map_path`, and follow symlinks."""

    read_flags: ClassVar[int] = READ_FLAGS

    def map_path(self, path: str) -> str:
        """Where the file of this path is."""
        return path

    def lstat(self, path: str) -> os.stat_result | None:
        try:
            return os.lstat(self.map_path(path))
        except (OSError, ValueError):
            return None

    def readlink(self, path: str) -> str | None:
        try:
            return os.readlink(self.map_path(path))  # noqa: PTH115 - as written, not as a Path
        except (OSError, ValueError):
            return None

    def read(self, path: str, limit: int) -> bytes | None:
        """The content of a regular file; None if it cannot be read, or is longer than `limit`."""
        try:
            fd = os.open(self.map_path(path), self.read_flags)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    return None
                with open(fd, "rb", closefd=False) as file:
                    content = file.read(limit + 1)
            finally:
                os.close(fd)
        except (OSError, ValueError):
            return None
        return content if len(content) <= limit else None

    def list_names(self, path: str, limit: int = MAX_DIR_ENTRIES) -> list[str] | None:
        """The names in a folder, [] if there is none; None if there are more than `limit`."""
        try:
            with os.scandir(self.map_path(path)) as entries:
                names = [entry.name for entry in islice(entries, limit + 1)]
        except OSError:
            return []
        return names if len(names) <= limit else None


LOCAL_FILES = FileView()


def read_text(path: Path) -> str | None:
    """What is in a small regular file; None if it is none."""
    data = LOCAL_FILES.read(str(path), MAX_TEXT_BYTES)
    return None if data is None else data.decode(errors="replace")

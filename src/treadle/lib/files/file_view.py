"""Reads of files that may come from anybody: a named pipe does not block, a device or an endless
file does not fill the memory. None means that a file cannot be read.

Code that is to work on other files, too, such as those of a test case, reads through a FileView.
"""

from __future__ import annotations

import os
import stat
from itertools import islice
from pathlib import Path
from typing import Protocol

MAX_TEXT_BYTES = 1 << 20
MAX_NAMES = 4000
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileView(Protocol):
    """What is in a file system. No method raises: what cannot be read is None."""

    def lstat(self, path: str) -> os.stat_result | None: ...

    def readlink(self, path: str) -> str | None: ...

    def read(self, path: str, limit: int) -> bytes | None:
        """The content of a regular file; None if it is longer than `limit`."""
        ...

    def list_names(self, path: str, limit: int = MAX_NAMES) -> list[str] | None:
        """The names in a folder, [] if there is none; None if there are more than `limit`."""
        ...


class LocalFiles:
    """The files of this machine. A file that is a symlink is not read."""

    def lstat(self, path: str) -> os.stat_result | None:
        try:
            return os.lstat(path)
        except (OSError, ValueError):
            return None

    def readlink(self, path: str) -> str | None:
        try:
            return os.readlink(path)  # noqa: PTH115 - as written, not as a Path
        except (OSError, ValueError):
            return None

    def read(self, path: str, limit: int) -> bytes | None:
        return read_regular_file(path, limit)

    def list_names(self, path: str, limit: int = MAX_NAMES) -> list[str] | None:
        try:
            with os.scandir(path) as entries:
                names = [entry.name for entry in islice(entries, limit + 1)]
        except (OSError, ValueError):
            return []
        return names if len(names) <= limit else None


LOCAL_FILES = LocalFiles()


def read_regular_file(path: str | Path, limit: int) -> bytes | None:
    """What is in a regular file; None if it is none, or longer."""
    try:
        fd = os.open(path, READ_FLAGS)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            return None
        with open(fd, "rb", closefd=False) as file:
            return file.read(limit)
    except OSError:
        return None
    finally:
        os.close(fd)


def read_text(path: str | Path) -> str | None:
    """What is in a small regular file; None if it is none."""
    data = read_regular_file(path, MAX_TEXT_BYTES)
    return None if data is None else data.decode(errors="replace")

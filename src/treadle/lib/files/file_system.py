"""The system calls for files that have to be durable, one method each.

Who uses the disk only through this can be tested with calls that stop, fail or write less
(treadle.testing.faulty_files). Files get mode 0600, folders 0700. Used by the logs of sessions.
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path
from typing import Protocol

from treadle.lib.files.private_files import make_private_folder


class Files(Protocol):
    """What durable files need of a file system.

    Promises: errors are OSErrors with their errno; `write` may write fewer bytes than given.
    """

    def make_folder(self, path: Path) -> None: ...

    def open(self, path: Path, flags: int) -> int: ...

    def write(self, fd: int, data: bytes | memoryview) -> int: ...

    def sync(self, fd: int) -> None: ...

    def sync_folder(self, path: Path) -> None: ...

    def size(self, fd: int) -> tuple[int, bool]:
        """The length of an open file, and whether it still has a name."""

    def truncate(self, fd: int, size: int) -> None: ...

    def rename(self, old: Path, new: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def close(self, fd: int) -> None: ...


class LocalFiles:
    """The file system of this machine."""

    def make_folder(self, path: Path) -> None:
        """The folder and its missing parents, for this user alone."""
        make_private_folder(path)

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o600)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return os.write(fd, data)

    def sync(self, fd: int) -> None:
        if sys.platform == "darwin":
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync there leaves it in the cache of the disk
        else:
            os.fdatasync(fd)

    def sync_folder(self, path: Path) -> None:
        """A new name is durable only when its folder is synced."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def size(self, fd: int) -> tuple[int, bool]:
        status = os.fstat(fd)
        return status.st_size, status.st_nlink > 0

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def rename(self, old: Path, new: Path) -> None:
        old.replace(new)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def close(self, fd: int) -> None:
        os.close(fd)


def write_all(files: Files, fd: int, data: bytes) -> None:
    """Write every byte, with as many calls as the system needs."""
    rest = memoryview(data)
    while rest:
        rest = rest[files.write(fd, rest) :]

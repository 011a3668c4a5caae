"""The system calls under a journal, one method each, and nothing else.

A journal reaches the disk through this alone, so that a test can stop, shorten or fail any one
of them (treadle.testing.faulty_files). Private by construction: files 0600, folders 0700.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol


class Files(Protocol):
    """What a journal needs of a file system.

    Promises: errors are OSErrors with their errno; `write` may take fewer bytes than given.
    """

    def make_folder(self, path: Path) -> None: ...

    def open(self, path: Path, flags: int) -> int: ...

    def write(self, fd: int, data: bytes | memoryview) -> int: ...

    def sync(self, fd: int) -> None: ...

    def sync_folder(self, path: Path) -> None: ...

    def size(self, fd: int) -> tuple[int, bool]:
        """How long an open file is, and whether it still has a name."""

    def truncate(self, fd: int, size: int) -> None: ...

    def rename(self, old: Path, new: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def close(self, fd: int) -> None: ...


class LocalFiles:
    """The file system of this machine."""

    def make_folder(self, path: Path) -> None:
        """The folder and those above it; whatever is new belongs to this user alone."""
        if path.is_dir():
            return
        if path.parent != path:
            self.make_folder(path.parent)
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            if not path.is_dir():
                raise

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o600)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return os.write(fd, data)

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)

    def sync_folder(self, path: Path) -> None:
        """A new name is durable only when its folder is."""
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
    """Every byte, however few the system takes at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[files.write(fd, rest) :]

"""The folder that checkpoints are of, by descriptors: no link in it is ever followed.

Commands that run in the folder may put a link anywhere, also between two looks. So a path is
walked part by part, each opened by its name in the one before, and what is read, written or
removed is an entry of the last. Plain functions that block; `scanning` and `restoring` stand above.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DIR_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TRAVERSE_FLAGS: int = (
    getattr(os, "O_PATH", os.O_RDONLY) | _DIR_FLAGS
)  # O_PATH: it need not be readable
_LIST_FLAGS = os.O_RDONLY | os.O_NONBLOCK | _DIR_FLAGS
# O_NONBLOCK: a pipe that was put in a file's place must not hold us; what it is, is seen after.
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHANGED_MEANWHILE = "it became something else while it was looked at"


class SafeTree:
    """Changes a folder's entries, by their paths below it. The root itself may lie behind links."""

    def __init__(self, root: Path) -> None:
        self._root = os.open(root, _TRAVERSE_FLAGS & ~os.O_NOFOLLOW)

    def close(self) -> None:
        os.close(self._root)

    def make_folder(self, path: str) -> None:
        """With those above it; nothing happens if it is there."""
        os.close(self._open_folder(path.split("/"), make=True))

    def remove_folder(self, path: str) -> None:
        with self._open_parent(path) as (folder, name):
            os.rmdir(name, dir_fd=folder)

    def remove(self, path: str) -> None:
        """A file or a link, not what the link points to."""
        with self._open_parent(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def write(self, path: str, data: bytes, mode: int) -> None:
        """Replace the file or make it, with the folders above it."""
        with self._replace_atomically(path) as (folder, draft):
            fd = os.open(draft, _CREATE_FLAGS, 0o600, dir_fd=folder)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                os.fchmod(fd, mode)
            finally:
                os.close(fd)

    def write_symlink(self, path: str, target: bytes) -> None:
        with self._replace_atomically(path) as (folder, draft):
            os.symlink(target, os.fsencode(draft), dir_fd=folder)

    @contextmanager
    def _replace_atomically(self, path: str) -> Iterator[tuple[int, str]]:
        """A fresh name beside the path, which takes its place when the block is left."""
        with self._open_parent(path, make=True) as (folder, name):
            draft = f".{secrets.token_hex(8)}.treadle"
            try:
                yield folder, draft
                os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                _discard(folder, draft)
                raise

    @contextmanager
    def _open_parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The folder that holds this entry, opened, and the entry's name in it."""
        *above, name = path.split("/")
        _check_name(name)
        folder = self._open_folder(above, make=make)
        try:
            yield folder, name
        finally:
            os.close(folder)

    def _open_folder(self, parts: list[str], *, make: bool) -> int:
        fd = os.dup(self._root)
        for number, part in enumerate(parts, start=1):
            try:
                inner = _open_child(fd, part, make=make)
            except OSError as error:
                if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                    raise
                here = "/".join(parts[:number])
                refusal = f"{here} is no folder now, and no link is followed"
                raise OSError(errno.ENOTDIR, refusal) from error
            finally:
                os.close(fd)
            fd = inner
        return fd


def _open_child(folder: int, name: str, *, make: bool) -> int:
    _check_name(name)
    try:
        return os.open(name, _TRAVERSE_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        pass  # somebody was faster; the opening shows with what
    return os.open(name, _TRAVERSE_FLAGS, dir_fd=folder)


def _check_name(name: str) -> None:
    if name in ("", ".", ".."):
        raise ValueError("it is not a path below the folder")


def _discard(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        pass


def open_folder(name: str, parent: int) -> tuple[int, list[os.DirEntry[str]]]:
    """A folder in the folder `above`, and what is in it, by name.

    The entries are looked at through the descriptor, which is the caller's to close.
    """
    return _list_entries(os.open(name, _LIST_FLAGS, dir_fd=parent))


def open_root(root: str) -> tuple[int, list[os.DirEntry[str]]]:
    return _list_entries(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def _list_entries(fd: int) -> tuple[int, list[os.DirEntry[str]]]:
    try:
        with os.scandir(fd) as found:
            return fd, sorted(found, key=lambda entry: entry.name)
    except BaseException:
        os.close(fd)
        raise


def read_file(name: str, folder: int, limit: int) -> tuple[bytes, os.stat_result]:
    """A regular file's first `most` bytes, and what it was when it was opened."""
    fd = os.open(name, _READ_FLAGS, dir_fd=folder)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, _CHANGED_MEANWHILE)
        data = os.read(fd, min(limit, status.st_size + 1))
        while len(data) < limit and (more := os.read(fd, min(limit - len(data), 1 << 16))):
            data += more
        return data, status
    finally:
        os.close(fd)


def explain_error(error: Exception) -> str:
    """In a sentence for a person: why something was left alone."""
    if isinstance(error, OSError):
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link or a socket where a file was
            return _CHANGED_MEANWHILE
        return error.strerror or str(error)
    return str(error)

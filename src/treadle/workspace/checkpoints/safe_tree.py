"""Access to the folder of checkpoints by descriptors: no symlink in it is ever followed.

Commands in the folder may create a symlink anywhere at any time. So a path is opened part by part,
each by its name in the folder before, and only entries of the last folder are read, written or
removed. Functions that block; used by `scanner` and `restore`.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from treadle.workspace.file_attributes import copy_attributes
from treadle.workspace.supervisor.syscalls import write_all

_DIR_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_PATH: the folder need not be readable.
_TRAVERSE_FLAGS: int = getattr(os, "O_PATH", os.O_RDONLY) | _DIR_FLAGS
_LIST_FLAGS = os.O_RDONLY | os.O_NONBLOCK | _DIR_FLAGS
# O_NONBLOCK: a pipe in place of a file must not block; the file type is checked after.
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHANGED_MEANWHILE = "it was replaced while it was read"


class SafeTree:
    """Changes files below a folder. The path of the folder itself may contain symlinks."""

    def __init__(self, root: Path) -> None:
        self._root = os.open(root, _TRAVERSE_FLAGS & ~os.O_NOFOLLOW)

    def close(self) -> None:
        os.close(self._root)

    def make_folder(self, path: str, mode: int = 0) -> bool:
        """Create it, if it is missing, and its parents; whether it was missing.

        Until `set_folder_mode`, the user can write into it. Mode 0: that of any new folder.
        """
        with self._open_parent(path, make=True) as (folder, name):
            try:
                os.mkdir(name, (mode or 0o777) & 0o777 | 0o700, dir_fd=folder)
                return True
            except FileExistsError:
                os.close(self._open_folder(path.split("/"), make=False))
                return False

    def set_folder_mode(self, path: str, mode: int) -> None:
        with self._open_parent(path) as (folder, name):
            fd = os.open(name, _LIST_FLAGS, dir_fd=folder)
            try:
                os.fchmod(fd, mode)
            finally:
                os.close(fd)

    def remove_folder(self, path: str) -> None:
        with self._open_parent(path) as (folder, name):
            os.rmdir(name, dir_fd=folder)

    def remove(self, path: str) -> None:
        """Remove a file or a symlink, not the target of a symlink."""
        with self._open_parent(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def remove_special_file(self, path: str) -> None:
        """Remove it if it is a socket, a pipe or a device."""
        with self._open_parent(path) as (folder, name):
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
                os.unlink(name, dir_fd=folder)

    def write(self, path: str, data: bytes, mode: int) -> None:
        """Replace or create the file, and its parent folders.

        A file keeps its owner and extended attributes. It does not keep hard links: the turn may
        have made it a link to another file, which must not change.
        """
        with self._open_existing(path) as old, self._replace_atomically(path) as (folder, draft):
            fd = os.open(draft, _CREATE_FLAGS, 0o600, dir_fd=folder)
            try:
                write_all(fd, data)
                if old is not None:
                    copy_attributes(old, fd)
                os.fchmod(fd, mode)
            finally:
                os.close(fd)

    @contextmanager
    def _open_existing(self, path: str) -> Iterator[int | None]:
        """The regular file of this path, opened; None if there is none that can be read."""
        fd = None
        with suppress(OSError), self._open_parent(path) as (folder, name):
            fd = os.open(name, _READ_FLAGS, dir_fd=folder)
        try:
            yield fd if fd is not None and stat.S_ISREG(os.fstat(fd).st_mode) else None
        finally:
            if fd is not None:
                os.close(fd)

    def write_symlink(self, path: str, target: bytes) -> None:
        with self._replace_atomically(path) as (folder, draft):
            os.symlink(target, os.fsencode(draft), dir_fd=folder)

    @contextmanager
    def _replace_atomically(self, path: str) -> Iterator[tuple[int, str]]:
        """A new name beside the path, which replaces it at the end of the block."""
        with self._open_parent(path, make=True) as (folder, name):
            draft = f".{secrets.token_hex(8)}.treadle"
            try:
                yield folder, draft
                os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(draft, dir_fd=folder)
                raise

    @contextmanager
    def _open_parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The parent folder, opened, and the name of the entry in it."""
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
                problem = f"{here} is not a folder any more; symlinks are not followed"
                raise OSError(errno.ENOTDIR, problem) from error
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
        pass  # created meanwhile; opening it fails if it is not a folder
    return os.open(name, _TRAVERSE_FLAGS, dir_fd=folder)


def _check_name(name: str) -> None:
    if name in ("", ".", ".."):
        raise ValueError("it is not a path below the folder")


def open_folder(name: str, parent: int) -> tuple[int, list[os.DirEntry[str]]]:
    """A folder in the folder `parent`, opened, and its entries.

    The entries need the descriptor, which the caller closes.
    """
    return _list_entries(os.open(name, _LIST_FLAGS, dir_fd=parent))


def open_root(root: str) -> tuple[int, list[os.DirEntry[str]]]:
    return _list_entries(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def _list_entries(fd: int) -> tuple[int, list[os.DirEntry[str]]]:
    try:
        with os.scandir(fd) as entries:
            return fd, list(entries)
    except BaseException:
        os.close(fd)
        raise


def read_file(name: str, folder: int, limit: int) -> tuple[bytes, os.stat_result]:
    """The first `limit` bytes of a regular file, and its status when it was opened."""
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
    """For the user: why a path was skipped."""
    if isinstance(error, OSError):
        if error.errno in (errno.ELOOP, errno.ENXIO):  # now a symlink or a socket
            return _CHANGED_MEANWHILE
        return error.strerror or str(error)
    return str(error)

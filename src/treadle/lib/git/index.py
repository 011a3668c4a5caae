"""The index of git: which paths a repository tracks, in versions 2, 3 and 4 of the file.

Reads bytes instead of running git, because every verdict about a git command and every command
beside a hidden file asks: a process costs more than a search in the bytes. It writes the size and
the time of one entry (`IndexFile.settle`); partial_index.py writes more, by git.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from treadle.lib.files.file_view import LOCAL_FILES, FileView

MAX_INDEX_BYTES = 128 << 20
HEADER_BYTES = 12
SHA1_BYTES = 20
_STATUS_BYTES = 40  # of an entry, before its hash: times, device, inode, mode, owner, size
_TIME_AT, _MODE_AT, _SIZE_AT = 8, 24, 36  # in an entry
_FOLDER_MODE, _SUBMODULE_MODE = (0o040000).to_bytes(4), (0o160000).to_bytes(4)
_LENGTH_MASK = 0xFFF  # in the flags: the length of the name
_ASSUMED, _EXTENDED, _UNMERGED = 0x8000, 0x4000, 0x3000
_SKIP_WORKTREE = 0x4000  # in the second flags, which _EXTENDED announces
_SECOND = 1_000_000_000
_EMPTY_BLOB = b"blob 0\0"


class IndexEntry(NamedTuple):
    """A file or a folder in the index. `size` is 0 if git is not sure of the file."""

    start: int  # where it begins in the file
    fixed: bytes  # the status, the hash and the flags
    second_flags: int
    name: bytes

    @property
    def path(self) -> str:
        return self.name.decode(errors="surrogateescape")

    @property
    def time_ns(self) -> int:
        return self._read_number(_TIME_AT) * _SECOND + self._read_number(_TIME_AT + 4)

    @property
    def mode(self) -> int:
        return self._read_number(_MODE_AT)

    @property
    def size(self) -> int:
        return self._read_number(_SIZE_AT)

    @property
    def digest(self) -> bytes:
        return self.fixed[_STATUS_BYTES:-2]

    @property
    def is_folder(self) -> bool:
        """A folder whose files are not listed, outside of a sparse checkout."""
        return self.fixed[_MODE_AT : _MODE_AT + 4] == _FOLDER_MODE

    @property
    def is_submodule(self) -> bool:
        return self.fixed[_MODE_AT : _MODE_AT + 4] == _SUBMODULE_MODE

    @property
    def is_assumed(self) -> bool:
        """Whether git may read the index instead of the file: a conflict, or a flag."""
        flags = int.from_bytes(self.fixed[-2:])
        return bool(flags & (_ASSUMED | _UNMERGED) or self.second_flags & _SKIP_WORKTREE)

    def with_status(self, time_ns: int, size: int) -> IndexEntry:
        fixed = bytearray(self.fixed)
        fixed[_SIZE_AT : _SIZE_AT + 4] = size.to_bytes(4)
        for at, number in enumerate(divmod(time_ns, _SECOND)):
            fixed[_TIME_AT + 4 * at : _TIME_AT + 4 * at + 4] = number.to_bytes(4)
        return self._replace(fixed=bytes(fixed))

    def _read_number(self, at: int) -> int:
        return int.from_bytes(self.fixed[at : at + 4])


def list_entries(index: bytes, hash_size: int = SHA1_BYTES) -> Iterator[IndexEntry]:
    """The entries of an index; ValueError if it cannot be read."""
    version, name, at = read_version(index), b"", HEADER_BYTES
    if version not in (2, 3, 4):
        raise ValueError("this is not an index of git, or one of an unknown version")
    try:
        for _ in range(int.from_bytes(index[8:HEADER_BYTES])):
            start, at = at, at + _STATUS_BYTES + hash_size + 2
            fixed, second_flags, kept = index[start:at], 0, 0
            if int.from_bytes(fixed[-2:]) & _EXTENDED:
                second_flags, at = int.from_bytes(index[at : at + 2]), at + 2
            if version == 4:  # its names are compressed
                dropped, at = _read_offset(index, at)
                kept = len(name) - dropped
            end = index.index(b"\0", at)
            name = name[:kept] + index[at:end]
            at = end + 1 if version == 4 else start + (end - start + 8) // 8 * 8
            yield IndexEntry(start, fixed, second_flags, name)
    except IndexError as error:
        raise ValueError("the index of git is cut off") from error


def count_entries(path: Path) -> int:
    """How many entries an index file has, by its header; 0 if there is none."""
    try:
        with path.open("rb") as file:
            return int.from_bytes(file.read(HEADER_BYTES)[8:])
    except OSError:
        return 0


def read_version(index: bytes) -> int:
    """The version of an index; 0 if this is none."""
    return int.from_bytes(index[4:8]) if index[:4] == b"DIRC" else 0


def read_indexes(files: FileView, git_folder: str) -> Iterator[bytes | None]:
    """The contents of the index files of a git folder; None for one that cannot be read."""
    names = files.list_names(git_folder)
    for name in names if names is not None else ["index"]:
        if name == "index" or name.startswith("sharedindex."):
            yield files.read(f"{git_folder}/{name}", MAX_INDEX_BYTES)


def list_submodules(index: bytes, hash_size: int) -> list[str] | None:
    """The paths of the submodules; None if the index cannot be read."""
    if _SUBMODULE_MODE not in index:
        return []
    try:
        return [entry.path for entry in list_entries(index, hash_size) if entry.is_submodule]
    except ValueError:
        return None


def may_contain(index: bytes, name: str) -> bool:
    """Whether a path in an index may have this part, in any case; quick, and never wrongly no."""
    is_compressed = read_version(index) == 4
    return is_compressed or not name.isascii() or name.lower().encode() in index.lower()


def may_list_folders(index: bytes) -> bool:
    """Whether an index may have entries for submodules or for folders; never wrongly no."""
    return _SUBMODULE_MODE in index or _FOLDER_MODE in index


class IndexFile:
    """An index file, which is read again only if it has changed."""

    def __init__(self, path: Path, hash_size: int = SHA1_BYTES) -> None:
        self._path = path
        self._hash_size = hash_size
        self._state: tuple[int, int, int] | None = None
        self._data = b""
        self._by_name: dict[bytes, IndexEntry] | None = None

    def read(self) -> bytes:
        """What is in the file; b"" if there is none, or it is too large."""
        try:
            state = _read_state(self._path)
        except OSError:
            return b""
        if state != self._state:
            self._state, self._by_name = state, None
            self._data = LOCAL_FILES.read(str(self._path), MAX_INDEX_BYTES) or b""
        return self._data

    def find(self, path: str) -> IndexEntry | None:
        """What it says of a path."""
        index, name = self.read(), os.fsencode(path)
        if read_version(index) == 4:
            if self._by_name is None:
                self._by_name, entries = {}, list_entries(index, self._hash_size)
                try:
                    self._by_name.update((entry.name, entry) for entry in entries)
                except ValueError:
                    pass  # what could be read counts
            return self._by_name.get(name)
        size = _STATUS_BYTES + self._hash_size + 2
        at = index.find(name + b"\0") if read_version(index) else -1
        while at >= 0:
            # Before a name are its flags, with its length, and possibly more flags.
            for start in (at - size, at - size - 2):
                fixed = index[start : start + size] if start >= HEADER_BYTES else b""
                length = int.from_bytes(fixed[-2:]) & _LENGTH_MASK
                if fixed and length == min(len(name), _LENGTH_MASK) and start % 8 == 4:
                    return IndexEntry(start, fixed, 0, name)
            at = index.find(name + b"\0", at + 1)
        return None

    def settle(self, entry: IndexEntry, real: os.stat_result) -> IndexEntry:
        """Make git trust an entry of a file that it does not see; the entry then.

        git reads a file whatever its size and time are if it changed in the second in which the
        index was written, or later, or if git gave it the size 0 (it did so when a file of that
        second had changed). So the entry gets an earlier time, and a size. One of them is not that
        of the real file: where git sees it, it goes on comparing the content.
        """
        written = self._state[2] // _SECOND if self._state is not None else 0
        is_recent = entry.time_ns // _SECOND >= written
        is_unsure = not entry.size and entry.digest != self._hash(_EMPTY_BLOB)
        if not (is_recent or is_unsure):
            return entry
        earlier = written - 1
        earlier -= int(real.st_mtime) == earlier
        settled = entry.with_status(
            earlier * _SECOND if is_recent else entry.time_ns,
            real.st_size + 1 if is_unsure else entry.size,
        )
        data = bytearray(self._data[: -self._hash_size])
        data[entry.start : entry.start + len(settled.fixed)] = settled.fixed
        return settled if self._write(bytes(data)) else entry

    def _write(self, data: bytes) -> bool:
        """Write the index as git does, with its time of before: git doubts the same files."""
        lock = self._path.with_name(f"{self._path.name}.lock")
        state = self._state
        try:
            mode = self._path.stat().st_mode
            fd = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode & 0o777)
        except OSError:
            return False
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data + self._hash(data))
            if state is None or _read_state(self._path) != state:
                lock.unlink()
                return False
            os.utime(lock, ns=(state[2], state[2]))
            lock.replace(self._path)
        except OSError:
            lock.unlink(missing_ok=True)
            return False
        self.read()
        return True

    def _hash(self, data: bytes) -> bytes:
        name = "sha1" if self._hash_size == SHA1_BYTES else "sha256"
        return hashlib.new(name, data, usedforsecurity=False).digest()


def _read_state(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read_offset(index: bytes, at: int) -> tuple[int, int]:
    """A number as git writes offsets, and where it ends."""
    value = index[at] & 0x7F
    while index[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (index[at] & 0x7F)
    return value, at + 1

"""The index of a git repository: which paths it has, and a copy of it for a part of the work tree.

If the workspace is a folder of a larger repository, commands do not see the files above it. In the
copy these files are marked as not checked out (skip-worktree), so that git does not call them
deleted. Used by `bubblewrap.py`; `stand_ins.py` asks what it says of a file. The format is in
core/git_index.py.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from treadle.core.git_index import (
    HEADER_BYTES,
    LENGTH_MASK,
    SHA1_BYTES,
    SKIP_WORKTREE,
    STATUS_BYTES,
    IndexEntries,
    IndexEntry,
    read_version,
    write_entry,
)
from treadle.workspace.sandbox.git_folders import read_regular_file, read_settings
from treadle.workspace.sandbox.git_history import hash_object

MAX_INDEX_BYTES = 128 << 20
FIXED_BYTES = STATUS_BYTES + SHA1_BYTES + 2
SECOND = 1_000_000_000
TIME_OFFSET, SIZE_OFFSET = 8, 36  # in an entry
EMPTY_BLOB = hash_object(b"blob", b"")


class IndexedFile(NamedTuple):
    """What an index says of a file. `size` is 0 if git is not sure of the file."""

    mode: int
    size: int
    time_ns: int
    digest: bytes


class GitIndex:
    """Reads one index file, again only if it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state: tuple[int, int, int] | None = None
        self._data = b""
        self._by_name: dict[bytes, bytes] | None = None

    def read(self) -> bytes:
        """What is in the file; b"" if there is none, or it is too large."""
        try:
            status = self._path.stat()
        except OSError:
            return b""
        state = _read_state(status)
        if state != self._state:
            self._state, self._by_name = state, None
            self._data = read_regular_file(self._path, MAX_INDEX_BYTES) or b""
        return self._data

    def find(self, path: str) -> IndexedFile | None:
        """What it says of a path."""
        index, name = self.read(), os.fsencode(path)
        version = read_version(index)
        if not version:
            return None
        if version == 4:  # its names are compressed
            if self._by_name is None:
                self._by_name = {entry.name: entry.fixed for entry in self._list_entries()}
            return _read_fixed(self._by_name[name]) if name in self._by_name else None
        at = index.find(name + b"\0")
        while at >= 0:
            # Before a name are its flags, with its length, and possibly more flags.
            for start in (at - FIXED_BYTES, at - FIXED_BYTES - 2):
                fixed = index[start : start + FIXED_BYTES] if start >= HEADER_BYTES else b""
                is_length = int.from_bytes(fixed[-2:]) & LENGTH_MASK == min(len(name), LENGTH_MASK)
                if fixed and is_length and (start - HEADER_BYTES) % 8 == 0:
                    return _read_fixed(fixed)
            at = index.find(name + b"\0", at + 1)
        return None

    def settle(self, path: str, file: IndexedFile, real: os.stat_result) -> IndexedFile:
        """Make git trust what the index says of a file that it does not see; what it says then.

        git reads a file whatever its size and time are if it changed in the second in which the
        index was written, or later, or if git gave it the size 0 (it did so when a file of that
        second had changed). So the entry gets an earlier time, and a size. One of them is not that
        of the real file: outside, git goes on comparing the content.
        """
        written = self._state[2] // SECOND if self._state is not None else 0
        is_recent = file.time_ns // SECOND >= written
        is_unsure = not file.size and file.digest != EMPTY_BLOB
        if not (is_recent or is_unsure) or not _uses_sha1(self._path.parent):
            return file
        settled = file
        if is_unsure:
            settled = settled._replace(size=real.st_size + 1)
        if is_recent:
            earlier = written - 1
            earlier -= int(real.st_mtime) == earlier
            settled = settled._replace(time_ns=earlier * SECOND)
        return settled if self._write_status(os.fsencode(path), settled) else file

    def _write_status(self, name: bytes, file: IndexedFile) -> bool:
        """Write the time and the size of an entry."""
        start = self._find_start(name)
        if start < 0:
            return False
        times = (file.time_ns // SECOND).to_bytes(4) + (file.time_ns % SECOND).to_bytes(4)
        data = bytearray(self._data[:-SHA1_BYTES])
        data[start + TIME_OFFSET : start + TIME_OFFSET + 8] = times
        data[start + SIZE_OFFSET : start + SIZE_OFFSET + 4] = file.size.to_bytes(4)
        return self._replace(bytes(data))

    def _find_start(self, name: bytes) -> int:
        """Where the entry of this name begins; -1 if there is none."""
        entries = IndexEntries(self._data)
        start = entries.end
        with contextlib.suppress(ValueError):
            for entry in entries:
                if entry.name == name:
                    return start
                start = entries.end
        return -1

    def _replace(self, data: bytes) -> bool:
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
                file.write(data + hashlib.sha1(data, usedforsecurity=False).digest())
            if state is None or _read_state(self._path.stat()) != state:
                lock.unlink()
                return False
            os.utime(lock, ns=(state[2], state[2]))
            lock.replace(self._path)
        except OSError:
            lock.unlink(missing_ok=True)
            return False
        self.read()
        return True

    def _list_entries(self) -> list[IndexEntry]:
        try:
            return list(IndexEntries(self._data))
        except ValueError:
            return []


def _read_state(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read_fixed(fixed: bytes) -> IndexedFile:
    seconds, nanoseconds, mode, size = (
        int.from_bytes(fixed[at : at + 4]) for at in (8, 12, 24, 36)
    )
    return IndexedFile(mode, size, seconds * SECOND + nanoseconds, fixed[40:60])


def make_partial_index(index: bytes, folders: Iterable[str]) -> bytes | None:
    """The same index with all paths outside of `folders` marked; None if it is not understood."""
    prefixes = tuple(os.fsencode(folder) + b"/" for folder in folders)
    entries = IndexEntries(index)
    pieces = [b"DIRC", max(entries.version, 3).to_bytes(4), index[8:HEADER_BYTES]]
    try:
        for entry in entries:
            skipped = 0 if entry.name.startswith(prefixes) else SKIP_WORKTREE
            pieces.append(write_entry(entry, entries.version, entry.second_flags | skipped))
    except ValueError:
        return None
    if not _are_optional(index[entries.end : -SHA1_BYTES]):
        return None
    data = b"".join(pieces)
    return data + hashlib.sha1(data, usedforsecurity=False).digest()


class PartialIndexes:
    """Keeps such copies in a folder that commands cannot see."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[Path, tuple[GitIndex, bytes, str]] = {}

    def find(self, git: Path, folders: Iterable[str]) -> str:
        """The copy for these folders of the index in a git folder; "" if there can be none."""
        path = git / "index"
        index, old, copy = self._made.get(path) or (GitIndex(path), b"", "")
        data = index.read()
        if data is not old:
            partial = make_partial_index(data, folders) if _uses_sha1(git) else None
            if copy:
                Path(copy).unlink(missing_ok=True)  # a mount of it stays
            copy = self._write(partial) if partial is not None else ""
            self._made[path] = index, data, copy
        return copy

    def _write(self, data: bytes) -> str:
        self._folder.mkdir(parents=True, exist_ok=True)
        fd, path = tempfile.mkstemp(dir=self._folder)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        return path


def _are_optional(data: bytes) -> bool:
    """Whether the extensions of an index can be left out: those with a capital letter."""
    at = 0
    while at + 8 <= len(data):
        if not data[at : at + 1].isupper():
            return False
        at += 8 + int.from_bytes(data[at + 4 : at + 8])
    return True


def _uses_sha1(git: Path) -> bool:
    """Whether the objects of a repository have names of 20 bytes."""
    return not any(
        key == "extensions.objectformat" and value.lower() != "sha1"
        for key, value in read_settings(git / "config")
    )

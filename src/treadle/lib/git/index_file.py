"""The index file of a repository: kept in memory, and changed where git does not see all files.

    IndexFile.settle     git trusts an entry, and does not open its file
    copy_partial_index   a copy in which the paths outside of some folders are not checked out

git writes the copy, in a plain repository (run.py): it is quicker than we are, and knows every
version. index.py has the format.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from treadle.lib.files.file_view import LOCAL_FILES
from treadle.lib.git.index import (
    HEADER_BYTES,
    LENGTH_MASK,
    MAX_INDEX_BYTES,
    SECOND,
    SHA1_BYTES,
    STATUS_BYTES,
    IndexEntry,
    list_entries,
    read_version,
)
from treadle.lib.git.run import GitError, find_git, plain_repository

_EMPTY_BLOB = b"blob 0\0"


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
        size = STATUS_BYTES + self._hash_size + 2
        at = index.find(name + b"\0") if read_version(index) else -1
        while at >= 0:
            # Before a name are its flags, with its length, and possibly more flags.
            for start in (at - size, at - size - 2):
                fixed = index[start : start + size] if start >= HEADER_BYTES else b""
                length = int.from_bytes(fixed[-2:]) & LENGTH_MASK
                if fixed and length == min(len(name), LENGTH_MASK) and start % 8 == 4:
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
        written = self._state[2] // SECOND if self._state is not None else 0
        is_recent = entry.time_ns // SECOND >= written
        is_unsure = not entry.size and entry.digest != self._hash(_EMPTY_BLOB)
        if not (is_recent or is_unsure):
            return entry
        earlier = written - 1
        earlier -= int(real.st_mtime) == earlier
        settled = entry.with_status(
            earlier * SECOND if is_recent else entry.time_ns,
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


def copy_partial_index(index: Path, copy: Path, folders: Iterable[str], not_in: Path) -> bool:
    """Copy an index, with the paths outside of `folders` marked as not checked out: git does not
    call them deleted where it does not see them. False if git does not understand the index.
    `not_in` is a folder from which no program is run."""
    shown = [f":(exclude,literal){folder}" for folder in folders]
    try:
        program = find_git(not_in)
        shutil.copyfile(index, copy)
        with plain_repository(GIT_INDEX_FILE=str(copy)) as environment:

            def run(*words: str, stdin: bytes = b"") -> bytes:
                return subprocess.run(
                    (program, *words),
                    input=stdin,
                    env=environment,
                    cwd=environment["GIT_WORK_TREE"],
                    capture_output=True,
                    check=True,
                ).stdout

            listed = [line.partition(b"\t") for line in run("ls-files", "-sz", *shown).split(b"\0")]
            names = [name for head, _, name in listed if head.endswith(b" 0")]  # no conflict
            marked = b"".join(name + b"\0" for name in names)
            run("update-index", "-z", "--skip-worktree", "--stdin", stdin=marked)
    except (OSError, GitError, subprocess.CalledProcessError):
        return False
    return True

"""The format of git's index file: its entries, in versions 2, 3 and 4.

Reads and writes bytes, without git, whose configuration could run programs. Used by the parts that
ask what a repository tracks: `permissions/git_index.py`, `workspace/sandbox/git_index.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

HEADER_BYTES = 12
SHA1_BYTES = 20
STATUS_BYTES = 40  # of an entry, before its hash: times, device, inode, mode, owner, size
FOLDER_MODE, SUBMODULE_MODE = 0o040000, 0o160000
LENGTH_MASK = 0xFFF  # in the flags: the length of the name
SKIP_WORKTREE = 0x4000  # in the second flags, which _EXTENDED announces
_ASSUMED, _EXTENDED, _UNMERGED = 0x8000, 0x4000, 0x3000


class IndexEntry(NamedTuple):
    """A file or a folder in the index."""

    fixed: bytes  # the status, the hash and the flags
    second_flags: int
    raw_name: bytes  # how the file has the name, without padding
    name: bytes

    @property
    def path(self) -> str:
        return self.name.decode(errors="surrogateescape")

    @property
    def mode(self) -> int:
        return int.from_bytes(self.fixed[24:28])

    @property
    def flags(self) -> int:
        return int.from_bytes(self.fixed[-2:])

    @property
    def is_folder(self) -> bool:
        """A folder whose files are not listed, outside of a sparse checkout."""
        return self.mode == FOLDER_MODE

    @property
    def is_submodule(self) -> bool:
        return self.mode == SUBMODULE_MODE

    @property
    def is_assumed(self) -> bool:
        """Whether git may read the index instead of the file: a conflict, or a flag."""
        return bool(self.flags & (_ASSUMED | _UNMERGED) or self.second_flags & SKIP_WORKTREE)


class IndexEntries:
    """The entries of an index, one after the other; ValueError if it cannot be read.

    `end` is where the entries that were read end.
    """

    def __init__(self, index: bytes, hash_bytes: int = SHA1_BYTES) -> None:
        self._index = index
        self.version = read_version(index)
        self._fixed_bytes = STATUS_BYTES + hash_bytes + 2
        self.end = HEADER_BYTES

    def __iter__(self) -> Iterator[IndexEntry]:
        if self.version not in (2, 3, 4):
            raise ValueError("this is not an index of git, or one of an unknown version")
        name = b""
        try:
            for _ in range(int.from_bytes(self._index[8:HEADER_BYTES])):
                entry = self._read(name)
                name = entry.name
                yield entry
        except IndexError as error:
            raise ValueError("the index of git is cut off") from error

    def _read(self, previous: bytes) -> IndexEntry:
        index, start = self._index, self.end
        at = start + self._fixed_bytes
        fixed, second_flags = index[start:at], 0
        if int.from_bytes(fixed[-2:]) & _EXTENDED:
            second_flags, at = int.from_bytes(index[at : at + 2]), at + 2
        first, kept = at, 0
        if self.version == 4:
            dropped, at = _read_number(index, at)
            kept = len(previous) - dropped
        end = index.index(b"\0", at)
        used = end - start
        self.end = end + 1 if self.version == 4 else start + (used + 8) // 8 * 8
        name = previous[:kept] + index[at:end]
        return IndexEntry(fixed, second_flags, index[first:end], name)


def read_version(index: bytes) -> int:
    """The version of an index; 0 if this is none."""
    return int.from_bytes(index[4:8]) if index[:4] == b"DIRC" else 0


def write_entry(entry: IndexEntry, version: int, second_flags: int) -> bytes:
    """The bytes of an entry, with other second flags. `version` is that of the entry's index."""
    flags = entry.flags | _EXTENDED if second_flags else entry.flags & ~_EXTENDED
    more = second_flags.to_bytes(2) if second_flags else b""
    data = entry.fixed[:-2] + flags.to_bytes(2) + more + entry.raw_name
    return data + b"\0" * (1 if version == 4 else 8 - len(data) % 8)


def _read_number(index: bytes, at: int) -> tuple[int, int]:
    """A number as git writes offsets, and where it ends."""
    value = index[at] & 0x7F
    while index[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (index[at] & 0x7F)
    return value, at + 1

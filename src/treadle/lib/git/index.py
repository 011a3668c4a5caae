"""The index of git: which paths a repository tracks, in versions 2, 3 and 4 of the file.

Reads bytes instead of running git, because every verdict about a git command and every command
beside a hidden file asks: a process costs more than a search in the bytes. index_file.py writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from treadle.lib.files.file_view import FileView

MAX_INDEX_BYTES = 128 << 20
HEADER_BYTES = 12
SHA1_BYTES = 20
STATUS_BYTES = 40  # of an entry, before its hash: times, device, inode, mode, owner, size
_TIME_AT, _MODE_AT, _SIZE_AT = 8, 24, 36  # in an entry
_FOLDER_MODE, _SUBMODULE_MODE = (0o040000).to_bytes(4), (0o160000).to_bytes(4)
LENGTH_MASK = 0xFFF  # in the flags: the length of the name
_ASSUMED, _EXTENDED, _UNMERGED = 0x8000, 0x4000, 0x3000
_SKIP_WORKTREE = 0x4000  # in the second flags, which _EXTENDED announces
SECOND = 1_000_000_000


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
        return self._read_number(_TIME_AT) * SECOND + self._read_number(_TIME_AT + 4)

    @property
    def mode(self) -> int:
        return self._read_number(_MODE_AT)

    @property
    def size(self) -> int:
        return self._read_number(_SIZE_AT)

    @property
    def digest(self) -> bytes:
        return self.fixed[STATUS_BYTES:-2]

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
        for at, number in enumerate(divmod(time_ns, SECOND)):
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
            start, at = at, at + STATUS_BYTES + hash_size + 2
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


def _read_offset(index: bytes, at: int) -> tuple[int, int]:
    """A number as git writes offsets, and where it ends."""
    value = index[at] & 0x7F
    while index[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (index[at] & 0x7F)
    return value, at + 1

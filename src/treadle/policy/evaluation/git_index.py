"""The index of a git repository: which files are tracked, and which folders are submodules.

Reads `.git` without running git: its configuration could run programs. Used by `git_config.py` and
`git_evaluator.py`.
"""

import struct
from collections.abc import Iterator

import msgspec

from treadle.policy.ruleset.paths import FileSystemView

_MAX_INDEX_BYTES = 64 << 20
_STATUS_BYTES = 40  # times, device, inode, mode, owner and size of a file
_MODE_OFFSET = 24
_FOLDER_MODE, _SUBMODULE_MODE = 0o040000, 0o160000
_SUBMODULE_BYTES = _SUBMODULE_MODE.to_bytes(4, "big")
_FOLDER_BYTES = _FOLDER_MODE.to_bytes(4, "big")
_ASSUMED_FLAG, _EXTENDED_FLAG, _UNMERGED_FLAGS, _SKIPPED_FLAG = 0x8000, 0x4000, 0x3000, 0x40


class IndexEntry(msgspec.Struct, frozen=True):
    """A file or a folder in the index."""

    path: str
    mode: int
    is_assumed: bool = False  # git may read the index instead of the file: a conflict, or a flag

    @property
    def is_folder(self) -> bool:
        """A folder whose files are not listed, outside of a sparse checkout."""
        return self.mode == _FOLDER_MODE

    @property
    def is_submodule(self) -> bool:
        return self.mode == _SUBMODULE_MODE


def read_indexes(file_system: FileSystemView, git_folder: str) -> Iterator[bytes | None]:
    """The contents of the index files; None for one that cannot be read."""
    names = file_system.list_names(git_folder)
    for name in names if names is not None else ["index"]:
        if name == "index" or name.startswith("sharedindex."):
            yield file_system.read(f"{git_folder}/{name}", _MAX_INDEX_BYTES)


def list_submodules(content: bytes, hash_size: int) -> list[str] | None:
    """The paths of the submodules in an index; None if it cannot be read."""
    if _SUBMODULE_BYTES not in content:
        return []
    entries = list_entries(content, hash_size)
    return None if entries is None else [e.path for e in entries if e.is_submodule]


def may_contain(content: bytes, name: str) -> bool:
    """Whether a path in an index may have this part, in any case; quick, and never wrongly no."""
    is_compressed = content[4:8] == b"\0\0\0\4"
    return is_compressed or not name.isascii() or name.lower().encode() in content.lower()


def may_list_folders(content: bytes) -> bool:
    """Whether an index may have entries for submodules or for folders; never wrongly no."""
    return _SUBMODULE_BYTES in content or _FOLDER_BYTES in content


def list_entries(content: bytes, hash_size: int) -> list[IndexEntry] | None:
    """The entries of an index; None if it cannot be read."""
    try:
        return list(_parse_entries(content, hash_size))
    except (ValueError, IndexError, struct.error):
        return None


def _parse_entries(content: bytes, hash_size: int) -> Iterator[IndexEntry]:
    signature, version, count = struct.unpack_from(">4sII", content)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError(version)
    at, name = 12, b""
    for _ in range(count):
        (mode,) = struct.unpack_from(">I", content, at + _MODE_OFFSET)
        (flags,) = struct.unpack_from(">H", content, at + _STATUS_BYTES + hash_size)
        start = at + _STATUS_BYTES + hash_size + 2
        is_extended = bool(flags & _EXTENDED_FLAG)
        skips_file = is_extended and bool(content[start] & _SKIPPED_FLAG)
        start += 2 if is_extended else 0
        kept = b""
        if version == 4:
            dropped, start = _read_number(content, start)
            kept = name[: len(name) - dropped]
        end = content.index(b"\0", start)
        name = kept + content[start:end]
        yield IndexEntry(
            name.decode(errors="surrogateescape"),
            mode,
            bool(flags & (_ASSUMED_FLAG | _UNMERGED_FLAGS)) or skips_file,
        )
        at = end + 1 if version == 4 else at + (end - at + 8) // 8 * 8


def _read_number(content: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    byte = content[at]
    value = byte & 0x7F
    while byte & 0x80:
        at += 1
        byte = content[at]
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, at + 1

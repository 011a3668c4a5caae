"""The index of a git repository: which files are tracked, and which folders are submodules.

Reads `.git` without running git: its configuration could run programs. What cannot be read for
certain counts as tracked. Used by `file_evaluator.py` and `git_config.py`.
"""

import re
import struct
from collections.abc import Iterator

from treadle.policy.ruleset.paths import FileSystemView

_MAX_INDEX_BYTES = 64 << 20
_SUBMODULE_MODE = re.compile(rb"\x00\x00\xe0\x00", re.DOTALL)
_EXTENDED_FLAG = 0x4000


def read_indexes(file_system: FileSystemView, git_folder: str) -> Iterator[bytes | None]:
    """The contents of the index files; None for one that cannot be read."""
    names = file_system.list_names(git_folder)
    for name in names if names is not None else ["index"]:
        if name == "index" or name.startswith("sharedindex."):
            yield file_system.read(f"{git_folder}/{name}", _MAX_INDEX_BYTES)


def list_submodules(content: bytes, hash_size: int) -> list[str] | None:
    """The paths of the submodules in an index; None if its names cannot be read."""
    found = list(_SUBMODULE_MODE.finditer(content))
    if not found:
        return []
    if not _has_plain_names(content):
        return None
    paths = []
    for mode in found:  # then owner, group and size with 4 bytes each, hash, flags, and the name
        at = mode.end() + 3 * 4 + hash_size
        flags = int.from_bytes(content[at : at + 2], "big")
        start = at + 2 + (2 if flags & _EXTENDED_FLAG else 0)
        end = content.find(b"\0", start)
        paths.append(content[start:end].decode(errors="surrogateescape"))
    return paths


def _has_plain_names(content: bytes) -> bool:
    """Whether names are written out: version 4 compresses them."""
    return len(content) >= 12 and struct.unpack(">I", content[4:8])[0] in (2, 3)


def is_tracked(file_system: FileSystemView, path: str) -> bool:
    """Whether git may have a file in its index."""
    folder = path.rpartition("/")[0]
    while folder and file_system.lstat(f"{folder}/.git") is None:
        folder = folder.rpartition("/")[0]
    if not folder:
        return False
    if file_system.read(f"{folder}/.git", 4096) is not None:
        return True  # a file: the repository is elsewhere
    name = path[len(folder) + 1 :].encode(errors="surrogateescape") + b"\0"
    return any(
        content is None or not _has_plain_names(content) or name in content
        for content in read_indexes(file_system, f"{folder}/.git")
    )

"""The index of a git repository: which files are tracked, and which folders are submodules.

Reads `.git` without running git: its configuration could run programs. What cannot be read for
certain counts as tracked. Used by the evaluators of files and of commands.
"""

import struct

from treadle.policy.ruleset.paths import FileSystemView

_MAX_INDEX_BYTES = 64 << 20


def read_index(file_system: FileSystemView, git_folder: str) -> bytes | None:
    """The content of an index; empty if there is none, None if it cannot be searched for names."""
    content = file_system.read(f"{git_folder}/index", _MAX_INDEX_BYTES)
    if content is None:
        return b"" if file_system.lstat(f"{git_folder}/index") is None else None
    if len(content) < 12 or struct.unpack(">I", content[4:8])[0] > 3:
        return None  # version 4 compresses names
    return content


def is_tracked(file_system: FileSystemView, path: str) -> bool:
    """Whether git may have a file in its index."""
    folder = path.rpartition("/")[0]
    while folder:
        if file_system.lstat(f"{folder}/.git") is not None:
            if file_system.list_names(f"{folder}/.git") == []:
                return True  # a file: the repository is elsewhere
            content = read_index(file_system, f"{folder}/.git")
            name = path[len(folder) + 1 :].encode(errors="surrogateescape")
            return content is None or name + b"\0" in content
        folder = folder.rpartition("/")[0]
    return False

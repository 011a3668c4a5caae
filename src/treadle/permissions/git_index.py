"""The index of a git repository: which files are tracked, and which folders are submodules.

Reads `.git` without running git: its configuration could run programs. Used by `git_config.py`,
`git_places.py` and `tracked_files.py`; the format is in core/git_index.py.
"""

from collections.abc import Iterator

from treadle.core.git_index import (
    FOLDER_MODE,
    SUBMODULE_MODE,
    IndexEntries,
    IndexEntry,
    read_version,
)
from treadle.lib.files.paths import FileSystemView

_MAX_INDEX_BYTES = 64 << 20
_SUBMODULE_BYTES = SUBMODULE_MODE.to_bytes(4)
_FOLDER_BYTES = FOLDER_MODE.to_bytes(4)


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
    is_compressed = read_version(content) == 4
    return is_compressed or not name.isascii() or name.lower().encode() in content.lower()


def may_list_folders(content: bytes) -> bool:
    """Whether an index may have entries for submodules or for folders; never wrongly no."""
    return _SUBMODULE_BYTES in content or _FOLDER_BYTES in content


def list_entries(content: bytes, hash_size: int) -> list[IndexEntry] | None:
    """The entries of an index; None if it cannot be read."""
    try:
        return list(IndexEntries(content, hash_size))
    except ValueError:
        return None

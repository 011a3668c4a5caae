"""An entry of a scanned folder that the sandbox has to know, and the kinds of such entries.

Found by `tree_scan.py` and `protected_paths.py`, mounted by `mounts.py`.
"""

from __future__ import annotations

from typing import NamedTuple

HIDDEN, READ_ONLY, SOCKET, GIT, PROTECTED, MEMORY, UNLISTED, PINNED, GENERATED = (
    "hidden", "read-only", "socket", "git", "protected", "memory", "unlisted", "pinned", "generated"
)  # fmt: skip
"""UNLISTED is a folder whose entries cannot be seen: they may be of any kind. PINNED is a folder
that may not be renamed, because another entry is protected by its path. GENERATED is a folder that
tools fill; it is no entry itself."""


class FoundEntry(NamedTuple):
    """An entry of a scanned folder. `parent` and `inode` tell whether it is still the same one."""

    path: str
    kind: str
    inode: int
    parent: tuple[int, int]

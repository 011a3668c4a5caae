"""An entry of a scanned folder that the sandbox has to know, and the kinds of such entries.

Found by `tree_scan.py` and `protected_paths.py`, mounted by `mounts.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from treadle.workspace.command_limits import HIDDEN as HIDDEN
from treadle.workspace.command_limits import READ_ONLY as READ_ONLY

SOCKET, GIT, PROTECTED, LINK, MEMORY, UNLISTED, PINNED, GENERATED = (
    "socket", "git", "protected", "link", "memory", "unlisted", "pinned", "generated",
)  # fmt: skip
"""UNLISTED is a folder whose entries cannot be seen: they may be of any kind. PINNED is a folder
that may not be renamed, because another entry is protected by its path. LINK is a symlink in a
protected folder. GENERATED is a folder that tools fill; it is no entry itself."""


class FoundEntry(NamedTuple):
    """An entry of a scanned folder. `parent` and `inode` tell whether it is still the same one.
    `is_made`: it appeared since the session began."""

    path: str
    kind: str
    inode: int
    parent: tuple[int, int]
    is_made: bool = False

    @property
    def identity(self) -> tuple[int, int, str, str]:
        """What stays the same if a folder above is renamed, and not if the entry is."""
        return self.parent[0], self.inode, self.kind, self.path.rpartition("/")[2]

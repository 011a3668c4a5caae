"""Gives back the permissions of folders that a command made unreadable.

What cannot be listed cannot be checked, and a file in such a folder can still be opened by its
name. Only folders of this user are changed, and none that was unreadable before the command. Used
by `protected_paths.py`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from treadle.workspace.sandbox.tree_scan import FoundEntry
from treadle.workspace.supervisor.set_aside import open_folder
from treadle.workspace.supervisor.syscalls import change_mode

NEEDED = stat.S_IRWXU


class FolderPermissions:
    """Makes folders below one root listable, and remembers which ones."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._unlisted: set[tuple[int, int]] = set()
        self._changed: dict[str, None] = {}

    def begin(self, unlisted: Iterable[FoundEntry]) -> None:
        """These folders are unreadable before a command: the user wants it so."""
        self._unlisted = {(entry.parent[0], entry.inode) for entry in unlisted}

    def make_listable(self, path: str) -> bool:
        """Whether the permissions of this folder were changed. It follows no symlink."""
        names = path[len(self._root) + 1 :].split("/") if path != self._root else []
        try:
            fd = open_folder(self._root, names)
        except OSError:
            return False
        try:
            status = os.fstat(fd)
            is_ours = status.st_uid == os.geteuid() and status.st_mode & NEEDED != NEEDED
            if not is_ours or (status.st_dev, status.st_ino) in self._unlisted:
                return False
            change_mode(fd, stat.S_IMODE(status.st_mode) | NEEDED)
        except OSError:
            return False
        finally:
            os.close(fd)
        self._changed[path] = None
        return True

    def make_tree_listable(self, path: str) -> None:
        """The same for a folder that a command made, and for all in it."""
        waiting = [] if os.geteuid() == 0 else [path]
        for folder in waiting:  # it grows meanwhile
            self.make_listable(folder)
            try:
                with os.scandir(folder) as entries:
                    waiting += [e.path for e in entries if e.is_dir(follow_symlinks=False)]
            except OSError:
                continue  # a file, or gone

    def take_changed(self) -> list[str]:
        """The folders that were changed since the last call."""
        changed, self._changed = self._changed, {}
        return list(changed)

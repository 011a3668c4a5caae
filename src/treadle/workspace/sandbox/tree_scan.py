"""Finds the entries of a folder that the sandbox has to know: protected, denied, sockets.

A scan lists only folders that changed since the last one, nearest first, up to a limit: its cost
does not grow with the project. It decides by name and type and opens no file. Used by
`protected_paths.py`.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from treadle.core.protected_paths import word_set

MAX_FOLDERS = 2000
"""How many folders of a project are watched; some 10 ms if nothing changed."""

MAX_NEW_FOLDERS = 20_000
"""How many more may appear until a scan stops: their number is the work of a command."""

GENERATED_FOLDERS = word_set(
    """
    node_modules .venv venv site-packages __pycache__ .tox .nox .mypy_cache .pytest_cache
    """
)
"""Folders that tools fill: no program takes its settings from deep inside of them."""

RACY_NS = 50_000_000
"""A folder that changed this shortly before it was listed may have changed after it, too."""


class FoundEntry(NamedTuple):
    """An entry of a scanned folder. `parent` and `inode` tell whether it is still the same one."""

    path: str
    kind: str
    inode: int
    parent: tuple[int, int]


Classify = Callable[[str, os.DirEntry[str]], str]
"""The kind of an entry of a folder, or "". An entry with a kind is not searched itself."""


class _Folder(NamedTuple):
    identity: tuple[int, int]
    changed_ns: int
    listed_ns: int
    subfolders: tuple[str, ...]
    found: tuple[FoundEntry, ...]


class TreeScanner:
    """Scans one root again and again. Folders beyond the limit of the first scan stay unknown."""

    def __init__(
        self,
        root: str,
        classify: Classify,
        *,
        with_generated: bool = False,
        max_folders: int = MAX_FOLDERS,
    ) -> None:
        self._root, self._classify = root, classify
        self._with_generated, self._max_folders = with_generated, max_folders
        self._folders: dict[str, _Folder] = {}
        self._beyond: frozenset[str] = frozenset()
        self.is_cut = False  # whether the last scan met too many new folders

    def scan(self) -> list[FoundEntry]:
        """The entries of interest that exist now."""
        is_first = not self._folders
        limit = self._max_folders + (0 if is_first else MAX_NEW_FOLDERS)
        waiting, generated = deque([self._root]), deque[str]()
        folders: dict[str, _Folder] = {}
        found: list[FoundEntry] = []
        while (waiting or generated) and len(folders) < limit:
            path = waiting.popleft() if waiting else generated.popleft()
            folder = self._look_at(path)
            if folder is None:
                continue
            folders[path] = folder
            found += folder.found
            for name in folder.subfolders:
                below = f"{path}/{name}"
                if below in self._beyond:
                    continue
                if name not in GENERATED_FOLDERS:
                    waiting.append(below)
                elif self._with_generated:
                    generated.append(below)
        if is_first:
            self._beyond = frozenset((*waiting, *generated))
        self.is_cut = not is_first and bool(waiting or generated)
        self._folders = folders
        return found

    def _look_at(self, path: str) -> _Folder | None:
        try:
            status = os.lstat(path or "/")
        except OSError:
            return None
        identity, changed = (status.st_dev, status.st_ino), status.st_ctime_ns
        known = self._folders.get(path)
        is_same = known is not None and (known.identity, known.changed_ns) == (identity, changed)
        if known is not None and is_same and changed < known.listed_ns - RACY_NS:
            return known
        now = time.time_ns()
        subfolders: list[str] = []
        found: list[FoundEntry] = []
        for entry in _list_entries(path or "/"):
            if kind := self._classify(path, entry):
                found.append(FoundEntry(f"{path}/{entry.name}", kind, entry.inode(), identity))
            elif entry.is_dir(follow_symlinks=False):
                subfolders.append(entry.name)
        return _Folder(identity, changed, now, tuple(subfolders), tuple(found))


def _list_entries(path: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            yield from entries
    except OSError:
        return  # it is gone, or may not be read

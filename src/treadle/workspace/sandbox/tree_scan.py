"""Finds the entries of a folder that the sandbox has to know: protected, denied, sockets.

A scan looks at the state of each folder, and lists only those that changed since the last one. It
decides by name and type and opens no file. A folder that cannot be listed is not empty: it is found
as UNLISTED. Used by `protected_paths.py`.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from treadle.lib.files.protected_paths import GENERATED_FOLDERS
from treadle.workspace.command_limits import HIDDEN as HIDDEN
from treadle.workspace.command_limits import READ_ONLY as READ_ONLY
from treadle.workspace.supervisor.syscalls import is_born_before

MAX_FOLDERS = 200_000
"""How many folders are scanned; 50,000 take some 0.12 s if nothing changed, and 0.7 s at first."""

MAX_PATH_BYTES = 3800
"""Longer paths cannot be mounted."""

RACY_NS = 50_000_000
"""A folder that changed this shortly before it was listed may have changed after it, too."""

Classify = Callable[[str, os.DirEntry[str], str], str]
"""The kind of an entry of a folder, or "". The last argument is the kind of the nearest folder
around it that has one, GENERATED for one that a tool fills, or ""."""

MakeListable = Callable[[str], bool]
"""Changes the permissions of a folder so that it can be listed; False if it may not."""


class _Folder(NamedTuple):
    state: tuple[int, int, int]  # device, inode, time of the last change
    below: tuple[str, ...] = ()
    found: tuple[FoundEntry, ...] = ()


class TreeScanner:
    """Scans one root again and again. `is_cut`: there are more folders than it may scan.

    A folder with a kind is searched only if the kind is one of `searched`.
    """

    def __init__(
        self,
        root: str,
        classify: Classify,
        *,
        searched: Collection[str] = (),
        with_generated: bool = False,
        max_folders: int = MAX_FOLDERS,
    ) -> None:
        self._root, self._classify = root, classify
        self._searched, self._around = frozenset(searched), dict[str, str]()
        self._with_generated, self._max_folders = with_generated, max_folders
        self._opened_ns, self._inodes = time.time_ns(), set[int]()
        self._folders: dict[str, _Folder] = {}
        self._racy: set[str] = set()
        self._unvisited: list[str] = []
        self._blocked: dict[str, FoundEntry] = {}

    @property
    def is_cut(self) -> bool:
        return bool(self._unvisited)

    def scan(self, make_listable: MakeListable | None = None) -> list[FoundEntry]:
        """The entries of interest that exist now."""
        waiting, self._unvisited = [*self._unvisited, *self._blocked], []
        self._blocked = {}
        for path in self._find_changed():
            if path in self._folders:  # or a folder above it is gone
                waiting += self._visit(path, make_listable)
        if not self._folders:
            waiting = [self._root]
        for path in waiting:  # it grows meanwhile
            if len(self._folders) < self._max_folders:
                waiting += self._visit(path, make_listable)
            else:
                self._unvisited.append(path)
        found = [entry for folder in self._folders.values() for entry in folder.found]
        known = {entry.path for entry in found if entry.kind == UNLISTED}
        blocked = {entry.path: entry for entry in self._blocked.values()}
        return found + [entry for path, entry in blocked.items() if path not in known]

    def _find_changed(self) -> list[str]:
        """The folders to list again. With 50,000 folders this loop is what a scan costs."""
        changed = list(self._racy)
        for path, folder in self._folders.items():
            try:
                status = os.lstat(path or "/")
            except OSError:
                changed.append(path)
                continue
            if folder.state != (status.st_dev, status.st_ino, status.st_ctime_ns):
                changed.append(path)
        self._racy = set()
        return sorted(set(changed))

    def _visit(self, path: str, make_listable: MakeListable | None) -> list[str]:
        """List a folder; returns the folders in it that are not known."""
        folder = self._look_at(path, make_listable)
        known = self._folders.get(path)
        if known is not None:
            stays = set(folder.below if folder is not None else ())
            self._forget([below for below in known.below if below not in stays])
        if folder is None:
            self._forget([path])
            return []
        self._folders[path] = folder
        return [below for below in folder.below if below not in self._folders]

    def _forget(self, paths: list[str]) -> None:
        for path in paths:  # it grows meanwhile
            folder = self._folders.pop(path, None)
            if folder is not None:
                paths += folder.below

    def _look_at(self, path: str, make_listable: MakeListable | None) -> _Folder | None:
        try:
            status = os.lstat(path or "/")
            if not stat.S_ISDIR(status.st_mode):
                return None
            state = status.st_dev, status.st_ino, status.st_ctime_ns
            if status.st_ctime_ns >= time.time_ns() - RACY_NS:
                self._racy.add(path)
            try:
                if not _is_open_to_us(status):
                    os.lstat(f"{path}/.")  # a folder can be readable and not searchable
                return self._list(path, state)
            except PermissionError:
                if make_listable is not None and make_listable(path):
                    return self._look_at(path, None)
                return _Folder(state, (), (make_unlisted(path),))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._blocked[path] = make_unlisted(path, too_long=error.errno == errno.ENAMETOOLONG)
            return None

    def _list(self, path: str, state: tuple[int, int, int]) -> _Folder:
        below: list[str] = []
        found: list[FoundEntry] = []
        around = self._around.get(path, "")
        if around != GENERATED:
            self._inodes.add(state[1])
        with os.scandir(path or "/") as entries:
            for entry in entries:
                if kind := self._classify(path, entry, around):
                    inode = entry.inode()
                    found.append(FoundEntry(f"{path}/{entry.name}", kind, inode, state[:2]))
                if kind and kind not in self._searched:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    kind = kind or (GENERATED if self._is_generated(path, entry) else around)
                    if kind != GENERATED or self._with_generated:
                        below.append(f"{path}/{entry.name}")
                        self._set_around(below[-1], kind)
        return _Folder(state, tuple(below), tuple(found))

    def _set_around(self, path: str, kind: str) -> None:
        if kind:
            self._around[path] = kind
        else:
            self._around.pop(path, None)

    def _is_generated(self, path: str, entry: os.DirEntry[str]) -> bool:
        """Whether tools fill it. A folder of the user that a command has renamed stays what it
        was; a new one may have the inode of one that is gone."""
        if entry.name not in GENERATED_FOLDERS:
            return False
        return entry.inode() not in self._inodes or not is_born_before(
            f"{path}/{entry.name}", self._opened_ns
        )


def _is_open_to_us(status: os.stat_result) -> bool:
    """Whether it surely can be listed and searched, by its permissions."""
    return status.st_uid == os.geteuid() and status.st_mode & 0o500 == 0o500


def make_unlisted(path: str, *, too_long: bool = False) -> FoundEntry:
    """The entry for a path that cannot be looked at: the nearest folder above that can be."""
    for candidate in list_upwards(path):
        if too_long and len(os.fsencode(candidate)) > MAX_PATH_BYTES:
            continue
        try:
            status = os.lstat(candidate or "/")
            above = os.lstat(candidate.rpartition("/")[0] or "/")
        except OSError:
            continue
        return FoundEntry(candidate, UNLISTED, status.st_ino, (above.st_dev, above.st_ino))
    return FoundEntry("/", UNLISTED, 0, (0, 0))


def list_upwards(path: str, root: str = "") -> Iterator[str]:
    """The path and the folders above it, below the root."""
    while path not in ("", root):
        yield path
        path = path.rpartition("/")[0]


def find_entry(path: str, kind: str) -> list[FoundEntry]:
    """The entry at a path, if it exists. UNLISTED, if a folder above cannot be searched."""
    try:
        status, above = os.lstat(path), os.lstat(path.rpartition("/")[0] or "/")
    except PermissionError:
        return [make_unlisted(path)]
    except OSError:
        return []
    return [FoundEntry(path, kind, status.st_ino, (above.st_dev, above.st_ino))]


def find_links(folder: str) -> list[FoundEntry]:
    """The symlinks in a folder."""
    try:
        status = os.lstat(folder)
        with os.scandir(folder) as entries:
            links = [entry for entry in entries if entry.is_symlink()]
    except OSError:
        return []
    parent = status.st_dev, status.st_ino
    return [FoundEntry(f"{folder}/{e.name}", LINK, e.inode(), parent) for e in links]


def may_be_entered(path: str) -> bool:
    """Whether a command could reach what is in a folder, now or after a chmod."""
    try:
        is_ours = os.lstat(path).st_uid == os.geteuid()
    except OSError:
        return False
    return is_ours or os.access(path, os.X_OK, effective_ids=True)


SOCKET, GIT, PROTECTED, LINK, MEMORY, UNLISTED, PINNED, GENERATED, SECRET, HEAD = (
    "socket", "git", "protected", "link", "memory", "unlisted", "pinned", "generated", "secret",
    "head",
)  # fmt: skip
"""UNLISTED is a folder whose entries cannot be seen: they may be of any kind. PINNED is a folder
that may not be renamed, because another entry is protected by its path. LINK is a symlink in a
protected folder. GENERATED is a folder that tools fill; it is no entry itself. SECRET is
hidden from searches only. HEAD is a file of that name: the folder may be a bare repository."""


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


def format_path(path: str) -> str:
    """A path for a note: a command chooses its characters."""
    text = os.fsencode(path).decode(errors="replace")
    return "".join(c if c.isprintable() else "?" for c in text)


def list_some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    rest = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + rest

"""The current files of a folder as a tree; what did not change is not read again.

A file is unchanged if the time of its last change, its inode and its size are the same; no program
can set that time. A file that changed just before a scan may change again within the same clock
tick, so the next scan reads it again. Symlinks are stored as symlinks, not followed (`safe_tree`).
What the project ignores is not stored, unless it is a file that was named.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import msgspec

from treadle.core.checkpoint_limits import MAX_DEPTH, MAX_GITIGNORE_BYTES
from treadle.lib.git.ignore import GITIGNORE, IgnoreRules
from treadle.workspace.checkpoints import safe_tree
from treadle.workspace.checkpoints.flat_tree import parent_folders
from treadle.workspace.checkpoints.object_store import ObjectStore, TreeNode

_CLOCK_TICK_NS = 100_000_000  # longer than a clock tick of any file system


class SkippedPath(msgspec.Struct, frozen=True):
    """A path that a checkpoint does not include, and why."""

    path: str
    reason: str


class TooManyFiles(Exception):
    """The folder has too many files for a checkpoint at every call."""


class ScannedEntry(msgspec.Struct, frozen=True, eq=False):
    """An entry of a folder. `node` is None for sockets, pipes and devices, which are not stored;
    `stamp` is None if the next scan has to look at it again. `folder`: what is in it."""

    node: TreeNode | None
    stamp: tuple[int, int, int] | None = None
    skipped: SkippedPath | None = None
    folder: ScannedFolder | None = None


class ScannedFolder(msgspec.Struct, frozen=True, eq=False):
    """What a scan found in a folder; `hash` names its tree. `file_count` and `skipped` are without
    the folders in it. `is_ignored`: only the named files in it are stored."""

    rules: IgnoreRules | None = None
    entries: dict[str, ScannedEntry] = {}
    hash: str = ""
    file_count: int = 0
    skipped: tuple[SkippedPath, ...] = ()
    is_ignored: bool = False

    def leaves_out(self, path: str) -> bool:
        """Whether this file is ignored, and was not stored."""
        name, _, below = path.partition("/")
        entry = self.entries.get(name)
        if entry is None:
            return False
        if entry.folder is not None and below:
            return entry.folder.leaves_out(below)
        return _is_ignored(entry)


class _OpenFolder(msgspec.Struct, frozen=True):
    """A folder during its scan. `has_same_rules`: what is ignored in it is as at the last scan."""

    fd: int
    prefix: str
    rules: IgnoreRules
    has_same_rules: bool
    level: int
    is_ignored: bool
    named: frozenset[str]

    def is_unchanged(self, entry: os.DirEntry[str], before: ScannedEntry) -> bool:
        if before.stamp is None or not self.has_same_rules:
            return False
        if self.named and _is_ignored(before) and self.prefix + entry.name in self.named:
            return False
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return False
        return before.stamp == (status.st_ctime_ns, status.st_ino, status.st_size)


class Scanner:
    """One scan of a folder, which stores the contents. `last` is what the scan before it found;
    `named` are files that are stored although they are ignored."""

    def __init__(
        self,
        root: Path,
        objects: ObjectStore,
        max_bytes: int,
        max_files: int,
        last: ScannedFolder,
        named: frozenset[str],
    ) -> None:
        self._root = os.fspath(root)
        self._objects = objects
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._last = last
        self._named = named
        self._named_folders = {folder for path in named for folder in parent_folders(path)}
        self._latest_stamp = time.time_ns() - _CLOCK_TICK_NS
        self.skipped: list[SkippedPath] = []
        self.file_count = 0
        self.read_count = 0  # files that had to be read

    def scan(self) -> ScannedFolder:
        fd, found = safe_tree.open_root(self._root)
        return self._scan_entries(fd, found, "", IgnoreRules(), self._last, 0, False)

    def _scan_entries(
        self,
        fd: int,
        found: list[os.DirEntry[str]],
        path: str,
        rules: IgnoreRules,
        last: ScannedFolder,
        level: int,
        is_ignored: bool,
    ) -> ScannedFolder:
        """What is in one folder; `last` itself if nothing changed. Closes the descriptor."""
        entries: dict[str, ScannedEntry] = {}
        known = last.entries
        try:
            rules = rules.with_gitignore(path, self._load_gitignore(fd, found))
            prefix = f"{path}/" if path else ""
            is_same = rules == last.rules and is_ignored == last.is_ignored
            here = _OpenFolder(fd, prefix, rules, is_same, level, is_ignored, self._named)
            for entry in found:
                name = entry.name
                before = known.get(name)
                if before is not None and here.is_unchanged(entry, before):
                    entries[name] = before
                elif name == ".git":
                    continue
                elif entry.is_dir(follow_symlinks=False):
                    entries[name] = self._scan_folder(here, name, before)
                else:
                    entries[name] = self._scan_file(here, entry, before)
        finally:
            os.close(fd)
        is_same = here.has_same_rules and entries == known
        result = last if is_same else self._store(here, entries)
        self.skipped += result.skipped
        self.file_count += result.file_count
        if self.file_count > self._max_files:
            raise TooManyFiles(f"{self._root} holds more than {self._max_files} files")
        return result

    def _store(self, here: _OpenFolder, entries: dict[str, ScannedEntry]) -> ScannedFolder:
        nodes = [one.node for _, one in sorted(entries.items()) if one.node is not None]
        skipped = tuple(one.skipped for one in entries.values() if one.skipped is not None)
        count = sum(node.kind in ("file", "link") for node in nodes)
        digest = self._objects.put_folder(nodes)
        return ScannedFolder(here.rules, entries, digest, count, skipped, here.is_ignored)

    def _scan_folder(
        self, here: _OpenFolder, name: str, before: ScannedEntry | None
    ) -> ScannedEntry:
        path, last = here.prefix + name, before.folder if before is not None else None
        if last and here.has_same_rules:
            is_ignored = last.is_ignored
        else:
            is_ignored = here.is_ignored or here.rules.is_ignored(path, is_folder=True)
        if is_ignored and path not in self._named_folders:
            return _ignore(name, before)
        if here.level >= MAX_DEPTH:
            return _skip(path, f"more than {MAX_DEPTH} folders deep")
        try:
            fd, found = safe_tree.open_folder(name, here.fd)
        except OSError as error:
            return _skip(path, safe_tree.explain_error(error))
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        last = last or ScannedFolder()
        level = here.level + 1
        folder = self._scan_entries(fd, found, path, here.rules, last, level, is_ignored)
        if before is not None and folder is last and before.node and before.node.mode == mode:
            return before
        return ScannedEntry(TreeNode(name, "folder", mode, folder.hash), folder=folder)

    def _scan_file(
        self, here: _OpenFolder, entry: os.DirEntry[str], before: ScannedEntry | None
    ) -> ScannedEntry:
        path = here.prefix + entry.name
        try:
            status = entry.stat(follow_symlinks=False)
            stamp = _make_stamp(status)
            is_ignored = here.is_ignored or here.rules.is_ignored(path, is_folder=False)
            if is_ignored and path not in self._named:
                return ScannedEntry(TreeNode(entry.name, "ignored", 0, ""), stamp)
            is_same = before is not None and before.stamp == stamp
            if before is not None and is_same and before.node and not _is_ignored(before):
                return before
            return self._read_file(here.fd, entry.name, path, status)
        except OSError as error:
            return _skip(path, safe_tree.explain_error(error))

    def _read_file(self, fd: int, name: str, path: str, status: os.stat_result) -> ScannedEntry:
        node, skipped = None, None
        too_large = f"larger than {self._max_bytes >> 20} MiB"
        if stat.S_ISLNK(status.st_mode):
            target = os.fsencode(os.readlink(name, dir_fd=fd))
            node = TreeNode(name, "link", 0, self._objects.put(target))
        elif stat.S_ISREG(status.st_mode):
            if status.st_size > self._max_bytes:
                return _skip(path, too_large, _make_stamp(status))
            # It may have been replaced: use the status of the file that was read.
            data, status = safe_tree.read_file(name, fd, self._max_bytes + 1)
            if len(data) > self._max_bytes:
                return _skip(path, too_large)
            self.read_count += 1
            mode = stat.S_IMODE(status.st_mode)
            node = TreeNode(name, "file", mode, self._objects.put(data))
        is_old = status.st_ctime_ns < self._latest_stamp
        return ScannedEntry(node, _make_stamp(status) if is_old else None, skipped)

    def _load_gitignore(self, fd: int, entries: list[os.DirEntry[str]]) -> str:
        if GITIGNORE not in [entry.name for entry in entries]:
            return ""
        try:
            data, _ = safe_tree.read_file(GITIGNORE, fd, MAX_GITIGNORE_BYTES)
        except OSError:
            return ""
        return data.decode(errors="replace")


def _is_ignored(entry: ScannedEntry) -> bool:
    return entry.node is not None and entry.node.kind == "ignored"


def _ignore(name: str, before: ScannedEntry | None) -> ScannedEntry:
    node = TreeNode(name, "ignored", 0, "")
    return before if before is not None and before.node == node else ScannedEntry(node)


def _skip(path: str, reason: str, stamp: tuple[int, int, int] | None = None) -> ScannedEntry:
    node = TreeNode(path.rpartition("/")[2], "left", 0, "")
    return ScannedEntry(node, stamp, SkippedPath(path, reason))


def _make_stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ctime_ns, status.st_ino, status.st_size

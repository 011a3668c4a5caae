"""The current files of a folder as a tree; unchanged files are not read again.

A file counts as unchanged if its size, times, inode and permissions are the same. One that changed
just before a scan may change again within the same clock tick, so the next scan reads it again.
Symlinks are stored as symlinks and not followed (`safe_tree`).
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from treadle.lib.git.ignore import GITIGNORE, IgnoreRules
from treadle.workspace.checkpoints import safe_tree
from treadle.workspace.checkpoints.object_store import ObjectStore, TreeNode

MAX_FILE_BYTES = 10 << 20
MAX_FILES = 100_000
MAX_DEPTH = 200  # each level holds a descriptor during the scan
_MAX_GITIGNORE_BYTES = 1 << 20
_CLOCK_TICK_NS = 100_000_000  # longer than a clock tick of any file system


class SkippedPath(msgspec.Struct, frozen=True):
    """A path that a checkpoint does not include, and why."""

    path: str
    reason: str


class TooManyFiles(Exception):
    """The folder has too many files for a checkpoint at every turn."""


_FileStamp = tuple[int, int, int, int, int]
StatCache = dict[str, tuple[_FileStamp, str]]
Period = tuple[int, int]  # from and until, in nanoseconds since 1970


class Scanner:
    """One scan of a folder, which stores the contents."""

    def __init__(
        self,
        root: Path,
        objects: ObjectStore,
        stat_cache: StatCache,
        max_bytes: int,
        max_files: int,
        periods: Sequence[Period] = (),
    ) -> None:
        self._root = os.fspath(root)
        self._objects = objects
        self._old_cache = stat_cache
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._periods = periods
        self._first_period = min((start for start, _ in periods), default=None)
        self._now = time.time_ns()
        self.changed_in_periods: set[str] = set()
        self.stat_cache: StatCache = {}
        self.files: dict[str, TreeNode] = {}
        self.folders: dict[str, int] = {}  # with their permissions
        self.ignored: set[str] = set()
        self.special_files: set[str] = set()  # sockets, pipes and devices, which are not stored
        self.skipped: list[SkippedPath] = []
        self.read_count = 0  # files that had to be read

    def scan(self) -> str:
        """The hash of the tree."""
        fd, entries = safe_tree.open_root(self._root)
        return self._store_folder(fd, entries, "", IgnoreRules(), 0)

    def _store_folder(
        self, fd: int, entries: list[os.DirEntry[str]], folder: str, rules: IgnoreRules, level: int
    ) -> str:
        """The hash of the tree of one folder; closes its descriptor."""
        try:
            rules = rules.with_gitignore(folder, self._load_gitignore(fd, entries, folder))
            prefix = f"{folder}/" if folder else ""
            found = [self._scan_entry(fd, e, prefix + e.name, rules, level) for e in entries]
        finally:
            os.close(fd)
        return self._objects.put_folder(node for node in found if node is not None)

    def _scan_entry(
        self, fd: int, entry: os.DirEntry[str], path: str, rules: IgnoreRules, level: int
    ) -> TreeNode | None:
        if entry.name == ".git":
            return None
        is_folder = entry.is_dir(follow_symlinks=False)
        if rules.is_ignored(path, is_folder):
            self.ignored.add(path)
            return TreeNode(entry.name, "ignored", 0, "")
        if is_folder:
            return self._scan_folder(fd, entry.name, path, rules, level + 1)
        try:
            node = self._scan_file(fd, entry, path)
        except OSError as error:
            node = self._skip(path, safe_tree.explain_error(error))
        if node is not None and node.kind != "left":
            self.files[path] = node
            if len(self.files) > self._max_files:
                raise TooManyFiles(f"{self._root} holds more than {self._max_files} files")
        return node

    def _scan_folder(
        self, parent: int, name: str, path: str, rules: IgnoreRules, level: int
    ) -> TreeNode:
        if level > MAX_DEPTH:
            return self._skip(path, f"more than {MAX_DEPTH} folders deep")
        try:
            fd, entries = safe_tree.open_folder(name, parent)
        except OSError as error:
            return self._skip(path, safe_tree.explain_error(error))
        mode = self.folders[path] = stat.S_IMODE(os.fstat(fd).st_mode)
        return TreeNode(name, "folder", mode, self._store_folder(fd, entries, path, rules, level))

    def _scan_file(self, fd: int, entry: os.DirEntry[str], path: str) -> TreeNode | None:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            target = os.fsencode(os.readlink(entry.name, dir_fd=fd))
            return TreeNode(entry.name, "link", 0, self._objects.put(target))
        if not stat.S_ISREG(status.st_mode):
            self.special_files.add(path)
            return None
        self._note_change(path, status.st_ctime_ns)
        known = self._old_cache.get(path)
        if known is not None and known[0] == _make_stamp(status):
            digest = known[1]
        elif status.st_size > self._max_bytes:
            return self._skip_large(path)
        else:
            # It may have been replaced: use the status of the file that was read.
            data, status = safe_tree.read_file(entry.name, fd, self._max_bytes + 1)
            if len(data) > self._max_bytes:
                return self._skip_large(path)
            self.read_count += 1
            digest = self._objects.put(data)
        if status.st_ctime_ns < self._now - _CLOCK_TICK_NS:
            self.stat_cache[path] = (_make_stamp(status), digest)
        return TreeNode(entry.name, "file", stat.S_IMODE(status.st_mode), digest)

    def _note_change(self, path: str, changed: int) -> None:
        if self._first_period is None or changed < self._first_period:
            return
        if any(start <= changed <= end for start, end in self._periods):
            self.changed_in_periods.add(path)

    def _load_gitignore(self, fd: int, entries: list[os.DirEntry[str]], folder: str) -> str:
        if all(entry.name != GITIGNORE for entry in entries):
            return ""
        try:
            data, _ = safe_tree.read_file(GITIGNORE, fd, _MAX_GITIGNORE_BYTES)
        except OSError:
            return ""
        return data.decode(errors="replace")

    def _skip_large(self, path: str) -> TreeNode:
        return self._skip(path, f"larger than {self._max_bytes >> 20} MiB")

    def _skip(self, path: str, reason: str) -> TreeNode:
        self.skipped.append(SkippedPath(path, reason))
        return TreeNode(path.rpartition("/")[2], "left", 0, "")


def _make_stamp(status: os.stat_result) -> _FileStamp:
    mode = stat.S_IMODE(status.st_mode)
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, mode)

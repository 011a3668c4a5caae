"""A folder as it is now, to a tree; what did not change is not read again.

A file counts as unchanged while its size, times, inode and permissions are what they were. One
that changed in the last instant before a scan may change again without a later time, so it is
read again at the next one. Links are kept as links: nothing is read through one (`ground`).
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from treadle.workspace.checkpoints import ground
from treadle.workspace.checkpoints.ignoring import NAME, Rules
from treadle.workspace.checkpoints.objects import Node, Objects

MOST_FILE_BYTES = 10 << 20
MOST_FILES = 100_000
MOST_LEVELS = 200  # each holds a descriptor while what is below it is looked at
_MOST_RULES = 1 << 20
_INSTANT = 100_000_000  # nanoseconds: longer than any file system's clock needs for a tick


class Skipped(msgspec.Struct, frozen=True):
    """Something that a checkpoint does not cover, and why."""

    path: str
    reason: str


class TooManyFiles(Exception):
    """The folder is too large to be kept at every turn."""


_Stamp = tuple[int, int, int, int, int]
Table = dict[str, tuple[_Stamp, str]]
ReadRules = Callable[[str], str]


class Scan:
    """One look at a folder; the contents that it meets are kept."""

    def __init__(
        self,
        root: Path,
        objects: Objects,
        table: Table,
        *,
        most_bytes: int = MOST_FILE_BYTES,
        most_files: int = MOST_FILES,
        rules: ReadRules | None = None,
    ) -> None:
        self._root = os.fspath(root)
        self._objects = objects
        self._old = table
        self._most_bytes = most_bytes
        self._most_files = most_files
        self._rules = rules
        self._now = time.time_ns()
        self.table: Table = {}
        self.files: dict[str, Node] = {}
        self.folders: list[str] = []
        self.others: set[str] = set()  # sockets, pipes and devices, which are not kept
        self.skipped: list[Skipped] = []
        self.read = 0  # files that had to be read

    def tree(self) -> str:
        """The name of the tree."""
        fd, entries = ground.open_root(self._root)
        return self._kept(fd, entries, "", Rules())

    def _kept(
        self, fd: int, entries: list[os.DirEntry[str]], folder: str, rules: Rules, level: int = 0
    ) -> str:
        """The name of the tree of one folder, whose descriptor is closed after."""
        try:
            rules = rules.within(folder, self._rules_in(fd, entries, folder))
            prefix = f"{folder}/" if folder else ""
            nodes: list[Node] = []
            for entry in entries:
                node = self._node(fd, entry, prefix + entry.name, rules, level)
                if node is not None:
                    nodes.append(node)
        finally:
            os.close(fd)
        return self._objects.put_folder(nodes)

    def _node(
        self, fd: int, entry: os.DirEntry[str], path: str, rules: Rules, level: int
    ) -> Node | None:
        if entry.name == ".git":
            return None
        is_folder = entry.is_dir(follow_symlinks=False)
        if rules.ignore(path, is_folder):
            return None
        if is_folder:
            return self._folder(fd, entry.name, path, rules, level + 1)
        try:
            node = self._leaf(fd, entry, path)
        except OSError as error:
            node = self._leave(path, ground.reason(error))
        if node is not None and node.kind != "left":
            self.files[path] = node
            if len(self.files) > self._most_files:
                raise TooManyFiles(f"{self._root} holds more than {self._most_files} files")
        return node

    def _folder(self, above: int, name: str, path: str, rules: Rules, level: int) -> Node:
        if level > MOST_LEVELS:
            return self._leave(path, f"more than {MOST_LEVELS} folders deep")
        try:
            fd, entries = ground.open_listed(name, above)
        except OSError as error:
            return self._leave(path, ground.reason(error))
        self.folders.append(path)
        return Node(name, "folder", 0, self._kept(fd, entries, path, rules, level))

    def _leaf(self, fd: int, entry: os.DirEntry[str], path: str) -> Node | None:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            target = os.fsencode(os.readlink(entry.name, dir_fd=fd))
            return Node(entry.name, "link", 0, self._objects.put(target))
        if not stat.S_ISREG(status.st_mode):
            self.others.add(path)  # not something to bring back
            return None
        known = self._old.get(path)
        if known is not None and known[0] == _stamp(status):
            digest = known[1]
        elif status.st_size > self._most_bytes:
            return self._leave_large(path)
        else:
            # It may be another file by now: what counts is the one that was read.
            data, status = ground.read_file(entry.name, fd, self._most_bytes + 1)
            if len(data) > self._most_bytes:
                return self._leave_large(path)
            self.read += 1
            digest = self._objects.put(data)
        if status.st_ctime_ns < self._now - _INSTANT:
            self.table[path] = (_stamp(status), digest)
        return Node(entry.name, "file", stat.S_IMODE(status.st_mode), digest)

    def _rules_in(self, fd: int, entries: list[os.DirEntry[str]], folder: str) -> str:
        if self._rules is not None:
            return self._rules(folder)
        if all(entry.name != NAME for entry in entries):
            return ""
        try:
            data, _ = ground.read_file(NAME, fd, _MOST_RULES)
        except OSError:
            return ""
        return data.decode(errors="replace")

    def _leave_large(self, path: str) -> Node:
        return self._leave(path, f"larger than {self._most_bytes >> 20} MiB")

    def _leave(self, path: str, reason: str) -> Node:
        self.skipped.append(Skipped(path, reason))
        return Node(path.rpartition("/")[2], "left", 0, "")


def _stamp(status: os.stat_result) -> _Stamp:
    mode = stat.S_IMODE(status.st_mode)
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, mode)

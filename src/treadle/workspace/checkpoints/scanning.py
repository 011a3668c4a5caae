"""A folder as it is now, to a tree; what did not change is not read again.

A file counts as unchanged while its size, times, inode and permissions are what they were. One
that changed in the last instant before a scan may change again without a later time, so it is
read again at the next one.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from treadle.workspace.checkpoints.ignoring import NAME, Rules
from treadle.workspace.checkpoints.objects import Node, Objects

MOST_FILE_BYTES = 10 << 20
MOST_FILES = 100_000
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
        self._read_rules = rules or self._rules_on_disk
        self._now = time.time_ns()
        self.table: Table = {}
        self.files: dict[str, Node] = {}
        self.folders: list[str] = []
        self.skipped: list[Skipped] = []
        self.read = 0  # files that had to be read

    def tree(self) -> str:
        """The name of the tree."""
        return self._folder("", Rules())

    def _folder(self, folder: str, rules: Rules) -> str:
        rules = rules.within(folder, self._read_rules(folder))
        nodes: list[Node] = []
        try:
            with os.scandir(os.path.join(self._root, folder)) as found:  # noqa: PTH118 - hot
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            self._leave(folder, error.strerror or str(error))
            entries = []
        for entry in entries:
            node = self._node(entry, f"{folder}/{entry.name}" if folder else entry.name, rules)
            if node is not None:
                nodes.append(node)
        return self._objects.put_folder(nodes)

    def _node(self, entry: os.DirEntry[str], path: str, rules: Rules) -> Node | None:
        if entry.name == ".git":
            return None
        is_folder = entry.is_dir(follow_symlinks=False)
        if rules.ignore(path, is_folder):
            return None
        if is_folder:
            self.folders.append(path)
            return Node(entry.name, "folder", 0, self._folder(path, rules))
        try:
            node = self._leaf(entry, path)
        except OSError as error:
            node = self._leave(path, error.strerror or str(error))
        if node is not None and node.kind != "left":
            self.files[path] = node
            if len(self.files) > self._most_files:
                raise TooManyFiles(f"{self._root} holds more than {self._most_files} files")
        return node

    def _leaf(self, entry: os.DirEntry[str], path: str) -> Node | None:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            target = os.fsencode(Path(entry.path).readlink())
            return Node(entry.name, "link", 0, self._objects.put(target))
        if not stat.S_ISREG(status.st_mode):
            return None  # a socket, a pipe or a device is not something to bring back
        if status.st_size > self._most_bytes:
            return self._leave(path, f"larger than {self._most_bytes >> 20} MiB")
        mode = stat.S_IMODE(status.st_mode)
        stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, mode)
        known = self._old.get(path)
        if known is not None and known[0] == stamp:
            digest = known[1]
        else:
            self.read += 1
            digest = self._objects.put(Path(entry.path).read_bytes())
        if status.st_ctime_ns < self._now - _INSTANT:
            self.table[path] = (stamp, digest)
        return Node(entry.name, "file", mode, digest)

    def _rules_on_disk(self, folder: str) -> str:
        try:
            path = os.path.join(self._root, folder, NAME)  # noqa: PTH118 - hot
            with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                return file.read(1 << 20)
        except OSError:
            return ""

    def _leave(self, path: str, reason: str) -> Node:
        self.skipped.append(Skipped(path, reason))
        return Node(path.rpartition("/")[2], "left", 0, "")

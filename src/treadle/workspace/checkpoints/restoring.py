"""From the files as they are to the files as they were, touching only what differs.

What the tree's own rules ignore, what is too large and what belongs to git is left alone. A file
is replaced whole, by a rename; a folder goes when nothing is left in it. Below: `ground`, which
follows no link, so that nothing outside of the folder is ever touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

import msgspec

from treadle.workspace.checkpoints.ground import Ground, reason
from treadle.workspace.checkpoints.ignoring import NAME
from treadle.workspace.checkpoints.objects import Node, Objects
from treadle.workspace.checkpoints.scanning import Skipped


class Change(msgspec.Struct, frozen=True):
    """What differs between two trees."""

    path: str
    kind: Literal["added", "removed", "changed"]


class Restored(msgspec.Struct, frozen=True):
    """What was done: paths written and removed, and what was left alone and why."""

    written: tuple[str, ...]
    removed: tuple[str, ...]
    skipped: tuple[Skipped, ...] = ()


class Flat(msgspec.Struct, frozen=True):
    """A tree by paths."""

    files: dict[str, Node]
    folders: frozenset[str]
    left: frozenset[str] = frozenset()

    def lacks_file(self, path: str) -> bool:
        return path not in self.files and not lies_in(path, self.left)

    def lacks_folder(self, path: str) -> bool:
        return path not in self.folders and not lies_in(path, self.left)

    def rules(self, objects: Objects, folder: str) -> str:
        node = self.files.get(f"{folder}/{NAME}" if folder else NAME)
        if node is None or node.kind != "file":
            return ""
        return objects.get(node.hash).decode(errors="replace")


def flat(objects: Objects, tree: str) -> Flat:
    files: dict[str, Node] = {}
    folders: set[str] = set()
    left: set[str] = set()

    def walk(name: str, prefix: str) -> None:
        for node in objects.get_folder(name):
            path = prefix + node.name
            if node.kind == "folder":
                folders.add(path)
                walk(node.hash, f"{path}/")
            elif node.kind == "left":
                left.add(path)
            else:
                files[path] = node

    walk(tree, "")
    return Flat(files, frozenset(folders), frozenset(left))


def lies_in(path: str, places: Collection[str]) -> bool:
    """Whether the path is one of these, or lies somewhere below one."""
    return bool(places) and (path in places or any(place in places for place in above(path)))


def above(path: str) -> list[str]:
    """The folders that the path lies in, the outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def changes(old: Flat, new: Flat) -> list[Change]:
    found = [Change(path, "removed") for path in old.files if path not in new.files]
    for path, node in new.files.items():
        if path not in old.files:
            found.append(Change(path, "added"))
        elif old.files[path] != node:
            found.append(Change(path, "changed"))
    return sorted(found, key=lambda change: change.path)


class Restoring:
    """Writes into a folder what is kept. What cannot be done is named, the rest goes on."""

    def __init__(self, ground: Ground, objects: Objects) -> None:
        self._ground = ground
        self._objects = objects
        self._written: list[str] = []
        self._removed: list[str] = []
        self._skipped: list[Skipped] = []

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                self._ground.remove(path)
                self._removed.append(path)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                self.leave(path, reason(error))

    def remove_folders(self, paths: Iterable[str]) -> None:
        """The deepest first; one that still holds something stays."""
        for path in sorted(paths, reverse=True):
            try:
                self._ground.remove_folder(path)
            except (OSError, ValueError):
                continue

    def make_folders(self, paths: Iterable[str]) -> None:
        for path in sorted(paths):
            try:
                self._ground.make_folder(path)
            except (OSError, ValueError) as error:
                self.leave(path, reason(error))

    def write(self, files: dict[str, Node]) -> None:
        for path, node in files.items():
            try:
                data = self._objects.get(node.hash)
                if node.kind == "link":
                    self._ground.link(path, data)
                else:
                    self._ground.write(path, data, node.mode)
                self._written.append(path)
            except (OSError, ValueError) as error:
                self.leave(path, reason(error))

    def leave(self, path: str, reason: str) -> None:
        self._skipped.append(Skipped(path, reason))

    def result(self) -> Restored:
        return Restored(tuple(self._written), tuple(self._removed), tuple(self._skipped))

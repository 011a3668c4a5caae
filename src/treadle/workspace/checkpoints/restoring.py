"""From the files as they are to the files as they were, touching only what differs.

What the tree's own rules ignore, what is too large and what belongs to git is left alone. A file
is replaced whole, by a rename; a folder goes when nothing is left in it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

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
    folders: list[str]
    left: frozenset[str] = frozenset()

    def rules(self, objects: Objects, folder: str) -> str:
        node = self.files.get(f"{folder}/{NAME}" if folder else NAME)
        if node is None or node.kind != "file":
            return ""
        return objects.get(node.hash).decode(errors="replace")


def flat(objects: Objects, tree: str) -> Flat:
    files: dict[str, Node] = {}
    folders: list[str] = []
    left: set[str] = set()

    def walk(name: str, prefix: str) -> None:
        for node in objects.get_folder(name):
            path = prefix + node.name
            if node.kind == "folder":
                folders.append(path)
                walk(node.hash, f"{path}/")
            elif node.kind == "left":
                left.add(path)
            else:
                files[path] = node

    walk(tree, "")
    return Flat(files, folders, frozenset(left))


def changes(old: Flat, new: Flat) -> list[Change]:
    found = [Change(path, "removed") for path in old.files if path not in new.files]
    for path, node in new.files.items():
        if path not in old.files:
            found.append(Change(path, "added"))
        elif old.files[path] != node:
            found.append(Change(path, "changed"))
    return sorted(found, key=lambda change: change.path)


class Restoring:
    """Writes into a folder what the objects hold."""

    def __init__(self, root: Path, objects: Objects) -> None:
        self._root = root
        self._objects = objects
        self._written: list[str] = []
        self._removed: list[str] = []
        self._skipped: list[Skipped] = []

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                (self._root / path).unlink()
                self._removed.append(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._skip(path, error)

    def remove_folders(self, paths: Iterable[str]) -> None:
        """The deepest first; one that still holds something stays."""
        for path in sorted(paths, key=lambda path: path.count("/"), reverse=True):
            try:
                (self._root / path).rmdir()
            except OSError:
                continue

    def make_folders(self, paths: Iterable[str]) -> None:
        for path in sorted(paths, key=lambda path: path.count("/")):
            try:
                (self._root / path).mkdir(exist_ok=True)
            except OSError as error:
                self._skip(path, error)

    def write(self, files: dict[str, Node]) -> None:
        for path, node in files.items():
            try:
                self._write(self._root / path, node)
                self._written.append(path)
            except (OSError, ValueError) as error:
                self._skip(path, error)

    def _write(self, path: Path, node: Node) -> None:
        data = self._objects.get(node.hash)
        draft = path.with_name(f".{secrets.token_hex(8)}.treadle")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            if node.kind == "link":
                draft.symlink_to(os.fsdecode(data))
            else:
                draft.write_bytes(data)
                draft.chmod(node.mode)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    def result(self) -> Restored:
        return Restored(tuple(self._written), tuple(self._removed), tuple(self._skipped))

    def _skip(self, path: str, error: Exception) -> None:
        reason = getattr(error, "strerror", None) or str(error)
        self._skipped.append(Skipped(path, reason))

"""From the current files to those of a tree, changing only what differs.

Ignored files, files that are too large, and `.git` are not touched. A file is replaced atomically;
a folder is removed when it is empty. Uses `safe_tree`, which follows no symlink, so that nothing
outside of the folder is changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

import msgspec

from treadle.workspace.checkpoints.gitignore import GITIGNORE
from treadle.workspace.checkpoints.object_store import ObjectStore, TreeNode
from treadle.workspace.checkpoints.safe_tree import SafeTree, explain_error
from treadle.workspace.checkpoints.scanner import SkippedPath


class TreeChange(msgspec.Struct, frozen=True):
    """One difference between two trees."""

    path: str
    kind: Literal["added", "removed", "changed"]


class RestoreResult(msgspec.Struct, frozen=True):
    """The paths that were written and removed, and those that were skipped, with reasons."""

    written: tuple[str, ...]
    removed: tuple[str, ...]
    skipped: tuple[SkippedPath, ...] = ()


class FlatTree(msgspec.Struct, frozen=True):
    """A tree as a map of paths."""

    files: dict[str, TreeNode]
    folders: frozenset[str]
    not_stored: frozenset[str] = frozenset()

    def lacks_file(self, path: str) -> bool:
        return path not in self.files and not is_within(path, self.not_stored)

    def lacks_folder(self, path: str) -> bool:
        return path not in self.folders and not is_within(path, self.not_stored)

    def read_gitignore(self, objects: ObjectStore, folder: str) -> str:
        node = self.files.get(f"{folder}/{GITIGNORE}" if folder else GITIGNORE)
        if node is None or node.kind != "file":
            return ""
        return objects.get(node.hash).decode(errors="replace")


def flatten_tree(objects: ObjectStore, tree: str) -> FlatTree:
    files: dict[str, TreeNode] = {}
    folders: set[str] = set()
    not_stored: set[str] = set()

    def walk(name: str, prefix: str) -> None:
        for node in objects.get_folder(name):
            path = prefix + node.name
            if node.kind == "folder":
                folders.add(path)
                walk(node.hash, f"{path}/")
            elif node.kind == "left":
                not_stored.add(path)
            else:
                files[path] = node

    walk(tree, "")
    return FlatTree(files, frozenset(folders), frozenset(not_stored))


def is_within(path: str, ancestors: Collection[str]) -> bool:
    """Whether the path is one of these, or below one of them."""
    return bool(ancestors) and any(one in ancestors for one in (path, *parent_folders(path)))


def parent_folders(path: str) -> list[str]:
    """The parent folders of a path, the outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def diff_trees(old: FlatTree, new: FlatTree) -> list[TreeChange]:
    changes = [TreeChange(path, "removed") for path in old.files if path not in new.files]
    for path, node in new.files.items():
        if path not in old.files:
            changes.append(TreeChange(path, "added"))
        elif old.files[path] != node:
            changes.append(TreeChange(path, "changed"))
    return sorted(changes, key=lambda change: change.path)


class Restorer:
    """Writes stored contents into a folder. A path that fails is reported; the others continue."""

    def __init__(self, tree: SafeTree, objects: ObjectStore) -> None:
        self._tree = tree
        self._objects = objects
        self._written: list[str] = []
        self._removed: list[str] = []
        self._skipped: list[SkippedPath] = []

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                self._tree.remove(path)
                self._removed.append(path)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                self.skip(path, explain_error(error))

    def remove_folders(self, paths: Iterable[str]) -> None:
        """The deepest first; a folder that is not empty stays."""
        for path in sorted(paths, reverse=True):
            try:
                self._tree.remove_folder(path)
            except (OSError, ValueError):
                continue

    def make_folders(self, paths: Iterable[str]) -> None:
        for path in sorted(paths):
            try:
                self._tree.make_folder(path)
            except (OSError, ValueError) as error:
                self.skip(path, explain_error(error))

    def write(self, files: dict[str, TreeNode]) -> None:
        for path, node in files.items():
            try:
                data = self._objects.get(node.hash)
                if node.kind == "link":
                    self._tree.write_symlink(path, data)
                else:
                    self._tree.write(path, data, node.mode)
                self._written.append(path)
            except (OSError, ValueError) as error:
                self.skip(path, explain_error(error))

    def skip(self, path: str, reason: str) -> None:
        self._skipped.append(SkippedPath(path, reason))

    def result(self) -> RestoreResult:
        return RestoreResult(tuple(self._written), tuple(self._removed), tuple(self._skipped))

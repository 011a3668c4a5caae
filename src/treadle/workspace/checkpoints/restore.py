"""From the current files to those of a tree, changing only what differs.

Ignored files, files that are too large, and `.git` are not touched. A file is replaced atomically;
a folder is removed when it is empty. Uses `safe_tree`, which follows no symlink, so that nothing
outside of the folder is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec

from treadle.workspace.checkpoints.object_store import ObjectStore, TreeNode
from treadle.workspace.checkpoints.safe_tree import SafeTree, explain_error
from treadle.workspace.checkpoints.scanner import SkippedPath


class RestoreResult(msgspec.Struct, frozen=True):
    """The paths that were written and removed, and those that were skipped, with reasons."""

    written: tuple[str, ...]
    removed: tuple[str, ...]
    skipped: tuple[SkippedPath, ...] = ()


class Restorer:
    """Writes stored contents into a folder. A path that fails is reported; the others continue."""

    def __init__(self, tree: SafeTree, objects: ObjectStore) -> None:
        self._tree = tree
        self._objects = objects
        self._written: list[str] = []
        self._removed: list[str] = []
        self._skipped: list[SkippedPath] = []
        self._new_folders: dict[str, int] = {}

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                self._tree.remove(path)
                self._removed.append(path)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                self.skip(path, explain_error(error))

    def remove_special_files(self, paths: Iterable[str]) -> None:
        """Sockets, pipes and devices, which no checkpoint has, where a folder has to be."""
        for path in paths:
            with suppress(OSError, ValueError):
                self._tree.remove_special_file(path)

    def remove_folders(self, paths: Iterable[str]) -> None:
        """The deepest first; a folder that is not empty stays."""
        for path in sorted(paths, reverse=True):
            try:
                self._tree.remove_folder(path)
            except (OSError, ValueError):
                continue

    def make_folders(self, modes: Mapping[str, int]) -> None:
        for path, mode in sorted(modes.items()):
            try:
                if self._tree.make_folder(path, mode):
                    self._new_folders[path] = mode
            except (OSError, ValueError) as error:
                self.skip(path, explain_error(error))

    def finish_folders(self) -> None:
        """Give new folders their permissions, the deepest first: some do not allow writing."""
        for path, mode in sorted(self._new_folders.items(), reverse=True):
            try:
                if mode:
                    self._tree.set_folder_mode(path, mode)
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

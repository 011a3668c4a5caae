"""From the current files to those of a tree, changing only what differs.

What no checkpoint has (ignored files, large files, `.git`) is not touched. A file is replaced
atomically; a folder is removed when it is empty. Uses `safe_tree`, which follows no symlink, so
that nothing outside of the folder is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

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

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            with self._report(path), suppress(FileNotFoundError):
                self._tree.remove(path)
                self._removed.append(path)

    def make_room(self, paths: Iterable[str]) -> None:
        """Remove sockets, pipes and devices, which no checkpoint has, where a folder has to be."""
        for path in paths:
            with suppress(OSError, ValueError):
                self._tree.remove_special_file(path)

    def remove_folders(self, paths: Iterable[str]) -> None:
        """The deepest first; a folder that is not empty stays."""
        for path in sorted(paths, reverse=True):
            with suppress(OSError, ValueError):
                self._tree.remove_folder(path)

    def write(self, files: Mapping[str, TreeNode], folders: Mapping[str, int]) -> None:
        """Write the files into these folders, which get their permissions last, the deepest first:
        some do not allow writing."""
        new: list[str] = []
        for path, mode in sorted(folders.items()):
            with self._report(path):
                if self._tree.make_folder(path, mode):
                    new.append(path)
        for path, node in files.items():
            with self._report(path):
                data = self._objects.get(node.hash)
                if node.kind == "link":
                    self._tree.write_symlink(path, data)
                else:
                    self._tree.write(path, data, node.mode)
                self._written.append(path)
        for path in reversed(new):
            with self._report(path):
                if folders[path]:
                    self._tree.set_folder_mode(path, folders[path])

    def skip(self, path: str, reason: str) -> None:
        self._skipped.append(SkippedPath(path, reason))

    def result(self) -> RestoreResult:
        return RestoreResult(tuple(self._written), tuple(self._removed), tuple(self._skipped))

    @contextmanager
    def _report(self, path: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            self.skip(path, explain_error(error))

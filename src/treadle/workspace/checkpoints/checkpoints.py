"""The checkpoints of one folder: take, compare, restore, undo.

Contents are stored in a folder outside the project. The operations block, so they run in a thread,
one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from treadle.core.errors import WorkspaceError
from treadle.workspace.checkpoints.object_store import ObjectStore, TreeNode
from treadle.workspace.checkpoints.restore import (
    FlatTree,
    Restorer,
    RestoreResult,
    TreeChange,
    diff_trees,
    flatten_tree,
    is_within,
    parent_folders,
)
from treadle.workspace.checkpoints.safe_tree import SafeTree
from treadle.workspace.checkpoints.scanner import (
    MAX_FILE_BYTES,
    MAX_FILES,
    Scanner,
    SkippedPath,
    StatCache,
    TooManyFiles,
)

T = TypeVar("T")
CURRENT_NOT_STORED = "its current content is not stored, so it was not changed"
TARGET_NOT_STORED = "its earlier content is not stored"
CHANGED_SINCE = "it was changed since"


class FileSnapshot(msgspec.Struct, frozen=True):
    """A folder at one time. `read_count` is the number of files that had to be read."""

    tree: str
    file_count: int
    read_count: int
    skipped: tuple[SkippedPath, ...] = ()


class Checkpoints:
    """Checkpoints of `root`, stored in `store`."""

    def __init__(
        self,
        root: Path,
        store: Path,
        *,
        max_file_bytes: int = MAX_FILE_BYTES,
        max_files: int = MAX_FILES,
    ) -> None:
        self.root = root
        self._objects = ObjectStore(store / "objects")
        self._max_file_bytes = max_file_bytes
        self._max_files = max_files
        self._stat_cache: StatCache = {}
        self._lock = asyncio.Lock()

    async def take(self) -> FileSnapshot:
        """Store the files as they are now."""
        return await self._run_in_thread(self._take)

    async def restore(self, tree: str) -> RestoreResult:
        """Make the files as they are in this tree."""
        return await self._run_in_thread(lambda: self._restore(tree))

    async def diff(self, old: str, new: str) -> list[TreeChange]:
        """What differs between two trees."""
        return await self._run_in_thread(lambda: diff_trees(self._flatten(old), self._flatten(new)))

    async def apply(self, old: str, new: str) -> RestoreResult:
        """Apply the changes from `old` to `new`, and nothing else.

        A file that is now as in neither tree was changed since: it is not touched and is reported.
        `apply(after, before)` of a turn is undo, the reverse is redo.
        """
        return await self._run_in_thread(lambda: self._apply(old, new))

    async def prune(self, trees: Iterable[str]) -> int:
        """Delete every content that none of these trees needs; returns the bytes freed."""
        needed = list(trees)
        self._stat_cache = {}  # it may name deleted contents
        return await self._run_in_thread(lambda: self._objects.prune(needed))

    # --- in a thread -----------------------------------------------------------------------

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        async with self._lock:
            try:
                return await asyncio.to_thread(work)
            except TooManyFiles as error:
                raise WorkspaceError(f"{error}: no checkpoint was taken") from error
            except (OSError, ValueError) as error:
                raise WorkspaceError(f"the checkpoint cannot be used: {error}") from error

    def _scan(self, target: FlatTree | None = None) -> tuple[Scanner, str]:
        read = None if target is None else partial(target.read_gitignore, self._objects)
        limits = self._max_file_bytes, self._max_files
        scan = Scanner(self.root, self._objects, self._stat_cache, *limits, read)
        tree = scan.scan()
        self._stat_cache = scan.stat_cache
        return scan, tree

    def _take(self) -> FileSnapshot:
        scan, tree = self._scan()
        return FileSnapshot(tree, len(scan.files), scan.read_count, tuple(scan.skipped))

    def _restore(self, tree: str) -> RestoreResult:
        target = self._flatten(tree)
        # Scanned with the target's .gitignore rules: files that were ignored then are not stored,
        # and must not be taken for new ones.
        now, _ = self._scan(target)
        # Content that is there now and is not stored could never be restored.
        unknown = {skipped.path for skipped in now.skipped}
        folders = [path for path in target.folders if not is_within(path, unknown)]
        wanted = {p: node for p, node in target.files.items() if now.files.get(p) != node}
        with closing(SafeTree(self.root)) as folder:
            work = Restorer(folder, self._objects)
            work.remove(path for path in now.files if target.lacks_file(path))
            # A symlink or a file may be where a folder has to be, and vice versa.
            work.remove(now.special_files.intersection(folders))
            work.remove_folders(path for path in now.folders if target.lacks_folder(path))
            work.make_folders(folders)
            work.write({p: node for p, node in wanted.items() if not is_within(p, unknown)})
            for path in wanted:
                if is_within(path, unknown):
                    work.skip(path, CURRENT_NOT_STORED)
            return work.result()

    def _apply(self, old: str, new: str) -> RestoreResult:
        before, after = self._flatten(old), self._flatten(new)
        now, _ = self._scan()
        unknown = {skipped.path for skipped in now.skipped}
        files: dict[str, TreeNode] = {}
        removed: list[str] = []
        with closing(SafeTree(self.root)) as folder:
            work = Restorer(folder, self._objects)
            for path in (change.path for change in diff_trees(before, after)):
                current = now.files.get(path)
                if is_within(path, unknown):
                    work.skip(path, CURRENT_NOT_STORED)
                elif is_within(path, after.not_stored):
                    work.skip(path, TARGET_NOT_STORED)
                elif current == after.files.get(path):
                    continue
                elif current != before.files.get(path) or is_within(path, before.not_stored):
                    work.skip(path, CHANGED_SINCE)
                elif path in after.files:
                    files[path] = after.files[path]
                else:
                    removed.append(path)
            # Removed first: a symlink may be where a folder has to be.
            work.remove(removed)
            parents = {parent for path in files for parent in parent_folders(path)}
            work.remove(now.special_files & parents)
            work.remove_folders(path for path in before.folders if after.lacks_folder(path))
            new_folders = (path for path in after.folders if before.lacks_folder(path))
            work.make_folders(path for path in new_folders if not is_within(path, unknown))
            work.write(files)
            return work.result()

    def _flatten(self, tree: str) -> FlatTree:
        try:
            return flatten_tree(self._objects, tree)
        except OSError as error:
            raise ValueError(f"the checkpoint {tree} does not exist any more") from error

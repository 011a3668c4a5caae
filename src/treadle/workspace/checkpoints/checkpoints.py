"""The checkpoints of one folder: take, compare, plan, apply.

Contents are stored in a folder outside the project. The operations block, so they run in a thread,
one at a time. Several programs share the folder: each holds it from its first operation until it is
closed, and nothing is pruned while one does.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec

from treadle.core.checkpoint_limits import MAX_FILE_BYTES, MAX_FILES
from treadle.core.errors import WorkspaceError
from treadle.lib.files.flock import try_lock
from treadle.lib.files.private_files import make_private_folder
from treadle.workspace.checkpoints.flat_tree import (
    FlatTree,
    TreeDiff,
    diff_trees,
    flatten_tree,
    is_stored,
    is_within,
    parent_folders,
    store_tree,
)
from treadle.workspace.checkpoints.object_store import ObjectStore, TreeNode
from treadle.workspace.checkpoints.restore import Restorer, RestoreResult
from treadle.workspace.checkpoints.restore_plan import (
    CURRENT_NOT_STORED,
    TARGET_NOT_STORED,
    ChangeKind,
    FileWork,
    RestoreGoal,
    RestorePlan,
    describe_kind,
    make_goal,
    make_plan,
)
from treadle.workspace.checkpoints.safe_tree import SafeTree
from treadle.workspace.checkpoints.scanner import (
    ScannedFolder,
    Scanner,
    SkippedPath,
    TooManyFiles,
)

T = TypeVar("T")
CHANGED_SINCE = "it was changed since"


class Span(msgspec.Struct, frozen=True):
    """The trees before and after work of the agent ("": the files now).

    `doubt`: why the changes may be the user's; "" if they are the agent's. `undone`, if the work is
    a redo: the tree that the undo had left; of the redo counts only what replaced other content,
    which is the user's.
    """

    before: str
    after: str
    doubt: str = ""
    undone: str = ""


class FileSnapshot(msgspec.Struct, frozen=True):
    """A folder at one time. `read_count` is the number of files that had to be read."""

    tree: str
    file_count: int
    read_count: int
    skipped: tuple[SkippedPath, ...] = ()


class TreeChange(msgspec.Struct, frozen=True):
    """One difference between two trees."""

    path: str
    kind: ChangeKind


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
        self._store = store
        self._objects = ObjectStore(store)
        self._hold: weakref.finalize[[int], Checkpoints] | None = None
        self._limits = max_file_bytes, max_files
        self._last_scan = ScannedFolder()
        self._named = frozenset[str]()
        self._lock = asyncio.Lock()

    async def take(self, named: Collection[str] = ()) -> FileSnapshot:
        """Store the files as they are now. From now on the files with these paths are stored, too,
        if the project ignores them."""
        return await self._run_in_thread(lambda: self._take(named))

    def leaves_out(self, named: Collection[str]) -> bool:
        """Whether one of these files is there and the last snapshot does not have its content."""
        return any(self._last_scan.leaves_out(path) for path in named)

    async def find_file(self, trees: Sequence[str], path: str) -> list[TreeNode | None]:
        """The file in each of these trees; None where it is missing or not stored."""
        return await self._run_in_thread(lambda: [self._find_file(tree, path) for tree in trees])

    async def read_content(self, node: TreeNode) -> bytes:
        """The stored content of a file, or the target of a symlink."""
        return await self._run_in_thread(lambda: self._objects.get(node.hash))

    async def plan(self, spans: Sequence[Span]) -> RestorePlan:
        """What going back to before these spans would do; stores the files as they are now."""
        return await self._run_in_thread(lambda: self._plan(spans))

    async def make_goal(
        self, plan: RestorePlan, include: Collection[str] = (), *, is_whole: bool = False
    ) -> RestoreGoal:
        """The tree that this plan leads to; `apply` goes there.

        `include` are files that go back although the user changed them, too, or may have: to the
        version before the user's last change, or, if `is_whole`, to before all the spans.
        """
        return await self._run_in_thread(lambda: self._make_goal(plan, include, is_whole))

    async def replace_file(self, tree: str, path: str, content: bytes | None) -> str:
        """The tree with this content of a file; without it if that is None."""
        return await self._run_in_thread(lambda: self._replace_file(tree, path, content))

    async def diff(self, old: str, new: str) -> list[TreeChange]:
        """What differs between two trees."""
        diff = await self._run_in_thread(lambda: self._diff(old, new))
        return [TreeChange(path, describe_kind(*diff.files[path])) for path in sorted(diff.files)]

    async def apply(self, old: str, new: str) -> RestoreResult:
        """Apply the changes from `old` to `new`, and nothing else.

        A file that is now as in neither tree was changed since: it is not touched and is reported.
        `apply(after, before)` of a turn is undo, the reverse is redo.
        """
        return await self._run_in_thread(lambda: self._apply(old, new))

    def close(self) -> None:
        """Let go of the store; the next operation takes it again."""
        hold, self._hold = self._hold, None
        if hold is not None:
            hold()
        self._last_scan = ScannedFolder()  # it may name what is pruned from now on
        self._objects.forget()

    # --- in a thread -----------------------------------------------------------------------

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        async with self._lock:
            try:
                return await asyncio.to_thread(self._run_with_store, work)
            except TooManyFiles as error:
                raise WorkspaceError(f"{error}: no checkpoint was taken") from error
            except (OSError, ValueError) as error:
                raise WorkspaceError(f"the checkpoint cannot be used: {error}") from error

    def _run_with_store(self, work: Callable[[], T]) -> T:
        if self._hold is None:
            make_private_folder(self._store)
            lock = try_lock(self._store, is_shared=True, waits=True)
            assert lock is not None, "it was waited for"
            self._hold = weakref.finalize(self, os.close, lock)
        return work()

    def _take(self, named: Collection[str] = ()) -> FileSnapshot:
        self._named = self._named.union(named)
        scanner = Scanner(self.root, self._objects, *self._limits, self._last_scan, self._named)
        self._last_scan = scanner.scan()
        counts = scanner.file_count, scanner.read_count
        return FileSnapshot(self._last_scan.hash, *counts, tuple(scanner.skipped))

    def _find_file(self, tree: str, path: str) -> TreeNode | None:
        node = TreeNode("", "folder", 0, tree)
        for part in path.split("/"):
            if node.kind != "folder":
                return None
            entries = {entry.name: entry for entry in self._objects.get_folder(node.hash)}
            if part not in entries:
                return None
            node = entries[part]
        return node if node.kind in ("file", "link") else None

    def _plan(self, spans: Sequence[Span]) -> RestorePlan:
        now = self._take(self._list_stored(spans)).tree
        works, gaps = [], []
        for number, span in enumerate(spans):
            after = span.after or now
            diff = self._diff(span.before, after)
            if span.undone:
                replaced = self._diff(span.undone, span.before).files
                files = {path: diff.files[path] for path in diff.files if path in replaced}
                diff = TreeDiff(files, {})
            works.append(FileWork(diff, span.doubt))
            following = spans[number + 1].before if number + 1 < len(spans) else now
            gaps.append(self._diff(after, following))
        return make_plan(self._objects, now, self._flatten(now), works, gaps)

    def _list_stored(self, spans: Sequence[Span]) -> set[str]:
        """The files whose content is in the spans, perhaps although the project ignores them."""
        found = set[str]()
        for span in spans:
            if span.after:
                found.update(self._diff(span.before, span.after).files)
            else:
                found.update(self._flatten(span.before).files)
        return found

    def _make_goal(
        self, plan: RestorePlan, include: Collection[str], is_whole: bool
    ) -> RestoreGoal:
        now = self._flatten(plan.current)
        goal, skipped = make_goal(plan, now, include, is_whole=is_whole)
        return RestoreGoal(store_tree(self._objects, goal), skipped)

    def _replace_file(self, tree: str, path: str, content: bytes | None) -> str:
        flat = self._flatten(tree)
        known = flat.files.pop(path, None)
        if content is not None:
            mode = 0o644 if known is None else known.mode
            name = path.rpartition("/")[2]
            flat.files[path] = TreeNode(name, "file", mode, self._objects.put(content))
            for folder in parent_folders(path):
                flat.folders.setdefault(folder, 0)
        return store_tree(self._objects, flat)

    def _apply(self, old: str, new: str) -> RestoreResult:
        diff = self._diff(old, new)
        now = self._flatten(self._take(diff.files).tree)
        files: dict[str, TreeNode] = {}
        removed: list[str] = []
        with closing(SafeTree(self.root)) as folder:
            work = Restorer(folder, self._objects)
            for path, (before, after) in sorted(diff.files.items()):
                current = now.find(path)
                if not is_stored(current):  # it could never be restored
                    work.skip(path, CURRENT_NOT_STORED)
                elif not is_stored(after):
                    work.skip(path, TARGET_NOT_STORED)
                elif current == after:
                    continue
                elif current != before:
                    work.skip(path, CHANGED_SINCE)
                elif after is not None:
                    files[path] = after
                else:
                    removed.append(path)
            # Removed first: a symlink may be where a folder has to be.
            work.remove(removed)
            parents = {parent for path in files for parent in parent_folders(path)}
            work.make_room(parents)
            work.remove_folders(path for path, (_, mode) in diff.folders.items() if mode is None)
            modes = self._flatten(new).folders
            needed = parents | {one for one, (_, mode) in diff.folders.items() if mode is not None}
            known = (path for path in needed if not is_within(path, now.unknown))
            work.write(files, {path: modes.get(path, 0) for path in known})
            return work.result()

    def _diff(self, old: str, new: str) -> TreeDiff:
        try:
            return diff_trees(self._objects, old, new)
        except FileNotFoundError as error:
            raise ValueError(f"the checkpoint {old} or {new} does not exist any more") from error

    def _flatten(self, tree: str) -> FlatTree:
        return flatten_tree(self._objects, tree)


def prune_store(store: Path, list_trees: Callable[[], Iterable[str]]) -> int | None:
    """Delete every content that none of these trees needs; the bytes freed, None if a program uses
    the store: what it has stored may be in no log yet. The trees are listed when none does."""
    lock = try_lock(store)
    if lock is None:
        return None
    try:
        return ObjectStore(store).prune(list_trees())
    finally:
        os.close(lock)

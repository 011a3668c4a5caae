"""The checkpoints of one folder: take, compare, plan, apply.

Contents are stored in a folder outside the project. The operations block, so they run in a thread,
one at a time.
"""

from __future__ import annotations

import asyncio
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import msgspec

from treadle.core.errors import WorkspaceError
from treadle.workspace.checkpoints.flat_tree import (
    FlatTree,
    flatten_tree,
    is_within,
    parent_folders,
    store_tree,
)
from treadle.workspace.checkpoints.object_store import ObjectStore, TreeNode
from treadle.workspace.checkpoints.restore import (
    Restorer,
    RestoreResult,
    TreeChange,
    changed_paths,
    diff_trees,
)
from treadle.workspace.checkpoints.restore_plan import (
    CURRENT_NOT_STORED,
    TARGET_NOT_STORED,
    FlatSpan,
    RestoreGoal,
    RestorePlan,
    SpanAuthor,
    make_goal,
    make_plan,
    without_changes,
)
from treadle.workspace.checkpoints.safe_tree import SafeTree
from treadle.workspace.checkpoints.scanner import (
    MAX_FILE_BYTES,
    MAX_FILES,
    Period,
    Scanner,
    SkippedPath,
    StatCache,
    TooManyFiles,
)

T = TypeVar("T")
CHANGED_SINCE = "it was changed since"


class Span(msgspec.Struct, frozen=True):
    """The trees before and after a work ("": the files now), and who changed files meanwhile.

    `agent_files` are surely the agent's, whatever the `author` of the others. `user_files`: the
    user changed them last, the agent may have changed them before. `is_redo`: the user asked for
    these changes, so their files go back to before them, not to before an earlier span.
    """

    before: str
    after: str
    author: SpanAuthor = "agent"
    agent_files: frozenset[str] = frozenset()
    is_redo: bool = False
    user_files: frozenset[str] = frozenset()


class FileSnapshot(msgspec.Struct, frozen=True):
    """A folder at one time. `read_count` is the number of files that had to be read.

    `user_tree`, if the user changed files: the folder with these changes, which `tree` is without;
    `user_files` are these files.
    """

    tree: str
    file_count: int
    read_count: int
    skipped: tuple[SkippedPath, ...] = ()
    user_tree: str = ""
    user_files: tuple[str, ...] = ()


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

    async def take_own(
        self,
        before: str,
        idle_periods: Sequence[Period],
        versions: Mapping[str, TreeNode] = MappingProxyType({}),
    ) -> FileSnapshot:
        """The same, without what changed since `before` while the agent was idle: these files are
        stored as the agent left them (`versions`), or as they were before."""
        return await self._run_in_thread(lambda: self._take_own(before, idle_periods, versions))

    async def keep_file(self, path: str) -> TreeNode | None:
        """Store one file as it is now; None if it cannot be stored."""
        return await self._run_in_thread(lambda: self._keep_file(path))

    async def find_file(self, trees: Sequence[str], path: str) -> list[TreeNode | None]:
        """The file in each of these trees; None where it is missing or not stored."""
        return await self._run_in_thread(lambda: [self._find_file(tree, path) for tree in trees])

    async def read_content(self, node: TreeNode) -> bytes:
        """The stored content of a file, or the target of a symlink."""
        return await self._run_in_thread(lambda: self._objects.get(node.hash))

    async def plan(
        self, spans: Sequence[Span], undone: Sequence[tuple[str, str]] | None = None
    ) -> RestorePlan:
        """What going back to before these spans would do; stores the files as they are now.

        With `undone`, it is a step back: a file that the user changed between two spans goes to
        the user's version, and with each further step to the version before it. `undone` are the
        trees before and after each earlier step.
        """
        return await self._run_in_thread(lambda: self._plan(spans, undone))

    async def make_goal(
        self, plan: RestorePlan, include: Collection[str] = (), named: Collection[str] = ()
    ) -> RestoreGoal:
        """The tree that this plan leads to; `apply` goes there.

        `include` are files that go back although the user changed them, too, or may have; those
        that are also `named` go back to before all the spans, not only to the user's version.
        """
        return await self._run_in_thread(lambda: self._make_goal(plan, include, named))

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

    def _scan(self, periods: Sequence[Period] = ()) -> tuple[Scanner, str]:
        limits = self._max_file_bytes, self._max_files
        scan = Scanner(self.root, self._objects, self._stat_cache, *limits, periods)
        tree = scan.scan()
        self._stat_cache = scan.stat_cache
        return scan, tree

    def _take(self) -> FileSnapshot:
        scan, tree = self._scan()
        return FileSnapshot(tree, len(scan.files), scan.read_count, tuple(scan.skipped))

    def _keep_file(self, path: str) -> TreeNode | None:
        try:
            with closing(SafeTree(self.root)) as folder:
                data, status = folder.read(path, self._max_file_bytes + 1)
        except (OSError, ValueError):
            return None
        if len(data) > self._max_file_bytes:
            return None
        mode = stat.S_IMODE(status.st_mode)
        return TreeNode(path.rpartition("/")[2], "file", mode, self._objects.put(data))

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

    def _take_own(
        self, before: str, idle_periods: Sequence[Period], versions: Mapping[str, TreeNode]
    ) -> FileSnapshot:
        scan, tree = self._scan(idle_periods)
        user_tree, user_files = "", list[str]()
        if scan.changed_in_periods:
            old, new = self._flatten(before), self._flatten(tree)
            own = without_changes(old, new, scan.changed_in_periods, versions)
            user_files = changed_paths(own, new)
            if user_files:
                tree, user_tree = store_tree(self._objects, own), tree
        counts = len(scan.files), scan.read_count
        return FileSnapshot(tree, *counts, tuple(scan.skipped), user_tree, tuple(user_files))

    def _plan(self, spans: Sequence[Span], undone: Sequence[tuple[str, str]] | None) -> RestorePlan:
        _, tree = self._scan()
        now = self._flatten(tree)
        flat = [self._flatten_span(span, now) for span in spans]
        if undone is None:
            return make_plan(tree, now, flat)
        steps = Counter[str]()
        for old, new in undone:
            steps.update(changed_paths(self._flatten(old), self._flatten(new)))
        return make_plan(tree, now, flat, steps)

    def _flatten_span(self, span: Span, now: FlatTree) -> FlatSpan:
        before, after = self._flatten(span.before), self._flatten(span.after) if span.after else now
        files = span.agent_files, span.user_files
        return FlatSpan(before, after, span.author, *files, span.is_redo)

    def _make_goal(
        self, plan: RestorePlan, include: Collection[str], named: Collection[str]
    ) -> RestoreGoal:
        goal, skipped = make_goal(self._objects, plan, self._flatten(plan.current), include, named)
        return RestoreGoal(plan.current, store_tree(self._objects, goal), skipped)

    def _apply(self, old: str, new: str) -> RestoreResult:
        before, after = self._flatten(old), self._flatten(new)
        scan, _ = self._scan()
        # Content that is there now and is not stored could never be restored.
        unknown = {skipped.path for skipped in scan.skipped} | scan.ignored
        files: dict[str, TreeNode] = {}
        removed: list[str] = []
        with closing(SafeTree(self.root)) as folder:
            work = Restorer(folder, self._objects)
            for path in changed_paths(before, after):
                current = scan.files.get(path)
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
            work.remove(scan.special_files & parents)
            work.remove_folders(path for path in before.folders if after.lacks_folder(path))
            new_folders = {path for path in after.folders if before.lacks_folder(path)} | parents
            needed = (path for path in new_folders if not is_within(path, unknown))
            work.make_folders({path: after.folders.get(path, 0) for path in needed})
            work.write(files)
            work.finish_folders()
            return work.result()

    def _flatten(self, tree: str) -> FlatTree:
        try:
            return flatten_tree(self._objects, tree)
        except OSError as error:
            raise ValueError(f"the checkpoint {tree} does not exist any more") from error

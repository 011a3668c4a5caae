"""What an undo, redo or rewind would do to each file, and whose changes these files have.

The history is a list of spans: the files before the agent worked and after it. Within a span the
agent changes files, between two spans the user does; while a command of the agent ran, and in a
span that was interrupted, it may be either. A file goes back to what it was before the agent's
first change. Functions on trees; used by `checkpoints`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from treadle.workspace.checkpoints.flat_tree import FlatTree, is_within, parent_folders
from treadle.workspace.checkpoints.object_store import ObjectStore, TreeNode
from treadle.workspace.checkpoints.restore import ChangeKind, changed_paths
from treadle.workspace.checkpoints.scanner import SkippedPath

CURRENT_NOT_STORED = "its current content is not stored, so it was not changed"
TARGET_NOT_STORED = "its earlier content is not stored"
IN_THE_WAY = "something else is in its place"

# both: the agent, then the user. The agent or the user: `command` (a command of the agent ran),
# `unknown` (after an interruption).
Author = Literal["agent", "both", "command", "unknown", "user"]
SpanAuthor = Literal["agent", "command", "unknown"]


class FlatSpan(msgspec.Struct, frozen=True):
    """Two trees, and who changed the files between them; `agent_files` are surely the agent's.

    `is_redo`: the user asked for these changes, so their files go back to before them.
    """

    before: FlatTree
    after: FlatTree
    author: SpanAuthor
    agent_files: frozenset[str] = frozenset()
    is_redo: bool = False


class RestoreChange(msgspec.Struct, frozen=True):
    """What would happen to a file. A change by the user alone is only listed."""

    path: str
    kind: ChangeKind
    author: Author


class RestorePlan(msgspec.Struct, frozen=True):
    """`current` is the stored tree of the files now; `targets` are the files to go back to."""

    current: str
    changes: tuple[RestoreChange, ...] = ()
    skipped: tuple[SkippedPath, ...] = ()
    targets: dict[str, TreeNode | None] = {}
    folder_targets: dict[str, int | None] = {}

    def by(self, *authors: Author) -> list[RestoreChange]:
        return [change for change in self.changes if change.author in authors]


class RestoreGoal(msgspec.Struct, frozen=True):
    """The stored tree that a restore leads to, and what it leaves out."""

    current: str
    tree: str
    skipped: tuple[SkippedPath, ...] = ()


def make_plan(current_tree: str, now: FlatTree, spans: Sequence[FlatSpan]) -> RestorePlan:
    targets: dict[str, TreeNode | None] = {}
    folders: dict[str, int | None] = {}
    authors: dict[str, set[Author]] = {}
    skipped: dict[str, SkippedPath] = {}
    for old, new, step_author, agent_files, is_redo in _list_steps(now, spans):
        for path in changed_paths(old, new):
            author: Author = "agent" if path in agent_files else step_author
            if author != "user" and (is_redo or path not in targets):
                targets[path] = old.files.get(path)
                authors[path] = set()
                if is_within(path, old.not_stored):
                    skipped[path] = SkippedPath(path, TARGET_NOT_STORED)
            authors.setdefault(path, set()).add(author)
        if step_author != "user":
            for path in old.folders.keys() ^ new.folders.keys():
                folders.setdefault(path, old.folders.get(path))
    changes = []
    for path, found in sorted(authors.items()):
        current, first = now.files.get(path), spans[0].before.files.get(path)
        if path not in targets:
            if current != first:
                changes.append(RestoreChange(path, _kind(first, current), "user"))
        elif is_within(path, now.not_stored) or now.ignores(path):
            skipped[path] = SkippedPath(path, CURRENT_NOT_STORED)
        elif path not in skipped and current != targets[path]:
            changes.append(RestoreChange(path, _kind(current, targets[path]), _sum_up(found)))
    return RestorePlan(current_tree, tuple(changes), tuple(skipped.values()), targets, folders)


def make_goal(
    objects: ObjectStore, plan: RestorePlan, now: FlatTree, include: Collection[str]
) -> tuple[FlatTree, tuple[SkippedPath, ...]]:
    """The files after the restore: those of now, with what the agent changed taken back.

    A file that the user changed, too, or may have changed, goes back only if `include` names it.
    """
    chosen = {
        change.path
        for change in plan.changes
        if change.author == "agent" or (change.author != "user" and change.path in include)
    }
    files = {path: node for path, node in now.files.items() if path not in chosen}
    kept = files.keys() | now.not_stored | now.ignored
    occupied = {folder for path in kept for folder in parent_folders(path)}
    skipped = []
    for path in sorted(chosen):
        target = plan.targets[path]
        if target is None:
            continue
        if path in occupied or any(folder in kept for folder in parent_folders(path)):
            skipped.append(SkippedPath(path, IN_THE_WAY))
            if path in now.files:
                files[path] = now.files[path]
        else:
            files[path] = target
    folders = _goal_folders(plan, now.folders, files.keys() | now.not_stored | now.ignored)
    return FlatTree(objects, files, folders, now.not_stored, now.ignored), tuple(skipped)


def without_changes(old: FlatTree, new: FlatTree, paths: Collection[str]) -> FlatTree:
    """The new tree with these files as in the old one; also a file that became one of them by a
    rename."""
    changed = changed_paths(old, new)
    own = {path for path in changed if path in paths}
    added = {new.files[path].hash for path in own if path not in old.files and path in new.files}
    gone = (path for path in changed if path not in new.files and path in old.files)
    own.update(path for path in gone if old.files[path].hash in added)
    files = {path: node for path, node in new.files.items() if path not in own}
    files |= {path: old.files[path] for path in own if path in old.files}
    needed = {parent for path in files for parent in parent_folders(path)}
    folders = {**{path: old.folders.get(path, 0) for path in needed}, **new.folders}
    kept = {path: node for path, node in files.items() if path not in folders}
    return FlatTree(new.objects, kept, folders, new.not_stored, new.ignored)


def _goal_folders(
    plan: RestorePlan, folders: Mapping[str, int], entries: Collection[str]
) -> dict[str, int]:
    """The folders with these entries, and those that were empty before the agent worked."""
    needed = {folder for path in entries for folder in parent_folders(path)}
    goal = dict(folders)
    for path, mode in plan.folder_targets.items():
        if mode is None and path not in needed:
            goal.pop(path, None)
        elif mode is not None and not is_within(path, entries):
            goal.setdefault(path, mode)
    needed.update(*map(parent_folders, goal))
    return {**dict.fromkeys(needed, 0), **goal}


def _list_steps(
    now: FlatTree, spans: Sequence[FlatSpan]
) -> Iterator[tuple[FlatTree, FlatTree, Author, frozenset[str], bool]]:
    """From each known state of the files to the next one, and who changed them."""
    following = [*(span.before for span in spans[1:]), now]
    for span, then in zip(spans, following, strict=True):
        yield span.before, span.after, span.author, span.agent_files, span.is_redo
        yield span.after, then, "user", frozenset(), False


def _sum_up(authors: set[Author]) -> Author:
    if "user" in authors:
        return "both"
    if "unknown" in authors:
        return "unknown"
    return "command" if "command" in authors else "agent"


def _kind(old: TreeNode | None, new: TreeNode | None) -> ChangeKind:
    if new is None:
        return "removed"
    return "added" if old is None else "changed"

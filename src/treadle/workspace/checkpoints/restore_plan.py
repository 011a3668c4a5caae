"""What an undo, redo or rewind would do to each file, and whose changes these files have.

The history is a list of spans: the files before the agent worked and after it. Within a span the
agent changes files, between two spans the user does. A file loses the agent's changes, the last one
first; what the user changed since is kept if it concerns other lines. Where both changed the same
lines, the file stays at that version of the user, unless the user wants an earlier one.
Functions on trees; used by `checkpoints`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import msgspec

from treadle.workspace.checkpoints.flat_tree import (
    FlatTree,
    TreeDiff,
    is_stored,
    is_within,
    parent_folders,
)
from treadle.workspace.checkpoints.object_store import ObjectStore, TreeNode
from treadle.workspace.checkpoints.scanner import SkippedPath

CURRENT_NOT_STORED = "its current content is not stored, so it was not changed"
TARGET_NOT_STORED = "its earlier content is not stored"
IN_THE_WAY = "something else is in its place"

ChangeKind = Literal["added", "removed", "changed"]
# both: the agent, then the user, in the same lines. unknown: the agent or the user.
Author = Literal["agent", "both", "unknown", "user"]


class FileWork(msgspec.Struct, frozen=True):
    """What a span changed. `doubt`: why it may be the user's change; "" if it is the agent's."""

    diff: TreeDiff
    doubt: str = ""


class RestoreChange(msgspec.Struct, frozen=True):
    """What would happen to a file. A change by the user alone is only listed.

    `is_merged`: the user changed other lines since, which are kept. `has_earlier`: there is an
    earlier version, before a change of the user. `doubt`: why the author is unknown.
    """

    path: str
    kind: ChangeKind
    author: Author
    has_earlier: bool = False
    is_merged: bool = False
    doubt: str = ""


class RestorePlan(msgspec.Struct, frozen=True):
    """`current` is the stored tree of the files now. `versions` are the files to go back to: first
    the one without conflict, then those before each change of the user that is in conflict."""

    current: str
    changes: tuple[RestoreChange, ...] = ()
    skipped: tuple[SkippedPath, ...] = ()
    versions: dict[str, list[TreeNode | None]] = {}
    folder_targets: dict[str, int | None] = {}

    def by(self, *authors: Author) -> list[RestoreChange]:
        return [change for change in self.changes if change.author in authors]


class RestoreGoal(msgspec.Struct, frozen=True):
    """The stored tree that a restore leads to, and what it leaves out."""

    tree: str
    skipped: tuple[SkippedPath, ...] = ()


def make_plan(
    objects: ObjectStore,
    current: str,
    now: FlatTree,
    works: Sequence[FileWork],
    gaps: Sequence[TreeDiff],
) -> RestorePlan:
    """`gaps` are what changed after each of the works, until the next one or until now."""
    plan = RestorePlan(current)
    steps: dict[str, list[_Step]] = {}
    for work in works:
        for path, (old, new) in work.diff.files.items():
            steps.setdefault(path, []).append(_Step(old, new, work.doubt))
        for path, (mode, _) in work.diff.folders.items():
            plan.folder_targets.setdefault(path, mode)
    changes, skipped = list[RestoreChange](), list[SkippedPath]()
    for path, done in steps.items():
        node = now.find(path)
        done = _drop_undone(done, node)
        versions = plan.versions[path] = _list_versions(objects, done, node)
        target, has_earlier = versions[0], len(versions) > 1
        if target == node and not has_earlier:
            continue
        if not is_stored(node):
            skipped.append(SkippedPath(path, CURRENT_NOT_STORED))
        elif not is_stored(target):
            skipped.append(SkippedPath(path, TARGET_NOT_STORED))
        elif target == node:
            changes.append(RestoreChange(path, describe_kind(node, versions[1]), "both"))
        else:
            doubt = next((step.doubt for step in done if step.doubt), "")
            author: Author = "unknown" if doubt else "agent"
            is_merged = all(target != step.old for step in done)
            kind = describe_kind(node, target)
            changes.append(RestoreChange(path, kind, author, has_earlier, is_merged, doubt))
    users = dict[str, TreeNode | None]()
    for gap in gaps:
        for path, (old, _) in gap.files.items():
            if path not in steps:
                users.setdefault(path, old)
    for path, old in users.items():
        if (node := now.find(path)) != old:
            changes.append(RestoreChange(path, describe_kind(old, node), "user"))
    by_path = lambda one: one.path  # noqa: E731
    ordered = tuple(sorted(changes, key=by_path)), tuple(sorted(skipped, key=by_path))
    return msgspec.structs.replace(plan, changes=ordered[0], skipped=ordered[1])


class _Step(msgspec.Struct, frozen=True):
    """One change of a file by the agent."""

    old: TreeNode | None
    new: TreeNode | None
    doubt: str


def _drop_undone(steps: list[_Step], now: TreeNode | None) -> list[_Step]:
    """The changes that the file still has: if it is as before one, it has lost this and all later
    ones."""
    undone = (number for number, step in enumerate(steps) if step.old == now)
    return steps[: next(undone, len(steps))]


def _list_versions(
    objects: ObjectStore, steps: Sequence[_Step], now: TreeNode | None
) -> list[TreeNode | None]:
    versions: list[TreeNode | None] = []
    node = now
    for step in reversed(steps):
        is_merged, merged = _merge_nodes(objects, step.new, node, step.old)
        if not is_merged:
            versions.append(node)
        node = merged if is_merged else step.old
    return [*versions, node]


def _merge_nodes(
    objects: ObjectStore, base: TreeNode | None, ours: TreeNode | None, theirs: TreeNode | None
) -> tuple[bool, TreeNode | None]:
    """Whether both changes fit together, and the file with both."""
    if ours in (base, theirs):
        return True, theirs
    if base is None or ours is None or theirs is None:
        return False, None
    if not base.kind == ours.kind == theirs.kind == "file":
        return False, None
    mode = theirs.mode if ours.mode == base.mode else ours.mode
    if theirs.mode not in (base.mode, mode):
        return False, None
    if ours.hash == base.hash or theirs.hash == base.hash:
        digest = theirs.hash if ours.hash == base.hash else ours.hash
    else:
        merged = merge_lines(*(objects.get(one.hash) for one in (base, ours, theirs)))
        if merged is None:
            return False, None
        digest = objects.put(merged)
    return True, TreeNode(theirs.name, "file", mode, digest)


def make_goal(
    plan: RestorePlan, now: FlatTree, include: Collection[str], *, is_whole: bool
) -> tuple[FlatTree, tuple[SkippedPath, ...]]:
    """The files after the restore: those of now, with what the agent changed taken back.

    A file that is in conflict, or may be the user's, goes back only if `include` names it: to the
    next version, or, if `is_whole`, to the earliest one.
    """
    targets: dict[str, TreeNode | None] = {}
    for change in plan.by("agent", "both", "unknown"):
        versions, is_included = plan.versions[change.path], change.path in include
        if is_included and change.author != "unknown" and is_whole:
            targets[change.path] = versions[-1]
        elif change.author == "agent" or is_included:
            targets[change.path] = versions[1 if change.author == "both" else 0]
    files = {path: node for path, node in now.files.items() if path not in targets}
    kept = files.keys() | now.unknown
    occupied = {folder for path in kept for folder in parent_folders(path)}
    skipped = []
    for path, target in targets.items():
        if target is None:
            continue
        is_blocked = path in occupied or is_within(path, kept)
        if is_blocked or not is_stored(target):
            skipped.append(SkippedPath(path, IN_THE_WAY if is_blocked else TARGET_NOT_STORED))
            if path in now.files:
                files[path] = now.files[path]
        else:
            files[path] = target
    folders = _goal_folders(plan, now.folders, files.keys() | now.unknown)
    return FlatTree(files, folders, now.unknown), tuple(skipped)


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


def describe_kind(old: TreeNode | None, new: TreeNode | None) -> ChangeKind:
    if new is None:
        return "removed"
    return "added" if old is None else "changed"


MAX_COMPARED = 4_000_000  # lines of the one times lines of the other; beyond it takes seconds

_Edit = tuple[int, int, tuple[bytes, ...]]


def merge_lines(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """`base` with the changes of both; None if they touch, or if it is no text."""
    if any(b"\0" in one for one in (base, ours, theirs)):
        return None
    lines = base.splitlines(keepends=True)
    edits = _list_edits(lines, ours), _list_edits(lines, theirs)
    if edits[0] is None or edits[1] is None:
        return None
    merged: list[bytes] = []
    end = -1  # of the last edit
    for start, stop, new in sorted({*edits[0], *edits[1]}):
        if start <= end:
            return None
        merged += [*lines[max(end, 0) : start], *new]
        end = stop
    return b"".join([*merged, *lines[max(end, 0) :]])


def _list_edits(old: list[bytes], text: bytes) -> list[_Edit] | None:
    """Which lines of the old text become which new ones; None if that takes too long."""
    new = text.splitlines(keepends=True)
    shared = min(len(old), len(new))
    first = next((at for at in range(shared) if old[at] != new[at]), shared)
    last = next(
        (at for at in range(shared - first) if old[-1 - at] != new[-1 - at]), shared - first
    )
    olds, news = old[first : len(old) - last], new[first : len(new) - last]
    if len(olds) * len(news) > MAX_COMPARED:
        return None
    from difflib import SequenceMatcher

    codes = SequenceMatcher(None, olds, news, autojunk=False).get_opcodes()
    return [
        (first + start, first + stop, tuple(news[begin:end]))
        for kind, start, stop, begin, end in codes
        if kind != "equal"
    ]

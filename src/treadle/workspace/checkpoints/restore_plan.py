"""What an undo, redo or rewind would do to each file, and whose changes these files have.

The history is a list of spans: the files before the agent worked and after it. Within a span the
agent changes files, between two spans the user does; while a command of the agent ran, and in a
span that was interrupted, it may be either. A file goes back to what it was before the agent's
first change, or, if the user changed it between two changes of the agent, to the user's version.
Functions on trees; used by `checkpoints`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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

    `user_files`: the user changed them last, and the agent before, if they are among `agent_files`,
    or maybe. `after` has them as the agent left them, if that is known, or as before.
    `is_redo`: the user asked for these changes, so their files go back to before them.
    """

    before: FlatTree
    after: FlatTree
    author: SpanAuthor
    agent_files: frozenset[str] = frozenset()
    user_files: frozenset[str] = frozenset()
    is_redo: bool = False


class RestoreChange(msgspec.Struct, frozen=True):
    """What would happen to a file. A change by the user alone is only listed.

    `has_earlier`: there is an earlier version, before a change of the user.
    """

    path: str
    kind: ChangeKind
    author: Author
    has_earlier: bool = False


class RestorePlan(msgspec.Struct, frozen=True):
    """`current` is the stored tree of the files now; `targets` are the files to go back to, and
    `earliest` their versions before a change of the user, where there is one."""

    current: str
    changes: tuple[RestoreChange, ...] = ()
    skipped: tuple[SkippedPath, ...] = ()
    targets: dict[str, TreeNode | None] = {}
    earliest: dict[str, TreeNode | None] = {}
    folder_targets: dict[str, int | None] = {}

    def by(self, *authors: Author) -> list[RestoreChange]:
        return [change for change in self.changes if change.author in authors]


class RestoreGoal(msgspec.Struct, frozen=True):
    """The stored tree that a restore leads to, and what it leaves out."""

    current: str
    tree: str
    skipped: tuple[SkippedPath, ...] = ()


def make_plan(
    current_tree: str,
    now: FlatTree,
    spans: Sequence[FlatSpan],
    steps: Mapping[str, int] | None = None,
) -> RestorePlan:
    """`steps`: by how many versions each file went back already, if it goes back step by step."""
    found = _VersionFinder(now, spans)
    plan = RestorePlan(current_tree, folder_targets=found.folders)
    changes, skipped = [], []
    for path in sorted(found.versions.keys() | found.users):
        current, first = now.files.get(path), spans[0].before.files.get(path)
        step = None if steps is None else steps.get(path, 0)
        choice = _choose_version(found.versions.get(path, []), step)
        if choice is None or choice.author == "user":
            if choice is not None:
                plan.targets[path] = choice.node
            if current != first:
                has_earlier = choice is not None and current != choice.node
                changes.append(RestoreChange(path, _kind(first, current), "user", has_earlier))
            continue
        plan.targets[path] = choice.node
        if choice.earliest != choice.node:
            plan.earliest[path] = choice.earliest
        if is_within(path, now.not_stored) or now.ignores(path):
            skipped.append(SkippedPath(path, CURRENT_NOT_STORED))
        elif not choice.is_stored:
            skipped.append(SkippedPath(path, TARGET_NOT_STORED))
        elif current != choice.node:
            kind, has_earlier = _kind(current, choice.node), path in plan.earliest
            changes.append(RestoreChange(path, kind, choice.author, has_earlier))
    return msgspec.structs.replace(plan, changes=tuple(changes), skipped=tuple(skipped))


class _Version(msgspec.Struct):
    """A file before the agent changed it, and who changed it from then on, until the user did."""

    node: TreeNode | None
    authors: set[Author]
    is_stored: bool = True


class _VersionFinder:
    """The versions of each file that is not the user's alone, oldest first."""

    def __init__(self, now: FlatTree, spans: Sequence[FlatSpan]) -> None:
        self.versions: dict[str, list[_Version]] = {}
        self.users: set[str] = set()
        self.folders: dict[str, int | None] = {}
        self._left_by_agent: dict[str, list[TreeNode | None]] = {}
        following = [*(span.before for span in spans[1:]), now]
        for span, then in zip(spans, following, strict=True):
            self._add_work(span)
            self._add_users_changes(changed_paths(span.after, then))

    def _add_work(self, span: FlatSpan) -> None:
        old = span.before
        for path in changed_paths(old, span.after):
            author: Author = "agent" if path in span.agent_files else span.author
            authors, node = {author}, span.after.files.get(path)
            left = self._left_by_agent.setdefault(path, [])
            if not span.is_redo:
                left.append(node)
            elif left and node not in left:  # the redo brought back a change of the user, too
                authors.add("user")
            self._add_version(path, old, authors, is_redo=span.is_redo)
        for path in span.user_files:
            if path in span.agent_files:
                self._add_version(path, old, {"agent", "user"})
            elif path in old.files:  # a command may have changed it, or only the user
                self._add_version(path, old, {"user"})
        for path in old.folders.keys() ^ span.after.folders.keys():
            self.folders.setdefault(path, old.folders.get(path))

    def _add_version(
        self, path: str, tree: FlatTree, authors: set[Author], *, is_redo: bool = False
    ) -> None:
        known = self.versions.setdefault(path, [])
        if known and "user" not in known[-1].authors and not is_redo:
            known[-1].authors |= authors
            return
        is_stored = not is_within(path, tree.not_stored)
        version = _Version(tree.files.get(path), authors, is_stored)
        known[-1 if is_redo else len(known) :] = [version]

    def _add_users_changes(self, paths: Sequence[str]) -> None:
        for path in paths:
            if known := self.versions.get(path):
                known[-1].authors.add("user")
            else:
                self.users.add(path)


class _Choice(msgspec.Struct, frozen=True):
    """The version that a file goes back to; `earliest`: the one if the user names the file."""

    node: TreeNode | None
    author: Author
    is_stored: bool
    earliest: TreeNode | None


def _choose_version(versions: Sequence[_Version], step: int | None) -> _Choice | None:
    """None: there is no version (any more)."""
    if step is not None:
        position = len(versions) - 1 - step
    else:  # all the way, but the user's own version is kept unless the user names the file
        is_the_agents = bool(versions) and "user" not in versions[-1].authors
        position = len(versions) - 1 if is_the_agents else 0
    if not 0 <= position < len(versions):
        return None
    chosen = versions[position]
    author = _sum_up({one for version in versions[position:] for one in version.authors})
    return _Choice(chosen.node, author, chosen.is_stored, versions[0].node)


def make_goal(
    objects: ObjectStore,
    plan: RestorePlan,
    now: FlatTree,
    include: Collection[str],
    named: Collection[str] = (),
) -> tuple[FlatTree, tuple[SkippedPath, ...]]:
    """The files after the restore: those of now, with what the agent changed taken back.

    A file that the user changed, too, or may have changed, goes back only if `include` names it.
    """
    chosen = {
        change.path
        for change in plan.changes
        if change.author == "agent" or (change.path in include and change.path in plan.targets)
    }
    files = {path: node for path, node in now.files.items() if path not in chosen}
    kept = files.keys() | now.not_stored | now.ignored
    occupied = {folder for path in kept for folder in parent_folders(path)}
    skipped = []
    for path in sorted(chosen):
        source = plan.earliest if path in named and path in plan.earliest else plan.targets
        target = source[path]
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


def without_changes(
    old: FlatTree, new: FlatTree, paths: Collection[str], versions: Mapping[str, TreeNode]
) -> FlatTree:
    """The new tree with these files as in the old one, or as `versions` has them; also a file that
    became one of them by a rename."""
    changed = changed_paths(old, new)
    own = {path for path in changed if path in paths}
    added = {new.files[path].hash for path in own if path not in old.files and path in new.files}
    gone = (path for path in changed if path not in new.files and path in old.files)
    own.update(path for path in gone if old.files[path].hash in added)
    files = {path: node for path, node in new.files.items() if path not in own}
    files |= {path: old.files[path] for path in own if path in old.files}
    files |= {path: versions[path] for path in own if path in versions}
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


def _sum_up(authors: set[Author]) -> Author:
    if "user" in authors:
        return "both" if len(authors) > 1 else "user"
    if "unknown" in authors:
        return "unknown"
    return "command" if "command" in authors else "agent"


def _kind(old: TreeNode | None, new: TreeNode | None) -> ChangeKind:
    if new is None:
        return "removed"
    return "added" if old is None else "changed"

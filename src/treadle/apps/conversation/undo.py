"""Undo, redo, rewind and fork: what `treadle sessions` and the terminal UI share.

The first three begin with a plan: what would happen to which file, and whose changes it has. Before
a file changes, the current files are stored and named in the log, so that redo brings them back.
The log of a session is in treadle.sessions, the files in treadle.workspace.checkpoints.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from treadle.core.contracts.store import Store
from treadle.core.errors import StoreError, WorkspaceError
from treadle.core.transcript.entries import Checkpoint, NoticeShown, Restore
from treadle.lib.text.text import plural
from treadle.sessions.file_history import PastRestore, WorkSpan, read_file_history
from treadle.sessions.history import TurnInfo, fork, list_turns
from treadle.sessions.library import Library

if TYPE_CHECKING:
    from treadle.workspace.checkpoints import (
        Checkpoints,
        RestoreChange,
        RestorePlan,
        RestoreResult,
    )
    from treadle.workspace.checkpoints.restore import ChangeKind
    from treadle.workspace.checkpoints.restore_plan import Author, SpanAuthor

_RESTORABLE: tuple[Author, ...] = ("agent", "both", "command", "unknown")

# Why a file is not restored unless the user agrees.
_LEFT_ALONE: dict[str, str] = {
    "both": "you changed it since",
    "command": "it changed while a command of the agent ran: it may be your change",
    "unknown": "it changed after the program was killed: it may be your change",
}
_VERBS = {"added": "bring back", "removed": "delete", "changed": "change"}
MAX_LISTED_PATHS = 20


class NothingButUsersFiles(StoreError):
    """Only files are left to undo or redo that the user changed."""

    def __init__(self, action: str, paths: Sequence[str]) -> None:
        self.paths = tuple(dict.fromkeys(paths))
        files = _join_paths(self.paths)
        super().__init__(f"nothing left to {action} but files that you changed: {files}")


class PathChange(Protocol):
    """What would happen to a file."""

    @property
    def path(self) -> str: ...

    @property
    def kind(self) -> str: ...


class PlannedRestore(msgspec.Struct, frozen=True):
    """An undo, redo or rewind of files that has not happened. `turn`: None if it is rewound."""

    action: Literal["undo", "rewind", "redo"]
    seq: int
    turn: TurnInfo | None
    plan: RestorePlan
    of: int = 0  # redo: the entry of the restore that it takes back

    def list_doubtful(self) -> list[str]:
        """The files that the agent or the user changed: they are restored if the user agrees."""
        return [change.path for change in self.plan.by("command", "unknown")]


# --- plan ----------------------------------------------------------------------------------


async def plan_undo(
    checkpoints: Checkpoints, session_dir: Path, include: Collection[str] = ()
) -> PlannedRestore:
    """Undo of the last turn that changed files and is not undone, or of the redo of a rewind.

    An undo leaves files alone that the user changed since, and goes back to the user's version of
    those that the user changed during the turn. Their earlier versions come next if `include`
    names such a file.
    """
    history, has_changes = read_file_history(session_dir), False
    if history.last_redo is not None:
        plan = await _plan_spans(checkpoints, [history.last_redo])
        if plan is not None and plan.by(*_RESTORABLE):
            return PlannedRestore("rewind", history.last_redo.seq, None, plan)
    left_alone: list[str] = []
    for turn in reversed(list_turns(session_dir)):
        spans, undone = history.list_spans_of(turn.seq), history.list_restores_of(turn.seq)
        has_changes = has_changes or bool(spans)
        has_user_files = any(span.user_files for span in spans)
        if all(span.before == span.after for span in spans) and not has_user_files:
            continue
        is_rewound = any(past.restore.action == "rewind" for past in undone)
        is_whole = not has_user_files and not any(past.restore.is_partial for past in undone)
        if is_rewound or (undone and is_whole and not include):
            continue
        steps = [(past.tree_before, past.restore.tree) for past in undone]
        plan = await _plan_spans(checkpoints, spans, steps)
        assert plan is not None, "there are spans"
        users = [one.path for one in plan.changes if one.author == "both" or one.has_earlier]
        is_first = not undone and (plan.by(*_RESTORABLE) or plan.skipped)
        if is_first or any(path in include for path in users):
            return PlannedRestore("undo", turn.seq, turn, plan)
        left_alone += users
    if left_alone:
        raise NothingButUsersFiles("undo", left_alone)
    if not has_changes:
        raise StoreError(f"nothing to undo: session {session_dir.name} has no saved file changes")
    raise StoreError("nothing left to undo")


async def plan_redo(
    checkpoints: Checkpoints, session_dir: Path, include: Collection[str] = ()
) -> PlannedRestore:
    """Redo of what the last undo or rewind took back.

    An earlier redo may have left files alone that the user had changed: these are redone if
    `include` names one of them.
    """
    left_alone: list[str] = []
    for past in reversed(read_file_history(session_dir).restores):
        if past.restore.tree == past.tree_before:
            continue  # an undo that left all files alone
        planned = await _plan_redo_of(checkpoints, session_dir, past)
        changed = [change.path for change in planned.plan.by("both")]
        is_included = any(path in include for path in changed)
        if not past.is_leftover or planned.plan.by("agent") or is_included:
            return planned
        left_alone += changed
    if left_alone:
        raise NothingButUsersFiles("redo", left_alone)
    raise StoreError("nothing to redo")


async def _plan_redo_of(
    checkpoints: Checkpoints, session_dir: Path, past: PastRestore
) -> PlannedRestore:
    from treadle.workspace.checkpoints import Span

    plan = await checkpoints.plan([Span(past.tree_before, past.restore.tree)])
    undone = [turn for turn in list_turns(session_dir) if turn.seq == past.restore.seq]
    turn = undone[0] if undone and past.restore.action == "undo" else None
    return PlannedRestore("redo", past.restore.seq, turn, plan, past.entry_seq)


async def plan_rewind(
    checkpoints: Checkpoints, session_dir: Path, turn: TurnInfo
) -> PlannedRestore | None:
    """Rewind of the files to before a turn; None if no file was changed since."""
    plan = await _plan_spans(checkpoints, read_file_history(session_dir).list_spans(turn.seq))
    return None if plan is None else PlannedRestore("rewind", turn.seq, turn, plan)


async def _plan_spans(
    checkpoints: Checkpoints,
    spans: Sequence[WorkSpan],
    undone: Sequence[tuple[str, str]] | None = None,
) -> RestorePlan | None:
    if not spans:
        return None
    from treadle.workspace.checkpoints import Span

    return await checkpoints.plan(
        [
            Span(
                span.before,
                span.after,
                _span_author(span),
                span.agent_files,
                span.is_redo,
                span.user_files,
            )
            for span in spans
        ],
        undone,
    )


def _span_author(span: WorkSpan) -> SpanAuthor:
    """Who changed the files of the span, beside its `agent_files`."""
    if span.is_redo:
        return "agent"
    return "unknown" if span.is_interrupted else "command"


async def list_changed_files(checkpoints: Checkpoints, session_dir: Path) -> dict[str, ChangeKind]:
    """The files that the turns added, removed or changed, without what is undone."""
    history = await asyncio.to_thread(read_file_history, session_dir)
    changed: dict[str, ChangeKind] = {}
    for span in history.spans:
        undone = history.list_restores_of(span.seq)
        if any(not past.restore.is_partial for past in undone):
            continue
        steps = [await checkpoints.diff(past.tree_before, past.restore.tree) for past in undone]
        restored = {one.path for step in steps for one in step}
        for one in await checkpoints.diff(span.before, span.after) if span.after else ():
            if one.path in restored:
                continue
            match changed.pop(one.path, None), one.kind:
                case "added", "removed":
                    pass
                case "added", _:
                    changed[one.path] = "added"
                case "removed", "added":
                    changed[one.path] = "changed"
                case _, kind:
                    changed[one.path] = kind
    return changed


# --- run -----------------------------------------------------------------------------------


async def run_restore(
    checkpoints: Checkpoints,
    store: Store,
    planned: PlannedRestore,
    include: Collection[str] = (),
    named: Collection[str] = (),
) -> RestoreResult:
    """Restore the files as planned; `include` are files that the user changed, too, or may have.

    A rewind takes those that are also `named` back to before the user's version; an undo goes there
    step by step.
    """
    from treadle.workspace.checkpoints import RestoreResult, SkippedPath

    plan = planned.plan
    goal = await checkpoints.make_goal(plan, include, named if planned.action == "rewind" else ())
    left_alone = list_left_alone(plan, include)
    skipped = [SkippedPath(one.path, _LEFT_ALONE[one.author]) for one in left_alone]
    skipped += [*plan.skipped, *goal.skipped]
    restored = RestoreResult((), ())
    is_step = planned.action != "rewind"
    # If a step leaves only files of the user alone, the next one goes on.
    is_named = is_step and len(skipped) == len(left_alone)
    if goal.tree != plan.current or not skipped or is_named:
        # Durable before the first change, so that redo is possible whatever happens.
        is_partial = is_step and bool(skipped if planned.action == "redo" else left_alone)
        entry = Restore(planned.action, planned.seq, goal.tree, planned.of, is_partial)
        store.append(Checkpoint("", plan.current, restore=entry))
        await store.flush()
        restored = await checkpoints.apply(plan.current, goal.tree)
    return msgspec.structs.replace(restored, skipped=(*skipped, *restored.skipped))


def list_left_alone(plan: RestorePlan, include: Collection[str]) -> list[RestoreChange]:
    """The files that the agent changed, and the user, too, or maybe: they are not restored."""
    return [one for one in plan.by("both", "command", "unknown") if one.path not in include]


def open_checkpoints(library: Library, folder: Path) -> Checkpoints:
    from treadle.workspace.checkpoints import Checkpoints

    if folder.resolve() != folder:
        raise WorkspaceError(
            f"{folder} is now a symlink to {folder.resolve()}, so no file is restored; "
            "remove the symlink first"
        )
    return Checkpoints(folder, library.checkpoint_dir(folder))


# --- describe ------------------------------------------------------------------------------


def describe_plan(planned: PlannedRestore) -> list[str]:
    """The files that would change, and those that would not, by whose changes they have."""
    plan, action = planned.plan, planned.action.capitalize()
    command = "These files changed while a command of the agent ran; some changes may be yours."
    unknown = "These files changed after the program was killed; some changes may be yours."
    both = "The agent changed these files, and then you. They are left alone; --include PATH would:"
    groups = (
        (f"The agent changed these files. {action} will:", plan.by("agent")),
        (f"{command} {action} will:", plan.by("command")),
        (f"{unknown} {action} will:", plan.by("unknown")),
        (both, plan.by("both")),
    )
    lines = []
    for heading, changes in groups:
        if changes:
            lines += [heading, *map(_describe_change, changes)]
    if others := plan.by("user"):
        lines.append("You or another program changed these files. They are left alone:")
        earlier = "; --include PATH goes back to before the turn"
        lines += [f"  {one.path} ({one.kind}{earlier * one.has_earlier})" for one in others]
    if any(one.has_earlier and one.author != "user" for one in plan.changes):
        again = "undo again with" if planned.action == "undo" else "add"
        lines.append(
            f"You changed a file between two changes of the agent. For its version before "
            f"yours, {again} --include PATH."
        )
    if plan.skipped:
        lines.append("These files cannot be restored:")
        lines += [f"  {one.path} ({one.reason})" for one in plan.skipped]
    return lines


def _describe_change(change: RestoreChange) -> str:
    version = " (back to your version)" if change.has_earlier else ""
    return f"  {_VERBS[change.kind]} {change.path}{version}"


def list_earlier_versions(planned: PlannedRestore) -> list[str]:
    """The files of an undo that have an earlier version, before a change of the user."""
    return [one.path for one in planned.plan.changes if one.has_earlier]


def describe_changes(changes: Sequence[PathChange], max_named: int = 4) -> str:
    """`delete a.txt and b.txt, bring back c.txt, change d.txt`."""
    paths: dict[str, list[str]] = {"removed": [], "added": [], "changed": []}
    for one in changes[:max_named]:
        paths[one.kind].append(one.path)
    parts = [f"{_VERBS[kind]} {' and '.join(some)}" for kind, some in paths.items() if some]
    if (more := len(changes) - max_named) > 0:
        parts.append(f"and {plural(more, 'more file')}")
    return ", ".join(parts)


def describe_action(planned: PlannedRestore) -> str:
    """`undid the file changes of turn 3 (Add a test)`."""
    undone, redone = "undid the file changes of", "redid the file changes of"
    verb = {"undo": undone, "redo": redone, "rewind": "restored the files to before"}
    if planned.turn is None and planned.action == "rewind":
        return "took back the last redo"
    if planned.turn is None:
        return "redid what the last rewind changed"
    return f"{verb[planned.action]} {_name_turn(planned.turn)}"


def describe_plan_title(planned: PlannedRestore) -> str:
    """`Undo the file changes of turn 3 (Add a test)`: before it happens."""
    if planned.turn is None and planned.action == "rewind":
        return "Take back the last redo"
    if planned.turn is None:
        return "Redo what the last rewind changed"
    return f"{planned.action.capitalize()} the file changes of {_name_turn(planned.turn)}"


def _name_turn(turn: TurnInfo) -> str:
    words = " ".join(turn.text.split())
    text = f" ({words[:60]}{'…' if len(words) > 60 else ''})" if words else ""
    return f"turn {turn.number}{text}"


def list_restored(restored: RestoreResult) -> str:
    """`restored a.txt, b.txt; removed c.txt`."""
    parts = [f"restored {_join_paths(restored.written)}"] if restored.written else []
    if restored.removed:
        parts.append(f"removed {_join_paths(restored.removed)}")
    return "; ".join(parts) or "no files changed"


def _join_paths(paths: Sequence[str]) -> str:
    more = len(paths) - MAX_LISTED_PATHS
    return ", ".join(paths[:MAX_LISTED_PATHS]) + (f" and {more} more" if more > 0 else "")


def list_skipped(restored: RestoreResult) -> list[str]:
    return [f"not restored: {skipped.path} ({skipped.reason})" for skipped in restored.skipped]


def count_changes(plan: RestorePlan) -> str:
    return plural(len(plan.by("agent", "command", "unknown")), "file")


# --- fork ----------------------------------------------------------------------------------


async def fork_session(
    library: Library, session_dir: Path, folder: Path, before_turn: str | None = None
) -> str:
    """The id of a new session with the history of this one, up to before a turn."""
    journal, _ = fork(library, session_dir, folder=folder, before_turn=before_turn)
    # An empty log would not be stored.
    journal.append(NoticeShown(f"a fork of {session_dir.name}"))
    await journal.aclose()
    return journal.session_id

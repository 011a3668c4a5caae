"""Undo, redo, rewind and fork: what `treadle sessions` and the terminal UI share.

The first three begin with a plan: what would happen to which file, and whose changes it has. Before
a file changes, the current files are stored and named in the log, so that redo brings them back.
The log of a session is in treadle.sessions, the files in treadle.workspace.checkpoints.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from treadle.core.contracts.store import Store
from treadle.core.errors import StoreError, WorkspaceError
from treadle.core.text import plural
from treadle.core.transcript.entries import Checkpoint, NoticeShown, Restore
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


class NothingToRedo(StoreError):
    """Only files are left to redo that the user changed."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)
        super().__init__(f"nothing left to redo but files that you changed: {_join_paths(paths)}")


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


async def plan_undo(checkpoints: Checkpoints, session_dir: Path) -> PlannedRestore:
    """Undo of the last turn that changed files and is not undone, or of the redo of a rewind."""
    history, has_changes = read_file_history(session_dir), False
    if history.last_redo is not None:
        plan = await _plan_spans(checkpoints, [history.last_redo])
        if plan is not None and plan.by(*_RESTORABLE):
            return PlannedRestore("rewind", history.last_redo.seq, None, plan)
    for turn in reversed(list_turns(session_dir)):
        has_changes = has_changes or any(span.seq == turn.seq for span in history.spans)
        spans = history.list_spans(turn.seq, turn.seq)
        if all(span.before == span.after for span in spans):
            continue
        plan = await _plan_spans(checkpoints, spans)
        if plan is not None and (plan.by(*_RESTORABLE) or plan.skipped):
            return PlannedRestore("undo", turn.seq, turn, plan)
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
        planned = await _plan_redo_of(checkpoints, session_dir, past)
        changed = [change.path for change in planned.plan.by("both")]
        is_included = any(path in include for path in changed)
        if not past.is_leftover or planned.plan.by("agent") or is_included:
            return planned
        left_alone += changed
    if left_alone:
        raise NothingToRedo(tuple(left_alone))
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


async def _plan_spans(checkpoints: Checkpoints, spans: Sequence[WorkSpan]) -> RestorePlan | None:
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
            )
            for span in spans
        ]
    )


def _span_author(span: WorkSpan) -> SpanAuthor:
    """Who changed the files of the span, beside its `agent_files`."""
    if span.is_redo:
        return "agent"
    return "unknown" if span.is_interrupted else "command"


# --- run -----------------------------------------------------------------------------------


async def run_restore(
    checkpoints: Checkpoints, store: Store, planned: PlannedRestore, include: Collection[str] = ()
) -> RestoreResult:
    """Restore the files as planned; `include` are files that the user changed, too, or may have."""
    from treadle.workspace.checkpoints import RestoreResult, SkippedPath

    plan = planned.plan
    goal = await checkpoints.make_goal(plan, include)
    left_alone = list_left_alone(plan, include)
    skipped = [SkippedPath(one.path, _LEFT_ALONE[one.author]) for one in left_alone]
    skipped += [*plan.skipped, *goal.skipped]
    restored = RestoreResult((), ())
    if goal.tree != plan.current or not skipped:
        # Durable before the first change, so that redo is possible whatever happens.
        is_partial = planned.action == "redo" and bool(skipped)
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
            lines += [heading, *(f"  {_VERBS[one.kind]} {one.path}" for one in changes)]
    if others := plan.by("user"):
        lines.append("You or another program changed these files. They are left alone:")
        lines += [f"  {one.path} ({one.kind})" for one in others]
    if plan.skipped:
        lines.append("These files cannot be restored:")
        lines += [f"  {one.path} ({one.reason})" for one in plan.skipped]
    return lines


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
    words = " ".join(planned.turn.text.split())
    text = f" ({words[:60]}{'…' if len(words) > 60 else ''})" if words else ""
    return f"{verb[planned.action]} turn {planned.turn.number}{text}"


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

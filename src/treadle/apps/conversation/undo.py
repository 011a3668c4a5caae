"""Undo, redo, rewind and fork: what `treadle sessions` and the terminal UI share.

The first three begin with a plan: what would happen to which file, and whose changes it has. Before
a file changes, the current files are stored and named in the log, so that redo brings them back.
The log of a session is in treadle.sessions, the files in treadle.workspace.checkpoints.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from treadle.core.contracts.store import Store
from treadle.core.errors import ConfigError, StoreError, WorkspaceError
from treadle.core.transcript.entries import Checkpoint, NoticeShown, Restore
from treadle.lib.text.sanitize import escape_invisible, strip_escapes
from treadle.lib.text.text import plural
from treadle.sessions.file_history import WorkSpan, read_file_history
from treadle.sessions.history import TurnInfo, fork, list_turns
from treadle.sessions.library import Library

if TYPE_CHECKING:
    from treadle.workspace.checkpoints.checkpoints import Checkpoints
    from treadle.workspace.checkpoints.restore import RestoreResult
    from treadle.workspace.checkpoints.restore_plan import (
        Author,
        ChangeKind,
        RestoreChange,
        RestorePlan,
    )

_RESTORABLE: tuple[Author, ...] = ("agent", "both", "unknown")
_VERBS = {"added": "bring back", "removed": "delete", "changed": "change"}
MAX_LISTED_PATHS = 20


class FileChange(msgspec.Struct, frozen=True):
    """What an undo, a redo or a rewind would do to a file, and who changed it.

    It leaves alone what the user changed: alone, or (`both`) after the agent, in the same lines,
    unless included. `unknown`: the agent or the user changed it; `doubt` says why. `has_earlier`:
    there is an earlier version, before a change of the user. `is_merged`: the user changed other
    lines since, which are kept.
    """

    path: str
    kind: Literal["added", "removed", "changed"]
    author: Literal["agent", "both", "unknown", "user"] = "agent"
    has_earlier: bool = False
    is_merged: bool = False
    doubt: str = ""

    @property
    def is_doubtful(self) -> bool:
        """Whether it is the agent's change or the user's."""
        return self.author == "unknown"

    @property
    def note(self) -> str:
        notes = {
            "both": "  (you changed it, too: left alone)",
            "unknown": f"  ({self.doubt}: who wrote it is not known)",
            "user": f"  (you {self.kind} it: left alone)",
        }
        if self.author == "agent" and self.is_merged:
            return "  (your changes are kept)"
        return notes.get(self.author, "  (back to your version)" if self.has_earlier else "")

    @property
    def sign(self) -> str:
        """What would happen to the file; the user's own changes, which stay, have no sign."""
        if self.author == "user":
            return " "
        return {"added": "+", "removed": "-", "changed": "~"}[self.kind]


class NothingButUsersFiles(StoreError):
    """Only files are left to undo or redo that the user changed."""

    def __init__(self, action: str, paths: Sequence[str]) -> None:
        self.paths = tuple(dict.fromkeys(paths))
        files = join_paths(self.paths)
        super().__init__(f"nothing left to {action} but files that you changed: {files}")


class PlannedRestore(msgspec.Struct, frozen=True):
    """An undo, redo or rewind of files that has not happened. `turn`: None if it is rewound."""

    action: Literal["undo", "rewind", "redo"]
    seq: int
    turn: TurnInfo | None
    plan: RestorePlan
    of: int = 0  # redo: the entry of the restore that it takes back

    def list_doubtful(self) -> list[str]:
        """The files that the agent or the user changed: they are restored if the user agrees."""
        return [change.path for change in self.plan.by("unknown")]


# --- plan ----------------------------------------------------------------------------------


async def plan_undo(
    checkpoints: Checkpoints, session_dir: Path, include: Collection[str] = ()
) -> PlannedRestore:
    """Undo of the last turn that changed files and is not undone, or of the redo of a rewind.

    Of a file that the user changed since, the user's lines are kept. It is left alone if both
    changed the same lines, or goes back to the user's version if the agent changed it again; the
    version before comes next if `include` names the file.
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
        if all(span.before == span.after for span in spans):
            continue
        is_rewound = any(past.restore.action == "rewind" for past in undone)
        if is_rewound or (undone and not any(past.restore.is_partial for past in undone)):
            continue
        plan = await _plan_spans(checkpoints, spans)
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
    from treadle.workspace.checkpoints.checkpoints import Span

    left_alone: list[str] = []
    for past in reversed(read_file_history(session_dir).restores):
        if past.restore.tree == past.tree_before:
            continue  # an undo that left all files alone
        plan = await checkpoints.plan([Span(past.tree_before, past.restore.tree)])
        turns = list_turns(session_dir) if past.restore.action == "undo" else []
        turn = next((turn for turn in turns if turn.seq == past.restore.seq), None)
        planned = PlannedRestore("redo", past.restore.seq, turn, plan, past.entry_seq)
        changed = [change.path for change in planned.plan.by("both")]
        is_included = any(path in include for path in changed)
        if not past.is_leftover or planned.plan.by("agent") or is_included:
            return planned
        left_alone += changed
    if left_alone:
        raise NothingButUsersFiles("redo", left_alone)
    raise StoreError("nothing to redo")


async def plan_rewind(
    checkpoints: Checkpoints, session_dir: Path, turn: TurnInfo
) -> PlannedRestore | None:
    """Rewind of the files to before a turn; None if no file was changed since."""
    plan = await _plan_spans(checkpoints, read_file_history(session_dir).list_spans(turn.seq))
    return None if plan is None else PlannedRestore("rewind", turn.seq, turn, plan)


async def _plan_spans(checkpoints: Checkpoints, spans: Sequence[WorkSpan]) -> RestorePlan | None:
    if not spans:
        return None
    from treadle.workspace.checkpoints.checkpoints import Span

    return await checkpoints.plan(
        [Span(span.before, span.after, _find_doubt(span), span.undone) for span in spans]
    )


def _find_doubt(span: WorkSpan) -> str:
    """Why changes of the span may be the user's; "" if they are the agent's."""
    if span.background:
        return f"it changed while {' and '.join(span.background)} ran in the background"
    return "it changed after the program was killed" if span.is_interrupted else ""


async def list_changed_files(checkpoints: Checkpoints, session_dir: Path) -> dict[str, ChangeKind]:
    """The files that the turns added, removed or changed, without what is undone."""
    history = await asyncio.to_thread(read_file_history, session_dir)
    existed, exists = dict[str, bool](), dict[str, bool]()
    for span in history.spans:
        undone = history.list_restores_of(span.seq)
        if any(not past.restore.is_partial for past in undone):
            continue
        steps = [await checkpoints.diff(past.tree_before, past.restore.tree) for past in undone]
        restored = {one.path for step in steps for one in step}
        for one in await checkpoints.diff(span.before, span.after) if span.after else ():
            if one.path not in restored:
                existed.setdefault(one.path, one.kind != "added")
                exists[one.path] = one.kind != "removed"
    kinds: dict[tuple[bool, bool], ChangeKind] = {
        (False, True): "added",
        (True, False): "removed",
        (True, True): "changed",
    }
    found = ((path, kinds.get((existed[path], exists[path]))) for path in exists)
    return {path: kind for path, kind in found if kind is not None}


# --- run -----------------------------------------------------------------------------------


async def run_restore(
    checkpoints: Checkpoints, store: Store, planned: PlannedRestore, include: Collection[str] = ()
) -> RestoreResult:
    """Restore the files as planned; `include` are files that the user changed, too, or may have.

    A rewind takes these back to before the turn; an undo goes there over the user's versions.
    """
    from treadle.workspace.checkpoints.restore import RestoreResult
    from treadle.workspace.checkpoints.scanner import SkippedPath

    plan, is_step = planned.plan, planned.action != "rewind"
    goal = await checkpoints.make_goal(plan, include, is_whole=not is_step)
    left_alone = list_left_alone(plan, include)
    reasons = {"both": "you changed it since", "unknown": "{}: it may be your change"}
    skipped = [SkippedPath(one.path, reasons[one.author].format(one.doubt)) for one in left_alone]
    skipped += [*plan.skipped, *goal.skipped]
    restored = RestoreResult((), ())
    # If a step leaves only files of the user alone, the next one goes on.
    is_named = is_step and len(skipped) == len(left_alone)
    if goal.tree != plan.current or not skipped or is_named:
        # Durable before the first change, so that redo is possible whatever happens.
        kept = left_alone or _list_earlier_versions(planned)
        is_partial = is_step and bool(skipped if planned.action == "redo" else kept)
        entry = Restore(planned.action, planned.seq, goal.tree, planned.of, is_partial)
        store.append(Checkpoint("", plan.current, restore=entry))
        await store.flush()
        restored = await checkpoints.apply(plan.current, goal.tree)
    return msgspec.structs.replace(restored, skipped=(*skipped, *restored.skipped))


def list_left_alone(plan: RestorePlan, include: Collection[str]) -> list[RestoreChange]:
    """The files that the agent changed, and the user, too, or maybe: they are not restored."""
    return [one for one in plan.by("both", "unknown") if one.path not in include]


def check_named(planned: PlannedRestore, paths: Collection[str], option: str = "") -> None:
    """ConfigError for a path that the user names and this action would not change in any case."""
    changed = planned.plan.by("agent", "both", "unknown")
    known = {one.path for one in changed} | {one.path for one in planned.plan.skipped}
    for path in paths:
        if path not in known:
            shown = escape_invisible(strip_escapes(path))
            listed = ", ".join(sorted(known)[:10]) or "none"
            raise ConfigError(
                f"{option}{shown}: the agent did not change this file, so nothing was changed; "
                f"the files of this {planned.action}: {escape_invisible(listed)}"
            )


def open_checkpoints(library: Library, folder: Path) -> Checkpoints:
    from treadle.workspace.checkpoints.checkpoints import Checkpoints

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
    both = "The agent and then you changed the same lines of these files. They are left alone;"
    groups = (
        (f"The agent changed these files. {action} will:", plan.by("agent")),
        (f"Some of these changes may be yours. {action} will:", plan.by("unknown")),
        (f"{both} --include PATH would:", plan.by("both")),
    )
    lines = []
    for heading, changes in groups:
        if changes:
            verbs = (f"  {_VERBS[one.kind]} {one.path}{_describe_note(one)}" for one in changes)
            lines += [heading, *verbs]
    if others := plan.by("user"):
        lines.append("You or another program changed these files. They are left alone:")
        lines += [f"  {one.path} ({one.kind})" for one in others]
    if any(one.has_earlier for one in plan.changes):
        again = "undo again with" if planned.action == "undo" else "add"
        lines.append(
            f"You changed a file between two changes of the agent. For its version before "
            f"yours, {again} --include PATH."
        )
    if plan.skipped:
        lines.append("These files cannot be restored:")
        lines += [f"  {one.path} ({one.reason})" for one in plan.skipped]
    return lines


def _describe_note(change: RestoreChange) -> str:
    """What is special about the change, in parentheses."""
    notes = [change.doubt] if change.doubt else []
    notes += ["back to your version"] if change.has_earlier else []
    notes += ["your changes are kept"] if change.is_merged else []
    return f" ({'; '.join(notes)})" if notes else ""


def describe_notes(
    planned: PlannedRestore, include: Collection[str], session_id: str, again: str
) -> str:
    """After it: what became of the user's own changes; "" if there are none. `again` is the command
    that restores further files."""
    plan, notes = planned.plan, list[str]()
    if merged := [one.path for one in plan.changes if one.is_merged]:
        notes.append(f"your changes are kept in {join_paths(merged)}")
    if earlier := _list_earlier_versions(planned):
        names = join_paths(earlier)
        notes.append(f"your version is back: {names}; `{again}` restores the one before it")
    if replaced := [one.path for one in plan.by("both") if one.path in include]:
        opposite = "undo" if planned.action == "redo" else "redo"
        notes.append(f"your version is stored: {join_paths(replaced)}; {opposite} brings it back")
    if list_left_alone(plan, include):
        notes.append(f"to restore such a file, too: `{again}`")
    if notes:
        notes.append(f"`treadle sessions versions {session_id} PATH` lists all versions")
    return "; ".join(notes)


def _list_earlier_versions(planned: PlannedRestore) -> list[str]:
    """The files of an undo that have an earlier version, before a change of the user."""
    if planned.action != "undo":
        return []
    return [one.path for one in planned.plan.changes if one.has_earlier]


def describe_changes(changes: Sequence[FileChange], max_named: int = 4) -> str:
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
    if planned.turn is None:
        is_redo = planned.action == "redo"
        return f"redid {_name_redone(planned)}" if is_redo else "took back the last redo"
    if planned.action == "rewind":
        return f"restored the files to before {_name_turn(planned.turn)}"
    verb = "redid" if planned.action == "redo" else "undid"
    return f"{verb} the file changes of {_name_turn(planned.turn)}"


def describe_plan_title(planned: PlannedRestore) -> str:
    """`Undo the file changes of turn 3 (Add a test)`: before it happens."""
    if planned.turn is None:
        is_redo = planned.action == "redo"
        return f"Redo {_name_redone(planned)}" if is_redo else "Take back the last redo"
    return f"{planned.action.capitalize()} the file changes of {_name_turn(planned.turn)}"


def _name_redone(planned: PlannedRestore) -> str:
    return "what the last rewind changed" if planned.seq else "the hunk that was dropped last"


def _name_turn(turn: TurnInfo) -> str:
    words = " ".join(turn.text.split())
    text = f" ({words[:60]}{'…' if len(words) > 60 else ''})" if words else ""
    return f"turn {turn.number}{text}"


def describe_result(planned: PlannedRestore, restored: RestoreResult) -> str:
    """`undid the file changes of turn 3 (Add a test): removed c.txt`."""
    if restored.written or restored.removed:
        return f"{describe_action(planned)}: {list_restored(restored)}"
    return f"{describe_plan_title(planned)}: nothing is changed"


def list_restored(restored: RestoreResult) -> str:
    """`restored a.txt, b.txt; removed c.txt`."""
    parts = [f"restored {join_paths(restored.written)}"] if restored.written else []
    if restored.removed:
        parts.append(f"removed {join_paths(restored.removed)}")
    return "; ".join(parts) or "no files changed"


def join_paths(paths: Sequence[str]) -> str:
    """`a.txt, b.txt and 3 more`."""
    more = len(paths) - MAX_LISTED_PATHS
    return ", ".join(paths[:MAX_LISTED_PATHS]) + (f" and {more} more" if more > 0 else "")


def list_skipped(restored: RestoreResult) -> list[str]:
    return [f"not restored: {skipped.path} ({skipped.reason})" for skipped in restored.skipped]


def count_changes(plan: RestorePlan) -> str:
    return plural(len(plan.by("agent", "unknown")), "file")


# --- fork ----------------------------------------------------------------------------------


async def fork_session(
    library: Library,
    session_dir: Path,
    folder: Path,
    before_turn: str | None = None,
    last_seq: int | None = None,
) -> str:
    """The id of a new session with the history of this one, up to before a turn or to an entry."""
    journal, _ = fork(
        library, session_dir, folder=folder, before_turn=before_turn, last_seq=last_seq
    )
    # An empty log would not be stored.
    journal.append(NoticeShown(f"a fork of {session_dir.name}"))
    await journal.aclose()
    return journal.session_id

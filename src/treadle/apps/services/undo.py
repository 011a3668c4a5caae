"""Undo, redo, rewind and fork: what `treadle sessions` and the terminal UI share.

The log of a session is in treadle.sessions.history, the files in treadle.workspace.checkpoints.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from treadle.core.errors import WorkspaceError
from treadle.core.text import plural
from treadle.core.transcript.entries import NoticeShown
from treadle.sessions.history import TurnInfo, find_turn, fork, list_turns
from treadle.sessions.library import Library

if TYPE_CHECKING:
    from treadle.workspace.checkpoints import Checkpoints
    from treadle.workspace.checkpoints.restore import RestoreResult


def list_changing_turns(session_dir: Path) -> list[TurnInfo]:
    """The turns that changed files, oldest first."""
    return [
        turn
        for turn in list_turns(session_dir)
        if turn.checkpoint_after and turn.checkpoint_before != turn.checkpoint_after
    ]


def find_tree_before(session_dir: Path, turn_id: str) -> str:
    """The files before a turn, or "". A turn without checkpoints has those of the next one."""
    number = find_turn(session_dir, turn_id).number
    later = [turn for turn in list_turns(session_dir) if turn.number >= number]
    return next((turn.checkpoint_before for turn in later if turn.checkpoint_before), "")


async def apply_turn(checkpoints: Checkpoints, turn: TurnInfo, *, is_undo: bool) -> RestoreResult:
    """Undo or redo what a turn changed; files that changed since are skipped."""
    old, new = turn.checkpoint_before, turn.checkpoint_after
    return await checkpoints.apply(new, old) if is_undo else await checkpoints.apply(old, new)


def open_checkpoints(library: Library, folder: Path) -> Checkpoints:
    from treadle.workspace.checkpoints import Checkpoints

    if folder.resolve() != folder:
        raise WorkspaceError(
            f"{folder} is now a symlink to {folder.resolve()}, so no file is restored; "
            "remove the symlink first"
        )
    return Checkpoints(folder, library.checkpoint_dir(folder))


def format_restored(restored: RestoreResult) -> str:
    """`2 files written, 1 file removed`."""
    counts = (("written", len(restored.written)), ("removed", len(restored.removed)))
    parts = [f"{plural(count, 'file')} {verb}" for verb, count in counts if count]
    return ", ".join(parts) or "no files changed"


def list_skipped(restored: RestoreResult) -> list[str]:
    return [f"not restored: {skipped.path} ({skipped.reason})" for skipped in restored.skipped]


async def fork_session(
    library: Library, session_dir: Path, folder: Path, before_turn: str | None = None
) -> str:
    """The id of a new session with the history of this one, up to before a turn."""
    journal, _ = fork(library, session_dir, folder=folder, before_turn=before_turn)
    # An empty log would not be stored.
    journal.append(NoticeShown(f"a fork of {session_dir.name}"))
    await journal.aclose()
    return journal.session_id

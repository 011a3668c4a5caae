"""The stored versions of one file in a session, also those that undo and redo do not go back to.

Reads only. Used by `treadle sessions versions`; the checkpoints are in treadle.workspace.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.sessions.file_history import ChangeCause, list_file_states
from treadle.sessions.history import list_turns

if TYPE_CHECKING:
    from treadle.workspace.checkpoints import Checkpoints
    from treadle.workspace.checkpoints.object_store import TreeNode

_CAUSES: dict[str, str] = {
    "agent": "the agent, in",
    "undo": "undo of",
    "redo": "redo of",
    "rewind": "rewind to before",
}


class FileVersion(msgspec.Struct, frozen=True):
    """`cause` is None for the first one; `turn`: 0 if it has left the conversation. `node` is None
    if there was no file, or if it was not stored."""

    number: int
    time: float
    turn: int
    cause: ChangeCause | None
    node: TreeNode | None

    def describe(self) -> str:
        """`the agent, in turn 2`."""
        turn = f"turn {self.turn}" if self.turn else "a turn that is not in the conversation"
        if self.cause == "user":
            return "you"
        return f"before {turn}" if self.cause is None else f"{_CAUSES[self.cause]} {turn}"


async def list_versions(
    checkpoints: Checkpoints, session_dir: Path, path: str
) -> list[FileVersion]:
    """The versions that differ from the one before, oldest first; empty if none is stored."""
    states = list_file_states(session_dir)
    numbers = {turn.seq: turn.number for turn in list_turns(session_dir)}
    nodes = await checkpoints.find_file([state.tree for state in states], path)
    versions: list[FileVersion] = []
    for state, node in zip(states, nodes, strict=True):
        if versions and versions[-1].node == node:
            continue
        cause = state.cause if versions else None
        turn = numbers.get(state.seq, 0)
        versions.append(FileVersion(len(versions) + 1, state.time, turn, cause, node))
    return versions if any(version.node for version in versions) else []

"""When the agent changed files, and what undo, redo and rewind did to them, from the log.

Knows trees only by their names; workspace/checkpoints has the files. Used by
apps/conversation/undo.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from treadle.core.transcript.entries import Checkpoint, Restore, TurnBegan
from treadle.sessions.log.journal import read_records

# `user`: also another program.
ChangeCause = Literal["agent", "user", "undo", "redo", "rewind"]


class FileState(NamedTuple):
    """The files at one time: their tree, and why they differ from those before. `seq` is the first
    entry of the turn."""

    time: float
    seq: int
    tree: str
    cause: ChangeCause


class WorkSpan(msgspec.Struct, frozen=True):
    """The files before and after the work of a turn; `seq` is the first entry of the turn.

    If the program was killed, the end is the next state that is known, or "" for the current one.
    `agent_files` are the files that only the agent can have changed, `user_files` those that the
    user changed last, after the agent or alone. `is_redo`: it is the redo of the turn; before it,
    the files may be the user's.
    """

    seq: int
    before: str
    after: str = ""
    is_interrupted: bool = False
    agent_files: frozenset[str] = frozenset()
    is_redo: bool = False
    user_files: frozenset[str] = frozenset()


class PastRestore(msgspec.Struct, frozen=True):
    """An undo or a rewind that a redo can take back, and the turns whose changes it took back.

    `is_leftover`: a redo took it back, but left files alone that the user had changed.
    """

    entry_seq: int
    restore: Restore
    tree_before: str
    turn_seqs: frozenset[int]
    is_leftover: bool = False


class FileHistory(msgspec.Struct, frozen=True):
    """Also of turns that a rewind removed from the conversation: their files may be left.

    `last_redo`: the redo of a rewind, if no file was changed after it.
    """

    spans: tuple[WorkSpan, ...]
    restores: tuple[PastRestore, ...]
    last_redo: WorkSpan | None = None

    def list_spans(self, first_seq: int, last_seq: int | None = None) -> list[WorkSpan]:
        """The spans of these turns that are not undone, oldest first."""
        undone = {seq for past in self.restores for seq in past.turn_seqs}
        return [
            span
            for span in self.spans
            if first_seq <= span.seq
            and (last_seq is None or span.seq <= last_seq)
            and span.seq not in undone
        ]

    def list_spans_of(self, turn_seq: int) -> list[WorkSpan]:
        """The spans of a turn, also if it is undone."""
        return [span for span in self.spans if span.seq == turn_seq]

    def list_restores_of(self, turn_seq: int) -> list[PastRestore]:
        """The undos and rewinds that took back changes of this turn."""
        return [past for past in self.restores if turn_seq in past.turn_seqs]


def read_file_history(session_dir: Path) -> FileHistory:
    spans: list[WorkSpan] = []
    restores: list[PastRestore] = []
    last_redo: WorkSpan | None = None
    seq = 0
    for record, entry in read_records(session_dir, kinds=("turn", "checkpoint")):
        match entry:
            case TurnBegan():
                seq = record.seq
            case Checkpoint(restore=None):
                _add_checkpoint(spans, seq, entry)
                last_redo = None
            case Checkpoint(restore=Restore(action="redo") as redo):
                span = WorkSpan(redo.seq, entry.tree, redo.tree, is_redo=True)
                past = _take_back(restores, redo)
                is_undo = past is not None and past.restore.action == "undo"
                if is_undo:
                    _append_span(spans, span)
                last_redo = None if is_undo else span
            case Checkpoint(restore=Restore() as restore):
                last_redo = None
                turns = {span.seq for span in spans if span.seq >= restore.seq}
                covered = {restore.seq} if restore.action == "undo" else turns
                restores.append(PastRestore(record.seq, restore, entry.tree, frozenset(covered)))
            case _:
                pass
    if spans and not spans[-1].after:
        spans[-1] = msgspec.structs.replace(spans[-1], is_interrupted=True)
    return FileHistory(tuple(spans), tuple(restores), last_redo)


def list_file_states(session_dir: Path) -> list[FileState]:
    """All states of the files that the log names, oldest first."""
    states: list[FileState] = []
    seq = 0
    for record, entry in read_records(session_dir):
        match entry:
            case TurnBegan():
                seq = record.seq
            case Checkpoint(restore=None):
                is_first = not states or states[-1].seq != seq
                is_after = entry.side == "after" or (not entry.side and not is_first)
                cause: ChangeCause = "agent" if is_after else "user"
                states.append(FileState(record.time, seq, entry.tree, cause))
            case Checkpoint(restore=Restore() as restore):
                states.append(FileState(record.time, seq, entry.tree, "user"))
                states.append(FileState(record.time, restore.seq, restore.tree, restore.action))
            case _:
                pass
    return states


def _add_checkpoint(spans: list[WorkSpan], seq: int, entry: Checkpoint) -> None:
    last = spans[-1] if spans else None
    is_same_turn = last is not None and last.seq == seq
    # Earlier versions do not say which side it is: the first of a turn is before it.
    if entry.side == "after" or (not entry.side and is_same_turn):
        if last is not None and is_same_turn:
            spans[-1] = msgspec.structs.replace(
                last,
                after=entry.tree,
                agent_files=frozenset(entry.agent_files),
                user_files=frozenset(entry.user_files),
            )
        return
    _append_span(spans, WorkSpan(seq, entry.tree))


def _append_span(spans: list[WorkSpan], span: WorkSpan) -> None:
    if spans and not spans[-1].after:
        spans[-1] = msgspec.structs.replace(spans[-1], after=span.before, is_interrupted=True)
    spans.append(span)


def _take_back(restores: list[PastRestore], redo: Restore) -> PastRestore | None:
    positions = [i for i, past in enumerate(restores) if redo.of in (0, past.entry_seq)]
    if not positions:
        return None
    past = restores.pop(positions[-1])
    if redo.is_partial:
        left = msgspec.structs.replace(past, turn_seqs=frozenset(), is_leftover=True)
        restores.insert(positions[-1], left)
    return past

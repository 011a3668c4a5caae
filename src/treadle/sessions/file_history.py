"""When the agent changed files, and what undo, redo and rewind did to them, from the log.

Knows trees only by their names; workspace/checkpoints has the files. Used by
apps/conversation/undo.py and `treadle sessions versions`.
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
    """The files before and after work of the agent; `seq` is the first entry of its turn.

    If the program was killed, the end is the next state that is known, or "" for the current one.
    `background`: calls in the background that ran alone at a time. `undone`, if it is the redo of
    an undo: the tree that the undo had left.
    """

    seq: int
    before: str
    after: str = ""
    is_interrupted: bool = False
    background: tuple[str, ...] = ()
    undone: str = ""


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

    def list_spans(self, first_seq: int) -> list[WorkSpan]:
        """The spans of this turn and the later ones that are not undone, oldest first."""
        undone = {seq for past in self.restores for seq in past.turn_seqs}
        return [one for one in self.spans if one.seq >= first_seq and one.seq not in undone]

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
            case TurnBegan(continues=False):
                seq = record.seq
            case Checkpoint(restore=None):
                _add_checkpoint(spans, seq, entry)
                last_redo = None
            case Checkpoint(restore=Restore(action="redo") as redo):
                _end_interrupted(spans, entry.tree)
                past, last_redo = _take_back(restores, redo), None
                if past is not None and past.restore.action == "undo":
                    undone = past.restore.tree
                    spans.append(WorkSpan(redo.seq, entry.tree, redo.tree, undone=undone))
                else:
                    last_redo = WorkSpan(redo.seq, entry.tree, redo.tree)
            case Checkpoint(restore=Restore() as restore):
                _end_interrupted(spans, entry.tree)
                last_redo = None
                turns = {span.seq for span in spans if span.seq >= restore.seq}
                covered = {restore.seq} if restore.action == "undo" else turns
                restores.append(PastRestore(record.seq, restore, entry.tree, frozenset(covered)))
            case _:
                pass
    _end_interrupted(spans, "")
    return FileHistory(tuple(spans), tuple(restores), last_redo)


def list_file_states(session_dir: Path) -> list[FileState]:
    """All states of the files that the log names, oldest first."""
    states: list[FileState] = []
    seq = 0
    for record, entry in read_records(session_dir):
        match entry:
            case TurnBegan(continues=False):
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
    # The first version does not say which side it is: the first of a turn is before it.
    is_after = not entry.side and last is not None and last.seq == seq
    if entry.side == "before" or not (is_after or entry.side):
        _end_interrupted(spans, entry.tree)
        spans.append(WorkSpan(seq, entry.tree))
    elif last is not None and (is_after or not last.after):
        spans[-1] = msgspec.structs.replace(last, after=entry.tree, background=entry.background)


def _end_interrupted(spans: list[WorkSpan], tree: str) -> None:
    if spans and not spans[-1].after:
        spans[-1] = msgspec.structs.replace(spans[-1], after=tree, is_interrupted=True)


def _take_back(restores: list[PastRestore], redo: Restore) -> PastRestore | None:
    positions = [i for i, past in enumerate(restores) if redo.of in (0, past.entry_seq)]
    if not positions:
        return None
    past = restores.pop(positions[-1])
    if redo.is_partial:
        left = msgspec.structs.replace(past, turn_seqs=frozenset(), is_leftover=True)
        restores.insert(positions[-1], left)
    return past

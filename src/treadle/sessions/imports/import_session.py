"""Writes a transcript of another agent as a session, which `--resume` continues.

Messages begin turns, calls have their results right after them, a compaction is one: the log is as
if the session had been ours. It has no usage: what the other program spent counts in no budget. A
transcript has one session, whose id follows from its own; nothing of it runs here, also if it ends
in the middle of a turn.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from treadle.core.errors import SessionNotFound, StoreError
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.entries import Entry, ItemAdded, TurnBegan, TurnEnded, ViewRewritten
from treadle.core.transcript.integrity import is_empty, make_interrupted_result
from treadle.core.transcript.items import (
    AssistantItem,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
    UserItem,
)
from treadle.core.transcript.pending import Rest, pending
from treadle.core.transcript.recover import INTERRUPTED
from treadle.core.transcript.state import SessionState, apply, make_turn_id
from treadle.sessions.imports.foreign_session import ForeignSession, ForeignStep, ForeignSummary
from treadle.sessions.library import Library
from treadle.sessions.log.entry_redaction import EntryRedactor
from treadle.sessions.log.reader import FIRST_SEGMENT

MUTATOR = "import"
NO_RESULT = "The transcript has no result of this call."
OPEN_TURN = "The session was imported here, in the middle of a turn. Nothing of it runs any more."


def make_session_id(foreign: ForeignSession) -> str:
    """The id that a transcript has as a session: the same each time."""
    digest = hashlib.sha256(foreign.id.encode()).hexdigest()[:8]
    return f"{foreign.source}-{digest}"


def find_imported(library: Library, foreign: ForeignSession) -> Path | None:
    """The session of a transcript that was imported before."""
    name = make_session_id(foreign)
    try:
        found = library.find(name)
    except SessionNotFound:
        return None
    return found if found.name == name else None


async def import_session(
    library: Library, foreign: ForeignSession, folder: Path, redactor: EntryRedactor
) -> Path:
    """Write a transcript that was not imported yet; the folder of the session."""
    if not any(isinstance(step.value, UserItem) for step in foreign.steps):
        raise StoreError(
            f"{foreign.file}: it cannot be imported: no message of the user can be read"
        )
    times = [step.time or time.time() for step in foreign.steps]
    clock = _Clock(times[0])
    journal = library.create(folder, session_id=make_session_id(foreign), clock=clock.read)
    journal.redactor = redactor
    try:
        # All at once: a killed program leaves the whole session, or none.
        for moment, entry in _list_entries(foreign):
            clock.now = moment or clock.now
            journal.append(entry)
        await journal.flush()
    finally:
        await journal.aclose()
    os.utime(journal.session_dir / FIRST_SEGMENT, (times[-1], times[-1]))
    if foreign.title:
        library.rename(journal.session_dir, foreign.title)
    return journal.session_dir


class _Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def read(self) -> float:
        return self.now


def _list_entries(foreign: ForeignSession) -> Iterator[tuple[float, Entry]]:
    """The entries of the log, each with its time."""
    state, known = SessionState(), set[str]()
    for step in foreign.steps:
        for entry in _list_step(foreign, step, state, known):
            state = apply(state, entry)
            yield step.time, entry
    for entry in _end_turn(state, is_last=True):
        yield foreign.steps[-1].time, entry


def _list_step(
    foreign: ForeignSession, step: ForeignStep, state: SessionState, known: set[str]
) -> Iterator[Entry]:
    match step.value:
        case UserItem() as item if not is_empty(item):
            yield from _end_turn(state)
            yield TurnBegan(make_turn_id(state.turns + 1))
            yield ItemAdded(item)
        case ForeignSummary(text=text) if text.strip():
            length = len(state.transcript)
            summary = SummaryItem(text, length)
            yield ViewRewritten(MUTATOR, 0, length, (summary,), length=length)
        case AssistantItem() as item:
            calls = {call.id: call for call in item.calls if call.id and call.id not in known}
            texts = [part for part in item.content if not isinstance(part, ToolCall)]
            item = msgspec.structs.replace(
                item,
                content=(*texts, *calls.values()),
                stop="tool_use" if calls else "end_turn",
            )
            if is_empty(item):
                return
            known.update(calls)
            yield ItemAdded(item)
            for call in calls.values():
                missing = make_interrupted_result(call, NO_RESULT, "unknown")
                found = foreign.results.get(call.id)
                if found is not None:
                    missing = ToolResultItem(call.id, call.name, found.content, found.is_error)
                yield ItemAdded(missing)


def _end_turn(state: SessionState, *, is_last: bool = False) -> Iterator[Entry]:
    """A turn ends with its answer; one that has none was interrupted."""
    turn = state.turn
    is_answered = isinstance(pending(state.transcript), Rest)
    if not is_answered and is_last:
        yield ItemAdded(NoticeItem(OPEN_TURN, kind=INTERRUPTED, next_move="rest"))
    if turn is not None:
        yield TurnEnded(turn.id, "end_turn" if is_answered else "aborted", "imported")

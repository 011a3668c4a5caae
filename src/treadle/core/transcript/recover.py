"""What an interruption, a crash or a fork leaves open, decided once: a list of entries for the log.

    the turn has its answer, or never began   it ends
    an open round, an unanswered message      stay open: the driver continues them
    an intent without an outcome              stays: the driver probes, or says that it is unknown
    a law is broken (a damaged log)           the view is repaired
    a fork                                    the turn ends: what is open belongs to the other one

Every store, rewind, fork, child and fleet uses these functions. `list_entries` describes a whole
state, for a log that begins with it. Uses integrity.py (the laws) and state.py.
"""

from __future__ import annotations

import msgspec

from treadle.core.transcript.entries import (
    ChildUsageRecorded,
    EarlyResult,
    Entry,
    Forked,
    InputDropped,
    InputQueued,
    Intent,
    ItemAdded,
    Quarantined,
    Rewound,
    TurnBegan,
    TurnEnded,
    UsageRecorded,
    ViewRewritten,
)
from treadle.core.transcript.integrity import make_interrupted_result, repair_round
from treadle.core.transcript.items import NoticeItem
from treadle.core.transcript.pending import AwaitInput, Rest, RunTools, pending
from treadle.core.transcript.state import (
    SessionState,
    TurnState,
    diff_views,
    fold_entries,
    make_turn_id,
)
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import NO_USAGE, Usage

REPAIR = "repair"
INTERRUPTED = "interrupted"  # the kind of a notice: a turn was interrupted after it
CLOSING = "closing"  # the kind of a notice: one more reply, and the turn ends as its data says
FORKED_NOTICE = "The session was forked here, in the middle of a turn. The other one continues it."
FORKED_CALL = "Not run here: the session was forked before the call began."
FORKED_EFFECT = "Outcome unknown: it had begun when the session was forked. It is not run here."


def recover(
    state: SessionState, *, lacks_items: bool = False, lacks_intents: bool = False
) -> list[Entry]:
    """The entries with which a session is continued by another driver; none if nothing is open.

    `lacks_items`: items may be lost, so the positions of parts that a provider rejected are not
    certain; the repair clears them. `lacks_intents`: lines after the last reply are lost. An open
    call without an intent may have run, so it gets an assumed one.
    """
    entries = repair_entries(state, lacks_items=lacks_items, lacks_intents=lacks_intents)
    if entries:
        state = fold_entries(entries, state)
    for number, waiting in enumerate([one for one in state.queued if not one.id], start=1):
        # An earlier version gave it no id.
        entries += [InputDropped(), InputQueued(waiting.item, f"msg_earlier_{number}")]
    turn = state.turn
    if turn is not None and isinstance(pending(state.transcript), (Rest, AwaitInput)):
        reason = _find_end_reason(state)
        entries.append(TurnEnded(turn.id, reason, "the process ended before it"))
    return entries


def recover_fork(state: SessionState, session_id: str) -> list[Entry]:
    """The entries with which a fork of the session `session_id` begins, after its history."""
    entries: list[Entry] = [*repair_entries(state), Forked(session_id)]
    state = fold_entries(entries, state)
    turn, move = state.turn, pending(state.transcript)
    if turn is None and not isinstance(move, RunTools):  # a given history may have open calls
        return entries
    for call in move.calls if isinstance(move, RunTools) else ():
        missing = make_interrupted_result(call, FORKED_CALL)
        if call.id in state.intents:
            missing = make_interrupted_result(call, FORKED_EFFECT, "unknown")
        entries.append(ItemAdded(state.early_results.get(call.id, missing)))
    if not isinstance(move, (Rest, AwaitInput)):
        entries.append(ItemAdded(NoticeItem(FORKED_NOTICE, kind=INTERRUPTED, next_move="rest")))
    if turn is not None:
        entries.append(TurnEnded(turn.id, "aborted", "the session was forked"))
    return entries


def recovered(state: SessionState) -> SessionState:
    """The state with every law kept and nothing half done; the same object if it is so."""
    return fold_entries(recover(state), state)


def is_interrupted(transcript: Transcript) -> bool:
    """Whether the last turn was interrupted, and nothing came after it."""
    last = transcript.last
    return isinstance(last, NoticeItem) and last.kind == INTERRUPTED


def _find_end_reason(state: SessionState) -> str:
    """Why the turn is over: it was interrupted, nothing of it is in the transcript, it had its
    closing reply, or its answer."""
    last, start = state.transcript[-2:], state.last_start
    is_empty = start is not None and len(start.transcript) == len(state.transcript)
    if is_empty or is_interrupted(state.transcript):
        return "aborted"
    if last and isinstance(last[0], NoticeItem) and last[0].kind == CLOSING and last[0].data:
        return str(last[0].data["reason"])
    return "end_turn"


def repair_entries(
    state: SessionState, *, lacks_items: bool = False, lacks_intents: bool = False
) -> list[Entry]:
    """The entries that make a view lawful again; see `recover`. Positions in later entries belong
    to the repaired view; without the repair in the log they would point elsewhere."""
    entries: list[Entry] = []
    transcript, early = repair_round(state.transcript)
    if transcript is not state.transcript or (lacks_items and state.quarantine):
        change = diff_views(REPAIR, state.transcript, transcript)
        entries.append(msgspec.structs.replace(change, is_repair=True))
    known = state.early_results
    entries += [EarlyResult(result) for result in early if result.call_id not in known]
    if lacks_intents and isinstance(move := pending(transcript), RunTools):
        begun = {*state.intents, *known, *(result.call_id for result in early)}
        entries += [
            Intent(call.id, call.name, "", "irreversible", is_assumed=True)
            for call in move.calls
            if call.id not in begun
        ]
    return entries


# --- a whole state -----------------------------------------------------------------------


def list_entries(state: SessionState) -> list[Entry]:
    """Entries for an empty log, of which `fold_entries` makes the state again: of a session that
    begins with the history of another one, or a snapshot. A rewind to a turn before a compaction
    then brings back its whole history."""
    history = state.full_history
    turn = state.turn or TurnState("")
    entries: list[Entry] = [Forked(origin) for origin in reversed(state.origins)]
    entries += _list_usage(state.usage - turn.usage, state.child_usage - turn.child_usage)
    position, open_id, refused = 0, "", frozenset[tuple[int, int]]()
    for start in state.turn_starts:
        length = len(start.full_history)
        entries += [ItemAdded(item) for item in history[position:length]]
        position = max(position, length)
        entries += _end(state, open_id)
        entries += _list_quarantined(start.quarantine - refused)
        refused |= start.quarantine
        open_id = start.turn_id
        nonce = turn.nonce if open_id == turn.id else ""
        entries.append(TurnBegan(open_id, "", nonce, start.continues))
    entries += [ItemAdded(item) for item in history[position:]]
    if state.history is not None:
        entries.append(diff_views("snapshot", state.history, state.transcript))
        refused = frozenset()
    entries += _list_quarantined(state.quarantine - refused)
    if open_id == turn.id:
        entries += _list_usage(turn.usage, turn.child_usage)
    else:
        entries += _end(state, open_id)
    last_id = make_turn_id(state.turns)
    if state.turns and last_id != open_id:  # a turn that was taken back; its number is used
        entries += [TurnBegan(last_id), Rewound(last_id)]
    entries += [*state.decisions.values(), *state.intents.values()]
    entries += [EarlyResult(result) for result in state.early_results.values()]
    entries += [InputQueued(one.item, one.id) for one in state.queued]
    changes = sum([isinstance(entry, (ViewRewritten, Rewound)) for entry in entries])
    # They are counted, so that no request has the key of an earlier one.
    no_change = ViewRewritten("snapshot", 0, 0, (), is_repair=True)
    return [no_change] * (state.view_changes - changes) + entries


def _list_usage(own: Usage, of_children: Usage) -> list[Entry]:
    entries: list[Entry] = [UsageRecorded("", own)] if own != NO_USAGE else []
    return entries + ([ChildUsageRecorded("", "", of_children)] if of_children != NO_USAGE else [])


def _list_quarantined(parts: frozenset[tuple[int, int]]) -> list[Entry]:
    return [Quarantined(position, part, "") for position, part in sorted(parts)]


def _end(state: SessionState, turn_id: str) -> list[Entry]:
    end = state.last_end
    if end is not None and end.turn_id == turn_id:
        return [end]
    return [TurnEnded(turn_id, "end_turn")] if turn_id else []

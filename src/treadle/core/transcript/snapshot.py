"""The entries of a new log that describe a state: `fold_entries` makes the state of them again.

For a session that begins with the history of another one, and for snapshots. What a compaction
replaced is in them. Used by core/loop and core/steps.py.
"""

from __future__ import annotations

from treadle.core.transcript.entries import (
    ChildUsageRecorded,
    EarlyResult,
    Entry,
    Forked,
    InputQueued,
    ItemAdded,
    Quarantined,
    Rewound,
    TurnBegan,
    TurnEnded,
    UsageRecorded,
    ViewRewritten,
)
from treadle.core.transcript.state import SessionState, TurnState, diff_views, make_turn_id
from treadle.core.transcript.usage import NO_USAGE, Usage


def list_entries(state: SessionState) -> list[Entry]:
    """Entries for an empty log. A rewind to a turn before a compaction then brings back its whole
    history."""
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
        entries.append(TurnBegan(open_id))
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

"""The state of a session, and the only function that changes it: `apply(state, entry)`.

The driver appends an entry to the log and applies it; opening, forking, rewinding and replaying a
session fold the same function over its entries. So the live state is always the fold of the log.
The entries are in entries.py; what a crash leaves open is decided in recover.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

import msgspec

from treadle.core.transcript.entries import (
    ApprovalDecision,
    ChildUsageRecorded,
    EarlyResult,
    Entry,
    Forked,
    HeadRecorded,
    InputDropped,
    InputMoved,
    InputQueued,
    Intent,
    ItemAdded,
    Quarantined,
    Rewound,
    Suspended,
    TurnBegan,
    TurnEnded,
    Uncompacted,
    UsageRecorded,
    ViewRewritten,
)
from treadle.core.transcript.items import (
    AssistantItem,
    Metadata,
    NoticeItem,
    ToolResultItem,
    UserItem,
)
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import NO_USAGE, TURN_PURPOSES, Usage

replace = msgspec.structs.replace


class QueuedMessage(msgspec.Struct, frozen=True):
    """A message or a notice that waits for its place in the transcript."""

    id: str
    item: UserItem | NoticeItem


class TurnState(msgspec.Struct, frozen=True):
    """An open turn: its rounds, calls and usage, and the caller's metadata. A round counts when its
    last call has a result."""

    id: str
    rounds: int = 0
    calls: int = 0
    usage: Usage = NO_USAGE
    child_usage: Usage = NO_USAGE
    metadata: Metadata = {}
    nonce: str = ""

    @property
    def key(self) -> str:
        """The part of idempotency keys that says which turn it is."""
        return f"{self.id}.{self.nonce}" if self.nonce else self.id


class TurnStart(msgspec.Struct, frozen=True, eq=False):
    """What a rewind brings back: the view and the history before a turn, and the turn before it."""

    turn_id: str
    transcript: Transcript
    quarantine: frozenset[tuple[int, int]]
    history: Transcript | None
    previous: TurnStart | None
    continues: bool = False  # see TurnBegan

    @property
    def full_history(self) -> Transcript:
        return self.transcript if self.history is None else self.history


class SessionState(msgspec.Struct, frozen=True, eq=False):
    """The state that the log describes: all that a driver needs to continue.

    `turn` is the open one. `history` is the transcript without any replacement; None while there
    was no replacement. `last_usage` is what the provider measured for the view as it is. `origins`
    are the sessions that this one was forked from, the last one first. `view_changes` counts how
    often the view changed otherwise than by growing. `last_end`: how the last turn ended.
    """

    transcript: Transcript = msgspec.field(default_factory=Transcript)
    decisions: dict[str, ApprovalDecision] = {}
    intents: dict[str, Intent] = {}
    early_results: dict[str, ToolResultItem] = {}
    quarantine: frozenset[tuple[int, int]] = frozenset()
    usage: Usage = NO_USAGE
    turns: int = 0
    turn: TurnState | None = None
    queued: tuple[QueuedMessage, ...] = ()
    suspended: Suspended | None = None
    history: Transcript | None = None
    request_head: HeadRecorded | None = None
    child_usage: Usage = NO_USAGE
    last_usage: Usage = NO_USAGE
    last_start: TurnStart | None = None
    origins: tuple[str, ...] = ()
    view_changes: int = 0
    last_end: TurnEnded | None = None

    @property
    def full_history(self) -> Transcript:
        """Every item, also those that compaction took out of the view."""
        return self.transcript if self.history is None else self.history

    @property
    def turn_starts(self) -> list[TurnStart]:
        """The turns that are in the view, oldest first."""
        return list(_list_starts(self))[::-1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SessionState) and not find_differences(self, other)

    __hash__ = None  # type: ignore[assignment]  # compared by value, and long


def fold_entries(entries: Iterable[Entry], view: SessionState | None = None) -> SessionState:
    """The state after these entries, in order."""
    return reduce(apply, entries, view or SessionState())


def apply(state: SessionState, entry: Entry) -> SessionState:
    """The state after one more entry. The cost does not depend on the length of the session."""
    change = _CHANGES.get(type(entry))
    return state if change is None else change(state, entry)


def find_differences(one: SessionState, other: SessionState) -> list[str]:
    """The names of the fields in which two states differ."""
    names = [name for name in SessionState.__struct_fields__ if name != "last_start"]
    found = [name for name in names if getattr(one, name) != getattr(other, name)]
    starts = [
        [(start.turn_id, len(start.transcript), start.quarantine) for start in state.turn_starts]
        for state in (one, other)
    ]
    return found + ["turn_starts"] * (starts[0] != starts[1])


# --- items and messages ------------------------------------------------------------------


def _add_item(state: SessionState, entry: ItemAdded) -> SessionState:
    item = entry.item
    transcript = state.transcript.append(item)
    history = None if state.history is None else state.history.append(item)
    if type(item) is ToolResultItem:
        return _add_result(state, item, transcript, history)
    if type(item) is AssistantItem:
        if state.decisions or state.intents or state.early_results:
            # Of a reply that a damaged log has lost: the ids of its calls may come again.
            state = replace(state, decisions={}, intents={}, early_results={})
        used = item.usage
        return replace(
            state, transcript=transcript, history=history, suspended=None, last_usage=used
        )
    turn = state.turn
    if type(item) is UserItem and turn is not None and item.metadata:
        turn = replace(turn, metadata={**turn.metadata, **item.metadata})
    return replace(
        state,
        transcript=transcript,
        history=history,
        suspended=None,
        turn=turn,
        queued=_without_accepted(state.queued, entry) if state.queued else (),
    )


def _add_result(
    state: SessionState, result: ToolResultItem, transcript: Transcript, history: Transcript | None
) -> SessionState:
    turn, call_id, before = state.turn, result.call_id, state.transcript.last
    if turn is not None:
        if type(before) is AssistantItem:
            ends_round = len(before.calls) == 1
        else:
            ends_round = not isinstance(pending(transcript), RunTools)
        turn = replace(turn, calls=turn.calls + 1, rounds=turn.rounds + ends_round)
    if not (state.decisions or state.intents or state.early_results):
        return replace(state, transcript=transcript, history=history, suspended=None, turn=turn)
    return replace(
        state,
        transcript=transcript,
        history=history,
        suspended=None,
        turn=turn,
        decisions=_without(state.decisions, call_id),
        intents=_without(state.intents, call_id),
        early_results=_without(state.early_results, call_id),
    )


def _without(values: dict[str, Any], key: str) -> dict[str, Any]:
    if key not in values:
        return values
    return {other: value for other, value in values.items() if other != key}


def _without_accepted(
    queued: tuple[QueuedMessage, ...], entry: ItemAdded
) -> tuple[QueuedMessage, ...]:
    """An earlier version gave messages no ids: its first one is meant if it is the same."""
    if entry.message_id:
        return tuple([one for one in queued if one.id != entry.message_id])
    return queued[1:] if not queued[0].id and queued[0].item == entry.item else queued


def _queue(state: SessionState, entry: InputQueued) -> SessionState:
    return replace(state, queued=(*state.queued, QueuedMessage(entry.message_id, entry.item)))


def _drop(state: SessionState, entry: InputDropped) -> SessionState:
    place = _find_place(state.queued, entry)
    return replace(state, queued=state.queued[:place] + state.queued[place + 1 :])


def _move(state: SessionState, entry: InputMoved) -> SessionState:
    queued, place = list(state.queued), _find_place(state.queued, entry)
    if place < len(queued):
        queued.insert(entry.to, queued.pop(place))
    return replace(state, queued=tuple(queued))


def _find_place(queued: tuple[QueuedMessage, ...], entry: InputDropped | InputMoved) -> int:
    """The position that is meant; the length if there is none."""
    if not entry.message_id:
        return entry.index
    ids = [one.id for one in queued]
    return ids.index(entry.message_id) if entry.message_id in ids else len(ids)


# --- turns -------------------------------------------------------------------------------


def _begin_turn(state: SessionState, entry: TurnBegan) -> SessionState:
    turn_id = entry.turn_id
    if entry.continues and state.turn is not None and state.turn.id == turn_id:
        return replace(state, turn=replace(state.turn, nonce=entry.nonce))
    start = TurnStart(
        turn_id,
        state.transcript,
        state.quarantine,
        state.history,
        state.last_start,
        entry.continues,
    )
    last = state.transcript.last
    # A message that was in the history before its turn.
    metadata = (last.metadata or {}) if isinstance(last, UserItem) else {}
    return replace(
        state,
        turns=max(state.turns + 1, _turn_number(turn_id)),
        turn=TurnState(turn_id, metadata=metadata, nonce=entry.nonce),
        suspended=None,
        last_start=start,
    )


def _end_turn(state: SessionState, entry: TurnEnded) -> SessionState:
    return replace(_forget_turn(state), last_end=entry)


def _forget_turn(state: SessionState) -> SessionState:
    return replace(state, turn=None, suspended=None, decisions={}, intents={}, early_results={})


def _rewind(state: SessionState, entry: Rewound) -> SessionState:
    start = next((one for one in _list_starts(state) if one.turn_id == entry.turn_id), None)
    if start is None:
        return state
    return replace(
        _forget_turn(state),
        transcript=start.transcript,
        quarantine=start.quarantine,
        history=start.history,
        last_start=start.previous,
        last_usage=NO_USAGE,
        queued=(),
        view_changes=state.view_changes + 1,
    )


def _list_starts(state: SessionState) -> Iterator[TurnStart]:
    start = state.last_start
    while start is not None:
        yield start
        start = start.previous


def make_turn_id(number: int) -> str:
    return f"turn-{number}"


def _turn_number(turn_id: str) -> int:
    """The number in an id, so that no id comes twice if the line of another turn is lost."""
    number = turn_id.removeprefix("turn-")
    return int(number) if number.isdecimal() else 0


def _fork(state: SessionState, entry: Forked) -> SessionState:
    return replace(
        state,
        usage=NO_USAGE,
        child_usage=NO_USAGE,
        queued=(),
        origins=(entry.session_id, *state.origins),
    )


# --- calls, usage ------------------------------------------------------------------------


def _record_intent(state: SessionState, entry: Intent) -> SessionState:
    if entry.is_withdrawn:
        return replace(state, intents=_without(state.intents, entry.call_id))
    return replace(state, intents={**state.intents, entry.call_id: entry})


def _record_early_result(state: SessionState, entry: EarlyResult) -> SessionState:
    early = {**state.early_results, entry.result.call_id: entry.result}
    return replace(state, early_results=early)


def _record_decision(state: SessionState, entry: ApprovalDecision) -> SessionState:
    return replace(state, decisions={**state.decisions, entry.call_id: entry})


def _add_usage(state: SessionState, entry: UsageRecorded) -> SessionState:
    turn, used, purpose = state.turn, entry.usage, entry.purpose
    if turn is not None and (not purpose or purpose in TURN_PURPOSES):
        turn = replace(turn, usage=turn.usage + used)
    return replace(state, usage=state.usage + used, turn=turn)


def _add_child_usage(state: SessionState, entry: ChildUsageRecorded) -> SessionState:
    turn, used = state.turn, entry.usage
    if turn is not None:
        turn = replace(turn, child_usage=turn.child_usage + used)
    return replace(state, child_usage=state.child_usage + used, turn=turn)


# --- the view ----------------------------------------------------------------------------


def _rewrite(state: SessionState, entry: ViewRewritten) -> SessionState:
    transcript, history = state.transcript, state.history
    if not entry.is_repair:
        history = _keep_summary(state.full_history, transcript, entry)
    # Items that are lost were most likely among the old ones that are replaced. If not, an item is
    # kept that the replacement covers too, but none is lost.
    stop = max(entry.start, entry.stop - _count_lost_items(transcript, entry))
    new = Transcript([*transcript[: entry.start], *entry.items, *transcript[stop:]])
    return _set_view(state, new, history)


def _count_lost_items(transcript: Transcript, change: ViewRewritten) -> int:
    """How many items a damaged log has lost before this replacement."""
    return max(0, change.length - len(transcript))


def _keep_summary(history: Transcript, transcript: Transcript, change: ViewRewritten) -> Transcript:
    """The history that an Uncompacted brings back: of items that are lost, the summary is left."""
    if not _count_lost_items(transcript, change):
        return history
    before = transcript[: change.start]
    is_same = len(history) >= len(before) and all(map(operator.is_, history, before))
    start = change.start if is_same else 0
    return Transcript([*history[:start], *change.items, *history[start:]])


def _uncompact(state: SessionState, entry: Uncompacted) -> SessionState:
    return _set_view(state, state.full_history, None)


def _set_view(
    state: SessionState, transcript: Transcript, history: Transcript | None
) -> SessionState:
    return replace(
        state,
        transcript=transcript,
        history=history,
        quarantine=frozenset(),
        last_usage=NO_USAGE,
        view_changes=state.view_changes + 1,
    )


def _quarantine(state: SessionState, entry: Quarantined) -> SessionState:
    return replace(state, quarantine=state.quarantine | {(entry.position, entry.part)})


_CHANGES: dict[type, Callable[[SessionState, Any], SessionState]] = {
    ItemAdded: _add_item,
    InputQueued: _queue,
    InputDropped: _drop,
    InputMoved: _move,
    TurnBegan: _begin_turn,
    TurnEnded: _end_turn,
    Rewound: _rewind,
    Forked: _fork,
    Intent: _record_intent,
    EarlyResult: _record_early_result,
    ApprovalDecision: _record_decision,
    UsageRecorded: _add_usage,
    ChildUsageRecorded: _add_child_usage,
    ViewRewritten: _rewrite,
    Uncompacted: _uncompact,
    Quarantined: _quarantine,
    HeadRecorded: lambda state, entry: replace(state, request_head=entry),
    Suspended: lambda state, entry: replace(state, suspended=entry),
}


def diff_views(mutator: str, old: Transcript, new: Transcript) -> ViewRewritten:
    """The smallest single replacement that turns the old view into the new one."""
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and old[start] is new[start]:
        start += 1
    tail = 0
    while tail < shorter - start and old[-1 - tail] is new[-1 - tail]:
        tail += 1
    items = tuple(new[start : len(new) - tail])
    return ViewRewritten(mutator, start, len(old) - tail, items, length=len(old))

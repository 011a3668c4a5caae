"""What a crash, an interruption and a fork leave open, for every store alike."""

from __future__ import annotations

import pytest

from treadle.core.transcript import (
    AssistantItem,
    NoticeItem,
    Text,
    ToolCall,
    ToolResultItem,
    to_user_item,
)
from treadle.core.transcript.entries import (
    EarlyResult,
    Entry,
    InputDropped,
    InputMoved,
    InputQueued,
    Intent,
    ItemAdded,
    Rewound,
    TurnBegan,
    TurnEnded,
    UsageRecorded,
)
from treadle.core.transcript.pending import Rest, RunTools, pending
from treadle.core.transcript.recover import recover, recover_fork
from treadle.core.transcript.state import SessionState, apply, find_differences, fold_entries
from treadle.core.transcript.usage import Usage

ASKED: list[Entry] = [TurnBegan("turn-1"), ItemAdded(to_user_item("go"))]
CALLS = ItemAdded(AssistantItem((ToolCall("a", "pay", "{}"), ToolCall("b", "pay", "{}"))))
ANSWER = ItemAdded(AssistantItem((Text("done"),)))
CLOSE = {"reason": "max_turns", "detail": "the limit is reached", "closing_tokens": 1000}
PAID = ToolResultItem("b", "pay", (Text("paid"),))


def state_of(*entries: Entry) -> SessionState:
    return fold_entries(entries)


@pytest.mark.parametrize(
    ("entries", "ended"),
    [
        ([*ASKED, ANSWER], ["end_turn"]),
        ([TurnBegan("turn-1")], ["aborted"]),
        ([*ASKED, ANSWER, TurnEnded("turn-1", "end_turn"), TurnBegan("turn-2")], ["aborted"]),
        ([*ASKED, ItemAdded(NoticeItem("x", kind="interrupted", next_move="rest"))], ["aborted"]),
        ([*ASKED, ItemAdded(NoticeItem("x", "closing", "ask", CLOSE)), ANSWER], ["max_turns"]),
        (ASKED, []),
        ([*ASKED, CALLS, Intent("a", "pay", "k", "irreversible")], []),
        ([*ASKED, ANSWER, TurnEnded("turn-1", "end_turn")], []),
    ],
)
def test_a_turn_that_has_its_end_is_ended_and_any_other_stays_open(
    entries: list[Entry], ended: list[str]
):
    recovery = recover(state_of(*entries))
    assert [entry.reason for entry in recovery if isinstance(entry, TurnEnded)] == ended
    assert len(recovery) == len(ended)


def test_a_fork_in_the_middle_of_a_round_ends_it_and_runs_nothing():
    parent = state_of(
        *ASKED,
        UsageRecorded("m", Usage(input=5, requests=1)),
        CALLS,
        Intent("a", "pay", "k", "irreversible"),
        EarlyResult(PAID),
        InputQueued(to_user_item("wait"), "msg_1"),
    )
    fork = fold_entries(recover_fork(parent, "parent"), parent)
    results = [item for item in fork.transcript if isinstance(item, ToolResultItem)]
    assert [(item.call_id, item.outcome) for item in results] == [
        ("a", "unknown"),
        ("b", "finished"),
    ]
    assert isinstance(pending(fork.transcript), Rest)
    assert (fork.turn, fork.queued, fork.usage, fork.origins) == (None, (), Usage(), ("parent",))
    assert parent.queued != ()


def test_messages_are_known_by_their_id():
    state = state_of(
        InputQueued(to_user_item("same"), "one"),
        InputQueued(to_user_item("same"), "two"),
        InputQueued(to_user_item("third"), "three"),
        InputMoved(2, 0, "three"),
        InputDropped(message_id="one"),
    )
    assert [message.id for message in state.queued] == ["three", "two"]
    state = apply(state, ItemAdded(to_user_item("same"), "four"))  # another one, of a run
    state = apply(state, ItemAdded(to_user_item("same"), "two"))
    assert [message.id for message in state.queued] == ["three"]


def test_messages_of_an_earlier_version_get_ids():
    old = state_of(InputQueued(to_user_item("a")), InputQueued(to_user_item("b")))
    state = fold_entries(recover(old), old)
    assert [one.item for one in state.queued] == [to_user_item("a"), to_user_item("b")]
    assert len({one.id for one in state.queued} - {""}) == 2


def test_a_rewind_brings_back_the_view_before_the_turn():
    before = state_of(*ASKED, ANSWER, TurnEnded("turn-1", "end_turn"))
    later = fold_entries(
        [TurnBegan("turn-2"), ItemAdded(to_user_item("more")), CALLS, Rewound("turn-2")], before
    )
    assert later.transcript == before.transcript
    assert [start.turn_id for start in later.turn_starts] == ["turn-1"]
    assert find_differences(before, later) == ["turns", "view_changes"]


def test_a_repair_renames_the_older_call_not_the_open_one_that_has_an_intent():
    earlier = [ItemAdded(AssistantItem((ToolCall("b", "pay", "{}"),))), ItemAdded(PAID), ANSWER]
    begun = Intent("b", "pay", "k", "irreversible")
    state = state_of(*ASKED, *earlier, ItemAdded(to_user_item("again")), CALLS, begun)
    state = fold_entries(recover(state), state)
    move = pending(state.transcript)
    assert isinstance(move, RunTools)
    assert [call.id for call in move.calls] == ["a", "b"]
    assert list(state.intents) == ["b"]
    first = next(item for item in state.transcript if isinstance(item, AssistantItem))
    assert [call.id for call in first.calls] == ["b_1"]

"""The laws of a transcript, and that every repair keeps them all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.transcript import (
    AssistantItem,
    Item,
    NoticeItem,
    SummaryItem,
    Text,
    ToolCall,
    ToolResultItem,
    Transcript,
    UserItem,
    user,
)
from treadle.core.transcript.integrity import LAWS, repaired, violations
from treadle.core.transcript.pending import AskModel, AwaitInput, Rest, RunTools, pending

ONE, TWO = ToolCall("1", "look", "{}"), ToolCall("2", "look", "{}")
CALLS = AssistantItem((Text("Looking."), ONE, TWO), "tool_use")


def result(call: ToolCall) -> ToolResultItem:
    return ToolResultItem(call.id, call.name, (Text("seen"),))


def named(items: list[Item]) -> set[str]:
    return {violation.law for violation in violations(items)}


def test_a_lawful_history_has_no_violations():
    items: list[Item] = [user("go"), CALLS, result(ONE), result(TWO), AssistantItem((Text("x"),))]
    assert violations(items) == []
    assert repaired(transcript := Transcript(items)) is transcript


def test_the_calls_of_the_last_reply_may_be_open():
    assert violations([user("go"), CALLS]) == []
    assert violations([user("go"), CALLS, result(ONE)]) == []


@pytest.mark.parametrize(
    ("items", "law"),
    [
        ([user("go"), CALLS, user("stop")], "calls_answered_once"),
        ([user("go"), CALLS, result(TWO), result(ONE)], "calls_answered_once"),
        ([user("go"), CALLS, result(ONE), result(ONE), result(TWO)], "calls_answered_once"),
        ([user("go"), CALLS, result(ONE), user("x"), result(TWO)], "calls_answered_once"),
        ([user("go"), result(ONE)], "answers_belong"),
        ([user("go"), AssistantItem((ToolCall("", "look", "{}"),))], "call_ids_unique"),
        ([user("go"), AssistantItem((ONE, ONE))], "call_ids_unique"),
        ([user("")], "no_empty_items"),
        ([user("go"), AssistantItem(())], "no_empty_items"),
        ([NoticeItem(" ")], "no_empty_items"),
        ([AssistantItem((Text("hello"),))], "begins_with_input"),
    ],
)
def test_each_breach_is_named_and_can_be_repaired(items: list[Item], law: str):
    assert law in named(items)
    assert violations(repaired(Transcript(items))) == []


def test_a_missing_answer_is_made_up_and_says_so():
    mended = repaired(Transcript([user("go"), CALLS, result(TWO), user("next")]))
    first = mended[2]
    assert isinstance(first, ToolResultItem)
    assert (first.call_id, first.is_error) == ("1", True)
    assert "unknown" in first.text


call = st.builds(ToolCall, st.sampled_from(["", "a", "b", "c"]), st.just("look"), st.just("{}"))
items = st.lists(
    st.one_of(
        st.builds(user, st.sampled_from(["", "hi"])),
        st.builds(
            AssistantItem,
            st.lists(st.one_of(call, st.builds(Text, st.sampled_from(["", "x"])))).map(tuple),
        ),
        st.builds(
            ToolResultItem,
            st.sampled_from(["", "a", "b", "c", "d"]),
            st.just("look"),
            st.just((Text("r"),)),
        ),
        st.builds(NoticeItem, st.sampled_from(["", "n"]), then=st.sampled_from(["same", "ask"])),
        st.builds(SummaryItem, st.just("s")),
    ),
    max_size=12,
)


@given(items)
def test_any_history_can_be_repaired_and_then_every_law_holds(history: list[Item]):
    mended = repaired(Transcript(history))
    assert [law.name for law in LAWS if law.check(mended)] == []
    assert repaired(mended) is mended


@given(items)
def test_a_repair_never_loses_what_a_person_said(history: list[Item]):
    said = [item for item in history if isinstance(item, UserItem) and item.text]
    assert [item for item in repaired(Transcript(history)) if isinstance(item, UserItem)] == said


@pytest.mark.parametrize(
    ("history", "move"),
    [
        ([], AwaitInput()),
        ([user("go")], AskModel()),
        ([SummaryItem("before")], AskModel()),
        ([user("go"), CALLS], RunTools((ONE, TWO))),
        ([user("go"), CALLS, result(ONE)], RunTools((TWO,))),
        ([user("go"), CALLS, result(ONE), result(TWO)], AskModel()),
        ([user("go"), AssistantItem((Text("x"),))], Rest(AssistantItem((Text("x"),)))),
        ([user("go"), AssistantItem((Text("x"),), "pause")], AskModel()),
        ([user("go"), NoticeItem("n")], AskModel()),
        ([user("go"), NoticeItem("n", then="rest")], Rest(None)),
        ([user("go"), AssistantItem((Text("x"),)), NoticeItem("n", then="ask")], AskModel()),
        ([NoticeItem("n")], AwaitInput()),
    ],
)
def test_the_next_move_is_read_off_the_transcript(history: list[Item], move: object):
    assert pending(Transcript(history)) == move

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
    integrity,
    to_user_item,
)
from treadle.core.transcript.integrity import LAWS, find_violations, repaired
from treadle.core.transcript.pending import AskModel, AwaitInput, Rest, RunTools, pending

ONE, TWO = ToolCall("1", "look", "{}"), ToolCall("2", "look", "{}")
CALLS = AssistantItem((Text("Looking."), ONE, TWO), "tool_use")


def result(call: ToolCall) -> ToolResultItem:
    return ToolResultItem(call.id, call.name, (Text("seen"),))


def named(items: list[Item]) -> set[str]:
    return {violation.law for violation in find_violations(items)}


def test_a_lawful_history_has_no_violations():
    items: list[Item] = [
        to_user_item("go"),
        CALLS,
        result(ONE),
        result(TWO),
        AssistantItem((Text("x"),)),
    ]
    assert find_violations(items) == []
    assert repaired(transcript := Transcript(items)) is transcript


def test_the_calls_of_the_last_reply_may_be_open():
    assert find_violations([to_user_item("go"), CALLS]) == []
    assert find_violations([to_user_item("go"), CALLS, result(ONE)]) == []


@pytest.mark.parametrize(
    ("items", "law"),
    [
        ([to_user_item("go"), CALLS, to_user_item("stop")], "calls_answered_once"),
        ([to_user_item("go"), CALLS, result(TWO), result(ONE)], "calls_answered_once"),
        ([to_user_item("go"), CALLS, result(ONE), result(ONE), result(TWO)], "calls_answered_once"),
        (
            [to_user_item("go"), CALLS, result(ONE), to_user_item("x"), result(TWO)],
            "calls_answered_once",
        ),
        ([to_user_item("go"), result(ONE)], "answers_belong"),
        (
            [CALLS, result(ONE), result(TWO), AssistantItem((Text("x"),)), result(ONE)],
            "answers_belong",
        ),
        ([to_user_item("go"), AssistantItem((ToolCall("", "look", "{}"),))], "call_ids_unique"),
        ([to_user_item("go"), AssistantItem((ONE, ONE))], "call_ids_unique"),
        ([to_user_item("")], "no_empty_items"),
        ([to_user_item("go"), AssistantItem(())], "no_empty_items"),
        ([NoticeItem(" ")], "no_empty_items"),
    ],
)
def test_each_breach_is_named_and_can_be_repaired(items: list[Item], law: str):
    assert law in named(items)
    assert find_violations(repaired(Transcript(items))) == []


def test_a_history_that_begins_with_a_reply_stays_as_it_is():
    given = Transcript([AssistantItem((Text("hello"),)), to_user_item("go")])
    assert repaired(given) is given


def test_a_missing_answer_is_made_up_and_says_so():
    mended = repaired(Transcript([to_user_item("go"), CALLS, result(TWO), to_user_item("next")]))
    first = mended[2]
    assert isinstance(first, ToolResultItem)
    assert (first.call_id, first.is_error) == ("1", True)
    assert "unknown" in first.text


call = st.builds(ToolCall, st.sampled_from(["", "a", "b", "c"]), st.just("look"), st.just("{}"))
items = st.lists(
    st.one_of(
        st.builds(to_user_item, st.sampled_from(["", "hi"])),
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
        st.builds(
            NoticeItem, st.sampled_from(["", "n"]), next_move=st.sampled_from(["same", "ask"])
        ),
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
def test_no_violation_is_overlooked_by_the_quick_look(history: list[Item]):
    each = [violation for law in LAWS for violation in law.check(history)]
    assert find_violations(history) == each
    assert integrity._is_lawful(history) is not bool(each)


@given(items)
def test_a_repair_never_loses_what_a_person_said(history: list[Item]):
    said = [item for item in history if isinstance(item, UserItem) and item.text]
    assert [item for item in repaired(Transcript(history)) if isinstance(item, UserItem)] == said


@pytest.mark.parametrize(
    ("history", "move"),
    [
        ([], AwaitInput()),
        ([to_user_item("go")], AskModel()),
        ([SummaryItem("before")], AskModel()),
        ([to_user_item("go"), CALLS], RunTools((ONE, TWO))),
        ([to_user_item("go"), CALLS, result(ONE)], RunTools((TWO,))),
        ([to_user_item("go"), CALLS, result(ONE), result(TWO)], AskModel()),
        ([to_user_item("go"), AssistantItem((Text("x"),))], Rest(AssistantItem((Text("x"),)))),
        ([to_user_item("go"), AssistantItem((Text("x"),), "pause")], AskModel()),
        ([to_user_item("go"), NoticeItem("n")], AskModel()),
        ([to_user_item("go"), NoticeItem("n", next_move="rest")], Rest(None)),
        (
            [to_user_item("go"), AssistantItem((Text("x"),)), NoticeItem("n", next_move="ask")],
            AskModel(),
        ),
        ([NoticeItem("n")], AwaitInput()),
    ],
)
def test_the_next_move_is_read_off_the_transcript(history: list[Item], move: object):
    assert pending(Transcript(history)) == move

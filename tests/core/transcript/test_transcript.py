from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.transcript import (
    AssistantItem,
    Item,
    NoticeItem,
    Text,
    ToolCall,
    ToolResultItem,
    Transcript,
    Usage,
    UserItem,
    to_user_item,
)
from treadle.core.transcript.content import Image, Thinking, parse_arguments
from treadle.core.transcript.entries import ViewRewritten
from treadle.core.transcript.items import SummaryItem
from treadle.core.transcript.state import SessionState, apply, diff_views


def test_appending_gives_a_longer_one_and_leaves_the_old_as_it_was():
    one = Transcript([to_user_item("a")])
    two = one.append(to_user_item("b"))
    assert [len(one), len(two)] == [1, 2]
    assert list(one) == [to_user_item("a")]


def test_two_that_grow_from_one_do_not_see_each_other():
    root = Transcript([to_user_item("a")])
    left, right = root.append(to_user_item("left")), root.append(to_user_item("right"))
    assert [left[1], right[1]] == [to_user_item("left"), to_user_item("right")]
    assert left.cache is not right.cache


def test_what_an_encoder_keeps_is_shared_by_every_prefix():
    root = Transcript([to_user_item("a")])
    root.cache["wire"] = ["encoded a"]
    assert root.append(to_user_item("b")).cache["wire"] == ["encoded a"]


def test_call_ids_are_known():
    calls = Transcript().append(AssistantItem((ToolCall("c1", "x", "{}"),)))
    assert calls.has_call_id("c1")
    assert not calls.has_call_id("c2")


def test_it_is_a_sequence():
    three = Transcript([to_user_item(text) for text in "abc"])
    assert three[-1] == to_user_item("c")
    assert three[1:] == [to_user_item("b"), to_user_item("c")]
    with pytest.raises(IndexError):
        three[3]
    assert three == Transcript(three)
    assert three != Transcript(three[:2])


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_the_difference_leads_from_one_view_to_the_other(old: list[int], new: list[int]):
    kept: list[Item] = [to_user_item(str(n)) for n in range(4)]
    before, after = Transcript(kept[n] for n in old), Transcript(kept[n] for n in new)
    change = diff_views("test", before, after)
    assert apply(SessionState(before), change).transcript == after
    again = msgspec.json.decode(msgspec.json.encode(change), type=ViewRewritten)
    assert apply(SessionState(before), again).transcript == after


@pytest.mark.parametrize(
    ("raw", "expected"),
    [("", {}), ("  ", {}), ("{}", {}), ('{"a": [1, {"b": null}]}', {"a": [1, {"b": None}]})],
)
def test_arguments_are_read(raw: str, expected: object):
    assert parse_arguments(raw) == expected


@pytest.mark.parametrize("raw", ["{", "[]", "null", "1", '"x"', '{"a":Infinity}', "{" * 100_000])
def test_arguments_that_are_not_one_object_are_refused_in_words(raw: str):
    assert isinstance(parse_arguments(raw), str)


@given(st.text())
def test_a_call_is_parsed_once_and_never_raises(raw: str):
    call = ToolCall("c", "x", raw)
    assert (call.arguments is None) == (call.problem is not None)
    assert call.parsed is call.parsed


def test_usage_adds_up_and_an_unknown_cost_stays_unknown():
    total = Usage(1, 2, 3, 4, 5, 1, 0.5) + Usage(1, 1, 1, 1, 1, 1, 0.25)
    assert total == Usage(2, 3, 4, 5, 6, 2, 0.75)
    assert (total + Usage(cost=None)).cost is None
    assert Usage(1, 2, 3, 4).total == 10


def test_text_of_an_item_joins_its_parts():
    assert AssistantItem((Text("a"), ToolCall("c", "x", "{}"), Text("b"))).text == "ab"


def test_a_transcript_as_json_is_the_same_again():
    call = ToolCall("c1", "look", '{"word": "\\ud83d"}')
    transcript = Transcript(
        [
            UserItem(
                (Text("Hi, \ud83d"), Image("image/png", b"\x00\xff")), metadata={"user": "u7"}
            ),
            AssistantItem((Thinking("so", "sig"), call), "tool_use", "m", Usage(input=3)),
            ToolResultItem("c1", "look", (Text("seen"),), data={"n": [1, None]}),
            NoticeItem("Half is spent."),
            SummaryItem("It was said.", 2),
        ]
    )
    data = transcript.to_json()
    assert Transcript.from_json(data) == Transcript.from_json(data.decode()) == transcript


@pytest.mark.parametrize("data", [b"{}", "nothing", b'[{"type": "later"}]', b"\xff[", b'["\\ud8"]'])
def test_what_is_no_transcript_is_an_error(data: bytes | str):
    with pytest.raises(ValueError, match="not a transcript as JSON"):
        Transcript.from_json(data)

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.models.embedded.tool_specs import ADD, CODING, spec
from treadle.core.transcript.content import ToolCall
from treadle.models.embedded.grammar import ReplyReader, build_grammar, quote_literal
from treadle.models.embedded.small_toolset import format_call, select_small_tools, to_compact_json


def test_a_dozen_tools_become_the_few_that_a_small_model_can_handle() -> None:
    words = [offer.short_name for offer in select_small_tools(CODING)]
    assert words == ["ls", "read", "grep", "glob", "bash", "edit", "write"]


def test_a_tool_is_recognised_by_its_name_and_its_schema() -> None:
    assert select_small_tools([spec("read", mailbox="string")])[0].fields[0].short_name == "mailbox"
    (edit,) = select_small_tools(
        [spec("str_replace", path="string", old_str="string", new_str="string")]
    )
    assert edit.short_name == "edit"
    given = {"path": "a", "old": "b", "new": "c"}
    assert edit.to_real_arguments(given) == {"path": "a", "old_str": "b", "new_str": "c"}


def test_a_listing_is_composed_of_a_shell_when_there_is_no_tool_for_it() -> None:
    listing = next(offer for offer in select_small_tools(CODING) if offer.short_name == "ls")
    assert listing.real_name == "Bash"
    assert listing.to_real_arguments({"path": "my docs; rm x"}) == {
        "command": "ls -a 'my docs; rm x'"
    }


def test_a_tool_with_arguments_that_are_not_plain_is_not_offered() -> None:
    assert [offer.short_name for offer in select_small_tools([ADD, CODING[-1]])] == ["add"]


def test_a_call_of_the_history_is_shown_in_the_small_models_words() -> None:
    offers = select_small_tools(CODING)
    read = ToolCall("1", "Read", '{"file_path":"a.py","offset":3}')
    assert format_call(read, offers) == '{"tool":"read","path":"a.py"}'
    assert format_call(ToolCall("2", "Bash", '{"command":"ls -a src"}'), offers) == (
        '{"tool":"ls","path":"src"}'
    )
    assert format_call(ToolCall("3", "other", '{"x":1}'), offers) == '{"tool":"other","x":1}'


# What the grammar lets a model write: no control characters but these two.
SAYABLE = st.characters(exclude_categories=("Cc", "Cs")) | st.sampled_from("\n\t")


@given(st.text(SAYABLE, max_size=40), st.data())
def test_an_answer_is_read_the_same_however_it_is_split(answer: str, data: st.DataObject) -> None:
    raw = to_compact_json({"answer": answer})
    reader, text, rest = ReplyReader(), "", raw
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        text += reader.feed(rest[:size])
        rest = rest[size:]
    assert text == answer
    assert reader.finish().answer == answer
    assert not reader.finish().is_cut


def test_a_cut_answer_keeps_what_was_said_and_a_cut_call_is_no_call() -> None:
    reader = ReplyReader()
    assert reader.feed('{"answer":"half a sen') == "half a sen"
    assert reader.finish().is_cut
    reader = ReplyReader()
    assert reader.feed('{"tool":"read","pa') == ""
    assert reader.finish().tool == ""
    assert reader.finish().is_cut


def test_the_grammar_offers_each_call_and_the_answer() -> None:
    rules = build_grammar(select_small_tools(CODING))
    assert rules.splitlines()[0].count("|") == 7
    assert "answer" not in build_grammar(select_small_tools([ADD]), may_answer=False)


@given(st.text(alphabet='ab"\\\n\t', max_size=12))
def test_a_literal_is_quoted_as_the_grammar_wants_it(text: str) -> None:
    assert json.loads(quote_literal(text)) == text

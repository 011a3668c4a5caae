"""The encoded transcript, with the Anthropic encoder: what merges, what pairs, what is reused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Hashable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.contracts.model import ModelRequest
from treadle.core.errors import ContextTooLong
from treadle.core.transcript import (
    AssistantItem,
    Image,
    Item,
    NoticeItem,
    SummaryItem,
    Text,
    Thinking,
    ToolCall,
    ToolResultItem,
    Transcript,
    to_user_item,
)
from treadle.core.transcript.items import ResultNote
from treadle.models.anthropic.encoding import LIMITS, AnthropicEncoder
from treadle.models.openai_chat import OpenAIChat
from treadle.models.openai_chat.encoding import ChatEncoder
from treadle.models.openai_responses.encoding import ResponsesEncoder
from treadle.models.provider_base.encoding import (
    EncodedTranscript,
    encode_json_string,
    encode_transcript,
    locate_block,
)
from treadle.models.provider_base.quirks import OPENAI
from treadle.testing.provider import ServerLimits
from treadle.testing.provider.dialects.anthropic import FakeAnthropic

DIALECT = AnthropicEncoder()
WITH_SYSTEM_ROLE = AnthropicEncoder(has_system_notices=True)
ENCODERS = [DIALECT, ChatEncoder(OPENAI), ResponsesEncoder(OPENAI)]
NOTHING: frozenset[tuple[int, int]] = frozenset()


def messages(
    transcript: Transcript,
    quarantine: frozenset[tuple[int, int]] = NOTHING,
    encoder: AnthropicEncoder = DIALECT,
    mark: bytes = b"",
) -> list[dict[str, Any]]:
    pieces = encode_transcript(encoder, transcript, quarantine).messages(mark)
    decoded: list[dict[str, Any]] = json.loads(b"[" + b"".join(pieces) + b"]")
    return decoded


def reply(*ids: str, text: str = "") -> AssistantItem:
    calls = [ToolCall(call_id, "f", "{}") for call_id in ids]
    return AssistantItem((*([Text(text)] if text else []), *calls))


def answer(call_id: str, text: str = "ok") -> ToolResultItem:
    return ToolResultItem(call_id, "f", (Text(text),))


def kinds(transcript: Transcript) -> list[tuple[str, list[str]]]:
    return [(m["role"], [block["type"] for block in m["content"]]) for m in messages(transcript)]


def test_roles_alternate_because_neighbours_of_one_role_merge():
    transcript = Transcript(
        [
            SummaryItem("earlier"),
            to_user_item("go"),
            reply("a", "b"),
            answer("a"),
            answer("b"),
            NoticeItem("hurry"),
            to_user_item("steered"),
            reply(text="done"),
        ]
    )
    assert kinds(transcript) == [
        ("user", ["text", "text"]),
        ("assistant", ["tool_use", "tool_use"]),
        ("user", ["tool_result", "tool_result", "text", "text"]),
        ("assistant", ["text"]),
    ]


def test_a_call_without_an_answer_gets_one_and_an_answer_without_a_call_is_dropped():
    transcript = Transcript(
        [
            to_user_item("go"),
            reply("a", "b"),
            answer("a"),
            answer("zzz"),
            answer("a"),
            to_user_item("well?"),
        ]
    )
    (_, _, last) = messages(transcript)
    assert [block.get("tool_use_id") for block in last["content"]] == ["a", "b", None]
    assert last["content"][1]["is_error"] is True


def test_the_open_calls_at_the_end_are_answered_in_this_request_only():
    transcript = Transcript([to_user_item("go"), reply("a", "b"), answer("a")])
    assert [b["tool_use_id"] for b in messages(transcript)[-1]["content"]] == ["a", "b"]
    longer = transcript.append(answer("b", "late"))
    assert messages(longer)[-1]["content"][1]["content"] == "late"


def test_repeated_and_illegal_ids_are_rewritten_with_their_answers():
    transcript = Transcript(
        [
            to_user_item("go"),
            reply("x", "x", "a b"),
            answer("x", "one"),
            answer("x", "two"),
            answer("a b", "three"),
            reply("x"),
            answer("x", "four"),
        ]
    )
    sent = messages(transcript)
    calls = [b["id"] for m in sent if m["role"] == "assistant" for b in m["content"]]
    answers = [b["tool_use_id"] for m in sent[1:] if m["role"] == "user" for b in m["content"]]
    assert calls == answers
    assert len(set(calls)) == 4


def test_a_history_that_begins_with_a_reply_gets_a_beginning():
    sent = messages(Transcript([reply(text="as I said"), to_user_item("go on")]))
    assert [m["role"] for m in sent] == ["user", "assistant", "user"]


def test_a_reply_of_nothing_but_foreign_thinking_is_not_sent():
    silent = AssistantItem((Thinking("hm", "sig", origin="other"),))
    assert kinds(Transcript([to_user_item("a"), silent, to_user_item("b")])) == [
        ("user", ["text", "text"])
    ]


def test_lone_surrogates_do_not_break_the_request():
    assert json.loads(encode_json_string("a\ud800b")) == "a\ufffdb"
    assert encode_json_string("plain €") == msgspec.json.encode("plain €")


def test_a_request_begins_with_the_bytes_of_the_one_before():
    transcript = Transcript([to_user_item("start")])
    previous = b""
    for number in range(300):
        body = b"".join(encode_transcript(DIALECT, transcript, NOTHING).messages())
        assert body.startswith(previous), number
        assert body.endswith(b"]}")
        previous = body[:-2]
        transcript = transcript.extend([reply(f"c{number}"), answer(f"c{number}", "x" * 700)])


def test_only_new_items_are_encoded():
    class Counting(AnthropicEncoder):
        key: Hashable = "counting"
        said_to = 0

        def encode_reply(self, parts):
            self.said_to += 1
            return super().encode_reply(parts)

    encoder = Counting()
    transcript = Transcript([to_user_item("start")])
    for number in range(200):
        encode_transcript(encoder, transcript, NOTHING)
        transcript = transcript.extend([reply(f"c{number}"), answer(f"c{number}", "y" * 600)])
    assert encoder.said_to == 199
    pieces = encode_transcript(encoder, transcript, NOTHING).messages()
    assert len(pieces) < 200, "what is settled is joined into few pieces"


def test_an_older_transcript_of_the_same_list_is_still_itself():
    short = Transcript([to_user_item("one")])
    long = short.extend([reply(text="two"), to_user_item("three")])
    assert len(messages(long)) == 3
    assert len(messages(short)) == 1
    fork = short.append(to_user_item("else"))
    assert [b["text"] for b in messages(fork)[0]["content"]] == ["one", "else"]
    assert len(messages(long)) == 3


def test_two_marks_stand_on_the_newest_input_and_on_the_one_before_the_reply():
    transcript = Transcript(
        [to_user_item("go"), reply("a"), answer("a"), reply("b", "c"), answer("b"), answer("c")]
    )
    mark = b',"cache_control":1'
    sent = messages(transcript, mark=mark)
    marked = [[n for n, b in enumerate(m["content"]) if "cache_control" in b] for m in sent]
    assert marked == [[], [], [0], [], [1]]


def test_marks_never_stand_on_a_reply():
    made_up = Transcript([reply("a"), reply("b"), answer("b")])
    for message in messages(made_up, mark=b',"cache_control":1'):
        if message["role"] == "assistant":
            assert not any("cache_control" in block for block in message["content"])


def test_quarantine_changes_only_its_part_and_is_kept_for_longer_transcripts():
    transcript = Transcript(
        [to_user_item("fine"), reply(text="ok"), to_user_item("poison"), reply(text="hm")]
    )
    assert "poison" in str(messages(transcript))
    quarantined = frozenset({(2, 0)})
    sent = messages(transcript, quarantined)
    assert "poison" not in str(sent)
    assert "left out" in sent[2]["content"][0]["text"]
    assert "poison" not in str(messages(transcript.append(to_user_item("more")), quarantined))


def test_a_place_in_the_request_is_found_again_in_the_transcript():
    transcript = Transcript(
        [
            to_user_item("a"),
            to_user_item("b"),
            AssistantItem(
                (Thinking("t", "s", origin="other"), Text("x"), ToolCall("c", "f", "{}"))
            ),
            answer("c"),
            to_user_item("d"),
        ]
    )
    places = {
        (0, 0): (0, 0),
        (0, 1): (1, 0),
        (1, 0): (2, 1),
        (1, 1): (2, 2),
        (2, 0): (3, 0),
        (2, 1): (4, 0),
        (9, 0): None,
        (2, 7): None,
    }
    for (message, block), place in places.items():
        assert locate_block(DIALECT, transcript, NOTHING, message, block) == place


PICTURE = Image("image/png", b"\x89PNG\r\n\x1a\n" + b"\0" * 3000)


def with_rules(**changes: int) -> AnthropicEncoder:
    return AnthropicEncoder(msgspec.structs.replace(LIMITS, **changes))


def test_beyond_the_number_of_pictures_the_oldest_become_a_line_and_stay_one():
    encoder = with_rules(max_images=4)
    transcript = Transcript([to_user_item("look")])
    counts = []
    for _ in range(6):
        transcript = transcript.extend([to_user_item(PICTURE), reply(text="nice")])
        sent = messages(transcript, encoder=encoder)
        blocks = [b for m in sent for b in m["content"]]
        counts.append(sum(b["type"] == "image" for b in blocks))
    assert counts == [1, 2, 3, 4, 3, 4]
    assert "at most 4 images are allowed" in str(messages(transcript, encoder=encoder))


def test_a_body_beyond_the_limit_sheds_pictures_and_then_says_that_it_is_too_long():
    encoder = with_rules(max_body_bytes=20_000)
    transcript = Transcript([to_user_item(PICTURE) for _ in range(6)])
    assert "too large" in str(messages(transcript, encoder=encoder))
    with pytest.raises(ContextTooLong):
        messages(Transcript([to_user_item("x" * 30_000)]), encoder=encoder)


ITEMS: st.SearchStrategy[Item] = st.one_of(
    st.builds(to_user_item, st.sampled_from(["", " ", "hello"])),
    st.builds(NoticeItem, st.sampled_from(["", "note"]), st.sampled_from(["", "mode"])),
    st.builds(SummaryItem, st.sampled_from(["sum", ""])),
    st.builds(
        lambda ids, text: reply(*ids, text=text),
        st.lists(st.sampled_from(["a", "b", "", "é"]), max_size=3),
        st.sampled_from(["", "says"]),
    ),
    st.builds(answer, st.sampled_from(["a", "b", "", "é", "zzz"])),
)


@given(
    st.lists(ITEMS, max_size=14), st.integers(0, 14), st.sampled_from((DIALECT, WITH_SYSTEM_ROLE))
)
def test_any_history_becomes_a_lawful_request(
    items: list[Item], split: int, encoder: AnthropicEncoder
):
    transcript = Transcript(items[:split])
    encode_transcript(encoder, transcript, NOTHING)
    for item in items[split:]:
        transcript = transcript.append(item)
        encode_transcript(encoder, transcript, NOTHING)
    sent = messages(transcript, encoder=encoder)
    at_once = EncodedTranscript(encoder)
    at_once.encode_new_items(Transcript(items))
    assert json.loads(b"[" + b"".join(at_once.messages()) + b"]") == sent
    if sent:
        request = {"model": "claude-opus-5", "max_tokens": 9, "messages": sent}
        assert FakeAnthropic().check_request(request, ServerLimits()) == []
    roles = [m["role"] for m in sent]
    assert all(one != two for one, two in itertools.pairwise(roles))
    assert not roles or roles[0] == "user"
    seen: set[str] = set()
    for number, message in enumerate(sent):
        assert message["content"]
        if message["role"] == "assistant":
            ids = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
            assert len(set(ids)) == len(ids)
            assert not seen & set(ids)
            seen |= set(ids)
            following = sent[number + 1]["content"] if number + 1 < len(sent) else []
            answers = [b["tool_use_id"] for b in following if b["type"] == "tool_result"]
            assert sorted(answers) == sorted(ids)
            assert [b["type"] for b in following[: len(ids)]] == ["tool_result"] * len(ids)


MARK = b',"mark":1'


@given(st.lists(ITEMS, max_size=14), st.sampled_from((DIALECT, WITH_SYSTEM_ROLE)))
def test_what_a_request_marked_for_the_cache_begins_every_later_one(
    items: list[Item], encoder: AnthropicEncoder
):
    transcript, cached = Transcript([]), b""
    for item in items:
        transcript = transcript.append(item)
        body = b"".join(encode_transcript(encoder, transcript, NOTHING).messages(MARK))
        assert body.replace(MARK, b"").startswith(cached)
        cached = body[: max(0, body.rfind(MARK))].replace(MARK, b"")


def test_words_of_the_engine_are_a_system_message_between_the_user_and_a_reply():
    told, quoted = NoticeItem("x", "mode"), NoticeItem("y", "recent_files")
    items: list[Item] = [
        told,  # never first
        to_user_item("go"),
        told,
        quoted,
        NoticeItem("z", "budget"),
        reply("a"),
        answer("a"),
        told,
        to_user_item("steer"),  # more of the user's follows it
        reply(text="done"),
        told,  # after a reply
        told,
    ]
    sent = messages(Transcript(items), encoder=WITH_SYSTEM_ROLE)
    shape = [(one["role"], [block["type"] for block in one["content"]]) for one in sent]
    assert shape == [
        ("user", ["text"] * 3),
        ("system", ["text"] * 2),
        ("assistant", ["tool_use"]),
        ("user", ["tool_result", "text", "text"]),
        ("assistant", ["text"]),
        ("user", ["text"]),
        ("system", ["text"]),
    ]
    transcript = Transcript(items)
    for message, block, place in ((1, 1, (4, 0)), (3, 1, (7, 0)), (6, 0, (11, 0))):
        assert locate_block(WITH_SYSTEM_ROLE, transcript, NOTHING, message, block) == place


CUT = ResultNote("truncated", "... [truncated, 9 chars total]")
FIXED = ResultNote("corrected", "[corrected: `Path` is `path`]")
EDITED = ResultNote("edited", "The user changed the arguments before the call ran: {}\n")


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda encoder: type(encoder).__name__)
@pytest.mark.parametrize(
    ("content", "notes", "old_content"),
    [
        ((Text("abc"),), (CUT,), (Text(f"abc{CUT.text}"),)),
        ((Text("abc"),), (FIXED,), (Text(f"abc\n{FIXED.text}"),)),
        ((Text("abc"),), (CUT, FIXED), (Text(f"abc{CUT.text}\n{FIXED.text}"),)),
        ((Text("abc"),), (FIXED, EDITED), (Text(EDITED.text), Text(f"abc\n{FIXED.text}"))),
        ((PICTURE,), (FIXED,), (PICTURE, Text(FIXED.text))),
        ((PICTURE,), (CUT, EDITED), (Text(EDITED.text), PICTURE, Text(CUT.text))),
        ((Text("abc"), PICTURE), (CUT,), (Text(f"abc{CUT.text}"), PICTURE)),
        ((), (CUT,), (Text(CUT.text),)),
    ],
)
def test_a_model_reads_the_notes_of_a_result_as_in_old_logs(encoder, content, notes, old_content):
    given: list[Item] = [to_user_item("go"), reply("a")]
    new = ToolResultItem("a", "f", content, notes=notes)
    old = ToolResultItem("a", "f", old_content)
    sent = [
        b"".join(encode_transcript(encoder, Transcript([*given, item]), NOTHING).messages())
        for item in (new, old)
    ]
    assert sent[0] == sent[1]
    assert (new.model_text, new.text) == (old.text, ToolResultItem("a", "f", content).text)


def test_a_quarantined_part_keeps_its_number_beside_a_note():
    content = (Text("abc"), PICTURE)
    result = ToolResultItem("a", "f", content, notes=(FIXED, EDITED))
    transcript = Transcript([to_user_item("go"), reply("a"), result])
    blocks = messages(transcript, frozenset({(2, 1)}))[-1]["content"][0]["content"]
    assert [block["type"] for block in blocks] == ["text"] * 4
    assert [block["text"] for block in blocks[:2]] == [EDITED.text, "abc"]
    assert "left out" in blocks[2]["text"]
    assert blocks[3]["text"] == FIXED.text


@pytest.mark.parametrize(("kind", "role"), [("mode", "developer"), ("recent_files", "user")])
@pytest.mark.parametrize("encoder", ENCODERS[1:])
def test_only_words_of_the_engine_have_the_role_of_the_developer(
    encoder: Any, kind: str, role: str
):
    """A notice that quotes files or people has no more weight than they have."""
    told = Transcript([to_user_item("go"), NoticeItem("x", kind)])
    assert [one["role"] for one in messages(told, encoder=encoder)] == ["user", role]


@pytest.mark.parametrize(("name", "role"), [("gpt-4", "system"), ("gpt-5", "developer")])
def test_notices_of_the_engine_have_the_role_of_the_system_prompt(name: str, role: str):
    told = Transcript([to_user_item("go"), NoticeItem("x", "mode")])
    codec = OpenAIChat(name, quirks="openai", api_key="k").codec
    body = b"".join(codec.encode_request(ModelRequest(told, system="s")).body)
    roles = [one["role"] for one in msgspec.json.decode(body)["messages"]]
    assert roles == [role, "user", role]


def test_another_server_of_openais_format_gets_notices_as_the_users():
    plain = ChatEncoder(msgspec.structs.replace(OPENAI, system_role="system"))
    told = Transcript([to_user_item("go"), NoticeItem("x", "mode")])
    assert [one["role"] for one in messages(told, encoder=plain)] == ["user", "user"]  # type: ignore[arg-type]

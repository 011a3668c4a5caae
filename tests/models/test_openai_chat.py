"""The Chat Completions API: requests for each server, and the deviations of their replies."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from tests.patience import PATIENCE
from treadle.core.contracts.model import (
    CacheRequest,
    ModelCard,
    ModelEvent,
    ModelOptions,
    ModelRequest,
    ModelTextDelta,
    ModelThinkingDelta,
    ModelToolCallBegan,
    ModelToolCallDelta,
    ModelToolCallRequested,
    PartQuarantined,
    Reply,
)
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import (
    AccessDenied,
    BadRequest,
    ContextTooLong,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    StreamBroken,
    UnknownModel,
)
from treadle.core.transcript import (
    AssistantItem,
    Document,
    Image,
    Item,
    NoticeItem,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResultItem,
    Transcript,
    UserItem,
    to_user_item,
)
from treadle.models.catalog import card_for
from treadle.models.openai_chat.decoding import ChatDecoder
from treadle.models.openai_chat.model import ChatCodec, OpenAIChat
from treadle.models.provider_base.codec import CALL_EXTRA_LABEL, DecodeFailed
from treadle.models.provider_base.error_map import ProviderInfo
from treadle.models.provider_base.openai_common import OpenAIAccount
from treadle.models.provider_base.quirks import SERVERS
from treadle.testing.provider import FakeCall, ProviderFault, ProviderServer
from treadle.testing.provider import FakeReply as Answer

PNG = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"
    b"\x1f\x15\xc4\x89"
)
ADD = ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}})
PRICED = ModelCard(
    "openai/m",
    input_price=1.0,
    output_price=10.0,
    cache_read_price=0.1,
    abilities=frozenset({"sampling", "tools"}),
)


def codec(server: str, card: ModelCard = PRICED) -> ChatCodec:
    return ChatCodec("m", card, OpenAIAccount(server, None, "k", environ={}))


def sent(server: str, *items: Item, **more: Any) -> dict[str, Any]:
    """The body that this history becomes for that server."""
    card = more.pop("card", PRICED)
    prepared = codec(server, card).encode_request(ModelRequest(Transcript(items), **more))
    body: dict[str, Any] = json.loads(b"".join(prepared.body))
    return body


def messages(server: str, *items: Item, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sent(server, *items, **more)["messages"]
    return found


def read(
    *chunks: dict[str, Any] | bytes, done: bool = True, transcript: Transcript | None = None
) -> tuple[list[ModelEvent], AssistantItem]:
    """What these chunks are read as."""
    request = ModelRequest(transcript or Transcript())
    decoder = ChatDecoder(request, PRICED, ProviderInfo("test"), "test")
    data = [chunk if isinstance(chunk, bytes) else json.dumps(chunk).encode() for chunk in chunks]
    try:
        events = decoder.feed([(b"", line) for line in data])
    except DecodeFailed as failed:
        raise failed.error from None
    if done:
        events += decoder.feed([(b"", b"[DONE]")])
    return events, decoder.finish()


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def piece(arguments: Any = None, **fields: Any) -> dict[str, Any]:
    name = fields.pop("name", None)
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"function": function, **fields}


def calls_of(reply: AssistantItem) -> list[tuple[str, str, str]]:
    return [(call.id, call.name, call.raw) for call in reply.calls]


# ------------------------------------------------------------------ calls as servers write them


def test_calls_without_indexes_are_told_apart_by_their_ids():
    events, reply = read(
        delta(tool_calls=[piece('{"a":1}', id="x", name="add")]),
        delta(tool_calls=[piece('{"a":2}', id="y", name="add")]),
        delta("tool_calls"),
    )

    assert calls_of(reply) == [("x", "add", '{"a":1}'), ("y", "add", '{"a":2}')]
    assert [event.call for event in events if isinstance(event, ModelToolCallRequested)] == list(
        reply.calls
    )


def test_calls_without_ids_get_fresh_ones():
    _, reply = read(
        delta(tool_calls=[piece('{"a":1}', index=0, name="add")]),
        delta(tool_calls=[piece('{"a":2}', index=1, name="add")]),
        delta("tool_calls"),
    )

    assert len({call.id for call in reply.calls}) == 2
    assert all(call.id for call in reply.calls)


def test_calls_without_ids_and_indexes_begin_with_their_names():
    _, reply = read(
        delta(tool_calls=[piece('{"a"', name="add")]),
        delta(tool_calls=[piece(":1}")]),
        delta(tool_calls=[piece("{}", name="list")]),
        delta("stop"),
    )

    assert [(call.name, call.raw) for call in reply.calls] == [("add", '{"a":1}'), ("list", "{}")]


def test_two_calls_under_one_index_are_two_calls():
    _, reply = read(
        delta(tool_calls=[piece('{"a":1}', index=0, id="x", name="add")]),
        delta(tool_calls=[piece('{"a":2}', index=0, id="y", name="add")]),
        delta("stop"),
    )

    assert calls_of(reply) == [("x", "add", '{"a":1}'), ("y", "add", '{"a":2}')]


def test_two_whole_calls_under_one_id_are_two_calls():
    _, reply = read(
        delta(tool_calls=[piece('{"a":1}', id="x", name="add")]),
        delta(tool_calls=[piece('{"a":2}', id="x", name="add")]),
        delta("stop"),
    )

    assert [call.raw for call in reply.calls] == ['{"a":1}', '{"a":2}']
    assert len({call.id for call in reply.calls}) == 2


def test_a_new_id_in_every_piece_is_still_one_call():
    _, reply = read(
        delta(tool_calls=[piece("", index=0, id="x1", name="add")]),
        delta(tool_calls=[piece('{"a":', index=0, id="x2")]),
        delta(tool_calls=[piece("1}", index=0, id="x3")]),
        delta("tool_calls"),
    )

    assert calls_of(reply) == [("x1", "add", '{"a":1}')]


def test_a_name_repeated_in_every_piece_is_still_one_call():
    _, reply = read(
        delta(tool_calls=[piece('{"a":', index=0, id="x", name="add")]),
        delta(tool_calls=[piece("1}", index=0, id="x", name="add")]),
        delta("tool_calls"),
    )

    assert calls_of(reply) == [("x", "add", '{"a":1}')]


@pytest.mark.parametrize("named", [{}, {"name": ""}])
def test_a_call_without_a_name_is_in_the_reply_so_that_the_model_gets_an_error(named):
    call = {"index": 0, "id": "x", "function": {"arguments": '{"a":1}', **named}}
    _, reply = read(delta(tool_calls=[call]), delta("tool_calls"))
    assert calls_of(reply) == [("x", "unnamed_call", '{"a":1}')]
    assert reply.stop == "tool_use"


def test_a_piece_without_a_name_and_arguments_is_no_call():
    _, reply = read(
        delta(tool_calls=[piece("", index=0, id="x", name="")]), delta("stop", content="Hi.")
    )
    assert (calls_of(reply), reply.text, reply.stop) == ([], "Hi.", "end_turn")


def test_arguments_given_as_an_object_become_text():
    _, reply = read(delta(tool_calls=[piece({"a": 1}, index=0, id="x", name="add")]), delta("stop"))

    assert calls_of(reply) == [("x", "add", '{"a":1}')]


def test_a_reply_with_calls_that_claims_to_have_stopped_wants_its_tools():
    _, reply = read(delta(tool_calls=[piece("{}", index=0, id="x", name="f")]), delta("stop"))

    assert reply.stop == "tool_use"


def test_a_call_behind_the_reason_to_stop_is_heard():
    events, reply = read(
        delta("stop", content="I look."),
        delta(tool_calls=[piece("{}", index=0, id="x", name="f")]),
        done=False,
    )

    assert [type(event) for event in events[-3:]] == [
        ModelToolCallBegan,
        ModelToolCallDelta,
        ModelToolCallRequested,
    ]
    assert reply.stop == "tool_use"


def test_a_call_is_ready_as_soon_as_the_next_one_begins():
    request = ModelRequest(Transcript())
    decoder = ChatDecoder(request, PRICED, ProviderInfo("test"), "test")

    def feed(chunk: dict[str, Any]) -> list[ModelEvent]:
        return decoder.feed([(b"", json.dumps(chunk).encode())])

    assert not any(
        isinstance(event, ModelToolCallRequested)
        for event in feed(delta(tool_calls=[piece('{"a":1}', index=0, id="x", name="add")]))
    )
    second = feed(delta(tool_calls=[piece("", index=1, id="y", name="add")]))
    assert ModelToolCallRequested(ToolCall("x", "add", '{"a":1}')) in second


def test_fault_45_ids_that_were_used_before_are_replaced_from_the_first_event_on():
    earlier = Transcript(
        [
            to_user_item("x"),
            AssistantItem((ToolCall("x", "f", "{}"),)),
            ToolResultItem("x", "f", ()),
        ]
    )
    events, reply = read(
        delta(tool_calls=[piece("{}", index=0, id="x", name="f")]),
        delta(tool_calls=[piece("{}", index=1, id="x", name="g")]),
        delta(tool_calls=[piece("{}", index=2, id="", name="h")]),
        delta("tool_calls"),
        transcript=earlier,
    )

    ids = [call.id for call in reply.calls]
    assert len(set(ids)) == 3
    assert "x" not in ids
    assert [event.id for event in events if isinstance(event, ModelToolCallBegan)] == ids


@pytest.mark.parametrize("cut", ['{"a": ', "", '{"a": "x'])
def test_fault_48_a_call_cut_by_the_limit_is_not_in_the_reply(cut):
    events, reply = read(
        delta(tool_calls=[piece('{"a":1}', index=0, id="x", name="add")]),
        delta(tool_calls=[piece(cut, index=1, id="y", name="add")]),
        delta("length"),
    )

    assert calls_of(reply) == [("x", "add", '{"a":1}')]
    assert reply.stop == "max_tokens"
    assert [event.call.id for event in events if isinstance(event, ModelToolCallRequested)] == ["x"]


def test_arguments_that_go_on_after_their_end_break_the_stream():
    with pytest.raises(StreamBroken, match="after its end"):
        read(
            delta(tool_calls=[piece('{"a":1}', index=0, id="x", name="add")]),
            delta(tool_calls=[piece("{}", index=1, id="y", name="add")]),
            delta(tool_calls=[piece(',"b":2}', index=0)]),
            delta("tool_calls"),
        )


# ------------------------------------------------------------------ reasoning, text, usage


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_has_several_names(field):
    events, reply = read(delta(**{field: "Let me see."}), delta(content="Yes."), delta("stop"))

    assert events[0] == ModelThinkingDelta("Let me see.")
    assert reply.content == (Thinking("Let me see.", id=field, origin="test"), Text("Yes."))


def test_reasoning_details_come_in_crumbs_and_are_kept_whole():
    def detail(**fields: Any) -> dict[str, Any]:
        return {"type": "reasoning.text", "index": 0, "format": "x", **fields}

    sealed = {"type": "reasoning.encrypted", "index": 1, "data": "abc"}
    _, reply = read(
        delta(reasoning="Let ", reasoning_details=[detail(text="Let ")]),
        delta(reasoning="me.", reasoning_details=[detail(text="me.", signature="sig")]),
        delta(reasoning_details=[sealed]),
        delta(content="Yes."),
        delta("stop"),
    )

    thought = reply.content[0]
    assert isinstance(thought, Thinking)
    assert thought.text == "Let me."
    assert json.loads(thought.signature) == [detail(text="Let me.", signature="sig"), sealed]


def test_content_in_parts_as_mistral_thinks():
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    events, reply = read(
        delta(content=[thinking]), delta(content=[{"type": "text", "text": "Yes"}]), delta("stop")
    )

    assert events[:2] == [ModelThinkingDelta("Hm."), ModelTextDelta("Yes")]
    assert reply.content == (Thinking("Hm.", id="content", origin="test"), Text("Yes"))


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2}},
        {"choices": [], "x_groq": {"usage": {"prompt_tokens": 10, "completion_tokens": 2}}},
        {"choices": [{"delta": {}, "usage": {"prompt_tokens": 10, "completion_tokens": 2}}]},
        {"choices": [], "usage": {"prompt_tokens": "10", "completion_tokens": "2"}},
    ],
)
def test_usage_is_found_wherever_it_is(chunk):
    _, reply = read(delta(content="x"), delta("stop"), chunk)

    assert (reply.usage.input, reply.usage.output) == (10, 2)
    assert reply.usage.cost == pytest.approx((10 * 1 + 2 * 10) / 1e6)


def test_cached_tokens_are_counted_apart_and_cost_less():
    usage = {"prompt_tokens": 100, "completion_tokens": 1, "prompt_cache_hit_tokens": 90}
    _, reply = read(delta(content="x"), delta("stop"), {"choices": [], "usage": usage})

    assert (reply.usage.input, reply.usage.cache_read) == (10, 90)
    assert reply.usage.cost == pytest.approx((10 * 1 + 90 * 0.1 + 10) / 1e6)


def test_a_price_that_the_server_names_is_believed():
    usage = {"prompt_tokens": 100, "completion_tokens": 1, "cost": 0.25}
    _, reply = read(delta(content="x"), delta("stop"), {"choices": [], "usage": usage})

    assert reply.usage.cost == 0.25


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": -5, "completion_tokens": 3}, {"prompt_tokens": None}]
)
def test_fault_54_usage_that_cannot_be_believed_has_no_cost(usage):
    _, reply = read(delta(content="x"), delta("stop"), {"choices": [], "usage": usage})

    assert reply.usage.cost is None
    assert reply.usage.input == 0


# ------------------------------------------------------------------ ends, good and bad


def test_a_missing_done_is_no_loss_once_the_reason_came():
    _, reply = read(delta(content="Yes."), delta("stop"), done=False)

    assert reply.text == "Yes."


def test_fault_40_a_stream_without_an_end_is_broken():
    with pytest.raises(StreamBroken, match="before the reply was complete"):
        read(delta(content="Yes."), done=False)


@pytest.mark.parametrize("data", [b'{"choices": [{"del', b"oops", b'{"choices": 7}', b"\xff\xfe"])
def test_fault_42_an_event_that_is_not_a_chunk_breaks_the_stream(data):
    with pytest.raises(StreamBroken, match="not a chat chunk"):
        read(delta(content="x"), data)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "Overloaded", "type": "overloaded_error"}, Overloaded),
        ({"message": "Provider returned error", "code": 502}, Overloaded),
        ({"message": "Rate limit", "code": 429}, RateLimited),
        ({"message": "No credit", "type": "insufficient_quota"}, QuotaExhausted),
        ({"message": "This model's maximum context length is 8192 tokens.", "code": 400},
         ContextTooLong),
        ({"message": "it broke"}, StreamBroken),
    ],
)  # fmt: skip
def test_fault_43_an_error_inside_a_good_stream_is_that_error(error, kind):
    with pytest.raises(kind):
        read(delta(content="x"), {"error": error})


def test_an_error_that_is_null_is_none():
    _, reply = read({**delta("stop", content="x"), "error": None})

    assert reply.text == "x"


def test_a_server_that_gives_up_is_overloaded():
    with pytest.raises(Overloaded, match="insufficient_system_resource"):
        read(delta(content="x"), delta("insufficient_system_resource"))


def test_a_refusal_is_a_reply_of_its_own_kind():
    _, reply = read(delta(refusal="I can't."), delta("stop"))

    assert (reply.text, reply.stop) == ("I can't.", "refusal")


# ------------------------------------------------------------------ what is sent

ROUND: tuple[Item, ...] = (
    to_user_item("What is 1 + 2?"),
    AssistantItem(
        (
            Thinking("They want a sum.", origin="deepseek"),
            Text("I add."),
            ToolCall("call_1", "add", '{"a":1}'),
        )
    ),
    ToolResultItem("call_1", "add", (Text("3"),)),
)


def test_a_round_becomes_messages():
    assert messages("openai", *ROUND, system="Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 1 + 2?"},
        {
            "role": "assistant",
            "content": "I add.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "add", "arguments": '{"a":1}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "3"},
    ]


def test_options_in_the_words_of_each_server():
    options = ModelOptions(
        max_tokens=50,
        temperature=0.5,
        stop=("END",),
        tool_choice="any",
        thinking="high",
        top_p=0.9,
        seed=7,
        parallel_calls=False,
        service_tier="flex",
        extra={"logprobs": True},
    )
    thinks = ModelCard("x/m", abilities=frozenset({"thinking", "effort"}))
    more = {"options": options, "tools": (ADD,), "session_id": "s1"}

    plain = sent("openai", to_user_item("x"), **more)
    assert plain["max_completion_tokens"] == 50
    assert plain["temperature"] == 0.5
    assert plain["stop"] == ["END"]
    assert plain["tool_choice"] == "required"
    assert plain["stream_options"] == {"include_usage": True}
    assert plain["prompt_cache_key"] == "s1"
    assert (plain["top_p"], plain["seed"], plain["logprobs"]) == (0.9, 7, True)
    assert (plain["parallel_tool_calls"], plain["service_tier"]) == (False, "flex")
    assert plain["tools"][0]["function"]["strict"] is False
    assert "reasoning_effort" not in plain  # nothing says that this model could

    deep = sent("openai", to_user_item("x"), system="s", card=thinks, **more)
    assert deep["reasoning_effort"] == "high"
    assert "temperature" not in deep
    assert deep["messages"][0]["role"] == "developer"

    assert sent("openrouter", to_user_item("x"), **more)["reasoning"] == {"effort": "high"}
    mistral = sent("mistral", to_user_item("x"), **more)
    assert mistral["max_tokens"] == 50
    assert not {"stream_options", "prompt_cache_key", "reasoning_effort"} & set(mistral)
    assert "strict" not in sent("groq", to_user_item("x"), **more)["tools"][0]["function"]


KEPT = {"type": "enabled", "clear_thinking": False}  # the reasoning of earlier turns is used


@pytest.mark.parametrize(
    ("name", "thinking", "fields"),
    [
        ("glm-5.3", "high", {"thinking": KEPT, "reasoning_effort": "high"}),
        ("glm-5.3", "none", {"thinking": KEPT, "reasoning_effort": "low"}),
        ("glm-5.2", "none", {"thinking": {"type": "disabled"}}),
        ("glm-4.7", "high", {"thinking": KEPT}),
        ("glm-4.7", "none", {"thinking": {"type": "disabled"}}),
        ("glm-4.5", "high", {"thinking": {"type": "enabled"}}),
        ("glm-5.3", "auto", {"thinking": KEPT}),
        ("glm-4.5", "auto", {}),
        ("glm-5.3", None, {}),
    ],
)
def test_glm_is_asked_to_think_by_its_own_fields(
    name: str, thinking: str | None, fields: dict[str, Any]
):
    options, card = ModelOptions(thinking=thinking), card_for(f"zai/{name}")
    body = sent("zai", to_user_item("x"), options=options, card=card)
    assert {one: body[one] for one in ("thinking", "reasoning_effort") if one in body} == fields


def test_a_schema_is_strict_only_if_it_keeps_to_the_rules():
    loose = {"type": "object", "properties": {"a": {"type": "string"}}}
    strict = {**loose, "required": ["a"], "additionalProperties": False}

    for schema, expected in ((loose, False), (strict, True)):
        body = sent("openai", to_user_item("x"), options=ModelOptions(output_schema=schema))
        assert body["response_format"] == {
            "type": "json_schema",
            "json_schema": {"name": "output", "schema": schema, "strict": expected},
        }


def test_a_tool_can_be_named_and_the_cache_key_chosen():
    body = sent(
        "openai",
        to_user_item("x"),
        tools=(ADD,),
        options=ModelOptions(tool_choice="add"),
        cache=CacheRequest(key="mine"),
        session_id="s1",
    )

    assert body["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    assert body["prompt_cache_key"] == "mine"


def test_fault_56_thinking_goes_back_to_its_own_server_only():
    assert messages("deepseek", *ROUND)[1]["reasoning_content"] == "They want a sum."
    for server in set(SERVERS) - {"deepseek"}:
        assert "want a sum" not in json.dumps(messages(server, *ROUND))


def test_deepseek_wants_the_field_even_if_there_was_no_thought():
    bare = AssistantItem((ToolCall("c", "add", "{}"),), model="other/m")
    history = (to_user_item("x"), bare, ToolResultItem("c", "add", (Text("1"),)))

    assert messages("deepseek", *history)[1]["reasoning_content"] == ""


def test_reasoning_details_go_back_as_they_came():
    details = '[{"type":"reasoning.encrypted","data":"abc","index":0}]'
    reply = AssistantItem((Thinking("", details, origin="openrouter"), Text("Yes.")))

    assert messages("openrouter", to_user_item("x"), reply)[1]["reasoning_details"] == json.loads(
        details
    )


def test_geminis_signatures_go_back_with_their_calls():
    signature = {"google": {"thought_signature": "abc"}}
    _, reply = read(
        delta(tool_calls=[piece("{}", index=0, id="x", name="f", extra_content=signature)]),
        delta("stop"),
    )
    assert reply.content[0] == Opaque(
        "test", '{"google": {"thought_signature": "abc"}}', CALL_EXTRA_LABEL
    )

    own = Opaque("gemini", json.dumps(signature), CALL_EXTRA_LABEL)
    signed = AssistantItem((own, ToolCall("x", "f", "{}"), ToolCall("y", "f", "{}")))
    first, second = messages("gemini", to_user_item("x"), signed)[1]["tool_calls"]
    assert first["extra_content"] == signature
    assert "extra_content" not in second

    foreign = AssistantItem((ToolCall("x", "f", "{}"),))
    (call,) = messages("gemini", to_user_item("x"), foreign)[1]["tool_calls"]
    assert call["extra_content"]["google"]["thought_signature"].startswith("skip_")


def test_mistral_gets_ids_of_nine_letters_that_still_pair():
    history = (
        to_user_item("x"),
        AssistantItem((ToolCall("call_1", "f", "{}"), ToolCall("abcDEF123", "g", "{}"))),
        ToolResultItem("call_1", "f", (Text("1"),)),
        ToolResultItem("abcDEF123", "g", (Text("2"),)),
    )
    _, reply, one, two = messages("mistral", *history)

    ids = [call["id"] for call in reply["tool_calls"]]
    assert [one["tool_call_id"], two["tool_call_id"]] == ids
    assert ids[1] == "abcDEF123"
    assert len(ids[0]) == 9
    assert ids[0].isalnum()


def test_pictures_of_tools_follow_behind_the_last_answer():
    history = (
        to_user_item("x"),
        AssistantItem((ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}"))),
        ToolResultItem("a", "look", (Text("one"), Image("image/png", PNG))),
        ToolResultItem("b", "look", (Image("image/png", PNG),)),
        to_user_item("And?"),
    )
    found = messages("openai", *history)

    assert [message["role"] for message in found] == [
        "user", "assistant", "tool", "tool", "user", "user",
    ]  # fmt: skip
    assert "follow" in found[3]["content"]
    kinds = [part["type"] for part in found[4]["content"]]
    assert kinds == ["text", "image_url", "image_url"]

    without = messages("openai", *history, quarantine=frozenset({(2, 1), (3, 0)}))
    assert "image_url" not in json.dumps(without)


def test_documents_go_where_they_are_read_and_are_named_elsewhere():
    paper = Document("application/pdf", b"%PDF", title="a.pdf")
    note = Document("text/plain", b"hello", title="a.txt")

    file = messages("openai", UserItem((Text("Read"), paper)))[0]["content"][1]
    assert file["file"]["filename"] == "a.pdf"
    assert file["file"]["file_data"].startswith("data:application/pdf;base64,")
    assert "left out" in json.dumps(messages("groq", UserItem((paper,))))
    assert "hello" in json.dumps(messages("groq", UserItem((Text("Read"), note))))


@pytest.mark.parametrize("raw", ["", '{"a": ', "[1]", '"{}"', "\ud800"])
def test_arguments_that_are_not_an_object_are_sent_as_one_that_is(raw):
    history = (
        to_user_item("x"),
        AssistantItem((ToolCall("c", "f", raw),)),
        ToolResultItem("c", "f", (Text("no"),), is_error=True),
    )
    (call,) = messages("llamacpp", *history)[1]["tool_calls"]

    assert isinstance(json.loads(call["function"]["arguments"]), dict)


def test_a_notice_speaks_with_the_users_voice():
    found = messages("openai", to_user_item("x"), NoticeItem("Two minutes left.", kind="time"))

    assert found[1]["role"] == "user"
    assert "Two minutes left." in found[1]["content"]


# ------------------------------------------------------------------ over a real socket


async def collect(model: OpenAIChat, request: ModelRequest) -> list[ModelEvent]:
    return [event async for event in model.stream(request)]


async def test_a_conversation_with_tools_over_loopback():
    script = [Answer("Let me add.", calls=(FakeCall("add", {"a": 1}),)), Answer("It is 3.")]
    async with ProviderServer(script) as server:
        model = OpenAIChat("gpt-x", base_url=server.url + "/v1", api_key="k", quirks="openai")
        transcript = Transcript([to_user_item("1 + 2?")])
        events = await collect(model, ModelRequest(transcript, system="s", tools=(ADD,)))
        reply = events[-1]
        assert isinstance(reply, Reply)
        (call,) = reply.item.calls
        answer = ToolResultItem(call.id, "add", (Text("3"), Image("image/png", PNG)))
        transcript = transcript.extend([reply.item, answer])
        events = await collect(model, ModelRequest(transcript, system="s", tools=(ADD,)))

        assert isinstance(events[-1], Reply)
        assert events[-1].item.text == "It is 3."
        assert server.violations == []
        assert server.requests[0].headers["authorization"] == "Bearer k"


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (ProviderFault("unauthorized"), AccessDenied),
        (ProviderFault("not_found"), UnknownModel),
        (ProviderFault("rate_limited", value="7"), RateLimited),
        (ProviderFault("overloaded"), Overloaded),
        (ProviderFault("context_too_long"), ContextTooLong),
        (ProviderFault("too_large"), ContextTooLong),
        (ProviderFault("bad_request"), BadRequest),
    ],
)
async def test_answers_that_are_no_stream_become_typed_errors(fault, kind):
    async with ProviderServer([Answer("x")], faults=[fault]) as server:
        model = OpenAIChat("m", base_url=server.url + "/v1", api_key="secret-key")
        with pytest.raises(kind) as caught:
            await collect(model, ModelRequest(Transcript([to_user_item("x")])))

    assert "secret-key" not in str(caught.value)
    if kind is RateLimited:
        assert caught.value.retry_after == 7


async def test_a_complaint_about_a_part_names_its_place():
    message = "Invalid 'messages[2].content[1].image_url'"
    picture = UserItem((Text("  "), Text("Look"), Image("image/png", PNG)))
    async with ProviderServer(
        [Answer("x")], faults=[ProviderFault("bad_request", message=message)]
    ) as s:
        model = OpenAIChat("m", base_url=s.url + "/v1")
        request = ModelRequest(Transcript([to_user_item("x"), picture]), system="s")
        events = await collect(model, request)

    assert [(e.position, e.part) for e in events if isinstance(e, PartQuarantined)] == [(1, 2)]


async def test_leaving_a_stream_early_closes_the_connection():
    async with ProviderServer([Answer("word " * 9)], faults=["stall_in_text"]) as server:
        model = OpenAIChat("m", base_url=server.url + "/v1")
        stream = model.stream(ModelRequest(Transcript([to_user_item("x")])))
        assert isinstance(await anext(stream), ModelTextDelta)
        await stream.aclose()  # type: ignore[attr-defined]
        await asyncio.wait_for(server.wait_until(lambda: server.open_connections == 0), PATIENCE)


def shown(*sizes: int) -> list[Item]:
    """A round whose results have one picture each, of these sizes."""
    calls = tuple(ToolCall(f"c{n}", "look", "{}") for n in range(len(sizes)))
    results = [
        ToolResultItem(f"c{n}", "look", (Text("see"), Image("image/png", PNG + b"x" * size)))
        for n, size in enumerate(sizes)
    ]
    return [to_user_item("go"), AssistantItem(calls), *results]


@pytest.mark.parametrize("is_open", [True, False])
def test_the_limit_of_pictures_holds_for_pictures_in_tool_results(is_open: bool):
    history = shown(*[9] * 7) + ([] if is_open else [AssistantItem((Text("I see"),))])
    body = json.dumps(sent("groq", *history))
    assert body.count("image_url") // 2 <= SERVERS["groq"].max_images  # type: ignore[operator]
    assert "at most 5 images are allowed" in body


@pytest.mark.parametrize("is_open", [True, False])
def test_the_limit_of_bytes_holds_for_pictures_in_tool_results(is_open: bool):
    quirks = msgspec.structs.replace(SERVERS["groq"], max_body_bytes=100_000, max_images=None)
    history = shown(40_000, 40_000) + ([] if is_open else [AssistantItem((Text("I see"),))])
    chat = ChatCodec("m", PRICED, OpenAIAccount(quirks, None, "k", environ={}))
    body = b"".join(chat.encode_request(ModelRequest(Transcript(history))).body)
    assert len(body) <= 100_000
    assert b"the request would be too large" in body


def test_a_signature_of_a_call_goes_back_only_to_the_model_that_made_it():
    extra = Opaque("gemini", '{"google":{"thought_signature":"abc"}}', CALL_EXTRA_LABEL)
    reply = AssistantItem((extra, ToolCall("c", "add", "{}")), model="gemini/one")
    for name, expected in (("gemini/one", "abc"), ("gemini/two", "skip_thought_signature")):
        card = msgspec.structs.replace(PRICED, name=name)
        assert expected in json.dumps(messages("gemini", to_user_item("go"), reply, card=card))


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_an_unknown_server_gets_its_reasoning_back_in_the_field_in_which_it_sent_it(field: str):
    card = msgspec.structs.replace(PRICED, name="compatible/m")
    decoder = ChatDecoder(ModelRequest(Transcript()), card, ProviderInfo("x"), "compatible")
    chunks = [delta(**{field: "Let me see."}), delta("stop", content="Yes.")]
    decoder.feed([(b"", json.dumps(chunk).encode()) for chunk in chunks])
    (_, message) = messages("compatible", to_user_item("go"), decoder.finish(), card=card)
    assert message[field] == "Let me see."
    other = msgspec.structs.replace(card, name="compatible/other")
    (_, message) = messages("compatible", to_user_item("go"), decoder.finish(), card=other)
    assert field not in message


def test_citations_and_tools_that_the_server_ran_are_kept():
    cited = {"type": "url_citation", "url_citation": {"url": "http://a"}}
    ran = {"type": "search", "arguments": "{}", "output": "found"}
    _, openai = read(delta(content="Yes.", annotations=[cited]), delta("stop"))
    _, groq = read(delta(content="Yes.", executed_tools=[ran]), delta("stop"))
    pages = {"citations": ["http://a"], "search_results": [{"url": "http://a"}]}
    _, perplexity = read(delta(content="Yes.") | pages, delta("stop") | pages)
    both = delta(content="Yes.", annotations=[cited]) | {"citations": ["http://a", "http://b"]}
    _, gateway = read(both, delta("stop"))
    kept = [
        (part.label, json.loads(part.json))
        for reply in (openai, groq, perplexity, gateway)
        for part in reply.content
        if isinstance(part, Opaque)
    ]
    assert kept == [
        ("citations", [cited]),
        ("executed_tools", [ran]),
        ("citations", [{"url": "http://a"}]),
        ("citations", [cited, "http://a", "http://b"]),
    ]
    assert messages("openai", to_user_item("go"), openai)[1]["content"] == "Yes."


DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def test_office_files_are_sent_to_openai_alone():
    item = UserItem((Text("read"), Document(DOCX, b"PK")))
    (message,) = messages("openai", item)
    assert message["content"][1]["file"]["filename"] == "document.docx"
    assert "left out" in json.dumps(messages("openrouter", item))


@pytest.mark.parametrize("server", ["openai", "openrouter", "mistral", "ollama", "compatible"])
def test_a_table_is_sent_as_text_to_every_server(server: str):
    table = Document("text/csv", b"name,n\nbolt,3\n", title="parts.csv")
    (message,) = messages(server, UserItem((Text("read"), table)))
    assert message["content"][1] == {
        "type": "text",
        "text": '<document title="parts.csv">\nname,n\nbolt,3\n\n</document>',
    }
    called = AssistantItem((ToolCall("c", "load", "{}"),))
    result = ToolResultItem("c", "load", (table,))
    sent = messages(server, to_user_item("go"), called, result)
    assert "bolt,3" in sent[-1]["content"]


def test_a_history_that_begins_with_a_reply_is_sent_as_it_is_where_that_is_accepted():
    history: list[Item] = [AssistantItem((Text("Hello, I am here."),)), to_user_item("hi")]
    assert [m["role"] for m in messages("openai", *history)] == ["assistant", "user"]
    assert [m["role"] for m in messages("mistral", *history)] == ["user", "assistant", "user"]


@pytest.mark.parametrize(
    ("counts", "output", "reasoning"),
    [
        ({"completion_tokens": 198, "total_tokens": 623}, 603, 405),
        ({"completion_tokens": 0, "total_tokens": 80}, 60, 60),
        ({"completion_tokens": 198, "total_tokens": 218}, 198, 0),
        ({"completion_tokens": 198}, 198, 0),
    ],
)
def test_thinking_that_is_counted_only_in_the_total_is_output(counts, output, reasoning):
    usage = {"prompt_tokens": 20, **counts}
    _, reply = read(delta("stop", content="36."), {"choices": [], "usage": usage})
    assert (reply.usage.output, reply.usage.reasoning) == (output, reasoning)
    assert reply.usage.cost == pytest.approx((20 * 1.0 + output * 10.0) / 1e6)


@pytest.mark.parametrize(
    ("place", "part"),
    [("tool_calls[1].function.arguments", 3), ("tool_calls.0", 2), ("content", 1)],
)
def test_a_complaint_about_a_reply_names_its_part(place: str, part: int):
    calls = (ToolCall("c0", "add", '{"a":1}'), ToolCall("c1", "add", '{"a":2}'))
    reply = AssistantItem((Thinking("hm", origin="x"), Text("I add."), *calls))
    request = ModelRequest(Transcript([to_user_item("go"), reply]))
    error = BadRequest("no", param=f"messages[1].{place}")
    assert codec("openai").locate_part(request, error) == (1, part)


def test_deferred_tools_are_not_found_by_this_interface():
    assert "tool_search" in card_for("openai/gpt-6-sol").abilities
    assert "tool_search" not in OpenAIChat("gpt-6-sol", api_key="k").card.abilities

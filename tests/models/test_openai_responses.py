"""The Responses API: requests, replies, and chains of stored responses."""

import json
from typing import Any

import pytest

from treadle.core.contracts.model import (
    ModelCard,
    ModelEvent,
    ModelOptions,
    ModelRequest,
    ModelTextDelta,
    ModelThinkingDelta,
    ModelToolCallBegan,
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
)
from treadle.core.transcript import (
    AssistantItem,
    Document,
    Image,
    Item,
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
from treadle.models.openai_responses.decoding import (
    ITEM_LABEL,
    MESSAGE_EXTRA_LABEL,
    ResponsesDecoder,
    split_response,
)
from treadle.models.openai_responses.encoding import encode_responses_body
from treadle.models.openai_responses.model import OpenAIResponses, ResponsesCodec
from treadle.models.provider_base.error_map import ProviderInfo
from treadle.models.provider_base.openai_common import OpenAIAccount
from treadle.models.provider_base.quirks import OPENAI
from treadle.testing.provider import FakeCall, ProviderFault, ProviderServer
from treadle.testing.provider import FakeReply as Answer

PNG = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"
    b"\x1f\x15\xc4\x89"
)
ADD = ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}})
THINKS = ModelCard("openai/m", abilities=frozenset({"thinking", "effort"}))
WHO = ProviderInfo("openai", "m")


def sent(*items: Item, **more: Any) -> dict[str, Any]:
    """The body that this history becomes."""
    card = more.pop("card", THINKS)
    codec = ResponsesCodec("m", card, OpenAIAccount("openai", None, "k", environ={}))
    prepared = codec.encode_request(ModelRequest(Transcript(items), **more))
    body: dict[str, Any] = json.loads(b"".join(prepared.body))
    return body


def items_sent(*items: Item, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sent(*items, **more)["input"]
    return found


def read(
    *events: dict[str, Any], limit: int | None = None, named: bool = True
) -> tuple[list[ModelEvent], AssistantItem]:
    """What these events are read as, with or without the names that SSE gives them."""
    decoder = ResponsesDecoder(ModelRequest(Transcript()), THINKS, WHO, "openai", limit)
    out = decoder.feed(
        (event["type"].encode() if named else b"", json.dumps(event).encode()) for event in events
    )
    return out, decoder.finish()


def event(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{name}", **fields}


def message(text: str, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": [part], **more}


def function(arguments: str = "{}", **more: Any) -> dict[str, Any]:
    plain = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add"}
    return {**plain, "arguments": arguments, "status": "completed", **more}


def ended(status: str = "completed", **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    response = {"id": "resp_1", "status": status, "usage": usage, "output": [], **more}
    return event(status, response=response)


# ------------------------------------------------------------------ reading


def test_events_are_known_by_their_type_where_a_proxy_dropped_the_names():
    stream = (
        event("output_item.added", output_index=0, item=message("", content=[])),
        event("output_text.delta", output_index=0, item_id="msg_1", delta="Yes."),
        event("output_item.done", output_index=0, item=message("Yes.")),
        ended(),
    )

    assert read(*stream) == read(*stream, named=False)
    assert read(*stream)[0][0] == ModelTextDelta("Yes.")


def test_items_without_an_index_are_known_by_their_ids():
    _, reply = read(
        event("output_item.added", item=function("")),
        event("output_item.added", item=function("", id="fc_2", call_id="call_2")),
        event("function_call_arguments.delta", item_id="fc_1", delta='{"a":1}'),
        event("function_call_arguments.delta", item_id="fc_2", delta='{"a":2}'),
        event("output_item.done", item=function('{"a":1}')),
        event("output_item.done", item=function('{"a":2}', id="fc_2", call_id="call_2")),
        ended(),
    )

    assert [(call.id, call.raw) for call in reply.calls] == [
        ("call_1", '{"a":1}'),
        ("call_2", '{"a":2}'),
    ]


def test_an_output_that_comes_only_at_the_end_is_read_there():
    out, reply = read(ended(output=[message("Yes."), function()]))

    ids = ('{"id":"msg_1","status":"completed"}', '{"id":"fc_1","status":"completed"}')
    first, second = [Opaque("openai", one, ITEM_LABEL) for one in ids]
    assert reply.content == (first, Text("Yes."), second, ToolCall("call_1", "add", "{}"))
    assert ModelToolCallRequested(ToolCall("call_1", "add", "{}")) in out


def test_deltas_stand_in_for_an_item_that_was_never_finished():
    _, reply = read(
        event("output_item.added", output_index=0, item=message("", content=[])),
        event("output_text.delta", output_index=0, item_id="msg_1", delta="Once "),
        event("output_text.delta", output_index=0, item_id="msg_1", delta="upon"),
        ended("incomplete", incomplete_details={"reason": "max_output_tokens"}),
    )

    assert (reply.text, reply.stop) == ("Once upon", "max_tokens")


def test_the_parts_of_a_summary_are_kept_apart_while_they_stream():
    at = {"output_index": 0, "item_id": "rs_1"}
    parts = [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]
    item = {"type": "reasoning", "id": "rs_1", "summary": parts, "encrypted_content": "sealed"}
    out, reply = read(
        event("output_item.added", output_index=0, item={**item, "summary": []}),
        event("reasoning_summary_part.added", **at, summary_index=0),
        event("reasoning_summary_text.delta", **at, delta="a"),
        event("reasoning_summary_part.added", **at, summary_index=1),
        event("reasoning_summary_text.delta", **at, delta="b"),
        event("output_item.done", output_index=0, item=item),
        ended(),
    )

    shown = "".join(piece.text for piece in out if isinstance(piece, ModelThinkingDelta))
    assert reply.content == (Thinking("a\n\nb", "sealed", "rs_1", "openai"),)
    assert shown == "a\n\nb"


def test_fault_48_a_call_cut_by_the_limit_is_not_in_the_reply():
    out, reply = read(
        event("output_item.added", output_index=0, item=function("")),
        event("function_call_arguments.delta", output_index=0, item_id="fc_1", delta='{"a'),
        event("output_item.done", output_index=0, item=function('{"a', status="incomplete")),
        ended("incomplete", incomplete_details={"reason": "max_output_tokens"}),
    )

    assert (reply.calls, reply.stop) == ((), "max_tokens")
    assert not any(isinstance(piece, ModelToolCallRequested) for piece in out)


def test_a_reply_that_used_up_its_limit_was_cut_whatever_it_claims():
    done = event("output_item.done", output_index=0, item=message("Once upon"))

    assert read(done, ended(), limit=5)[1].stop == "max_tokens"
    assert read(done, ended(), limit=6)[1].stop == "end_turn"


def test_a_cut_call_is_left_out_even_if_the_server_calls_it_complete():
    cut = event("output_item.done", output_index=0, item=function('{"a'))
    out, reply = read(cut, ended(), limit=5)
    assert (reply.calls, reply.stop) == ((), "max_tokens")
    assert not any(isinstance(piece, ModelToolCallRequested) for piece in out)

    out, reply = read(cut, ended(), limit=50)  # the model's own mistake: the model must see it
    assert ModelToolCallRequested(reply.calls[0]) in out
    assert reply.calls[0].problem


@pytest.mark.parametrize("status", ["completed", "complete", None])
def test_a_whole_reply_with_a_status_that_is_not_known_is_complete(status: str | None):
    body = {"id": "r", "object": "response", "status": status, "output": [message("Yes.")]}
    [(event_name, data)] = split_response(json.dumps(body).encode())
    decoder = ResponsesDecoder(ModelRequest(Transcript()), THINKS, WHO, "openai")
    decoder.feed([(event_name, data)])
    reply = decoder.finish()
    assert (reply.text, reply.stop) == ("Yes.", "end_turn")


def test_fault_40_a_stream_without_its_last_event_is_broken():
    with pytest.raises(StreamBroken, match="before the reply was complete"):
        read(event("output_item.done", output_index=0, item=message("Yes.")))


def test_fault_42_an_event_that_is_not_json_breaks_the_stream():
    decoder = ResponsesDecoder(ModelRequest(Transcript()), THINKS, WHO, "openai")
    for name in (b"response.output_text.delta", b"response.completed", b""):
        with pytest.raises(StreamBroken, match="not of the Responses protocol"):
            decoder.feed([(name, b'{"type": "response.x", "delta": "cu')])


def test_arguments_of_a_call_that_never_began_break_the_stream():
    with pytest.raises(StreamBroken, match="had not started"):
        read(event("function_call_arguments.delta", item_id="fc_9", delta="{}"))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("server_error", Overloaded),
        ("rate_limit_exceeded", RateLimited),
        ("insufficient_quota", QuotaExhausted),
        ("context_length_exceeded", ContextTooLong),
        ("invalid_prompt", BadRequest),
        ("invalid_image_format", BadRequest),
        ("image_too_large", BadRequest),
        ("vector_store_timeout", Overloaded),
        ("something_new", StreamBroken),
    ],
)
def test_fault_43_failures_inside_a_stream_are_typed(code, kind):
    why = {"code": code, "message": "It went wrong."}
    with pytest.raises(kind, match="It went wrong"):
        read(event("failed", response={"id": "r", "error": why}))
    if "image" not in code:
        with pytest.raises(kind, match="It went wrong"):
            read({"type": "error", **why, "param": None})


def test_a_policy_that_stops_the_reply_is_a_refusal():
    why = {"code": "bio_policy", "message": "Not this."}
    _, reply = read(event("failed", response={"id": "r", "error": why}))

    assert (reply.text, reply.stop) == ("Not this.", "refusal")


# ------------------------------------------------------------------ sending

REPLY = AssistantItem(
    (
        Thinking("They want a sum.", "sealed", "rs_1", "openai"),
        Opaque("openai", '{"phase":"commentary"}', MESSAGE_EXTRA_LABEL),
        Text("I add."),
        ToolCall("call_1", "add", '{"a":1}'),
    )
)
ROUND: tuple[Item, ...] = (
    to_user_item("1 + 2?"),
    REPLY,
    ToolResultItem("call_1", "add", (Text("3"), Image("image/png", PNG))),
)


def test_a_round_becomes_input_items():
    question, thought, text, call, answer = items_sent(*ROUND)

    assert question == {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "1 + 2?"}],
    }
    assert thought == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "They want a sum."}],
        "encrypted_content": "sealed",
    }
    assert text["phase"] == "commentary"
    assert call == {
        "type": "function_call",
        "call_id": "call_1",
        "name": "add",
        "arguments": '{"a":1}',
    }
    assert answer["call_id"] == "call_1"
    assert [part["type"] for part in answer["output"]] == ["input_text", "input_image"]


def test_fault_56_foreign_thinking_is_not_sent():
    foreign = AssistantItem((Thinking("Hm.", "sig", "x", "anthropic"), Text("Yes.")))

    assert [item["type"] for item in items_sent(to_user_item("x"), foreign)] == [
        "message",
        "message",
    ]


def test_reasoning_that_led_to_nothing_stays_behind():
    alone = AssistantItem((Text("Yes."), Thinking("Hm.", "sealed", "rs_1", "openai")))

    assert "reasoning" not in [
        item["type"] for item in items_sent(to_user_item("x"), alone, to_user_item("y"))
    ]


def test_a_servers_own_items_go_back_unchanged():
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    reply = AssistantItem((Opaque("openai", json.dumps(search), "web_search_call"), Text("So.")))

    assert items_sent(to_user_item("x"), reply)[1] == search


def test_documents_go_as_files():
    paper = Document("application/pdf", b"%PDF", title="a.pdf")
    far = Document("application/pdf", url="https://example.org/a.pdf")
    _, file, link = items_sent(UserItem((Text("Read"), paper, far)))[0]["content"]

    assert file["filename"] == "a.pdf"
    assert file["file_data"].startswith("data:application/pdf;base64,")
    assert link == {"type": "input_file", "file_url": "https://example.org/a.pdf"}


def test_the_provider_is_asked_to_keep_nothing():
    body = sent(to_user_item("x"), system="Be brief.", session_id="s1", tools=(ADD,))

    assert body["store"] is False
    assert body["include"] == ["reasoning.encrypted_content"]
    assert body["instructions"] == "Be brief."
    assert body["prompt_cache_key"] == "s1"
    assert body["tools"][0] == {
        "type": "function",
        "name": "add",
        "description": "Add.",
        "parameters": ADD.schema,
        "strict": False,
    }


def test_options_in_the_fields_of_this_api():
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    options = ModelOptions(
        max_tokens=9, temperature=0.1, thinking=10_000, tool_choice="add", output_schema=schema
    )
    body = sent(to_user_item("x"), tools=(ADD,), options=options)

    assert body["max_output_tokens"] == 9
    assert body["reasoning"] == {"effort": "medium", "summary": "auto"}
    assert body["tool_choice"] == {"type": "function", "name": "add"}
    assert body["text"]["format"] == {
        "type": "json_schema",
        "name": "output",
        "schema": schema,
        "strict": True,
    }
    assert "temperature" not in body  # this model does not take it


def test_settings_by_name_in_the_fields_of_this_api():
    options = ModelOptions(seed=7, parallel_calls=False, service_tier="flex", stop=("END",))
    body = sent(to_user_item("x"), tools=(ADD,), options=options)
    assert (body["parallel_tool_calls"], body["service_tier"]) == (False, "flex")
    assert not {"seed", "stop"} & body.keys(), "this API has neither"
    assert "parallel_tool_calls" not in sent(to_user_item("x"), options=options)


def test_only_a_model_that_can_think_is_asked_to():
    auto = {"options": ModelOptions(thinking="auto"), "tools": (ADD,)}
    asked = sent(to_user_item("x"), card=card_for("openai/gpt-5.5"), **auto)
    assert asked["reasoning"] == {"effort": "medium", "summary": "auto"}
    assert "reasoning" not in sent(to_user_item("x"), card=card_for("openai/gpt-4.1"), **auto)
    off = {"options": ModelOptions(thinking="none")}
    least = sent(to_user_item("x"), card=card_for("openai/gpt-6.1-sol"), **off)
    assert least["reasoning"]["effort"] == "low"  # it refuses to turn it off


# ------------------------------------------------------------------ over a real socket


async def ask(model: OpenAIResponses, transcript: Transcript, **more: Any) -> AssistantItem:
    events = [event async for event in model.stream(ModelRequest(transcript, **more))]
    assert isinstance(events[-1], Reply)
    assert [event.id for event in events if isinstance(event, ModelToolCallBegan)] == [
        call.id for call in events[-1].item.calls
    ]
    return events[-1].item


SCRIPT = [
    Answer("I add.", thinking="Hm.", calls=(FakeCall("add", {"a": 1}), FakeCall("add", {"a": 2}))),
    Answer("It is 3."),
    Answer("It is 4."),
]


async def conversation(server: ProviderServer, **more: Any) -> list[dict[str, Any]]:
    """Two rounds with tools and one more question; the bodies that were sent."""
    model = OpenAIResponses("gpt-5", base_url=server.url + "/v1", api_key="k", **more)
    transcript = Transcript([to_user_item("1 + 2?")])
    for _ in range(3):
        reply = await ask(model, transcript, tools=(ADD,))
        transcript = transcript.append(reply)
        for call in reply.calls:
            transcript = transcript.append(ToolResultItem(call.id, "add", (Text("3"),)))
        if not reply.calls:
            transcript = transcript.append(to_user_item("And?"))
    assert server.violations == []
    return [json.loads(request.body) for request in server.generation_requests]


async def test_a_conversation_is_sent_whole_each_time():
    async with ProviderServer(SCRIPT) as server:
        first, second, third = await conversation(server)

    assert second["input"][: len(first["input"])] == first["input"]
    assert third["input"][: len(second["input"])] == second["input"]
    assert "previous_response_id" not in third


async def test_a_chained_conversation_sends_only_what_is_new():
    async with ProviderServer(SCRIPT) as server:
        first, second, third = await conversation(server, chain=True)

    assert first["store"] is True
    assert second["previous_response_id"] == "resp_0000"
    assert [item["type"] for item in second["input"]] == ["function_call_output"] * 2
    assert third["previous_response_id"] == "resp_0001"
    assert [item["type"] for item in third["input"]] == ["message"]


async def test_a_chain_breaks_where_the_view_was_changed():
    async with ProviderServer(SCRIPT) as server:
        model = OpenAIResponses("gpt-5", base_url=server.url + "/v1", chain=True)
        transcript = Transcript([to_user_item("a"), AssistantItem((Text("b"),)), to_user_item("c")])
        reply = await ask(model, transcript)
        compacted = Transcript([to_user_item("a and b, in short"), to_user_item("c"), reply])
        for call in reply.calls:
            compacted = compacted.append(ToolResultItem(call.id, "add", (Text("3"),)))
        await ask(model, compacted)
        body = json.loads(server.generation_requests[1].body)

    assert "previous_response_id" not in body
    assert len(body["input"]) == 2 + 4 + 2


async def test_a_chain_whose_end_the_provider_lost_is_sent_whole():
    async with ProviderServer(SCRIPT) as server, ProviderServer(SCRIPT[1:]) as other:
        model = OpenAIResponses("gpt-5", base_url=server.url + "/v1", chain=True)
        transcript = Transcript([to_user_item("a")])
        reply = await ask(model, transcript)
        transcript = transcript.append(reply)
        for call in reply.calls:
            transcript = transcript.append(ToolResultItem(call.id, "add", (Text("3"),)))
        # The same address, another memory.
        server._dialects["/responses"] = other._dialects["/responses"]
        answer = await ask(model, transcript)
        bodies = [json.loads(request.body) for request in server.generation_requests]

    assert answer.text == "It is 3."
    assert [body.get("previous_response_id") for body in bodies] == [None, "resp_0000", None]


async def test_a_complaint_about_a_part_names_its_place():
    text = "Invalid 'input[4].output[1].image_url': not an image"
    fault = ProviderFault("bad_request", message=text)
    async with ProviderServer(SCRIPT, faults=[fault], strict=False) as server:
        model = OpenAIResponses("gpt-5", base_url=server.url + "/v1")
        events = [event async for event in model.stream(ModelRequest(Transcript(ROUND)))]

    assert [(e.position, e.part) for e in events if isinstance(e, PartQuarantined)] == [(2, 1)]


async def test_a_missing_key_is_told_at_the_first_call(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    model = OpenAIResponses("gpt-5")

    with pytest.raises(AccessDenied, match="OPENAI_API_KEY"):
        await ask(model, Transcript([to_user_item("x")]))


def test_encrypted_reasoning_goes_back_only_to_the_model_that_made_it():
    thought = Thinking("hm", "sealed", "rs_1", "openai")
    for model, expected in (("openai/m", True), ("openai/other", False)):
        reply = AssistantItem((thought, Text("3")), model=model)
        assert ("sealed" in str(items_sent(to_user_item("go"), reply))) is expected


def test_citations_and_the_namespace_of_a_call_are_kept_and_sent_back():
    cited = {"type": "url_citation", "url": "http://a", "start_index": 0, "end_index": 2}
    text = {"type": "output_text", "text": "So.", "annotations": [cited]}
    call = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}
    output = [{"type": "message", "content": [text]}, {**call, "namespace": "maths"}]
    decoder = ResponsesDecoder(ModelRequest(Transcript()), THINKS, WHO, "openai")
    response = {"id": "r", "output": output}
    decoder.feed([(b"response.completed", json.dumps({"response": response}).encode())])
    message, function_call, _ = items_sent(decoder.finish())
    assert message["content"][0]["annotations"] == [cited]
    assert function_call == {**call, "namespace": "maths"}


def test_deferred_tools_are_in_namespaces_that_the_provider_searches():
    schema = {"type": "object", "properties": {}}
    names = ("mcp__db__query", "mcp__db__list", "mcp__far__go", "alone")
    hidden = [ToolSpec(name, "D.", schema, deferred=True) for name in names]
    request = ModelRequest(Transcript(), tools=(ToolSpec("read", "R.", schema), *hidden))
    card = card_for("openai/gpt-5.4")
    read, db, far, more, search = encode_tools(request, card)
    assert (read["name"], search) == ("read", {"type": "tool_search"})
    assert (db["type"], db["name"], db["description"]) == (
        "namespace", "mcp__db", "2 tools: query, list"
    )  # fmt: skip
    assert [(one["name"], one["defer_loading"]) for one in db["tools"]] == [
        ("mcp__db__query", True), ("mcp__db__list", True)
    ]  # fmt: skip
    assert (far["name"], more["name"]) == ("mcp__far", "more")
    assert [one["name"] for one in encode_tools(request, card_for("openai/gpt-5"))] == ["read"]


def encode_tools(request: ModelRequest, card: ModelCard) -> list[dict[str, Any]]:
    parts = encode_responses_body("m", card, OPENAI, request, [], None, False)
    tools: list[dict[str, Any]] = json.loads(b"".join(parts))["tools"]
    return tools


def test_what_the_search_found_goes_back_with_the_call():
    search = {"type": "tool_search_call", "id": "s", "arguments": {"paths": ["mcp__db"]}}
    found = {"type": "tool_search_output", "id": "o", "tools": []}
    call = {"type": "function_call", "call_id": "c", "name": "mcp__db__query", "arguments": "{}",
            "namespace": "mcp__db"}  # fmt: skip
    decoder = ResponsesDecoder(ModelRequest(Transcript()), THINKS, WHO, "openai")
    response = {"id": "r", "output": [search, found, call]}
    decoder.feed([(b"response.completed", json.dumps({"response": response}).encode())])
    item = decoder.finish()
    assert [one.name for one in item.calls] == ["mcp__db__query"]
    sent_items = items_sent(item)
    assert sent_items[:2] == [search, found]
    assert sent_items[2]["namespace"] == "mcp__db"


def test_a_history_may_begin_with_a_reply_and_hold_a_table():
    table = UserItem((Document("text/csv", b"a,b"),))
    reply, message = items_sent(AssistantItem((Text("Hello."),)), table)
    assert (reply["role"], message["content"][0]["filename"]) == ("assistant", "document.csv")


def test_metadata_is_sent_as_short_texts():
    assert "metadata" not in sent(to_user_item("hi"))
    many = {f"key{number}": number for number in range(20)}
    values = sent(to_user_item("hi"), metadata={"user": "u7", "dry": True, **many})["metadata"]
    assert len(values) == 16
    assert (values["user"], values["dry"], values["key0"]) == ("u7", "true", "0")


def test_the_providers_own_search_is_offered_and_its_calls_are_priced_and_kept() -> None:
    card = ModelCard("openai/m", input_price=1.0, output_price=1.0, abilities=frozenset({"search"}))
    options = ModelOptions(web_search=True)
    tools = sent(to_user_item("q"), card=card, tools=(ADD,), options=options)["tools"]
    assert [tool["type"] for tool in tools] == ["function", "web_search"]
    assert [
        tool["type"] for tool in sent(to_user_item("q"), tools=(ADD,), options=options)["tools"]
    ] == ["function"], "a model without the ability is not offered it"
    call = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    decoder = ResponsesDecoder(ModelRequest(Transcript()), card, WHO, "openai", None)
    usage = {"input_tokens": 1_000_000, "output_tokens": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.done", "output_index": 0, "item": call},
        {"type": "response.completed", "response": {"status": "completed", "usage": usage}},
    ]
    decoder.feed((event["type"].encode(), json.dumps(event).encode()) for event in events)
    item = decoder.finish()
    assert item.usage.cost == pytest.approx(1.01)
    assert [part.label for part in item.content if isinstance(part, Opaque)] == ["web_search_call"]

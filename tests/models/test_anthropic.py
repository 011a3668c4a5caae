from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from treadle.core.contracts.model import (
    CacheRequest,
    ModelEvent,
    ModelOptions,
    ModelRequest,
    ModelTextDelta,
    ModelThinkingDelta,
    ModelToolCallBegan,
    ModelToolCallDelta,
    ModelToolCallRequested,
    Reply,
)
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import AccessDenied
from treadle.core.transcript import (
    AssistantItem,
    Document,
    Image,
    NoticeItem,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResultItem,
    Transcript,
    to_user_item,
)
from treadle.models.anthropic import Anthropic
from treadle.models.anthropic.model import AnthropicCodec
from treadle.models.catalog import card_for, without_tool_search
from treadle.testing import provider
from treadle.testing.provider import FakeCall, ProviderServer, RequestViolation

ADD = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
OTHER = ToolSpec("other", "Others.", {"type": "object"}, strict=True)
PNG = Image("image/png", b"\x89PNG\r\n\x1a\n" + b"\0" * 40)
PDF = Document("application/pdf", b"%PDF-1.4", title="Manual")


def model(server: ProviderServer, name: str = "claude-sonnet-4-5", **options: Any) -> Anthropic:
    return Anthropic(name, base_url=server.url, api_key="k", **options)


def asked(transcript: Transcript | str = "hi", **fields: Any) -> ModelRequest:
    if isinstance(transcript, str):
        transcript = Transcript([to_user_item(transcript)])
    return ModelRequest(transcript, **fields)


async def ask(who: Anthropic, request: ModelRequest) -> tuple[AssistantItem, list[ModelEvent]]:
    events = [event async for event in who.stream(request)]
    last = events[-1]
    assert isinstance(last, Reply)
    return last.item, events[:-1]


def codec(name: str = "claude-sonnet-4-5") -> AnthropicCodec:
    return AnthropicCodec(name, card_for(f"anthropic/{name}"), api_key="k")


def body(request: ModelRequest, name: str = "claude-sonnet-4-5") -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(b"".join(codec(name).encode_request(request).body))
    return decoded


def headers(request: ModelRequest, name: str = "claude-sonnet-4-5") -> dict[str, str]:
    return codec(name).encode_request(request).headers


# ------------------------------------------------------------------ answers


async def test_text_thinking_and_calls_stream_and_come_back_whole():
    script = [
        provider.FakeReply(
            parts=(
                provider.FakeThinking(("let me ", "see")),
                provider.FakeRedactedThinking("c2VhbGVk"),
                provider.FakeText(("Well, ", "I add.")),
                FakeCall("add", {"a": 1}, id="toolu_1"),
                FakeCall("add", "", id="toolu_2"),
            ),
            usage=provider.FakeUsage(10, 20, 30, 40),
        )
    ]
    async with ProviderServer(script) as server:
        item, events = await ask(model(server), asked(tools=(ADD,)))
    assert item.stop == "tool_use"
    assert [type(part) for part in item.content] == [
        Thinking,
        RedactedThinking,
        Text,
        ToolCall,
        ToolCall,
    ]
    thinking = item.content[0]
    assert isinstance(thinking, Thinking)
    assert (thinking.text, thinking.origin) == ("let me see", "anthropic")
    assert thinking.signature.startswith("sig-")
    assert item.text == "Well, I add."
    assert item.model == "anthropic/claude-sonnet-4-5"
    assert [e.text for e in events if isinstance(e, ModelTextDelta)] == ["Well, ", "I add."]
    assert [e.text for e in events if isinstance(e, ModelThinkingDelta)] == ["let me ", "see"]
    assert [e for e in events if isinstance(e, ModelToolCallBegan)] == [
        ModelToolCallBegan("toolu_1", "add"),
        ModelToolCallBegan("toolu_2", "add"),
    ]
    assert "".join(e.text for e in events if isinstance(e, ModelToolCallDelta)) == '{"a":1}'
    assert tuple(e.call for e in events if isinstance(e, ModelToolCallRequested)) == item.calls
    usage = item.usage
    assert (usage.input, usage.output, usage.cache_read, usage.cache_write) == (10, 20, 30, 40)
    assert usage.cost == pytest.approx((10 * 3 + 20 * 15 + 30 * 0.3 + 40 * 3.75) / 1e6)
    assert server.violations == []


async def test_a_whole_call_is_announced_before_the_stream_ends():
    script = [
        provider.FakeReply(parts=(FakeCall("add", {"a": 1}), provider.FakeText("and more text")))
    ]
    async with ProviderServer(script) as server:
        _, events = await ask(model(server), asked(tools=(ADD,)))
    ready = next(n for n, e in enumerate(events) if isinstance(e, ModelToolCallRequested))
    assert any(isinstance(e, ModelTextDelta) for e in events[ready:])


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("end_turn", "end_turn"),
        ("max_tokens", "max_tokens"),
        ("stop_sequence", "stop_sequence"),
        ("pause_turn", "pause"),
        ("refusal", "refusal"),
        ("context_window", "context"),
    ],
)
async def test_stop_reasons_are_translated(theirs: Any, ours: str):
    async with ProviderServer([provider.FakeReply("some text", stop=theirs)]) as server:
        item, _ = await ask(model(server), asked())
    assert item.stop == ours
    assert item.text == "some text"


async def test_a_refusal_without_words_still_says_something():
    async with ProviderServer([provider.FakeReply(stop="refusal")]) as server:
        item, _ = await ask(model(server), asked())
    assert item.text == "The model declined to answer this."


def stream_of(*events: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    return [(e["type"].encode(), json.dumps(e).encode()) for e in events]


def block_start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


START = {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 1}}}


def end(reason: str) -> tuple[dict[str, Any], dict[str, Any]]:
    delta = {"stop_reason": reason}
    return (
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    )


def decode(*events: dict[str, Any]) -> tuple[AssistantItem, list[ModelEvent]]:
    decoder = codec().create_decoder(asked())
    decoded = decoder.feed(stream_of(*events))
    return decoder.finish(), decoded


SERVER_TOOL = (
    block_start(0, type="server_tool_use", id="srvtoolu_1", name="web_search", input={}),
    delta(0, type="input_json_delta", partial_json='{"query":'),
    delta(0, type="input_json_delta", partial_json='"cats"}'),
    stop(0),
    block_start(
        1,
        type="web_search_tool_result",
        tool_use_id="srvtoolu_1",
        content=[{"type": "web_search_result", "url": "https://a.b", "encrypted_content": "xyz"}],
    ),
    stop(1),
    block_start(2, type="text", text=""),
    delta(2, type="text_delta", text="Cats."),
    delta(2, type="citations_delta", citation={"type": "web_search_result_location", "n": 1}),
    delta(2, type="citations_delta", citation={"type": "web_search_result_location", "n": 2}),
    stop(2),
)


def test_the_end_of_a_block_that_never_began_is_an_empty_reply():
    item, _ = decode({"type": "message_start", "message": {}}, stop(0), *end("end_turn"))
    assert (item.content, item.stop) == ((), "end_turn")


def test_cache_writes_are_counted_when_only_their_lifetimes_are_sent():
    written = {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 1000}
    usage = {"input_tokens": 1, "output_tokens": 1, "cache_creation": written}
    item, _ = decode({"type": "message_start", "message": {"usage": usage}}, *end("end_turn"))
    assert item.usage.cache_write == 1100
    expected = (1 * 3 + 2 * 15 + 100 * 3.75 + 1000 * 6) / 1e6
    assert item.usage.cost == pytest.approx(expected)


def test_content_inside_the_start_of_a_message_is_read():
    content = [{"type": "text", "text": "Hi"}, {"type": "tool_use", "id": "t", "name": "add"}]
    start = {"type": "message_start", "message": {"content": content}}
    text = block_start(0, type="text", text=" there")
    item, events = decode(start, text, stop(0), *end("tool_use"))
    assert item.text == "Hi there"
    assert [call.name for call in item.calls] == ["add"]
    assert [e.text for e in events if isinstance(e, ModelTextDelta)] == ["Hi", " there"]


def test_a_stop_after_a_compaction_by_the_provider_continues_the_turn():
    block = block_start(0, type="compaction", content="a summary")
    item, _ = decode(block, stop(0), *end("compaction"))
    assert item.stop == "pause"
    assert [part.label for part in item.content if isinstance(part, Opaque)] == ["compaction"]


def test_server_side_tools_and_citations_go_back_unchanged():
    item, events = decode(START, *SERVER_TOOL, *end("end_turn"))
    assert not any(
        isinstance(e, (ModelToolCallBegan, ModelToolCallRequested, ModelToolCallDelta))
        for e in events
    )
    assert [p.label for p in item.content if isinstance(p, Opaque)] == [
        "server_tool_use",
        "web_search_tool_result",
        "attached",
    ]
    assert item.text == "Cats."
    sent = body(asked(Transcript([to_user_item("q"), item, to_user_item("more")])))["messages"][1][
        "content"
    ]
    assert sent[0] == {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "cats"},
    }
    assert sent[1] == SERVER_TOOL[4]["content_block"]
    assert sent[2]["text"] == "Cats."
    assert [c["n"] for c in sent[2]["citations"]] == [1, 2]


def test_deferred_tools_are_found_by_the_tool_search_of_the_provider():
    schema = {"type": "object"}
    listed, hidden = (
        ToolSpec("read", "Reads.", schema),
        ToolSpec("far", "F.", schema, deferred=True),
    )
    request = msgspec.structs.replace(asked(), tools=(hidden, listed), cache=CacheRequest())
    first, search, last = body(request)["tools"]
    assert (first["name"], last["name"], last["defer_loading"]) == ("read", "far", True)
    assert search["type"] == "tool_search_tool_bm25_20251119"
    assert "cache_control" in search
    assert "cache_control" not in last
    headers = codec().encode_request(request).headers
    assert "advanced-tool-use-2025-11-20" in headers["anthropic-beta"]
    plain = without_tool_search(card_for("anthropic/claude-sonnet-4-5"))
    old = AnthropicCodec("claude-sonnet-4-5", plain, "k").encode_request(request)
    [only] = json.loads(b"".join(old.body))["tools"]
    assert only["name"] == "read"
    assert "anthropic-beta" not in old.headers


def test_the_search_for_a_tool_and_what_it_found_go_back_with_the_call():
    found = {"type": "tool_reference", "tool_name": "far"}
    result = {"type": "tool_search_tool_search_result", "tool_references": [found]}
    kind = "tool_search_tool_result"
    item, _ = decode(
        START,
        block_start(0, type="server_tool_use", id="s", name="tool_search_tool_bm25", input={}),
        delta(0, type="input_json_delta", partial_json='{"query": "far"}'),
        stop(0),
        block_start(1, type=kind, tool_use_id="s", content=result),
        stop(1),
        block_start(2, type="tool_use", id="t", name="far", input={}),
        delta(2, type="input_json_delta", partial_json="{}"),
        stop(2),
        *end("tool_use"),
    )
    assert [call.name for call in item.calls] == ["far"]
    answer = ToolResultItem("t", "far", (Text("ok"),))
    sent = body(asked(Transcript([to_user_item("q"), item, answer])))["messages"][1]["content"]
    assert sent[0]["input"] == {"query": "far"}
    assert sent[1] == {"type": kind, "tool_use_id": "s", "content": result}
    assert sent[2]["name"] == "far"


def test_who_called_a_tool_goes_back_with_the_call():
    caller = {"type": "code_execution_20260120", "tool_id": "srvtoolu_9"}
    item, _ = decode(
        START,
        block_start(0, type="tool_use", id="t", name="add", input={}, caller=caller),
        delta(0, type="input_json_delta", partial_json='{"a": 1}'),
        stop(0),
        *end("tool_use"),
    )
    answer = ToolResultItem("t", "add", (Text("2"),))
    sent = body(asked(Transcript([to_user_item("q"), item, answer])))["messages"][1]["content"]
    assert sent == [
        {"type": "tool_use", "id": "t", "name": "add", "input": {"a": 1}, "caller": caller}
    ]


def test_a_block_of_an_unknown_kind_is_kept():
    item, _ = decode(
        START,
        block_start(0, type="compaction", content=""),
        delta(0, type="compaction_delta", content="In short, "),
        delta(0, type="compaction_delta", content="cats."),
        stop(0),
        *end("end_turn"),
    )
    (part,) = item.content
    assert isinstance(part, Opaque)
    assert json.loads(part.json) == {"type": "compaction", "content": "In short, cats."}


@pytest.mark.parametrize("raw", ["", '{"a":', '{"a": "half'])
def test_a_call_cut_by_the_output_limit_never_was_one(raw: str):
    item, events = decode(
        START,
        block_start(0, type="text", text=""),
        delta(0, type="text_delta", text="I will"),
        stop(0),
        block_start(1, type="tool_use", id="t", name="add", input={}),
        delta(1, type="input_json_delta", partial_json=raw),
        stop(1),
        *end("max_tokens"),
    )
    assert item.stop == "max_tokens"
    assert item.calls == ()
    assert not any(isinstance(e, ModelToolCallRequested) for e in events)


def test_whole_calls_before_the_cut_one_stay():
    whole = (
        block_start(0, type="tool_use", id="t", name="add", input={}),
        delta(0, type="input_json_delta", partial_json=""),
        stop(0),
    )
    cut = (
        block_start(1, type="tool_use", id="u", name="add", input={}),
        delta(1, type="input_json_delta", partial_json='{"a'),
        stop(1),
    )
    item, events = decode(START, *whole, *cut, *end("max_tokens"))
    assert [call.id for call in item.calls] == ["t"]
    assert [e.call.id for e in events if isinstance(e, ModelToolCallRequested)] == ["t"]


# ------------------------------------------------------------------ requests


async def test_everything_that_can_be_said_is_sent_lawfully():
    transcript = Transcript(
        [
            to_user_item(
                (Text("look"), PNG, PDF, Image("image/png", url="https://example.com/a.png"))
            ),
            AssistantItem(
                (
                    Thinking("foreign", "sig", origin="openai"),
                    Text("I look"),
                    ToolCall("call:1", "add", '{ "a": 1 }'),
                    ToolCall("bad", "add", '{"a": '),
                )
            ),
            ToolResultItem("call:1", "add", (Text("seen"), PNG)),
            ToolResultItem("bad", "add", (Text("not JSON"),), is_error=True),
            NoticeItem("two minutes left", "budget"),
        ]
    )
    async with ProviderServer([provider.FakeReply("ok")]) as server:
        await ask(model(server), asked(transcript, system="Be brief", tools=(ADD, OTHER)))
    assert server.violations == []
    sent: Any = server.requests[0].json
    assert sent["system"][0]["text"] == "Be brief"
    first, second, third = sent["messages"]
    assert [b["type"] for b in first["content"]] == ["text", "image", "document", "image"]
    assert first["content"][2]["title"] == "Manual"
    assert [b["type"] for b in second["content"]] == ["text", "tool_use", "tool_use"]
    assert second["content"][1]["input"] == {"a": 1}
    assert second["content"][2]["input"] == {}, "what is not an object cannot be sent as one"
    results = third["content"][:2]
    assert [b["tool_use_id"] for b in results] == [b["id"] for b in second["content"][1:]]
    assert [b["type"] for b in results[0]["content"]] == ["text", "image"]
    assert results[1]["is_error"] is True
    assert third["content"][2]["text"] == '<notice kind="budget">\ntwo minutes left\n</notice>'


async def test_a_conversation_of_50_turns_keeps_its_prefix_and_its_marks():
    script = [
        provider.FakeReply(thinking="t", calls=(FakeCall("add", {"a": n}),)) for n in range(50)
    ]
    transcript = Transcript([to_user_item("count")])
    async with ProviderServer(script) as server:
        who = model(server)
        for _ in range(50):
            item, _ = await ask(who, asked(transcript, system="s", tools=(ADD,)))
            (call,) = item.calls
            transcript = transcript.extend([item, ToolResultItem(call.id, "add", (Text("1"),))])
    assert server.violations == []
    before = b""
    for request in server.requests:
        assert request.body.count(b'"cache_control"') <= 4
        plain = re.sub(rb',"cache_control":\{[^}]*\}', b"", request.body)
        start = plain.index(b'"messages":[')
        assert plain.startswith(before)
        before = plain.removesuffix(b"]}]}")
        assert len(before) > start
    last: Any = server.requests[-1].json
    marked = [n for n, m in enumerate(last["messages"]) if "cache_control" in m["content"][-1]]
    assert marked == [len(last["messages"]) - 3, len(last["messages"]) - 1]


def test_the_cache_can_be_left_out_or_kept_for_an_hour():
    request = asked(system="s", tools=(ADD,), cache=CacheRequest(enabled=False))
    assert "cache_control" not in str(body(request))
    hour = str(body(asked(system="s", tools=(ADD,), cache=CacheRequest(ttl="1h"))))
    assert hour.count("'ttl': '1h'") == 3


@pytest.mark.parametrize("length", [4, 400])
def test_breakpoints_of_a_cache_request_replace_the_ones_at_the_end(length: int):
    transcript = Transcript()
    for number in range(length):
        reply = AssistantItem((Text(f"a{number}"),), "end_turn", "m")
        transcript = transcript.extend([to_user_item(f"q{number}"), reply])
    transcript = transcript.append(to_user_item("last"))
    plain = body(asked(transcript, system="s", cache=CacheRequest(enabled=False)))

    def marked(*breakpoints: int) -> list[int]:
        request = asked(transcript, system="s", cache=CacheRequest(breakpoints=breakpoints))
        sent = body(request)
        found = [
            n for n, m in enumerate(sent["messages"]) if m["content"][-1].pop("cache_control", 0)
        ]
        assert sent["messages"] == plain["messages"]
        return found

    assert marked(2) == [2]
    assert marked(3) == [2]  # a reply has no mark: the input before it
    assert marked(0, 2, 6) == [2, 6]  # there is room for two
    assert marked(len(transcript) + 5) == [len(transcript) - 1]


def test_a_task_budget_is_sent_only_to_models_that_have_one():
    request = asked(options=ModelOptions(task_budget=50_000, thinking="high"))
    config = body(request, "claude-opus-5")["output_config"]
    assert config == {"effort": "high", "task_budget": {"type": "tokens", "total": 50_000}}
    assert headers(request, "claude-opus-5")["anthropic-beta"] == "task-budgets-2026-03-13"
    assert "task_budget" not in str(body(request, "claude-sonnet-5"))
    assert "anthropic-beta" not in headers(request, "claude-sonnet-5")
    assert "task_budget" not in card_for("anthropic/claude-opus-5-preview").abilities


def test_only_the_user_id_of_the_metadata_is_sent():
    assert "metadata" not in body(asked(metadata={"job": 3}))
    sent = body(asked(metadata={"job": 3, "user_id": "u" * 300}))
    assert sent["metadata"] == {"user_id": "u" * 256}


def test_the_head_is_encoded_again_only_when_it_changed():
    speaker = codec()
    transcript = Transcript([to_user_item("hi")])
    first = speaker.encode_request(asked(transcript, system="s", tools=(ADD,))).body[0]
    assert speaker.encode_request(asked(transcript, system="s", tools=(ADD,))).body[0] is first
    changed = speaker.encode_request(asked(transcript, system="s", tools=(ADD, OTHER))).body[0]
    assert b"Others." in changed
    assert b'"strict":true' in changed


@pytest.mark.parametrize(
    ("limit", "budget"),
    [(1_000, None), (1_024, None), (1_500, 1_024), (9_000, 4_500), (30_000, 24_000)],
)
def test_a_limit_of_tokens_is_kept_also_when_the_model_thinks(limit: int, budget: int | None):
    options = ModelOptions(thinking=24_000, max_tokens=limit)
    sent = body(asked(tools=(ADD,), options=options), "claude-sonnet-4-5")
    assert sent["max_tokens"] == limit
    assert sent.get("thinking", {}).get("budget_tokens") == budget


@pytest.mark.parametrize(
    ("wish", "name", "thinking", "effort"),
    [
        (2000, "claude-sonnet-4-5", {"type": "enabled", "budget_tokens": 2000}, None),
        (5, "claude-sonnet-4-5", {"type": "enabled", "budget_tokens": 1024}, None),
        ("low", "claude-sonnet-4-5", {"type": "enabled", "budget_tokens": 4096}, None),
        ("high", "claude-opus-5", {"type": "adaptive"}, "high"),
        (2000, "claude-opus-5", {"type": "adaptive"}, "low"),
        ("off", "claude-sonnet-4-5", None, None),
        ("off", "claude-opus-5", None, "low"),
        (None, "claude-opus-5", None, None),
    ],
)
def test_thinking_is_asked_for_in_the_way_the_model_knows(
    wish: Any, name: str, thinking: Any, effort: str | None
):
    request = asked(tools=(ADD,), options=ModelOptions(thinking=wish, temperature=0.5))
    sent = body(request, name)
    assert sent.get("thinking") == thinking
    assert sent.get("output_config", {}).get("effort") == effort
    beta = headers(request, name).get("anthropic-beta", "")
    assert ("interleaved-thinking" in beta) is (
        thinking is not None and "budget_tokens" in thinking
    )
    if thinking:
        assert "temperature" not in sent
        assert sent["max_tokens"] > thinking.get("budget_tokens", 0)


def test_a_temperature_asks_for_the_version_that_still_takes_one():
    cool = asked(options=ModelOptions(temperature=0.2, stop=("END",), max_tokens=9))
    sent = body(cool)
    assert (sent["temperature"], sent["stop_sequences"], sent["max_tokens"]) == (0.2, ["END"], 9)
    assert headers(cool)["anthropic-version"] == "2023-06-01"
    assert headers(asked())["anthropic-version"] == "2026-10-21"
    assert "temperature" not in body(cool, "claude-opus-5"), "it would be refused"


@pytest.mark.parametrize(
    ("wish", "choice"),
    [
        ("auto", None),
        ("none", {"type": "none"}),
        ("any", {"type": "any"}),
        ("add", {"type": "tool", "name": "add"}),
    ],
)
def test_tool_choice(wish: str, choice: Any):
    options = ModelOptions(tool_choice=wish)
    assert body(asked(tools=(ADD,), options=options)).get("tool_choice") == choice
    assert "tool_choice" not in body(asked(options=options)), "without tools it would be refused"


def test_a_schema_for_the_answer_and_extra_fields_are_passed_on():
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    options = ModelOptions(output_schema=schema, extra={"service_tier": "auto"})
    sent = body(asked(options=options))
    assert sent["output_config"] == {"format": {"type": "json_schema", "schema": schema}}
    assert sent["service_tier"] == "auto"


def test_a_round_begun_by_another_model_goes_on_without_thinking():
    theirs = AssistantItem((Thinking("x", "s", origin="openai"), ToolCall("c", "add", "{}")))
    answer = ToolResultItem("c", "add", (Text("1"),))
    options = ModelOptions(thinking=2000)
    foreign = Transcript([to_user_item("go"), theirs, answer])
    assert "thinking" not in body(asked(foreign, options=options))
    own = msgspec.structs.replace(
        theirs, content=(Thinking("x", "s", origin="anthropic"), *theirs.calls)
    )
    assert "thinking" in body(asked(Transcript([to_user_item("go"), own, answer]), options=options))
    assert "thinking" in body(asked(foreign.append(to_user_item("next")), options=options))


SEALED = Thinking("hm", "sig", origin="anthropic")
ROUND = (
    to_user_item("go"),
    AssistantItem((SEALED, ToolCall("c", "add", "{}")), model="anthropic/claude-sonnet-4-5"),
    ToolResultItem("c", "add", (Text("3"),)),
)


def test_thinking_that_was_refused_inside_a_round_is_not_asked_for_in_that_round():
    request = asked(Transcript(ROUND), tools=(ADD,), options=ModelOptions(thinking=2000))
    assert "thinking" in body(request)
    refused = msgspec.structs.replace(request, quarantine=frozenset({(1, 0)}))
    sent = body(refused)
    assert "thinking" not in sent
    assert [block["type"] for block in sent["messages"][1]["content"]] == ["tool_use"]
    later = Transcript([*ROUND, AssistantItem((Text("3"),)), to_user_item("and?")])
    assert "thinking" in body(msgspec.structs.replace(refused, transcript=later))


async def test_a_session_goes_on_after_a_signature_was_refused_inside_a_round():
    class Verifying(ProviderServer):
        def _check_request(self, request: Any, *others: Any) -> list[RequestViolation]:
            fields = json.loads(request.body)
            first = fields["messages"][1]["content"][0]
            if first.get("signature") == "sig":
                return [RequestViolation("messages.1.content.0", "Invalid `signature`")]
            wrong = "thinking" in fields and first["type"] == "tool_use"
            return [RequestViolation("", "Expected `thinking`, found `tool_use`")] if wrong else []

    request = asked(Transcript(ROUND), tools=(ADD,), options=ModelOptions(thinking=2000))
    async with Verifying([provider.FakeReply("3")]) as server:
        item, _ = await ask(model(server), request)
    assert item.text == "3"
    assert len(server.requests) == 2


def test_two_cards_of_one_model_send_their_own_limit():
    request = asked()
    card = card_for("anthropic/claude-sonnet-4-5")
    for limit in (1000, 2000):
        small = msgspec.structs.replace(card, max_output=limit)
        sent = AnthropicCodec("claude-sonnet-4-5", small, api_key="k").encode_request(request)
        assert json.loads(b"".join(sent.body))["max_tokens"] == limit


def test_a_signature_goes_back_only_to_the_model_that_made_it():
    request = asked(Transcript(ROUND), tools=(ADD,), options=ModelOptions(thinking=2000))
    for name, expected in (("claude-sonnet-4-5", True), ("claude-opus-4-5", False)):
        sent = body(request, name)
        kinds = [block["type"] for block in sent["messages"][1]["content"]]
        assert ("thinking" in kinds) is expected
        assert ("thinking" in sent) is expected, "a round cannot begin to think in its middle"
    assert "sig" in str(body(request)), "the first model still gets its own"


def test_a_history_with_calls_is_sent_with_a_tool_even_when_none_may_be_used():
    call = AssistantItem((ToolCall("c", "add", "{}"),))
    transcript = Transcript([to_user_item("go"), call, ToolResultItem("c", "add", (Text("1"),))])
    sent = body(asked(transcript))
    assert (len(sent["tools"]), sent["tool_choice"]) == (1, {"type": "none"})
    assert "tools" not in body(asked("go"))


async def test_tokens_are_counted_without_an_answer():
    async with ProviderServer([]) as server:
        count = await model(server).count_tokens(
            asked(system="s", tools=(ADD,), options=ModelOptions(temperature=0.1, max_tokens=5))
        )
    assert count > 0
    assert set(server.requests[0].json) == {"model", "system", "tools", "messages"}


# ------------------------------------------------------------------ keys and addresses


async def test_a_missing_key_is_noticed_at_the_first_call_and_names_the_variable(
    monkeypatch: pytest.MonkeyPatch,
):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    who = Anthropic("claude-sonnet-4-5")
    with pytest.raises(AccessDenied, match="set ANTHROPIC_API_KEY"):
        await ask(who, asked())


@pytest.mark.parametrize("key", ["sk-a\nsk-b", "sk-ä", "sk- a"])
async def test_a_key_that_cannot_be_one_is_never_sent_nor_shown(key: str):
    with pytest.raises(AccessDenied, match="copy it again into ANTHROPIC_API_KEY") as caught:
        await ask(Anthropic("m", api_key=key), asked())
    assert key not in str(caught.value)


async def test_key_token_and_endpoint_come_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    async with ProviderServer([provider.FakeReply("a"), provider.FakeReply("b")]) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url + "/v1/")
        monkeypatch.setenv("ANTHROPIC_API_KEY", " sk-key\n")
        await ask(
            Anthropic("m", beta=("b-1",), headers={"x-team": "t"}), asked(idempotency_key="same")
        )
        monkeypatch.delenv("ANTHROPIC_API_KEY")
        monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "tok")
        await ask(Anthropic("m"), asked())
    one, two = server.requests
    assert one.headers["x-api-key"] == "sk-key"
    assert one.headers["anthropic-beta"] == "b-1"
    assert one.headers["x-team"] == "t"
    assert one.headers["idempotency-key"] == "same"
    assert two.headers["authorization"] == "Bearer tok"
    assert "x-api-key" not in two.headers


def test_a_table_is_sent_as_text():
    table = Document("text/csv", b"name,n\nbolt,3\n", title="parts.csv")
    (block,) = body(asked(Transcript([to_user_item(table)])))["messages"][0]["content"]
    text = "name,n\nbolt,3\n"
    assert block["source"] == {"type": "text", "media_type": "text/plain", "data": text}


def test_the_providers_own_search_is_offered_before_the_tools_and_priced():
    options = ModelOptions(web_search=True)
    tools = body(asked(tools=(ADD, OTHER), options=options))["tools"]
    assert [tool["name"] for tool in tools] == ["web_search", "add", "other"]
    assert tools[0]["type"].startswith("web_search_")
    assert "cache_control" in tools[-1], "the mark of the cache stays on the last tool"
    assert "tools" not in body(asked())
    used = {"input_tokens": 1, "output_tokens": 1, "server_tool_use": {"web_search_requests": 3}}
    start = {"type": "message_start", "message": {"usage": used}}
    item, _ = decode(start, *SERVER_TOOL, *end("end_turn"))
    assert item.usage.cost == pytest.approx((1 * 3 + 2 * 15) / 1e6 + 0.03)

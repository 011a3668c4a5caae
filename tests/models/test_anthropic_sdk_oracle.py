"""The same bytes, read by our codec and by Anthropic's own library, give the same message.

Every shape is read in one piece, byte by byte, and cut in two at every position.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from treadle.core.contracts.model import (
    ModelCard,
    ModelEvent,
    ModelRequest,
    ModelTextDelta,
    ModelThinkingDelta,
    ModelToolCallRequested,
    Reply,
)
from treadle.core.contracts.tool import ToolSpec
from treadle.core.transcript import (
    AssistantItem,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    Transcript,
    to_user_item,
)
from treadle.lib.http.sse import SSEReader
from treadle.models.anthropic import Anthropic
from treadle.models.anthropic.decoding import AnthropicDecoder
from treadle.models.anthropic.encoding import ATTACHED_LABEL, AnthropicEncoder
from treadle.models.provider_base.encoding import encode_transcript
from treadle.models.provider_base.error_map import ProviderInfo
from treadle.testing.provider import FakeCall, ProviderServer
from treadle.testing.provider import FakeReply as Played

pytestmark = pytest.mark.xdist_group("sdks")  # one worker imports them

USAGE = {
    "input_tokens": 12,
    "output_tokens": 1,
    "cache_read_input_tokens": 3,
    "cache_creation_input_tokens": 4,
    "cache_creation": {"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 0},
    "service_tier": "standard",
}


def stream(*blocks: list[dict[str, Any]], stop: str = "end_turn", **delta: Any) -> bytes:
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": USAGE,
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, (block, *deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "ping"})
        events += [
            {"type": "content_block_delta", "index": index, "delta": piece} for piece in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": stop, "stop_sequence": None, **delta}
    usage = {"output_tokens": 33, "output_tokens_details": {"thinking_tokens": 5}}
    events.append({"type": "message_delta", "delta": end, "usage": usage})
    events.append({"type": "message_stop"})
    lines = [
        f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n"
        for event in events
    ]
    return "".join(lines).encode()


def text(*pieces: str, citations: tuple[dict[str, Any], ...] = ()) -> list[dict[str, Any]]:
    cited = [{"type": "citations_delta", "citation": citation} for citation in citations]
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return [{"type": "text", "text": ""}, *cited, *deltas]


def thinking(signature: str, *pieces: str) -> list[dict[str, Any]]:
    thought = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    sign = {"type": "signature_delta", "signature": signature}
    return [{"type": "thinking", "thinking": "", "signature": ""}, *thought, sign]


def call(name: str, *pieces: str, kind: str = "tool_use", **more: Any) -> list[dict[str, Any]]:
    block = {"type": kind, "id": f"toolu_{name}", "name": name, "input": {}, **more}
    return [block, *[{"type": "input_json_delta", "partial_json": piece} for piece in pieces]]


CITATION = {
    "type": "web_search_result_location",
    "cited_text": "Cats sleep",
    "url": "https://example.com/cats",
    "title": "Cats",
    "encrypted_index": "Eo8B",
}
SEARCHED = {
    "type": "web_search_tool_result",
    "tool_use_id": "toolu_web_search",
    "content": [
        {
            "type": "web_search_result",
            "url": "https://example.com/cats",
            "title": "Cats",
            "encrypted_content": "EqgB",
            "page_age": "1 day",
        }
    ],
}
RAN = {
    "type": "bash_code_execution_tool_result",
    "tool_use_id": "toolu_bash_code_execution",
    "content": {
        "type": "bash_code_execution_result",
        "stdout": "hi\n",
        "stderr": "",
        "return_code": 0,
        "content": [],
    },
}
CALLER = {"type": "code_execution_20260120", "tool_id": "srvtoolu_7"}

SHAPES: dict[str, bytes] = {
    "text": stream(text("Grüße ", '\u2028 an 🌍 \\" \n', "")),
    "no content": stream(),
    "text that begins in its start": stream([{"type": "text", "text": "Hel"}, *text("lo")[1:]]),
    "thinking, then text": stream(thinking("EqQB/+==", "let me ", "see"), text("Yes")),
    "omitted thinking": stream(thinking("EqQB"), text("Yes")),
    "redacted thinking": stream([{"type": "redacted_thinking", "data": "EmwKAh=="}], text("Yes")),
    "interleaved": stream(
        thinking("s1", "a"),
        call("read", '{"path": ', '"ä.py"', "}"),
        thinking("s2", "b"),
        call("list", ""),
        stop="tool_use",
    ),
    "parallel calls": stream(
        text("I look."),
        call("read", '{"path":"a", "deep": {"x": [1, 2.5, null, true]}}'),
        call("list"),
        call("big", *['{"t": "', *["x" * 9] * 9, '"}']),
        stop="tool_use",
    ),
    "a call by code": stream(call("read", '{"p":1}', caller=CALLER), stop="tool_use"),
    "web search": stream(
        call("web_search", '{"query": "c', 'ats"}', kind="server_tool_use"),
        [SEARCHED],
        text("Cats sleep", ".", citations=(CITATION, CITATION)),
    ),
    "code execution": stream(
        call("bash_code_execution", '{"command": "echo hi"}', kind="server_tool_use"),
        [RAN],
        [{"type": "container_upload", "file_id": "file_1"}],
        stop="pause_turn",
    ),
    "refusal": stream(
        text("I can"),
        stop="refusal",
        stop_details={"type": "refusal", "category": "cyber", "explanation": "No."},
    ),
    "limit": stream(text("Once upon"), stop="max_tokens"),
    "stop sequence": stream(text("a"), stop="stop_sequence", stop_sequence="END"),
    "window": stream(text("a"), stop="model_context_window_exceeded"),
}
STOPS = {"pause_turn": "pause", "model_context_window_exceeded": "context"}


def ours(pieces: list[bytes]) -> tuple[AssistantItem, list[ModelEvent]]:
    request = ModelRequest(Transcript([to_user_item("q")]))
    decoder = AnthropicDecoder(
        ProviderInfo("Anthropic"), ModelCard("anthropic/x", 1, 1, 1, 1), request
    )
    reader = SSEReader()
    events: list[ModelEvent] = []
    for piece in pieces:
        events += decoder.feed(reader.feed(piece))
    return decoder.finish(), events


async def theirs(pieces: list[bytes]) -> Any:
    import anthropic
    import httpx2

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    def answer(request: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, content=body())

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        client = anthropic.AsyncAnthropic(api_key="k", http_client=http, max_retries=0)
        asked: Any = {"model": "claude-x", "max_tokens": 9}
        async with client.messages.stream(
            messages=[{"role": "user", "content": "q"}], **asked
        ) as streaming:
            return await streaming.get_final_message()


def as_theirs(item: AssistantItem) -> list[dict[str, Any]]:
    """Our parts as the blocks that they came from."""
    blocks: list[dict[str, Any]] = []
    for part in item.content:
        match part:
            case Text(text=value):
                blocks.append({"type": "text", "text": value})
            case Thinking(text=value, signature=signature):
                blocks.append({"type": "thinking", "thinking": value, "signature": signature})
            case RedactedThinking(data=data):
                blocks.append({"type": "redacted_thinking", "data": data})
            case ToolCall(id=call_id, name=name):
                blocks.append(
                    {"type": "tool_use", "id": call_id, "name": name, "input": part.arguments}
                )
            case Opaque(label=label, json=value) if label == ATTACHED_LABEL:
                blocks[-1] |= json.loads(value)
            case Opaque(json=value):
                blocks.append(json.loads(value))
    return blocks


def without_nones(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_nones(v) for k, v in value.items() if v is not None}
    return [without_nones(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("shape", SHAPES)
async def test_the_official_library_reads_the_same_message(shape: str):
    data = SHAPES[shape]
    final = await theirs([data[:57], data[57:901], data[901:]])
    item, events = ours([data])
    expected = without_nones([block.to_dict() for block in final.content])
    assert without_nones(as_theirs(item)) == expected
    assert item.stop == STOPS.get(final.stop_reason, final.stop_reason)
    assert item.response_id == final.id
    usage = final.usage
    assert (item.usage.input, item.usage.output) == (usage.input_tokens, usage.output_tokens)
    assert item.usage.cache_read == usage.cache_read_input_tokens
    assert item.usage.cache_write == usage.cache_creation_input_tokens
    assert item.usage.reasoning == usage.output_tokens_details.thinking_tokens
    assert tuple(e.call for e in events if isinstance(e, ModelToolCallRequested)) == item.calls
    pieces = "".join(e.text for e in events if isinstance(e, ModelTextDelta))
    assert pieces == item.text
    thoughts = "".join(e.text for e in events if isinstance(e, ModelThinkingDelta))
    assert thoughts == "".join(p.text for p in item.content if isinstance(p, Thinking))


@pytest.mark.parametrize("shape", SHAPES)
async def test_what_was_read_is_sent_back_as_the_official_library_would(shape: str):
    """Blocks go back as they came, with their signatures and seals."""
    data = SHAPES[shape]
    item, _ = ours([data])
    if not item.content:
        return
    final = await theirs([data])
    pieces = encode_transcript(
        AnthropicEncoder(), Transcript([to_user_item("q"), item]), frozenset()
    ).messages()
    sent = json.loads(b"[" + b"".join(pieces) + b"]")[1]["content"]
    assert without_nones(sent) == without_nones([block.to_dict() for block in final.content])


def splits(data: bytes) -> Iterator[list[bytes]]:
    yield [data[n : n + 1] for n in range(len(data))]
    for at in range(1, len(data)):
        yield [data[:at], data[at:]]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_message_does_not_depend_on_where_the_bytes_are_cut(shape: str):
    data = SHAPES[shape]
    whole = ours([data])
    for pieces in splits(data):
        assert ours(pieces) == whole


async def test_the_official_client_can_carry_our_requests():
    import anthropic

    script = [Played(thinking="hm", text="Hello", calls=(FakeCall("add", {"a": 1}),))]
    async with ProviderServer(script) as server:
        client = anthropic.AsyncAnthropic(api_key="their-key", base_url=server.url)
        who = Anthropic("claude-sonnet-4-5", client=client)
        spec = ToolSpec("add", "Adds.", {"type": "object"})
        request = ModelRequest(Transcript([to_user_item("q")]), tools=(spec,))
        events = [event async for event in who.stream(request)]
        assert await who.count_tokens(request) > 0
        await client.close()
    assert server.violations == []
    assert isinstance(events[-1], Reply)
    assert events[-1].item.text == "Hello"
    headers = server.requests[0].headers
    assert headers["authorization"] == "Bearer their-key"
    assert "x-api-key" not in headers

"""Fields of an unexpected type, and half an emoji: neither costs a reply or a session."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.models.wires import WIRES, connect
from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.core.errors import StreamBroken
from treadle.core.transcript import (
    AssistantItem,
    Item,
    Opaque,
    Text,
    ToolCall,
    ToolResultItem,
    Transcript,
    to_user_item,
)
from treadle.models.anthropic.decoding import AnthropicDecoder
from treadle.models.bedrock_converse.decoding import ConverseDecoder
from treadle.models.gemini.decoding import GeminiDecoder
from treadle.models.openai_chat.decoding import ChatDecoder
from treadle.models.openai_responses.decoding import ResponsesDecoder
from treadle.models.provider_base.codec import DecodeFailed, Decoder
from treadle.models.provider_base.error_map import ProviderInfo
from treadle.testing.provider import FakeReply, ProviderServer

CARD = ModelCard("acme/m", input_price=1.0, output_price=1.0)
ACME = ProviderInfo("acme")
REQUEST = ModelRequest(Transcript([to_user_item("hi")]))


def make_decoder(wire: str) -> Decoder:
    if wire == "messages":
        return AnthropicDecoder(ACME, CARD, REQUEST)
    if wire == "converse":
        return ConverseDecoder(ACME, CARD, REQUEST)
    if wire == "gemini":
        return GeminiDecoder(ACME, CARD, REQUEST)
    if wire == "chat":
        return ChatDecoder(REQUEST, CARD, ACME, "acme")
    return ResponsesDecoder(REQUEST, CARD, ACME, "acme")


def read(wire: str, *events: dict[str, Any] | bytes) -> AssistantItem:
    decoder = make_decoder(wire)
    data = [event if isinstance(event, bytes) else json.dumps(event).encode() for event in events]
    name = b"whole" if wire == "converse" else b""
    decoder.feed([(name, part) for part in data])
    return decoder.finish()


def test_a_cost_that_is_an_object_does_not_cost_the_reply():
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "cost": {"total_cost": 0.006}}
    choice = {"index": 0, "delta": {"content": "Paris"}, "finish_reason": "stop"}
    reply = read("chat", {"choices": [choice], "usage": usage, "citations": 3}, b"[DONE]")
    assert reply.text == "Paris"
    assert (reply.usage.input, reply.usage.output) == (5, 7)


ODD = {"input_tokens": 5, "output_tokens": 7, "service_tier": {}, "cache_creation": "none"}
ODD_DETAILS = {"input_tokens_details": [], "output_tokens_details": {"reasoning_tokens": {}}}


def test_odd_usage_does_not_cost_a_reply_of_the_messages_api():
    reply = read(
        "messages",
        {"type": "message_start", "message": {"id": 3, "usage": ODD, "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {**ODD, "x": 1}},
        {"type": "message_stop"},
    )
    assert (reply.text, reply.usage.input, reply.usage.output) == ("Hi", 5, 7)


def test_odd_usage_does_not_cost_a_reply_of_the_responses_api():
    message = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
    response = {"id": "r", "output": [message], "usage": {**ODD, **ODD_DETAILS}, "error": "none"}
    reply = read("responses", {"type": "response.completed", "response": response})
    assert (reply.text, reply.usage.input, reply.usage.output) == ("Hi", 5, 7)


def test_an_item_of_another_type_is_kept_as_it_is():
    item = {"type": "tool_search_call", "id": "t", "arguments": {"query": "x"}, "status": {"a": 1}}
    message = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
    reply = read(
        "responses",
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 1, "item": message},
        {"type": "response.completed", "response": {"id": "r", "output": [item, message]}},
    )
    (kept,) = [part for part in reply.content if isinstance(part, Opaque)]
    assert (kept.label, json.loads(kept.json)) == ("tool_search_call", item)
    assert reply.text == "Hi"


@pytest.mark.parametrize(
    ("wire", "event"),
    [
        ("chat", {"choices": [{"delta": {"content": 3}}]}),
        ("chat", {"choices": "none"}),
        ("messages", {"type": "content_block_delta", "index": {}, "delta": {"type": "x"}}),
        ("responses", {"type": "response.completed", "response": 3}),
        ("gemini", {"candidates": [{"content": {"parts": [{"text": 3}]}}]}),
        ("gemini", {"candidates": 3}),
        ("converse", {"output": {"message": {"content": "no"}}}),
    ],
)
def test_content_that_cannot_be_read_is_never_ignored(wire: str, event: dict[str, Any]):
    with pytest.raises((StreamBroken, DecodeFailed)):
        read(wire, event)


@pytest.mark.parametrize("wire", WIRES)
def test_an_event_that_is_nested_too_deeply_breaks_the_stream(wire: str):
    with pytest.raises((StreamBroken, DecodeFailed), match="sent an event that is not"):
        read(wire, b'{"type":"response.completed","response":' + b"[" * 5_000)


def test_a_block_with_the_index_of_another_one_does_not_replace_it():
    def text(index: int, text: str) -> list[dict[str, Any]]:
        block = {"type": "text", "text": text}
        return [{"type": "content_block_start", "index": index, "content_block": block}]

    reply = read("messages", *text(0, "one "), *text(0, "two"), {"type": "message_stop"})
    assert reply.text == "one two"


@pytest.mark.parametrize("kind", ["tool_use", "thinking"])
def test_text_inside_a_block_of_another_type_breaks_the_stream(kind: str):
    with pytest.raises(DecodeFailed, match=f"text_delta in a block of the type {kind}"):
        read(
            "messages",
            {"type": "content_block_start", "index": 0, "content_block": {"type": kind}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta"}},
        )


def test_counts_that_no_request_has_make_the_cost_unknown():
    usage = {"prompt_tokens": 10**30, "completion_tokens": 7}
    choice = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}
    reply = read("chat", {"choices": [choice], "usage": usage}, b"[DONE]")
    assert (reply.usage.input, reply.usage.output, reply.usage.cost) == (0, 7, None)


@pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 400])
def test_a_number_that_no_parser_reads_is_a_problem_of_the_call(number: str):
    call = ToolCall("c", "add", f'{{"a":{number}}}')
    assert call.arguments is None
    assert "too large" in (call.problem or "")


# ------------------------------------------------------------------ half an emoji

HALF = "\\ud83d"


def test_half_an_emoji_in_a_text_does_not_cost_the_reply():
    text = b'"Hi ' + HALF.encode() + b'!"'
    chat = read("chat", b'{"choices":[{"delta":{"content":%b}}]}' % text, b"[DONE]")
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
    delta = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%b}}'
    claude = read("messages", start, delta % text, {"type": "message_stop"})
    item = b'{"type":"message","content":[{"type":"output_text","text":%b}]}' % text
    gpt = read("responses", b'{"type":"response.completed","response":{"output":[%b]}}' % item)
    candidate = b'{"content":{"parts":[{"text":%b}]},"finishReason":"STOP"}' % text
    gemini = read("gemini", b'{"candidates":[%b]}' % candidate)
    assert chat.text == claude.text == gpt.text == gemini.text == "Hi \ufffd!"


def has_half_pair(value: Any) -> bool:
    """As strict servers look for it: in the body, and in the JSON inside of its strings."""
    if isinstance(value, str):
        try:
            value.encode()
            return value.startswith("{") and has_half_pair(json.loads(value))
        except UnicodeEncodeError:
            return True
        except ValueError:
            return False
    if isinstance(value, dict):
        return any(has_half_pair(part) for part in (*value, *value.values()))
    return isinstance(value, list) and any(has_half_pair(part) for part in value)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("raw", [f'{{"a":"{HALF}x","b":["{HALF}"]}}', '{"a":"\ud83dx","b":[1]}'])
async def test_half_an_emoji_in_the_arguments_of_a_call_is_not_sent_back(wire: str, raw: str):
    items: list[Item] = [
        to_user_item("go"),
        AssistantItem((ToolCall("c", "f", raw),)),
        ToolResultItem("c", "f", (Text("ok"),)),
    ]
    async with ProviderServer([FakeReply("fine")]) as server:
        async for _ in connect(wire, server.url).stream(ModelRequest(Transcript(items))):
            pass
    (request,) = server.requests
    body = json.loads(request.body)
    assert not has_half_pair(body)
    assert "\ufffd" in request.body.decode()


async def test_a_whole_emoji_that_was_written_as_two_escapes_stays_as_it_was():
    raw = '{"a":"\\ud83d\\ude00"}'
    items: list[Item] = [to_user_item("go"), AssistantItem((ToolCall("c", "f", raw),))]
    async with ProviderServer([FakeReply("fine")]) as server:
        model = connect("chat", server.url)
        async for _ in model.stream(ModelRequest(Transcript(items))):
            pass
    (call,) = json.loads(server.requests[0].body)["messages"][1]["tool_calls"]
    assert call["function"]["arguments"] == raw

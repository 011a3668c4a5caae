"""Replies that do not come as the stream that was asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.models.wires import WIRES, connect
from treadle.core.contracts.model import ModelEvent, ModelRequest, ModelToolCallRequested, Reply
from treadle.core.errors import (
    AccessDenied,
    ContextTooLong,
    ModelError,
    Overloaded,
    QuotaExhausted,
    StreamBroken,
    UnknownModel,
)
from treadle.core.transcript import Text, Thinking, Transcript, to_user_item
from treadle.testing.provider import FakeCall, FakeReply
from treadle.testing.provider.dialects import FakeDialect
from treadle.testing.provider.dialects.anthropic import FakeAnthropic
from treadle.testing.provider.dialects.bedrock_converse import FakeConverse
from treadle.testing.provider.dialects.gemini import FakeGemini
from treadle.testing.provider.dialects.openai_chat import FakeOpenAIChat
from treadle.testing.provider.dialects.openai_responses import FakeOpenAIResponses

DIALECTS: dict[str, FakeDialect] = {
    "messages": FakeAnthropic(),
    "chat": FakeOpenAIChat(),
    "responses": FakeOpenAIResponses(),
    "gemini": FakeGemini(),
    "converse": FakeConverse(),
}
REQUEST = ModelRequest(Transcript([to_user_item("hi")]))


class Canned:
    """A server that gives one answer, whatever it is asked; `count` counts the requests."""

    def __init__(self, body: bytes, kind: str) -> None:
        self._body, self._kind = body, kind
        self.count = 0
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if b"content-length" in line)
        await reader.readexactly(int(length.split(b":")[1]))
        self.count += 1
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (self._kind.encode(), len(self._body), self._body)
        )
        await writer.drain()
        writer.close()


@asynccontextmanager
async def serve(body: bytes | dict[str, Any], kind: str) -> AsyncIterator[Canned]:
    canned = Canned(body if isinstance(body, bytes) else json.dumps(body).encode(), kind)
    server = await asyncio.start_server(canned.answer, "127.0.0.1", 0)
    canned.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield canned
    finally:
        server.close()


async def ask(wire: str, body: bytes | dict[str, Any], kind: str) -> list[ModelEvent]:
    async with serve(body, kind) as server:
        try:
            return [event async for event in connect(wire, server.url).stream(REQUEST)]
        finally:
            assert server.count == 1, "one request, and no search for a refused part"


@pytest.mark.parametrize("wire", WIRES)
async def test_a_reply_in_one_piece_is_read_like_a_stream(wire: str):
    calls = (FakeCall("add", {"a": 1}), FakeCall("now", {}))
    whole = DIALECTS[wire].render_response(FakeReply("It is 3.", "hm", calls), "m", 1)
    events = await ask(wire, {**whole, "error": None}, "application/json")
    reply = events[-1]
    assert isinstance(reply, Reply)
    assert [part.text for part in reply.item.content if isinstance(part, Text)] == ["It is 3."]
    assert [part.text for part in reply.item.content if isinstance(part, Thinking)] == ["hm"]
    assert [(call.name, call.arguments) for call in reply.item.calls] == [
        ("add", {"a": 1}),
        ("now", {}),
    ]
    announced = [event.call for event in events if isinstance(event, ModelToolCallRequested)]
    assert announced == list(reply.item.calls)
    assert reply.item.stop == "tool_use"
    assert reply.item.usage.output > 0


async def test_an_empty_delta_beside_the_message_of_a_whole_reply_does_not_hide_it():
    message, delta = {"role": "assistant", "content": "Paris"}, {"role": "assistant", "content": ""}
    choice = {"index": 0, "message": message, "delta": delta, "finish_reason": "stop"}
    body = {"object": "chat.completion", "choices": [choice], "citations": ["https://a.test"]}
    *_, last = await ask("chat", body, "application/json")
    assert isinstance(last, Reply)
    assert last.item.text == "Paris"


@pytest.mark.parametrize("wire", WIRES)
async def test_an_error_in_one_piece_with_status_200_is_an_error(wire: str):
    body = {"error": {"message": "not today", "type": "server_error", "code": 503}}
    with pytest.raises(Overloaded, match="not today"):
        await ask(wire, body, "application/json")


ERROR_BODIES: list[tuple[dict[str, Any], type[ModelError], str]] = [
    ({"error": {"message": "not today", "code": 503}}, Overloaded, "not today"),
    (
        {"object": "error", "message": "This model's maximum context length is 8192 tokens."},
        ContextTooLong,
        "maximum context length is 8192",
    ),
    ({"detail": "The gate is shut"}, StreamBroken, "reported an error: The gate is shut"),
    ({"detail": [{"msg": "no field"}]}, StreamBroken, "no field"),
    ({"code": "InvalidApiKey", "message": "Invalid key."}, AccessDenied, "Invalid key"),
    ({"code": 401, "msg": "token expired", "success": False}, AccessDenied, "token expired"),
    ({"base_resp": {"status_code": 1004, "status_msg": "log in"}}, AccessDenied, "log in"),
    (
        {"choices": None, "base_resp": {"status_code": 1008, "status_msg": "no balance"}},
        QuotaExhausted,
        "no balance",
    ),
    ({"message": "The provided model identifier is invalid."}, UnknownModel, "is invalid"),
]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("body", "error", "text"), ERROR_BODIES, ids=lambda one: str(one)[:40])
@pytest.mark.parametrize("kind", ["application/json", "text/plain", "text/event-stream", ""])
async def test_an_error_with_status_200_is_told_whatever_its_layout_and_type(
    wire: str, body: dict[str, Any], error: type[ModelError], text: str, kind: str
):
    sent = json.dumps(body).encode() + (b"\n\n" if kind == "text/plain" else b"")
    with pytest.raises(error, match=text) as caught:
        await ask(wire, sent, kind)
    assert type(caught.value) is error


@pytest.mark.parametrize("wire", WIRES)
async def test_an_event_that_is_called_error_is_one_whatever_its_layout(wire: str):
    body = b'event: error\ndata: {"message":"the GPU is gone","code":"503"}\n\n'
    with pytest.raises(Overloaded, match="the GPU is gone"):
        await ask(wire, body, "text/event-stream")


async def test_the_status_in_a_chunk_of_minimax_is_an_error_unless_it_is_zero():
    failed = b'data: {"choices":[],"base_resp":{"status_code":1008,"status_msg":"no balance"}}\n\n'
    with pytest.raises(QuotaExhausted, match="no balance"):
        await ask("chat", failed, "text/event-stream")
    choice = b'"choices":[{"delta":{"content":"Paris"},"finish_reason":"stop"}]'
    fine = b"data: {%b,%b}\n\n" % (choice, b'"base_resp":{"status_code":0,"status_msg":""}')
    *_, last = await ask("chat", fine, "text/event-stream")
    assert isinstance(last, Reply)
    assert last.item.text == "Paris"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", ["text/plain", ""])
async def test_a_reply_in_one_piece_is_read_whatever_its_type(wire: str, kind: str):
    whole = DIALECTS[wire].render_response(FakeReply("It is 3."), "m", 1)
    reply = (await ask(wire, whole, kind))[-1]
    assert isinstance(reply, Reply)
    assert reply.item.text == "It is 3."


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "body",
    [
        b'{"message":{"role":"assistant"}}',
        b'{"hello":1}',
        b"[]",
        b"<html></html>",
        b"",
        b'{"a":"\\ud83d"}',
    ],
)
async def test_json_that_is_no_reply_is_an_error_and_not_an_empty_reply(wire: str, body: bytes):
    with pytest.raises(StreamBroken, match="not a reply"):
        await ask(wire, body, "application/json")


@pytest.mark.parametrize("wire", WIRES)
async def test_a_stream_that_is_labelled_as_json_is_read(wire: str):
    events = DIALECTS[wire].render_stream(FakeReply("It is 3."), "m", 1)
    named = [b"event: %b\n" % e.name.encode() if e.name else b"" for e in events]
    parts = zip(named, events, strict=True)
    body = b"".join(name + b"data: " + event.data + b"\n\n" for name, event in parts)
    reply = (await ask(wire, body, "application/json"))[-1]
    assert isinstance(reply, Reply)
    assert reply.item.text == "It is 3."


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("start", [b"", b": ping\n\n", b'data: {"type":"ping"}\n\n'])
async def test_the_reason_in_an_error_field_of_a_stream_is_told(wire: str, start: bytes):
    body = start + b'error: {"code":500,"message":"the GPU is gone","type":"server_error"}\n\n'
    with pytest.raises(Overloaded, match="the GPU is gone"):
        await ask(wire, body, "text/event-stream")


@pytest.mark.parametrize("wire", WIRES)
async def test_an_error_as_text_that_is_cut_is_not_called_a_wrong_address(wire: str):
    with pytest.raises(StreamBroken, match="before the reply was complete"):
        await ask(wire, b'{"error": {"mess', "text/plain")


@pytest.mark.parametrize("wire", WIRES)
async def test_a_stream_that_is_cut_inside_its_last_event_is_not_a_success(wire: str):
    events = DIALECTS[wire].render_stream(FakeReply("It is 3."), "m", 1)
    body = b"data: " + events[0].data[:-5]
    with pytest.raises(StreamBroken, match="before the reply was complete"):
        await ask(wire, body, "text/event-stream")

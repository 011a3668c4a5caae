"""Differences to the providers' own libraries that recorded traffic showed, one test each."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.models.test_odd_fields import has_half_pair, read
from tests.models.wires import WIRES, connect
from treadle.core.contracts.model import ModelOptions, ModelRequest
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import StreamBroken, Unreachable
from treadle.core.transcript import AssistantItem, Text, Thinking, Transcript, to_user_item
from treadle.models import Anthropic, OpenAIResponses
from treadle.models.provider_base.error_map import ProviderInfo, map_response_error

HI = Transcript([to_user_item("hi")])


def chunk(index: int, text: str = "", finish: str | None = None) -> dict[str, Any]:
    delta = {"content": text} if text else {}
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def test_the_answers_of_a_chat_with_several_choices_are_never_mixed():
    reply = read(
        "chat",
        *(chunk(0, "one "), chunk(1, "zwei "), chunk(1, "drei", None), chunk(0, "two")),
        *(chunk(1, finish="length"), chunk(0, finish="stop"), b"[DONE]"),
    )
    assert (reply.text, reply.stop) == ("one two", "end_turn")


@pytest.mark.parametrize(
    ("schema", "is_strict"),
    [
        ({"type": "object", "properties": {}, "additionalProperties": False}, True),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, False),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "object", "properties": {}}},
                "additionalProperties": False,
            },
            False,
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "additionalProperties": False,
            },
            True,
        ),
    ],
)
def test_messages_are_strict_only_with_closed_schemas(schema: dict[str, Any], is_strict: bool):
    tool = ToolSpec("f", "F.", schema, strict=True)
    [sent] = encode(Anthropic("claude-sonnet-4-5", api_key="k"), tools=(tool,))["tools"]
    assert sent.get("strict", False) is is_strict


def encode(model: Any, transcript: Transcript = HI, **more: Any) -> dict[str, Any]:
    request = ModelRequest(transcript, **more)
    sent: dict[str, Any] = json.loads(b"".join(model._codec.encode_request(request).body))
    return sent


def test_reasoning_without_an_id_is_sent_back_without_one():
    model = OpenAIResponses("gpt-5", api_key="k")
    thinking = Thinking("hm", "encrypted", origin="openai")
    reply = AssistantItem((thinking, Text("a")), model=model.name)
    sent = encode(model, Transcript([to_user_item("q"), reply, to_user_item("on")]))["input"]
    [reasoning] = [item for item in sent if item["type"] == "reasoning"]
    assert "id" not in reasoning


def test_the_header_for_a_long_context_changes_the_window():
    plain = Anthropic("claude-sonnet-4-5", api_key="k")
    long = Anthropic("claude-sonnet-4-5", api_key="k", beta=["context-1m-2025-08-07"])
    assert (plain.card.window, long.card.window) == (200_000, 1_000_000)


@pytest.mark.parametrize("wire", WIRES)
def test_half_an_emoji_in_a_schema_or_a_description_does_not_end_the_session(wire: str):
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": "x \ud83d"}}}
    model = connect(wire, "http://127.0.0.1:1")
    options = ModelOptions(output_schema=schema)
    tool = ToolSpec("f", "Half \ud83d.", schema)
    sent = encode(model, tools=(tool,), options=options, system="Half \ud83d.")
    assert not has_half_pair(sent)
    assert "\ufffd" in json.dumps(sent, ensure_ascii=False)


async def test_a_request_without_tls_to_a_port_with_tls_says_so():
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(bytes([21, 3, 1, 0, 2, 2, 70]))  # an alert of TLS
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(StreamBroken, match="https://"):
            async for _ in connect("chat", url).stream(ModelRequest(HI)):
                pass


@pytest.mark.parametrize(
    "body",
    [
        b"Client sent an HTTP request to an HTTPS server.\n",
        b"<html><head><title>400 The plain HTTP request was sent to HTTPS port</title></head>",
    ],
)
def test_a_server_that_says_that_it_has_tls_is_understood(body: bytes):
    error = map_response_error(ProviderInfo("acme"), 400, {}, body)
    assert type(error) is Unreachable
    assert "https://" in str(error)

"""Differences to the providers' own libraries that recorded traffic showed, one test each."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from tests.models.test_odd_fields import has_half_pair, read
from tests.models.wires import WIRES, connect
from treadle.core.contracts.model import ModelCard, ModelOptions, ModelRequest
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import StreamBroken, Unreachable
from treadle.core.transcript import AssistantItem, Text, Thinking, Transcript, to_user_item
from treadle.models import Anthropic, OpenAIResponses
from treadle.models.openai_chat.chunks import ChatUsage
from treadle.models.openai_chat.model import ChatCodec
from treadle.models.provider_base.error_map import ProviderInfo, map_response_error
from treadle.models.provider_base.openai_common import OpenAIAccount, convert_usage

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


def send_back(server: str, *chunks: Any) -> dict[str, Any]:
    """The message that a reply of this server becomes in the next request."""
    account = OpenAIAccount(server, None, "k")
    codec = ChatCodec("m", ModelCard(f"{server}/m"), account)
    decoder = codec.create_decoder(ModelRequest(HI))
    decoder.feed([(b"", json.dumps(one).encode()) for one in chunks])
    items = [*HI, decoder.finish(), to_user_item("more")]
    body = b"".join(codec.encode_request(ModelRequest(Transcript(items))).body)
    return dict(json.loads(body)["messages"][1])


def chat_delta(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@pytest.mark.parametrize("signature", [{}, {"signature": "c2ln"}])
def test_mistral_gets_its_thinking_back_as_a_part_of_the_content(signature: dict[str, str]):
    think = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm, "}]}
    more = {"type": "thinking", "thinking": [{"type": "text", "text": "yes."}], **signature}
    sent = send_back(
        "mistral",
        chat_delta(content=[think]),
        chat_delta(content=[more]),
        chat_delta("stop", content=[{"type": "text", "text": "391"}]),
    )
    whole = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm, yes."}], **signature}
    assert sent == {"role": "assistant", "content": [whole, {"type": "text", "text": "391"}]}


@pytest.mark.parametrize("server", ["compatible", "minimax", "vercel"])
def test_signed_reasoning_goes_back_to_a_server_that_sent_it(server: str):
    """Snowflake, and others with Claude behind a compatible endpoint."""
    detail = {"type": "reasoning.text", "text": "Hm.", "signature": "c2ln"}
    sent = send_back(
        server, chat_delta(reasoning_details=[detail]), chat_delta("stop", content="Yes")
    )
    assert sent == {"role": "assistant", "content": "Yes", "reasoning_details": [detail]}


def test_the_limit_that_is_told_again_as_an_error_is_the_end_of_a_cut_reply():
    """As OpenRouter sends it. As a refused request it would be searched for its reason."""
    error = {"error": {"code": 400, "message": "Token limit reached"}, "choices": []}
    reply = read("chat", chunk(0, "one"), chunk(0, finish="length"), error, b"[DONE]")
    assert (reply.text, reply.stop) == ("one", "max_tokens")


@pytest.mark.parametrize("name", ["prompt_tokens_details", "completion_tokens_details"])
def test_the_cost_of_audio_is_unknown(name: str):
    usage = {"prompt_tokens": 10, "completion_tokens": 2, name: {"audio_tokens": 1}}
    for audio in (0, 1):
        usage[name] = {"audio_tokens": audio}
        found = convert_usage(
            ModelCard("m", input_price=1.0, output_price=1.0), msgspec.convert(usage, ChatUsage)
        )
        assert (found.input, found.output) == (10, 2)
        assert (found.cost is None) == bool(audio)


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


@pytest.mark.parametrize("name", ["anthropic-beta", "Anthropic-Beta"])
def test_betas_in_a_header_of_the_user_are_sent_once_beside_ours(name: str):
    given = {name: "context-1m-2025-08-07, b-1", "Anthropic-Version": "2026-01-01"}
    long = Anthropic("claude-sonnet-4-5", api_key="k", headers=given, beta=["b-1"])
    assert long.card.window == 1_000_000
    tool = ToolSpec("f", "F.", {"type": "object"})
    options = ModelOptions(thinking=2_000)
    request = ModelRequest(Transcript([to_user_item("q")]), tools=(tool,), options=options)
    sent = long.codec.encode_request(request).headers
    ours = ["context-management-2025-06-27", "interleaved-thinking-2025-05-14"]
    assert sent["anthropic-beta"].split(",") == ["b-1", "context-1m-2025-08-07", *ours]
    assert sent["anthropic-version"] == "2026-01-01"
    assert len({header.lower() for header in sent}) == len(sent)


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

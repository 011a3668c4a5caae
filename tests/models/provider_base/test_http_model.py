"""The model behind HTTP and the meaning of failures, over the Anthropic codec."""

from __future__ import annotations

import asyncio
import email.utils
import json
import sys

import pytest

from treadle.core.contracts.model import ModelRequest, ModelTextDelta, Reply
from treadle.core.errors import (
    AccessDenied,
    BadRequest,
    ContextTooLong,
    ModelError,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    StreamBroken,
    UnknownModel,
    Unreachable,
)
from treadle.core.transcript import Transcript, to_user_item
from treadle.models.anthropic import Anthropic
from treadle.models.provider_base.error_map import (
    PREVIOUS_RESPONSE_LOST,
    ProviderInfo,
    map_response_error,
    parse_error_body,
    parse_retry_after,
)
from treadle.models.provider_base.error_types import ProviderErrorBody
from treadle.testing import provider
from treadle.testing.provider import ProviderFault, ProviderServer

WHO = ProviderInfo("Acme", "acme-1", "ACME_KEY", secret="sk-secret")
REQUEST = ModelRequest(Transcript([to_user_item("hi")]))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "1000000000"}, 1e9),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "junk", "retry-after": "3"}, 3.0),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None):
    assert parse_retry_after(headers) == seconds


def test_retry_after_as_a_date_counts_from_now_and_never_back():
    date = email.utils.formatdate(1_000_007, usegmt=True)
    assert parse_retry_after({"retry-after": date}, now=1_000_000) == pytest.approx(7, abs=1)
    assert parse_retry_after({"retry-after": date}, now=2_000_000) == 0


@pytest.mark.parametrize(
    ("body", "message", "kind"),
    [
        (b'{"error":{"type":"t","message":"m"}}', "m", "t"),
        (b'[{"error":{"code":400,"message":"m","status":"X"}}]', "m", ""),
        (b'{"error":"m"}', "m", ""),
        (b'{"detail":"m"}', "m", ""),
        (b'{"detail":[{"loc":["a"]}]}', '[{"loc":["a"]}]', ""),
        (b'{"message":"m","type":"t"}', "m", "t"),
        (b"upstream timed out", "upstream timed out", ""),
        (b"\xff\xfe", "\ufffd\ufffd", ""),
        (b"", "", ""),
        (b"3", "3", ""),
    ],
)
def test_error_bodies_of_all_layouts_are_read(body: bytes, message: str, kind: str):
    error = parse_error_body(body)
    assert (error.message, error.kind) == (message, kind)


def test_a_web_page_is_recognised_by_its_looks():
    assert parse_error_body(b"\n<!DOCTYPE html><title>Sign\n in</title>") == ProviderErrorBody(
        "Sign in", is_html=True
    )


@pytest.mark.parametrize(
    ("status", "body", "kind", "hint"),
    [
        (400, b'{"error":{"message":"bad role"}}', BadRequest, "bad role"),
        (422, b'{"detail":"bad field"}', BadRequest, "bad field"),
        (400, b'{"error":{"message":"prompt is too long: 9 tokens > 8"}}', ContextTooLong, ""),
        (400, b'{"error":{"code":"context_length_exceeded","message":"x"}}', ContextTooLong, ""),
        (413, b"", ContextTooLong, ""),
        (400, b'{"error":{"message":"Your credit balance is too low"}}', QuotaExhausted, "--model"),
        (402, b"", QuotaExhausted, "credit"),
        (429, b'{"error":{"code":"insufficient_quota","message":"q"}}', QuotaExhausted, ""),
        (429, b"", RateLimited, "too many requests"),
        (401, b'{"error":{"message":"wrong key sk-secret"}}', AccessDenied, "set ACME_KEY"),
        (403, b"{}", AccessDenied, "what the account and the key may use"),
        (404, b'{"error":{"message":"model: acme-1"}}', UnknownModel, "`treadle models`"),
        (404, b"", UnknownModel, "`treadle models`"),
        (408, b"", Overloaded, ""),
        (500, b"", Overloaded, "HTTP 500"),
        (502, b"<html><title>Bad Gateway</title></html>", Overloaded, "Bad Gateway"),
        (529, b'{"error":{"type":"overloaded_error"}}', Overloaded, ""),
        (403, b"<!doctype html><title>Blocked</title>", Unreachable, "proxy"),
        (200, b"<!doctype html><title>Sign in</title>", Unreachable, "login page"),
    ],
)
def test_every_answer_has_its_error_with_the_next_thing_to_do(
    status: int, body: bytes, kind: type[ModelError], hint: str
):
    error = map_response_error(WHO, status, {"request-id": "req_1", "retry-after": "2"}, body)
    assert type(error) is kind
    assert hint in str(error)
    assert "sk-secret" not in str(error)
    assert "\n" not in str(error)
    assert error.status == status
    if kind in (RateLimited, Overloaded):
        assert error.retry_after == 2


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"message": "no", "type": "invalid_request_error", "code": "model_not_found"},
         UnknownModel),
        (400, {"code": "invalid-argument", "error": "Incorrect API key provided: xa***3."},
         AccessDenied),
        (400, [{"error": {"code": 400, "message": "API key not valid. Please pass a valid one."}}],
         AccessDenied),
        (400, {"error": {"message": "no", "type": "too_many_prompt_tokens", "code": 400}},
         ContextTooLong),
        (400, {"error": {"message": "no", "code": "tool_use_failed"}}, StreamBroken),
    ],
)  # fmt: skip
def test_an_error_is_known_by_its_code_and_nothing_is_searched_for(
    status: int, body: object, kind: type[ModelError]
):
    error = map_response_error(WHO, status, {}, json.dumps(body).encode())
    assert type(error) is kind


async def ask(who: Anthropic) -> Reply:
    events = [event async for event in who.stream(REQUEST)]
    last = events[-1]
    assert isinstance(last, Reply)
    return last


async def test_no_key_is_ever_part_of_an_error():
    fault = ProviderFault("unauthorized", message="invalid key: sk-very-secret")
    async with ProviderServer([provider.FakeReply("a")], faults=[fault]) as server:
        who = Anthropic("m", base_url=server.url, api_key="sk-very-secret")
        with pytest.raises(AccessDenied) as caught:
            await ask(who)
    assert "sk-very-secret" not in str(caught.value)
    assert "set ANTHROPIC_API_KEY" in str(caught.value)


async def test_one_model_serves_many_streams_at_once():
    script = provider.ReplyScript((provider.FakeReply("hello there, all of you"),) * 40)
    async with ProviderServer(script) as server:
        who = Anthropic("m", base_url=server.url, api_key="k")
        replies = await asyncio.gather(*[ask(who) for _ in range(40)])
    assert {reply.item.text for reply in replies} == {"hello there, all of you"}


async def test_leaving_a_stream_closes_its_connection_at_once():
    async with ProviderServer([provider.FakeReply("word " * 50)], faults=["endless"]) as server:
        who = Anthropic("m", base_url=server.url, api_key="k")
        stream = who.stream(REQUEST)
        async for event in stream:
            if isinstance(event, ModelTextDelta):
                break
        await stream.aclose()  # type: ignore[attr-defined]
        await server.wait_until(lambda: server.open_connections == 0)


async def test_cancelling_the_consumer_closes_the_connection():
    async with ProviderServer([provider.FakeReply("a")], faults=["stall_headers"]) as server:
        task = asyncio.create_task(ask(Anthropic("m", base_url=server.url, api_key="k")))
        await server.wait_until(lambda: len(server.requests) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.wait_until(lambda: server.open_connections == 0)


async def test_connections_are_used_again_after_a_whole_reply():
    async with ProviderServer([provider.FakeReply("a")] * 3) as server:
        who = Anthropic("m", base_url=server.url, api_key="k")
        for _ in range(3):
            await ask(who)
        assert server.connections == 1


def test_a_refusal_keeps_the_fields_of_the_provider_without_the_key():
    body = b'{"error":{"message":"bad sk-secret","type":"invalid","code":"c","param":"input[1]"}}'
    error = map_response_error(WHO, 400, {}, body)
    assert isinstance(error, BadRequest)
    assert (error.param, error.code, error.provider_message) == ("input[1]", "c", "bad [key]")


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"gone","param":"previous_response_id"}}',
        b'{"error":{"message":"gone","code":"previous_response_not_found"}}',
        b'{"error":"Previous response with id \'r\' not found."}',
    ],
)
def test_a_lost_previous_response_has_one_code_and_is_no_unknown_model(body: bytes):
    error = map_response_error(WHO, 404, {}, body)
    assert isinstance(error, BadRequest)
    assert error.code == PREVIOUS_RESPONSE_LOST


def test_no_sdk_is_imported():
    assert "treadle.models.anthropic" in sys.modules
    imported = (
        "import sys, treadle.models.anthropic, treadle.models.provider_base.quarantine;"
        "assert not {'anthropic', 'openai', 'httpx', 'aiohttp', 'pydantic'} & set(sys.modules)"
    )
    import subprocess

    subprocess.run([sys.executable, "-c", imported], check=True)

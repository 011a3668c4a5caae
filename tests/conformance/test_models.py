from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from treadle.contracts import ModelError, ModelRequest, Transcript, UserItem, WrappedModel
from treadle.core.transcript import to_user_item
from treadle.models import Anthropic, Fallback, Recorded, Say, Scripted
from treadle.testing import ConformanceRequests, FakeCall, FakeReply, ProviderServer, check_model
from treadle.testing.provider import ReceivedRequest

FAILING = ModelRequest(Transcript([to_user_item("fail")]))


def answer(request: ModelRequest) -> str | Say:
    last = request.transcript[-1]
    if isinstance(last, UserItem) and last.text == "fail":
        raise ModelError("it fails")
    limit = request.options.max_tokens
    if request.options.tool_choice == "any":
        return Say(calls=[("add", {"a": 2, "b": 3}), ("add", {"a": 1, "b": 1})])
    return Say("Hello to you.", thinking="Hm.", stop="max_tokens" if limit else None)


async def test_the_scripted_model_keeps_the_promises_of_a_model():
    await check_model(lambda: Scripted(answer), ConformanceRequests(failing=FAILING))


async def test_a_fallback_and_a_wrapper_keep_the_promises_of_a_model():
    await check_model(lambda: Fallback(Scripted(answer), Scripted(answer)))
    await check_model(lambda: WrappedModel(Scripted(answer)))


async def test_a_recorded_model_keeps_the_promises_of_a_model(own_place: Path):
    path = own_place / "talk.jsonl"
    await check_model(lambda: Recorded(Scripted(answer), path))


def reply(request: ReceivedRequest) -> FakeReply:
    asked: dict[str, Any] = dict(request.json)
    stop: Literal["max_tokens"] | None = "max_tokens" if asked["max_tokens"] < 10 else None
    if asked.get("tool_choice", {}).get("type") == "any":
        call, cut = FakeCall("add", {"a": 2, "b": 3}), FakeCall("add", '{"a":')
        return FakeReply(calls=(call, cut) if stop else (call,), stop=stop)
    return FakeReply("Hello to you.", thinking="Hm.", stop=stop)


async def test_the_anthropic_api_keeps_the_promises_of_a_model():
    async with ProviderServer(reply) as server:
        requests = ConformanceRequests(call_token_limit=8, concurrency=20)
        await check_model(lambda: Anthropic("m", base_url=server.url, api_key="k"), requests)
        assert server.violations == []

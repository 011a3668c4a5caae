"""Both OpenAI APIs keep a Model's promises, over our own client and over OpenAI's."""

import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from treadle.core.contracts.model import Model, ModelOptions, ModelRequest, Reply
from treadle.core.transcript import Transcript, to_user_item
from treadle.models.openai_chat.model import OpenAIChat
from treadle.models.openai_responses.model import OpenAIResponses
from treadle.testing.conformance.model import ADD_TOOL, ConformanceRequests, check_model
from treadle.testing.provider import FakeCall, ProviderServer, ReceivedRequest
from treadle.testing.provider import FakeReply as Answer

APIS: dict[str, Callable[[str], Model]] = {
    "chat": lambda url: OpenAIChat("m", base_url=url, quirks="deepseek", api_key="k"),
    "responses": lambda url: OpenAIResponses("m", base_url=url, api_key="k"),
    "chained": lambda url: OpenAIResponses("m", base_url=url, api_key="k", chain=True),
}
IMPOSSIBLE = ModelRequest(
    Transcript([to_user_item("fail")]), options=ModelOptions(extra={"nonsense": 1})
)


def answer(request: ReceivedRequest) -> Answer:
    """Calls where a tool is asked for, and is cut where the limit is small."""
    asked = request.json
    limit = asked.get("max_tokens") or asked.get("max_output_tokens")
    if asked.get("tool_choice") == "required":
        if limit:
            return Answer(
                calls=(FakeCall("add", {"a": 1}), FakeCall("add", '{"a":')), stop="max_tokens"
            )
        return Answer(
            "Adding.", thinking="Hm.", calls=(FakeCall("add", {"a": 2}), FakeCall("add", "{}"))
        )
    return Answer("Hello to you.", thinking="A greeting.", stop="max_tokens" if limit else None)


@asynccontextmanager
async def serving(api: str) -> AsyncIterator[Model]:
    async with ProviderServer(answer) as server:
        yield APIS[api](server.url + "/v1")


@pytest.mark.parametrize("api", APIS)
async def test_an_openai_api_keeps_the_promises_of_a_model(api: str):
    cut_call = 8 if api == "chat" else None
    requests = ConformanceRequests(call_token_limit=cut_call, failing=IMPOSSIBLE, concurrency=20)
    async with serving(api) as model:
        await check_model(lambda: model, requests)


@pytest.mark.xdist_group("sdks")
@pytest.mark.parametrize("make", [OpenAIChat, OpenAIResponses])
async def test_an_sdk_client_carries_the_bytes_with_its_own_key_and_address(make):
    import openai

    async with ProviderServer(answer) as server:
        async with openai.AsyncOpenAI(api_key="sdk-key", base_url=server.url + "/v1") as client:
            model = make("m", client=client)
            request = ModelRequest(Transcript([to_user_item("Hello")]), tools=(ADD_TOOL,))
            events = [event async for event in model.stream(request)]

        assert isinstance(events[-1], Reply)
        assert events[-1].item.text == "Hello to you."
        assert server.violations == []
        assert server.requests[0].headers["authorization"] == "Bearer sdk-key"
    gc.collect()


@pytest.mark.xdist_group("sdks")
async def test_azures_sdk_client_finds_the_deployment():
    import openai

    async with ProviderServer(answer) as server:
        async with openai.AsyncAzureOpenAI(
            api_key="azure-key", azure_endpoint=server.url, api_version="2025-04-01-preview"
        ) as client:
            model = OpenAIChat("mine", client=client)
            events = [
                e async for e in model.stream(ModelRequest(Transcript([to_user_item("Hello")])))
            ]

        assert isinstance(events[-1], Reply)
        path = server.requests[0].path
        assert path.startswith("/openai/deployments/mine/chat/completions")
        assert server.requests[0].headers["api-key"] == "azure-key"
    gc.collect()

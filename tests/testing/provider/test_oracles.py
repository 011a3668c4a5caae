"""The official SDKs read what the loopback provider writes: it speaks as the real ones do."""

import gc
from typing import Any

import pytest

from treadle.testing.provider import (
    FakeCall,
    FakeRedactedThinking,
    FakeReply,
    FakeText,
    FakeThinking,
    FakeUsage,
    ProviderServer,
)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("sdks")]  # one worker imports them

USAGE = FakeUsage(input=11, output=7, cache_read=3, cache_write=2)
PARTS = (
    FakeThinking("Let me think"),
    FakeText("I shall add"),
    FakeCall("add", {"a": 1, "b": [2]}, id="c1"),
)
ASK: list[dict[str, str]] = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def sdk() -> Any:
    def load(name: str) -> Any:
        module = pytest.importorskip(name)
        gc.collect()
        gc.freeze()  # hundreds of thousands of objects that no later collection should walk
        return module

    return load


async def test_anthropic_reads_our_messages(sdk):
    parts = (FakeRedactedThinking("abc"), *PARTS)
    async with ProviderServer([FakeReply(parts=parts, usage=USAGE)] * 2) as server:
        async with sdk("anthropic").AsyncAnthropic(api_key="k", base_url=server.url) as client:
            asked = {"model": "m", "max_tokens": 100, "messages": ASK}
            async with client.messages.stream(**asked) as stream:
                streamed = await stream.get_final_message()
            whole = await client.messages.create(**asked)
        assert server.violations == []
    for message in (streamed, whole):
        kinds = [block.type for block in message.content]
        assert kinds == ["redacted_thinking", "thinking", "text", "tool_use"]
        assert message.content[1].thinking == "Let me think"
        assert message.content[1].signature
        assert message.content[2].text == "I shall add"
        assert message.content[3].input == {"a": 1, "b": [2]}
        assert message.stop_reason == "tool_use"
        assert message.usage.output_tokens == 7
        assert message.usage.cache_read_input_tokens == 3


async def test_openai_reads_our_chat_completions(sdk):
    async with ProviderServer([FakeReply(parts=PARTS, usage=USAGE)] * 2) as server:
        base = server.url + "/v1"
        async with sdk("openai").AsyncOpenAI(api_key="k", base_url=base) as client:
            async with client.chat.completions.stream(
                model="m", messages=ASK, stream_options={"include_usage": True}
            ) as stream:
                streamed = await stream.get_final_completion()
            whole = await client.chat.completions.create(model="m", messages=ASK)
        assert server.violations == []
    for completion in (streamed, whole):
        choice = completion.choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content == "I shall add"
        assert choice.message.tool_calls[0].id == "c1"
        assert choice.message.tool_calls[0].function.arguments == '{"a":1,"b":[2]}'
        assert completion.usage.prompt_tokens == 14
        assert completion.usage.completion_tokens == 7


async def test_openai_reads_our_responses(sdk):
    async with ProviderServer([FakeReply(parts=PARTS, usage=USAGE)] * 2) as server:
        base = server.url + "/v1"
        async with sdk("openai").AsyncOpenAI(api_key="k", base_url=base) as client:
            async with client.responses.stream(model="m", input=ASK) as stream:
                streamed = await stream.get_final_response()
            whole = await client.responses.create(model="m", input=ASK)
        assert server.violations == []
    for response in (streamed, whole):
        assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
        assert response.output_text == "I shall add"
        assert response.output[2].arguments == '{"a":1,"b":[2]}'
        assert response.output[0].encrypted_content
        assert response.usage.output_tokens == 7

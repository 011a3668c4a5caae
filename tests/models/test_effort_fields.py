"""A wish of thinking reaches each server in its own field; a wish that cannot is told."""

from typing import Any

import msgspec
import pytest

from treadle.core.contracts.model import ModelNotified, ModelOptions, ModelRequest
from treadle.core.transcript import Transcript, to_user_item
from treadle.models.catalog import card_for
from treadle.models.openai_chat import OpenAIChat
from treadle.models.openai_chat.effort_fields import build_effort_fields
from treadle.models.provider_base.quirks import SERVERS
from treadle.testing.provider import FakeReply, ProviderServer


def enabled(**more: object) -> dict[str, object]:
    return {"thinking": {"type": "enabled"}, **more}


DISABLED = {"thinking": {"type": "disabled"}}


@pytest.mark.parametrize(
    ("name", "wish", "fields"),
    [
        ("xai/grok-4.7", "xhigh", {"reasoning_effort": "xhigh"}),
        ("xai/grok-4.7", "none", {"reasoning_effort": "low"}),  # it always thinks
        ("xai/grok-4.7", "auto", {}),
        ("xai/grok-4.5", "xhigh", {"reasoning_effort": "high"}),
        ("xai/grok-4.3", "none", {"reasoning_effort": "none"}),
        ("xai/grok-4-fast-reasoning", "high", {}),
        ("moonshot/kimi-k3.1-pro", "max", {"reasoning_effort": "max"}),
        ("moonshot/kimi-k3.1-pro", "medium", {"reasoning_effort": "low"}),
        ("moonshot/kimi-k3.1-pro", 20_000, {"reasoning_effort": "high"}),
        ("moonshot/kimi-k2.6", "none", DISABLED),
        ("moonshot/kimi-k2.6", "high", enabled()),
        ("moonshot/kimi-k2.7-code", "none", {}),
        ("deepseek/deepseek-v4-pro", "auto", enabled(reasoning_effort="high")),
        ("deepseek/deepseek-v4-pro", "none", DISABLED),
        ("minimax/MiniMax-M3", "high", {"thinking": {"type": "adaptive"}}),
        ("minimax/MiniMax-M3", "none", DISABLED),
        ("minimax/MiniMax-M2.7", "none", {}),
        ("mistral/mistral-small-latest", "none", {"reasoning_effort": "none"}),
        ("mistral/mistral-small-latest", "medium", {"reasoning_effort": "high"}),
        ("mistral/mistral-small-latest", "auto", {}),
        ("mistral/mistral-large-4", "high", {}),
        ("alibaba/qwen3.8-max", "high", {"enable_thinking": True}),
        ("alibaba/qwen3.8-max", "none", {"enable_thinking": False}),
        ("alibaba/qwen3-coder-plus", "none", {}),
        ("together/zai-org/GLM-5.3", "high", {"reasoning": {"enabled": True}}),
        ("together/zai-org/GLM-5.1", "none", {"reasoning": {"enabled": False}}),
        ("together/openai/gpt-oss-120b", "high", {"reasoning_effort": "high"}),
        ("fireworks/accounts/fireworks/models/glm-5p3", "none", {"reasoning_effort": "none"}),
        ("fireworks/accounts/fireworks/models/kimi-k3", "high", {"reasoning_effort": "high"}),
        ("vercel/anthropic/claude-sonnet-5.5", "high", {"reasoning": {"effort": "high"}}),
        ("vercel/anthropic/claude-sonnet-4.5", 9_000, {"reasoning": {"max_tokens": 9_000}}),
        ("huggingface/openai/gpt-oss-20b", "high", {"reasoning_effort": "high"}),
        ("github/openai/gpt-5", "high", {}),
        ("xai/grok-4.7", None, {}),
    ],
)
def test_a_wish_is_sent_in_the_field_of_the_server(name: str, wish: Any, fields: dict[str, object]):
    quirks = SERVERS[name.partition("/")[0]]
    assert build_effort_fields(card_for(name), quirks, ModelOptions(thinking=wish)) == fields


NOT_SENT = "nothing is known to set the thinking of {}: {!r} is not sent"


@pytest.mark.parametrize(
    ("server_name", "name", "wish", "line"),
    [
        ("github", "openai/gpt-5", "high", NOT_SENT.format("github/openai/gpt-5", "high")),
        ("nvidia", "llama-5", "none", NOT_SENT.format("nvidia/llama-5", "none")),
        ("moonshot", "kimi-k3", "medium",
         "moonshot/kimi-k3 does not take the effort 'medium': 'low' is used instead"),
        ("moonshot", "kimi-k3", "none", ""),
        ("moonshot", "kimi-k3", "auto", ""),
        ("mistral", "mistral-large-4", "none", ""),  # it does not think anyway
        ("github", "openai/gpt-5", None, ""),
    ],
)  # fmt: skip
async def test_a_wish_that_is_not_sent_as_it_is_is_told_once_in_a_turn(
    server_name: str, name: str, wish: Any, line: str
):
    request = ModelRequest(Transcript([to_user_item("x")]), options=ModelOptions(thinking=wish))
    summary = msgspec.structs.replace(request, purpose="summary")
    async with ProviderServer([FakeReply("ok")] * 3) as server:
        one = OpenAIChat(name, api_key="k", base_url=f"{server.url}/v1", quirks=server_name)
        told = []
        for asked in (summary, request, request):
            events = [event async for event in one.stream(asked)]
            told += [event.text for event in events if isinstance(event, ModelNotified)]
        await one.aclose()
    assert told == ([line] if line else [])

"""pydantic-ai over Anthropic Messages, with its stream of events."""

from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta


def make_model(task: Any) -> Any:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client: Any = AsyncAnthropic(base_url=task.url, api_key="k", timeout=600)
    return AnthropicModel("claude-sonnet-5-5", provider=AnthropicProvider(anthropic_client=client))


class Engine:
    def __init__(self, task: Any, model: Any = None) -> None:
        self._agent: Any = Agent(model or make_model(task), instructions=task.instructions)
        self._agent.tool_plain(task.make_tool())

    async def run(self) -> int:
        seen = 0
        no_limit = UsageLimits(request_limit=None)
        async with self._agent.run_stream_events("go", usage_limits=no_limit) as events:
            async for event in events:
                if isinstance(event, PartDeltaEvent):
                    seen += isinstance(event.delta, TextPartDelta)
                elif isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    seen += bool(event.part.content)
        return seen


def make_in_process(task: Any, turns: int) -> Engine:
    from pydantic_ai.models.function import DeltaToolCall, FunctionModel

    turn = 0

    async def stream(messages: Any, info: Any) -> AsyncIterator[Any]:
        nonlocal turn
        turn += 1
        yield "word "
        yield "word"
        if turn <= turns:
            call = DeltaToolCall(name="add", json_args='{"a": 1, "b": 2}', tool_call_id=f"c{turn}")
            yield {1: call}

    return Engine(task, FunctionModel(stream_function=stream))

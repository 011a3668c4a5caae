"""Treadle itself. Variants are the formats: anthropic, chat, responses."""

from typing import Any


def make_model(task: Any) -> Any:
    from treadle import models

    if task.variant == "anthropic":
        return models.Anthropic("claude-sonnet-4-5", base_url=task.url, api_key="k")
    kind = models.OpenAIChat if task.variant == "chat" else models.OpenAIResponses
    return kind("loopback", base_url=task.openai_url, api_key="k")


class Engine:
    def __init__(self, task: Any, model: Any = None, function: Any = None) -> None:
        from treadle import Agent, TextDelta, tool

        self._delta = TextDelta
        self._agent = Agent(
            model or make_model(task),
            [tool(function or task.make_tool(), effect="pure", concurrent=True)],
            instructions=task.instructions,
            max_turns=task.max_turns,
        )

    async def run(self) -> int:
        seen = 0
        async with self._agent.stream("go") as events:
            async for event in events:
                seen += type(event) is self._delta
        if events.result.reason != "end_turn":
            raise RuntimeError(f"the turn ended with {events.result.reason}")
        return seen

    async def aclose(self) -> None:
        await self._agent.aclose()


def make_script(turns: int) -> Any:
    from treadle.models import Say, Scripted

    call = ("add", {"a": 1, "b": 2})
    return Scripted([*(Say("word word", calls=[call]) for _ in range(turns)), "done"])


def make_in_process(task: Any, turns: int) -> Engine:
    return Engine(task, make_script(turns))


def make_plain(task: Any, turns: int) -> Engine:
    """In process, with a plain function as the tool."""
    return Engine(task, make_script(turns), task.make_plain_tool())

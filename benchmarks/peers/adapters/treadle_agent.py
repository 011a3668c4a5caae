"""Treadle itself. Variants: the formats anthropic, chat, responses; and with anthropic `journal`
and `sqlite`, which keep the session, `journal_default`, whose tool has no options, and `plain`."""

from typing import Any


def make_model(task: Any) -> Any:
    from treadle import models

    if task.variant in ("chat", "responses"):
        kind = models.OpenAIChat if task.variant == "chat" else models.OpenAIResponses
        return kind("loopback", base_url=task.openai_url, api_key="k")
    return models.Anthropic("claude-sonnet-5-5", base_url=task.url, api_key="k")


class Engine:
    def __init__(self, task: Any, model: Any = None) -> None:
        from treadle import Agent, TextDelta, tool

        self._delta = TextDelta
        function = task.make_plain_tool() if task.variant == "plain" else task.make_tool()
        is_default = task.variant == "journal_default"
        options: Any = {} if is_default else {"effect": "pure", "concurrent": True}
        settings: Any = {}
        self._session = None
        if task.variant in ("sqlite", "journal", "journal_default"):
            is_file = task.variant == "sqlite"
            settings["store"] = task.make_folder() / ("sessions.db" if is_file else "sessions")
            self._session = "one"
        self._agent = Agent(
            model or make_model(task),
            [tool(function, **options)],
            instructions=task.instructions,
            max_turns=task.max_turns,
            **settings,
        )

    async def run(self) -> int:
        seen = 0
        async with self._agent.stream("go", session=self._session) as events:
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

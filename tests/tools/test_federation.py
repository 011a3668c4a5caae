"""Several sources of tools as one: their texts for the model, and what they return wrongly."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import treadle
from treadle import Agent, AgentDefinition, ConfigError, tool
from treadle.contracts import BaseSource
from treadle.models import Say, Scripted
from treadle.tools import StaticSource


@tool
def search(text: str) -> str:
    "Search."
    return text


class Returning(BaseSource[Any]):
    """Has a tool at first, then what a test wants."""

    name = "registry"

    def __init__(self, later: object, good: int = 1) -> None:
        self.later, self.left = later, good

    def tools(self) -> Any:
        self.left -= 1
        return (search,) if self.left >= 0 else self.later


async def give_coroutine() -> list[Any]:
    return [search]


async def test_the_instructions_of_sources_follow_those_of_the_agent():
    model = Scripted(["Yes."])
    catalog = StaticSource([search], "catalog", "Search before you answer.")
    silent = StaticSource([], "silent")
    await Agent(model, [catalog, silent], instructions="Be brief.").run("Is it there?")
    assert model.requests[0].system == "Be brief.\n\nSearch before you answer."


async def test_instructions_of_sources_are_read_once_a_turn():
    class Counted(StaticSource[Any]):
        count = 0

        def instructions(self) -> str:
            self.count += 1
            return f"Text {self.count}."

    model = Scripted([Say(calls=[("search", {"text": "a"})]), "Yes.", "No."])
    agent = Agent(model, [Counted([search])], instructions=lambda: "Be brief.")
    first = await agent.run("Is it there?")
    await agent.run("And now?", history=first.transcript)
    texts = [request.system for request in model.requests]
    assert texts == ["Be brief.\n\nText 1."] * 2 + ["Be brief.\n\nText 2."]


async def test_a_child_without_the_tools_of_its_parent_does_not_read_about_them():
    arguments = {"subagent_type": "poet", "prompt": "Rhyme", "description": "rhyme"}
    model = Scripted([Say(calls=[("task", arguments)]), "Rhymed.", "Done."])
    poet = AgentDefinition("poet", "Writes.", "Write.", tools=())
    catalog = StaticSource([search], "catalog", "Search before you answer.")
    await Agent(model, [catalog], subagents=[poet]).run("A poem")
    about = ["Search before you answer." in request.system for request in model.requests]
    assert about == [True, False, True]


async def test_the_coding_agent_says_what_the_tools_of_a_program_share(tmp_path: Path):
    model = Scripted(["Done."])
    added = StaticSource([search], "catalog", "Search before you answer.")
    async with treadle.coding_agent(tmp_path, model=model, tools=[added]) as agent:
        await agent.run("Look")
    system = model.requests[0].system
    assert system.endswith("Search before you answer.")


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (None, "tools() of 'registry' returned None; return a list of tools"),
        ([7], "tools() of 'registry' returned [7]; return a list of tools"),
        (search, "tools() of 'registry' returned <"),
    ],
)
async def test_what_tools_returns_wrongly_is_named(returned: object, problem: str):
    with pytest.raises(ConfigError, match=re.escape(problem)):
        Agent(Scripted([]), [Returning(returned, good=0)])


async def test_an_async_tools_is_an_error_that_says_so():
    with pytest.raises(ConfigError, match="'registry' is `async`; what takes time is for open"):
        Agent(Scripted([]), [Returning(give_coroutine(), good=0)])


async def test_a_source_that_returns_no_list_later_keeps_its_tools(
    caplog: pytest.LogCaptureFixture,
):
    source = Returning(7, good=100)

    def call_and_break(_: object) -> Say:
        source.left = 0
        return Say(calls=[("search", {"text": "a"})])

    with caplog.at_level("WARNING", "treadle"):
        model = Scripted([call_and_break, lambda request: str(len(request.tools))])
        result = await Agent(model, [source]).run("Is it there?")
    assert result.text == "1"
    assert "tools() of 'registry' failed, its last list stays" in caplog.text


async def test_instructions_of_a_source_that_are_no_text_are_an_error():
    class Wrong(StaticSource[Any]):
        def instructions(self) -> Any:
            return 7

    with pytest.raises(ConfigError, match=re.escape("instructions() of 'wrong' returned 7; ")):
        await Agent(Scripted(["Yes."]), [Wrong([search], "wrong")]).run("Is it there?")

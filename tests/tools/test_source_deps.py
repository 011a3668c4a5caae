"""A source that gives each session tools of its own, by the deps of the session."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, ConfigError, ToolContext, tool
from treadle.agents.agent_definition import AgentDefinition
from treadle.contracts import BaseSource, Tool, ToolSource
from treadle.events import WarningRaised
from treadle.models import Say, Scripted
from treadle.testing import RecordingObserver
from treadle.tools import StaticSource

events: list[str] = []


class Rooms(BaseSource[str]):
    """The tools of a user; notes what is opened and closed."""

    name = "rooms"

    def __init__(self, user: str = "") -> None:
        self.user = user
        self._tools: tuple[Tool[str], ...] = ()

    def bind(self, deps: str) -> ToolSource[str]:
        return Rooms(deps)

    async def open(self) -> None:
        assert self.user, "only the source of a session is opened"
        events.append(f"{self.user} opened")

        @tool(name=f"room_of_{self.user}")
        def enter(context: ToolContext[str]) -> str:
            "Enter."
            return f"{context.deps} is in the room of {self.user}"

        self._tools = (enter,)

    def tools(self) -> Sequence[Tool[str]]:
        return self._tools

    async def aclose(self) -> None:
        events.append(f"{self.user or 'nobody'} closed")


class Shared(StaticSource[Any]):
    async def open(self) -> None:
        events.append("shared opened")

    async def aclose(self) -> None:
        events.append("shared closed")


@pytest.fixture(autouse=True)
def forget_events() -> None:
    events.clear()


def offered(model: Scripted, number: int = 0) -> list[str]:
    return [spec.name for spec in model.requests[number].tools]


def make_agent(model: Scripted, **more: Any) -> Agent[str, str]:
    return Agent(model, [Rooms(), Shared([])], deps_type=str, **more)


async def test_a_session_has_the_tools_of_its_deps_opened_and_closed_with_it(tmp_path: Path):
    model = Scripted([Say(calls=[("room_of_ada", {})]), "Done.", "Hi."])
    async with make_agent(model, store=tmp_path) as agent:
        async with agent.session("a", deps="ada") as session:
            await session.run("Enter")
            await session.run("Hello")
            assert model.requests[1].transcript[-1].text == "ada is in the room of ada"
            assert offered(model, 2) == ["room_of_ada"]
            assert sorted(events) == ["ada opened", "shared opened"]
        assert events[2:] == ["ada closed"]
    assert sorted(events[3:]) == ["nobody closed", "shared closed"]


async def test_sessions_at_once_do_not_see_the_tools_of_each_other():
    model = Scripted(lambda request: " ".join(spec.name for spec in request.tools))
    async with make_agent(model) as agent:
        runs = [agent.run("Which tools?", deps=user) for user in ("ada", "bob", "eve")]
        texts = [result.text for result in await asyncio.gather(*runs)]
    assert texts == ["room_of_ada", "room_of_bob", "room_of_eve"]
    assert events.count("shared opened") == 1
    assert {"ada closed", "bob closed", "eve closed"} <= {*events}


async def test_a_child_agent_has_the_tools_of_the_deps_and_closes_its_own():
    def answer(request: Any) -> Any:
        names = [spec.name for spec in request.tools]
        if "task" in names and request.transcript[-1].text == "Look":
            call = {"prompt": "Enter", "subagent_type": "guest", "description": "x"}
            return Say(calls=[("task", call)])
        return " ".join(names)

    model = Scripted(answer)
    guest = AgentDefinition("guest", "A guest.", "Enter rooms.", tools=["room_of_ada"])
    async with make_agent(model, subagents=[guest]) as agent:
        await agent.run("Look", deps="ada")
    assert offered(model, 1) == ["room_of_ada"]
    assert events.count("ada opened") == events.count("ada closed") == 2


async def test_two_tools_of_one_name_are_an_error_of_the_run():
    @tool(name="room_of_ada")
    def other() -> str:
        "Other."
        return ""

    class Doubled(BaseSource[str]):
        def bind(self, deps: str) -> ToolSource[str]:
            return StaticSource([other], "doubled")

    agent = Agent(Scripted(["x"]), [other, Doubled()], deps_type=str)
    with pytest.raises(ConfigError, match="room_of_ada"):
        await agent.run("x", deps="ada")


def test_a_source_without_bind_is_refused_with_what_to_do():
    class Old:
        name = "old"

        def tools(self) -> Sequence[Tool]:
            return ()

        async def open(self) -> None: ...

    old: Any = Old()
    with pytest.raises(ConfigError, match="derive its class from treadle"):
        Agent(Scripted(["x"]), [old])


async def test_a_bound_source_that_cannot_be_closed_costs_no_result():
    class Sticky(Rooms):
        def bind(self, deps: str) -> ToolSource[str]:
            return Sticky(deps)

        async def aclose(self) -> None:
            raise OSError("it sticks")

    seen = RecordingObserver()
    agent = Agent(Scripted(["done"]), [Sticky()], deps_type=str, observers=[seen])
    assert (await agent.run("go", deps="ada")).text == "done"
    [warning] = seen.events_of(WarningRaised)
    assert "it sticks" in warning.text


async def test_bind_that_returns_no_source_is_an_error_that_names_it():
    class Listed(Rooms):
        def bind(self, deps: str) -> ToolSource[str]:
            return []  # type: ignore[return-value]

    with pytest.raises(ConfigError, match=r"bind\(\) of 'rooms' returned \[\]; return a source"):
        await Agent(Scripted(["done"]), [Listed()], deps_type=str).run("go", deps="ada")

"""Stories of a library that is used wrongly: the error says what is wrong and what to do."""

from __future__ import annotations

import asyncio
import functools
import gc
import math
import warnings
from typing import Any

import pytest

from treadle import Agent, ChildEvent, Document, Image, ToolOutput, tool
from treadle.budgets import CallLimit, RoundLimit, SharedBudget, TimeLimit, TokenBudget
from treadle.core.contracts.tool import BaseTool, ToolContext, ToolSpec
from treadle.core.errors import ConfigError, LoopError
from treadle.core.transcript import Arguments, ToolResultItem
from treadle.models import Pause, Say, Scripted

# --- tools -------------------------------------------------------------------------------


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first
    """
    return a + b


class Adder:
    """Adds one number."""

    def __init__(self, b: int) -> None:
        self._b = b

    async def __call__(self, a: int) -> int:
        return a + self._b


@pytest.mark.parametrize(
    ("function", "name", "description"),
    [
        (functools.partial(add, b=2), "add", "Add two numbers."),
        (functools.partial(functools.partial(add, b=3), b=2), "add", "Add two numbers."),
        (Adder(2), "Adder", "Adds one number."),
        (Adder(2).__call__, "__call__", ""),
    ],
)
async def test_a_partial_and_an_object_that_can_be_called_are_tools(function, name, description):
    model = Scripted([Say(calls=[(name, {"a": 1})]), "done"])
    result = await Agent(model, [function]).run("go")
    [spec] = model.requests[0].tools
    assert (spec.name, spec.description) == (name, description)
    assert list(spec.schema["properties"]) == ["a"]
    assert result.transcript[2].text == "3"


@pytest.mark.parametrize("kind", [Adder, dict, BaseTool])
def test_a_class_is_not_a_tool(kind):
    with pytest.raises(ConfigError, match=f"{kind.__name__} is a class"):
        Agent(Scripted([]), [kind])
    with pytest.raises(ConfigError, match=f"{kind.__name__} is a class"):
        tool(kind)


def test_a_function_without_a_signature_is_refused_with_a_way_out():
    with pytest.raises(ConfigError, match="its parameters cannot be read; write a function"):
        tool({}.update)


async def test_a_tool_whose_schema_is_not_a_dict_is_named():
    class Odd(BaseTool):
        @property
        def spec(self) -> ToolSpec:
            return ToolSpec("odd", "d", True)  # type: ignore[arg-type]

        async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
            return ToolOutput("never")

    with pytest.raises(ConfigError, match="tool 'odd': its schema is True; it must be a dict"):
        await Agent(Scripted(["never"]), [Odd()]).run("go")


@pytest.mark.parametrize("kind", [Image, Document])
async def test_an_image_whose_data_is_text_is_refused_with_the_type_that_it_needs(kind):
    part: Any = kind("image/png", "aGVsbG8=")
    with pytest.raises(TypeError, match=f"{kind.__name__}.data is a str; it must be the bytes"):
        await Agent(Scripted(["never"])).run((part,))

    @tool
    async def show() -> Any:
        return part

    result = await Agent(Scripted([Say(calls=[("show", {})]), "done"]), [show]).run("go")
    assert f"{kind.__name__}.data is a str" in result.transcript[2].text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"run_in_background": "yes"}, 'run_in_background: expected true or false, got "yes"'),
        (
            {"colour": True},
            "colour: not known, expected only description, prompt, subagent_type, "
            "run_in_background, name, continue_agent, max_cost",
        ),
        ({"description": [5]}, "description: expected text, got [5]"),
    ],
)
async def test_a_task_with_wrong_arguments_is_not_started(arguments, problem):
    task = {"description": "work", "prompt": "Work.", **arguments}
    model = Scripted([Say(calls=[("task", task)]), "done"])
    result = await Agent(model, subagents=[]).run("go")
    [answer] = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    assert answer.text == f"error: invalid arguments for task: {problem}"
    assert len(model.requests) == 2


# --- limits ------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, -1, "5", True, None])
@pytest.mark.parametrize("kind", [SharedBudget, TokenBudget, TimeLimit, CallLimit, RoundLimit])
def test_a_limit_is_a_number(kind, value):
    with pytest.raises(ConfigError, match=r"expected a (whole )?number of 0 or more"):
        kind(value)


def test_a_limit_may_be_endless():
    assert SharedBudget(math.inf).reserve(1e12)


# --- runs --------------------------------------------------------------------------------


def test_a_limit_of_rounds_or_calls_is_a_whole_number():
    limit: Any = 1.5
    for make in (RoundLimit, CallLimit, lambda value: Agent(Scripted([]), max_turns=value)):
        with pytest.raises(ConfigError, match="whole number"):
            make(limit)


async def test_a_coroutine_that_a_tool_returns_is_awaited_or_refused_and_closed():
    async def look_up() -> str:
        return "found"

    async def forgetful() -> Any:
        """Forgets to await."""
        return look_up()

    class Raw(BaseTool):
        @property
        def spec(self) -> ToolSpec:
            return ToolSpec("raw", "d", {"type": "object"})

        async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
            return look_up()  # type: ignore[return-value]

    model = Scripted([Say(calls=[("forgetful", {}), ("raw", {})]), "done"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = await Agent(model, [forgetful, Raw()]).run("go")
        gc.collect()
    answers = [item.text for item in result.transcript if isinstance(item, ToolResultItem)]
    assert answers == ["found", "error: the tool returned coroutine, not a ToolOutput"]


async def test_the_events_of_a_stream_need_its_block():
    stream = Agent(Scripted(["never"])).stream("go")
    with pytest.raises(LoopError, match="enter the stream first: async with"):
        await anext(stream)


async def test_a_stream_is_entered_once():
    stream = Agent(Scripted(["done"])).stream("go")
    async with stream as events:
        assert [event async for event in events]
    with pytest.raises(LoopError, match="was entered before"):
        await stream.__aenter__()


async def test_a_closed_driver_calls_no_model():
    model = Scripted(["one", "never"])
    driver = Agent(model).start(prompt="go")
    await driver.next()
    await driver.aclose()
    for use in (driver.submit, driver.steer):
        with pytest.raises(LoopError, match="this driver is closed"):
            use("more")
    with pytest.raises(LoopError, match="this driver is closed"):
        await driver.next()
    assert len(model.requests) == 1
    await driver.aclose()  # may be repeated


async def test_run_sync_inside_an_event_loop_says_what_to_use():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(LoopError, match=r"inside an event loop: await agent.run\(\) instead"):
            Agent(Scripted(["never"])).run_sync("go")


def test_the_event_of_a_child_is_exported():
    assert ChildEvent.__module__ == "treadle.core.events"


@pytest.mark.parametrize(
    ("method", "argument"),
    [("steer", "x"), ("submit", "x"), ("interrupt", "stop"), ("approve", "c"), ("deny", "c")],
)
async def test_a_run_that_is_controlled_from_another_thread_says_how(method: str, argument: str):
    pause = Pause()
    agent = Agent(Scripted([["Let me ", pause, "see."]]))
    async with agent.session("a", store="sessions.db") as session:
        run = asyncio.create_task(session.run("Hi"))
        await pause.reached.wait()
        with pytest.raises(LoopError, match=rf"{method}\(\) .*call_soon_threadsafe"):
            await asyncio.to_thread(getattr(session, method), argument)
        pause.release()
        assert (await run).text == "Let me see."


async def test_a_session_is_not_closed_by_another_thread_while_a_run_is_on():
    pause = Pause()
    async with Agent(Scripted([["Let me ", pause, "see."]])).session("a", store="s.db") as session:
        run = asyncio.create_task(session.run("Hi"))
        await pause.reached.wait()
        with pytest.raises(LoopError, match=r"aclose\(\) .*run_coroutine_threadsafe"):
            await asyncio.to_thread(lambda: asyncio.run(session.aclose()))
        pause.release()
        assert (await run).text == "Let me see."


async def test_a_message_from_another_thread_is_kept_while_nothing_runs():
    async with Agent(Scripted(["Hello."])).session("a", store="sessions.db") as session:
        await asyncio.to_thread(session.submit, "Hi")
        assert (await session.run()).text == "Hello."


@pytest.mark.parametrize(
    ("name", "hint"),
    [("sotre", "did you mean 'store'"), ("metadata", "session.run"), ("id", "first argument")],
)
def test_an_unknown_argument_of_a_session_is_named_with_a_hint(name: str, hint: str):
    wrong: Any = {name: "x"}
    with pytest.raises(TypeError, match=rf"agent\.session has no argument '{name}'; .*{hint}"):
        Agent(Scripted([])).session("a", **wrong)

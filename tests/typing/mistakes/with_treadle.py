"""A program with twenty mistakes: how many does a type checker find? Not run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from treadle import Agent, RunContext, ToolContext, tool
from treadle.contracts import HookInput, PreToolUseData
from treadle.hooks import hook
from treadle.models import Scripted


@dataclass
class Shop:
    town: str


@dataclass
class Other:
    name: str


@dataclass
class Order:
    seats: int


@dataclass
class Refusal:
    reason: str


@tool
async def book(seats: int, context: ToolContext[Shop]) -> str:
    return f"{seats} in {context.deps.town}"


@tool
def add(a: int) -> str:
    return str(a)


@hook("pre_tool_use")
def watch(hook_input: HookInput[PreToolUseData, Other]) -> None:
    print(hook_input.deps.name)


def instruct(context: RunContext[Other]) -> str:
    return context.deps.name


async def check(answer: Refusal, context: RunContext[Shop]) -> str | None:
    return None if answer.reason else context.deps.town


model = Scripted([])
agent = Agent(model, [book], deps_type=Shop, output_type=Order)
plain = Agent(model)


async def main(shop: Shop) -> None:
    result = await agent.run("x", deps=shop)
    print(result.output.seat)  # mistake: attribute of the answer
    await agent.run("x", deps=Other("a"))  # mistake: deps of another type
    await agent.run("x")  # mistake: deps left out
    await plain.run("x", deps=shop)  # mistake: deps of an agent without any
    Agent(model, [book], deps_type=Other)  # mistake: tool for other deps
    Agent(model, [book])  # mistake: tool with deps, agent without
    Agent(model, instructions=instruct, deps_type=Shop)  # mistake: instructions for other deps
    Agent(model, hooks=[watch], deps_type=Shop)  # mistake: hook for other deps
    either = await Agent(model, output_type=Order | Refusal).run("x")
    print(either.output.seats)  # mistake: attribute of a union
    word = await Agent(model, output_type=Literal["yes", "no"]).run("x")
    print(word.output == "maybe")  # mistake: comparison with a Literal
    many = await Agent(model, output_type=list[Order]).run("x")
    print(many.output[0].seat)  # mistake: attribute of an element of a list
    once = await plain.run("x", output=Refusal)
    print(once.output.seats)  # mistake: attribute of the answer of one run
    agent.replace(check_output=check)  # mistake: check for another answer
    Agent(model, instruction="Be brief.")  # mistake: unknown setting
    agent.override(modell=model)  # mistake: unknown setting of a changed agent
    add("1")  # mistake: argument of a tool
    tool(add, efect="pure")  # mistake: unknown option of a tool
    tool(add, timeout="5 s")  # mistake: option of a tool of another type
    await plain.run("x", history="Hello")  # mistake: history that is no history
    async with agent.stream("x", deps=shop) as events:
        async for _ in events:
            pass
    print(events.result.output.seat)  # mistake: attribute of a streamed answer

"""The same program with pydantic-ai, and the same twenty mistakes. Not run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models.test import TestModel


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


async def book(context: RunContext[Shop], seats: int) -> str:
    return f"{seats} in {context.deps.town}"


def add(a: int) -> str:
    return str(a)


class Watch(AbstractCapability[Other]):
    """Its hooks would get a `RunContext[Other]`."""


def instruct(context: RunContext[Other]) -> str:
    return context.deps.name


async def check(context: RunContext[Shop], answer: Refusal) -> Refusal:
    return answer


model = TestModel()
agent = Agent(model, tools=[book], deps_type=Shop, output_type=Order)
other = Agent(model, deps_type=Other)
plain = Agent(model)


async def main(shop: Shop) -> None:
    result = await agent.run("x", deps=shop)
    print(result.output.seat)  # mistake: attribute of the answer
    await agent.run("x", deps=Other("a"))  # mistake: deps of another type
    await agent.run("x")  # mistake: deps left out
    await plain.run("x", deps=shop)  # mistake: deps of an agent without any
    other.tool(book)  # mistake: tool for other deps
    plain.tool(book)  # mistake: tool with deps, agent without
    Agent(model, instructions=instruct, deps_type=Shop)  # mistake: instructions for other deps
    Agent(model, capabilities=[Watch()], deps_type=Shop)  # mistake: hook for other deps
    either = await Agent(model, output_type=Order | Refusal).run("x")
    print(either.output.seats)  # mistake: attribute of a union
    word = await Agent(model, output_type=Literal["yes", "no"]).run("x")
    print(word.output == "maybe")  # mistake: comparison with a Literal
    many = await Agent(model, output_type=list[Order]).run("x")
    print(many.output[0].seat)  # mistake: attribute of an element of a list
    once = await plain.run("x", output_type=Refusal)
    print(once.output.seats)  # mistake: attribute of the answer of one run
    agent.output_validator(check)  # mistake: check for another answer
    Agent(model, instruction="Be brief.")  # mistake: unknown setting
    agent.override(modell=model)  # mistake: unknown setting of a changed agent
    add("1")  # mistake: argument of a tool
    Tool(add, tiemout=5)  # mistake: unknown option of a tool
    Tool(add, timeout="5 s")  # mistake: option of a tool of another type
    await plain.run("x", message_history="Hello")  # mistake: history that is no history
    async with agent.run_stream("x", deps=shop) as streamed:
        answer = await streamed.get_output()
    print(answer.seat)  # mistake: attribute of a streamed answer

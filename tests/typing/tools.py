"""Typed programs with `@tool`, and the types that checkers must find in them. Not run.

mypy and pyright read this file in ./check: `assert_type` compares a type, and an ignored line must
be an error (`warn_unused_ignores`, `reportUnnecessaryTypeIgnoreComment`).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import assert_type

from treadle import Agent, ToolContext, tool
from treadle.contracts import BaseSource, Tool, ToolSource
from treadle.testing.provider import FakeCall
from treadle.tools import StaticSource
from treadle.tools.function import FunctionTool


@dataclass
class Shop:
    town: str


# A decorated function is called and checked as before.


@tool
def add(a: int, b: int = 2) -> int:
    "Add two numbers."
    return a + b


assert_type(add(1), int)
assert_type(add(1, b=3), int)
add("1")  # type: ignore[arg-type]
add(1, c=3)  # type: ignore[call-arg]
assert_type(add.spec.name, str)


@tool(effect="pure", timeout=3, approval=True)
async def fetch(url: str, *, tries: int = 1) -> bytes:
    "Fetch a page."
    return b""


async def use_fetch() -> None:
    assert_type(await fetch("x", tries=2), bytes)
    await fetch(3)  # type: ignore[arg-type]


# A wrong option is an error.

tool(name="x", efect="pure")  # type: ignore[call-overload]
tool(effect="none")  # type: ignore[call-overload]
tool(timeout="3")  # type: ignore[call-overload]


# Methods: the object is bound, its parameters stay.


class Till:
    @tool
    def pay(self, amount: int) -> str:
        "Pay."
        return str(amount)

    @tool(effect="pure")
    async def balance(self) -> int:
        return 0


till = Till()
assert_type(till.pay(3), str)
assert_type(Till.pay(till, 3), str)
till.pay("3")  # type: ignore[arg-type]


async def use_till() -> None:
    assert_type(await till.balance(), int)


# Without the decorator; partials and callables.


def greet(name: str, greeting: str) -> str:
    return greeting + name


assert_type(tool(greet)("Ada", "Hello"), str)
assert_type(tool(greet, name="hello")("Ada", "Hello"), str)
assert_type(tool(functools.partial(greet, greeting="Hi"))("Ada"), str)


class Greeter:
    def __call__(self, name: str) -> int:
        return len(name)


assert_type(tool(Greeter(), name="greet")("Ada"), int)


# The context knows its deps.


@tool
async def book(seats: int, context: ToolContext[Shop]) -> str:
    assert_type(context.deps, Shop)
    assert_type(context.deps.town, str)
    return context.deps.town


@tool
async def look(context: ToolContext) -> str:
    assert_type(context.deps, object)
    return ""


async def use_book(context: ToolContext[Shop], other: ToolContext[int]) -> None:
    assert_type(await book(2, context), str)
    await book(2, other)  # type: ignore[arg-type]


many: list[FunctionTool] = [add, fetch, till.pay, book, look]
agent = Agent("anthropic/claude-sonnet-5-5", [add, fetch, till.pay, greet, Greeter(), *many])

# A tool of a function is a Tool, which may say what it depends on.

as_tools: list[Tool] = [tool(greet), tool(greet, name="hello", effect="pure"), book, look]
of_a_shop: list[Tool[Shop]] = [add, till.pay, book, look]
of_a_number: list[Tool[int]] = [book]  # type: ignore[list-item]


class Office:
    @tool
    def sell(self, seats: int, context: ToolContext[Shop], *, price: float = 1.0) -> str:
        "Sell."
        return context.deps.town

    @tool(effect="pure")
    async def count(self, context: ToolContext[Shop]) -> int:
        return len(context.deps.town)


def use_office(office: Office, context: ToolContext[Shop]) -> None:
    assert_type(office.sell(seats=2, context=context, price=2.0), str)
    Agent("sonnet", [office.sell, office.count, add], deps_type=Shop)
    Agent("sonnet", [office.sell])  # type: ignore[list-item]
    Agent("sonnet", [office.count])  # type: ignore[list-item]


class Rights(BaseSource[Shop]):
    def bind(self, deps: Shop) -> ToolSource[Shop]:
        return StaticSource([book] if deps.town else [])


fitting: ToolSource[Shop] = Rights()
for_any: ToolSource[int] = StaticSource([add])
of_other: ToolSource[int] = Rights()  # type: ignore[assignment]
with_other: ToolSource[int] = StaticSource([book])  # type: ignore[list-item]
Agent("sonnet", [Rights(), add], deps_type=Shop)
Agent("sonnet", [Rights()])  # type: ignore[list-item]
Agent("sonnet", [Rights()], deps_type=int)  # type: ignore[misc]

city: dict[str, str] = {"city": "Graz"}
FakeCall("weather", city)

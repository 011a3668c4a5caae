"""Typed programs with agents, and the types that checkers must find in them. Not run.

mypy and pyright read this file in ./check: `assert_type` compares a type, and an ignored line must
be an error (`warn_unused_ignores`, `reportUnnecessaryTypeIgnoreComment`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, assert_type

from treadle import Agent, Approval, Denial, PendingApproval, Result, RunContext, Session, Stream
from treadle.models import Scripted


@dataclass
class Shop:
    name: str


@dataclass
class Order:
    seats: int


model = Scripted([])
plain = Agent(model)
assert_type(plain, Agent[None, str])
shop = Agent(model, deps_type=Shop)
assert_type(shop, Agent[Shop, str])
typed = Agent(model, deps_type=Shop, output_type=Order)
assert_type(typed, Agent[Shop, Order])
listed = Agent(model, output_type=list[int])
assert_type(listed, Agent[None, list[int]])
either = Agent(model, output_type=int | Order)
assert_type(either, Agent[None, int | Order])
one_word = Agent(model, output_type=Literal["yes", "no"])
assert_type(one_word, Agent[None, Literal["yes", "no"]])
by_schema = Agent(model, output_type={"type": "object"})
assert_type(by_schema, Agent[None, Any])


def decide(approval: PendingApproval) -> Approval | Denial:
    if approval.arguments["n"] > 9:
        return Denial("too many")
    return Approval(arguments={**approval.arguments, "n": 1})


def instruct(context: RunContext[Shop]) -> str:
    return assert_type(context.deps, Shop).name


async def instruct_later() -> str:
    return "Be brief."


Agent(model, instructions=instruct, approve=decide, max_turns=3, deps_type=Shop)
Agent(model, instructions=instruct_later, approve=lambda approval: True)
Agent(model, instructionss="x")  # type: ignore[call-overload]
Agent(model, max_turns="3")  # type: ignore[call-overload]
Agent(3)  # type: ignore[call-overload]


async def run() -> None:
    assert_type(await plain.run("x"), Result[str])
    assert_type((await plain.run("x")).output, str)
    assert_type((await typed.run("x", deps=Shop("a"))).output, Order)
    assert_type((await typed.run("x", deps=Shop("a"), output=int)).output, int)
    assert_type((await plain.run("x", output=list[str])).output, list[str])
    assert_type((await plain.run("x", output=int | str)).output, int | str)
    await typed.run("x", deps=3)  # type: ignore[call-overload]
    await plain.run("x", metadatas={})  # type: ignore[call-overload]
    await plain.run(["look", "here"], session="a", metadata={"job": 1})


def run_sync() -> None:
    assert_type(typed.run_sync("x", deps=Shop("a")), Result[Order])
    assert_type(plain.run_sync("x", output=Order), Result[Order])
    with typed.session_sync("x", deps=Shop("a")) as session:
        assert_type(session.run("x").output, Order)
        assert_type(session.stream("x", output=int | str).result.output, int | str)


async def stream() -> None:
    async with typed.stream("x", deps=Shop("a")) as events:
        assert_type(events, Stream[Order])
        assert_type(events.partial_output, Order | None)
    assert_type(events.result, Result[Order])


async def session() -> None:
    async with typed.session("order-42", deps=Shop("a")) as one:
        assert_type(one, Session[Shop, Order])
        assert_type((await one.run("x")).output, Order)
        assert_type((await one.run("x", output=int)).output, int)
        assert_type(one.stream("x"), Stream[Order])
        assert_type(one.stream("x", output=int), Stream[int])


def replace() -> None:
    assert_type(typed.replace(max_turns=3), Agent[Shop, Order])
    assert_type(typed.replace(output_type=int), Agent[Shop, int])
    assert_type(typed.replace(output_type=list[int], max_turns=3), Agent[Shop, list[int]])
    assert_type(typed.replace(output_type=int | Order), Agent[Shop, int | Order])
    assert_type(typed.replace(output_type={"type": "object"}), Agent[Shop, Any])
    assert_type(plain.replace(deps_type=Shop), Agent[Shop, str])
    assert_type(plain.replace(deps_type=Shop, output_type=Order), Agent[Shop, Order])
    assert_type(plain.replace(deps_type=Shop, output_type=int | Order), Agent[Shop, int | Order])
    typed.replace(max_turn=3)  # type: ignore[call-overload]
    typed.replace(max_turns="3")  # type: ignore[call-overload]


def annotated() -> None:
    union: Agent[None, int | Order] = Agent(model, output_type=int | Order)
    assert_type(union.run_sync("x").output, int | Order)
    one_of: Agent[None, Literal["yes", "no"]] = Agent(model, output_type=Literal["yes", "no"])
    assert_type(one_of.run_sync("x").output, Literal["yes", "no"])
    once: Result[int | Order] = plain.run_sync("x", output=int | Order)
    assert_type(once.output, int | Order)


async def sell(seats: int) -> Order:
    return Order(seats)


def count(seats: int) -> int:
    return seats


def output_functions() -> None:
    assert_type(Agent(model, output_type=sell), Agent[None, Order])
    assert_type(Agent(model, output_type=count, deps_type=Shop), Agent[Shop, int])
    assert_type(plain.run_sync("x", output=count).output, Any)


def override() -> None:
    with typed.override(model=model, tools=[], deps=Shop("a")):
        pass
    typed.override(deps=3)  # type: ignore[arg-type]
    typed.override(modell=model)  # type: ignore[call-arg]


async def session_without_deps() -> None:
    async with Agent("sonnet").session("order-42") as session:
        assert_type(await session.run("x"), Result[str])

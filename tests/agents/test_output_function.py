"""A function as the output type: it makes the answer, or refuses it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from treadle import Agent, OutputMismatch, RunContext, ToolContext, ToolError
from treadle.contracts import ModelCard
from treadle.models import Say, Scripted


@dataclass
class Shop:
    seats: dict[str, int]


@dataclass
class Ticket:
    row: str
    price: float


async def sell(row: str, seats: int, context: ToolContext[Shop]) -> Ticket:
    """Sell seats of a row."""
    left = context.deps.seats.get(row, 0)
    if seats > left:
        raise ToolError(f"row {row} has {left} seats")
    return Ticket(row, 12.5 * seats)


SCHEMA = ModelCard("scripted", abilities=frozenset({"tools", "schema"}))


async def test_the_answer_is_what_the_function_returns():
    model = Scripted(['{"row": "A", "seats": 2}'], card=SCHEMA)
    agent = Agent(model, deps_type=Shop, output_type=sell)
    result = await agent.run("Two", deps=Shop({"A": 9}))
    assert result.output == Ticket("A", 25.0)
    assert model.requests[0].options.output_schema is not None


async def test_its_refusal_goes_to_the_model_which_answers_again():
    first, second = (Say(calls=[("final_answer", {"row": r, "seats": 2})]) for r in "AB")
    model = Scripted([first, second])
    agent = Agent(model, deps_type=Shop, output_type=sell)
    result = await agent.run("Two", deps=Shop({"A": 1, "B": 5}))
    assert result.output == Ticket("B", 25.0)
    assert "row A has 1 seats" in model.requests[1].transcript[-1].text
    assert "Sell seats of a row." in model.requests[0].tools[0].description


async def test_a_refusal_of_the_last_attempt_is_an_error():
    model = Scripted(lambda request: '{"row": "A", "seats": 2}')
    agent = Agent(model, deps_type=Shop, output_type=sell)
    with pytest.raises(OutputMismatch, match="row A has 0 seats"):
        await agent.run("Two", deps=Shop({}), output_retries=1)
    assert len(model.requests) == 2


async def test_arguments_that_do_not_fit_are_not_given_to_the_function():
    model = Scripted(['{"row": "A", "seats": "many"}', '{"row": "A", "seats": 1}'], card=SCHEMA)
    seen: list[int] = []

    def count(row: str, seats: int) -> int:
        seen.append(seats)
        return seats

    assert (await Agent(model).run("One", output=count)).output == 1
    assert seen == [1]


async def test_a_check_refuses_an_answer_by_an_error_as_well():
    def check(answer: str, context: RunContext[None]) -> None:
        if "please" not in answer:
            raise ToolError("say please")

    model = Scripted(["Two tickets.", "Two tickets, please."])
    result = await Agent(model, check_output=check).run("Order")
    assert result.text == "Two tickets, please."
    assert "say please" in model.requests[1].transcript[-1].text


async def test_a_check_of_the_agent_gets_what_the_function_made():
    model = Scripted(lambda request: '{"row": "A", "seats": 2}')
    agent = Agent(
        model,
        deps_type=Shop,
        output_type=sell,
        check_output=lambda ticket, context: "too expensive" if ticket.price > 20 else None,
    )
    with pytest.raises(OutputMismatch, match="too expensive"):
        await agent.run("Two", deps=Shop({"A": 9}))

"""Answers with a type: the agent's `output_type`, another one for a run, and what does not fit.

Dataclasses, msgspec Structs, pydantic models, TypedDicts, lists, unions and JSON schemas work. An
answer that does not fit goes back to the model with the reason, `output_retries` times.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from treadle import Agent, OutputMismatch
from treadle.contracts import ModelCard
from treadle.models import Scripted


@dataclass
class Line:
    article: str
    count: Annotated[int, Meta(ge=1)]


@dataclass
class Order:
    customer: str
    lines: list[Line]


@dataclass
class Mood:
    is_friendly: bool


MODEL = Scripted(
    [
        '{"customer": "Ada", "lines": [{"article": "lamp", "count": 0}]}',  # count is too small
        '{"customer": "Ada", "lines": [{"article": "lamp", "count": 2}]}',
        '{"is_friendly": true}',
        "I cannot say.",
    ],
    card=ModelCard("scripted", abilities=frozenset({"schema"})),
)


async def main() -> None:
    agent = Agent(MODEL, output_type=Order)
    order = (await agent.run("Ada here, two lamps please!")).output  # an Order
    print(f"{order.customer} orders {order.lines[0].count} x {order.lines[0].article}")
    print(f"requests so far: {len(MODEL.requests)}; the first answer did not fit")
    mood = (await agent.run("Is she friendly?", output=Mood)).output  # a Mood
    print("friendly:", mood.is_friendly)
    try:
        await agent.run("What did Bob order?", output_retries=0)
    except OutputMismatch as error:
        print("OutputMismatch:", error)


if __name__ == "__main__":
    asyncio.run(main())

"""Tools are typed functions: dataclasses and plain types as parameters, with limits.

The model gets a schema that is made from the types and the docstring. Arguments that do not fit go
back to the model with the reason, and the function is not called. What a run depends on reaches
the tools as `context.deps`, with its type.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from treadle import Agent, ToolContext, ToolFinished, tool
from treadle.models import Say, Scripted


@dataclass
class Guest:
    name: str
    age: Annotated[int, Meta(ge=0, description="in years")]


@dataclass(frozen=True)
class Seat:
    row: int
    number: int


@dataclass
class Cinema:
    tickets: dict[Seat, Guest] = field(default_factory=dict[Seat, Guest])


@tool(effect="pure")
def list_free_seats(row: int, context: ToolContext[Cinema]) -> list[Seat]:
    """List the seats of a row that are free. A plain function runs in a thread."""
    seats = [Seat(row, number) for number in (1, 2)]
    return [seat for seat in seats if seat not in context.deps.tickets]


@tool
async def book(guest: Guest, seat: Seat, context: ToolContext[Cinema]) -> str:
    """Book a seat for a guest."""
    context.deps.tickets[seat] = guest
    return f"{guest.name} has row {seat.row}, seat {seat.number}"


SEAT = {"row": 7, "number": 1}
MODEL = Scripted(
    [
        Say(calls=[("list_free_seats", {"row": 7})]),
        Say(calls=[("book", {"guest": {"name": "Ada", "age": -1}, "seat": SEAT})]),  # refused
        Say(calls=[("book", {"guest": {"name": "Ada", "age": 36}, "seat": SEAT})]),
        "Booked.",
    ]
)


async def main() -> None:
    cinema = Cinema()
    agent = Agent(MODEL, [list_free_seats, book], deps_type=Cinema)
    async with agent.stream("A seat in row 7 for Ada, 36", deps=cinema) as events:
        async for event in events:
            if isinstance(event, ToolFinished):
                print("refused:" if event.is_error else "result:", event.result)
    print(events.result.output, cinema.tickets)


if __name__ == "__main__":
    asyncio.run(main())

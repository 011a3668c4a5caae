"""A tool of your own, as a class: it tells after a crash whether a booking was made."""

from __future__ import annotations

import asyncio
from typing import Any

from treadle import Agent, ToolContext, ToolError, ToolOutput
from treadle.contracts import Access, Arguments, BaseTool, Preview, ProbeResult, ToolSpec
from treadle.models import Say, Scripted

SEAT = {"type": "object", "properties": {"seat": {"type": "string"}}, "required": ["seat"]}


class Book(BaseTool):
    @property
    def spec(self) -> ToolSpec:
        return ToolSpec("book", "Book a seat.", SEAT, effect="verifiable")

    def __init__(self, seats: dict[str, str]) -> None:
        self._seats = seats  # the key of the booking by seat, "" while it is free

    def check(self, arguments: Arguments) -> str | None:
        return None if isinstance(arguments.get("seat"), str) else "give the seat, such as 12A"

    def summary(self, arguments: Arguments) -> str:
        return f"[book {arguments.get('seat', '?')}]"

    def access(self, arguments: Arguments, session_id: str) -> Access:
        return Access(writes=frozenset({f"seat:{arguments['seat']}"}))

    async def preview(self, arguments: Arguments, context: ToolContext) -> Preview | None:
        return Preview("text", f"Seat {arguments['seat']} is booked and paid.")

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        seat, key = arguments["seat"], context.idempotency_key
        if self._seats.get(seat) not in ("", key):  # the same call again is no second booking
            free = ", ".join(name for name, owner in self._seats.items() if not owner)
            raise ToolError(f"{seat} is not free; choose one of {free or 'the next train'}")
        self._seats[seat] = key
        return ToolOutput(f"{seat} is booked", display=f"booked {seat}")

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        owner = self._seats.get(arguments["seat"])
        is_done = owner == context.idempotency_key
        return ProbeResult("done" if is_done else "not_done", f"the seat belongs to {owner!r}")


async def main() -> None:
    model = Scripted([Say(calls=[("book", {"seat": "12A"})]), "12A is yours."])
    print((await Agent(model, [Book({"12A": "", "12B": ""})]).run("A seat, please")).text)


if __name__ == "__main__":
    asyncio.run(main())

"""The events of a run while it works: text, calls, results; and a message in the middle.

Leaving the `async with` block early interrupts the run. docs/events.md has all events.
"""

from __future__ import annotations

import asyncio

from treadle import Agent, TextDelta, ToolFinished, ToolStarted, tool
from treadle.models import Say, Scripted


@tool(effect="pure")
async def weather(city: str) -> str:
    """The weather in a city."""
    return f"{city}: sunny, 24 degrees"


MODEL = Scripted(
    [
        Say("Let me look. ", calls=[("weather", {"city": "Graz"})]),
        Say("And Linz. ", calls=[("weather", {"city": "Linz"})]),
        "Both are sunny, with 24 degrees.",
    ]
)


async def main() -> None:
    async with Agent(MODEL, [weather]).stream("How is it in Graz?") as events:
        async for event in events:
            match event:
                case TextDelta(text=text):
                    print(text, end="", flush=True)
                case ToolStarted(summary=summary):
                    print(summary, end=" ")
                    if "Graz" in summary:
                        events.steer("And in Linz?")  # read before the next request
                case ToolFinished(result=result):
                    print("->", result)
                case _:
                    pass
    print(f"\n{events.result.reason}, {events.result.usage.requests} requests")


if __name__ == "__main__":
    asyncio.run(main())

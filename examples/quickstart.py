"""The library on one screen: a tool, an agent, and three ways to run it.

Without arguments it uses a scripted model and needs no key. With the name of a real model:

    python examples/quickstart.py anthropic/claude-sonnet-4-5
"""

from __future__ import annotations

import asyncio
import sys

from treadle import AfterToolResult, Agent, AwaitingInput, Finished, TextDelta, tool
from treadle.models import Say, Scripted


@tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def scripted() -> Scripted:
    return Scripted([Say(calls=[("add", {"a": 2, "b": 3})]), "2 + 3 = 5"] * 3)


async def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else scripted()
    agent = Agent(model, tools=[add], instructions="Be brief.", max_turns=50)

    result = await agent.run("What is 2 + 3?")
    print(result.text, f"({result.reason}, {result.turn.rounds} tool round)")

    async with agent.stream("And again?") as events:
        async for event in events:
            match event:
                case TextDelta(text=text):
                    print(text, end="", flush=True)
    print()

    driver = agent.start()
    while True:
        match await driver.next():
            case AwaitingInput() as ask:
                ask.submit("Once more, step by step.")
            case AfterToolResult(results=results):
                print("tool result:", results[0].text)
            case Finished(result=turn):
                print(turn.text)
                break
    await driver.aclose()
    await agent.aclose()


if __name__ == "__main__":
    asyncio.run(main())

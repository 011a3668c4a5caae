"""The library on one screen: a tool, an agent, a run, and a second run that continues it.

Without arguments it uses a scripted model and needs no key. With the name of a real model:

    python examples/quickstart.py anthropic/claude-sonnet-5-5
"""

from __future__ import annotations

import asyncio
import sys

from treadle import Agent, tool
from treadle.models import Say, Scripted


@tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def scripted() -> Scripted:
    return Scripted([Say(calls=[("add", {"a": 2, "b": 3})]), "2 + 3 = 5", "I called add."])


async def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else scripted()
    async with Agent(model, [add], instructions="Be brief.") as agent:
        result = await agent.run("What is 2 + 3?")
        print(result.output, f"({result.reason}, tool rounds: {result.turn.rounds})")
        more = await agent.run("How did you find out?", history=result.transcript)
        print(more.output)


if __name__ == "__main__":
    asyncio.run(main())

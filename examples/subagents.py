"""Two child agents at the same time, and the totals of all three agents.

A child agent does not see the conversation of its parent; its last reply is the result of the call.
Without arguments it uses a scripted model and needs no key. With the name of a real model:

    python examples/subagents.py anthropic/claude-sonnet-4-5
"""

from __future__ import annotations

import asyncio
import sys

from treadle import Agent, AgentDefinition, UserItem, tool
from treadle.contracts import ModelRequest
from treadle.models import Say, Scripted
from treadle.observe import Totals

LENGTHS = {"Danube": 2_850, "Rhine": 1_230}


@tool(effect="pure")
async def length_of(river: str) -> int:
    """The length of a river in kilometres."""
    return LENGTHS[river]


CLERK = AgentDefinition(
    "clerk",
    "Looks up one fact and reports it.",
    "Look up what you are asked, with your tool, and answer in one sentence.",
    tools=("length_of",),
)


def answer(request: ModelRequest) -> Say | str:
    """The scripted replies of the parent and of the children."""
    first = request.transcript[0]
    assert isinstance(first, UserItem)
    river = next((river for river in LENGTHS if first.text == f"How long is the {river}?"), "")
    has_results = len(request.transcript) > 1
    if river:
        if not has_results:
            return Say(calls=[("length_of", {"river": river})])
        return f"The {river} is {LENGTHS[river]} km long."
    if has_results:
        return "The Danube is the longer one."
    return Say(
        calls=[
            (
                "task",
                {
                    "description": f"length of the {river}",
                    "prompt": f"How long is the {river}?",
                    "subagent_type": "clerk",
                },
            )
            for river in LENGTHS
        ]
    )


async def main() -> None:
    totals = Totals()
    model = sys.argv[1] if len(sys.argv) > 1 else Scripted(answer)
    agent = Agent(model, [length_of], subagents=[CLERK], observers=[totals])
    result = await agent.run("Which is longer, the Danube or the Rhine? Ask one clerk for each.")
    print(result.text)
    print(f"{len(totals.child_sessions)} children; {totals}")
    await agent.aclose()


if __name__ == "__main__":
    asyncio.run(main())

"""A budget in money: the request that would break it is never sent, a last word is.

A purse is shared by an agent and all of its children. Here a model that would work for ever has
five and a half cents, and pays a cent a reply. Runs as it is, with a scripted model.
"""

from __future__ import annotations

import asyncio

from treadle import Agent, Usage, tool
from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.models import Say, Scripted
from treadle.policy.budgets import CostBudget, SharedBudget

CARD = ModelCard("priced", max_output=500, input_price=1.0, output_price=10.0)
A_CENT = Usage(input=5_000, output=500, requests=1, cost=0.01)


@tool(effect="pure")
async def look(place: int) -> str:
    """Look at one place."""
    return f"nothing at {place}"


def answer(request: ModelRequest) -> Say:
    """Looks on and on; sums up when it is told that the budget ends."""
    if request.options.tool_choice == "none":
        return Say("I looked at some places and found nothing yet.", usage=A_CENT)
    return Say(calls=[("look", {"place": len(request.transcript)})], usage=A_CENT)


async def main() -> None:
    purse = SharedBudget(0.055)
    agent = Agent(Scripted(answer, card=CARD), [look], gates=[CostBudget(purse)])
    result = await agent.run("Find it.")
    print(f"{result.reason}: {result.turn.metadata['detail']}")
    print(f"after {result.turn.rounds} rounds it said: {result.text}")
    print(f"spent {purse.spent:.3f} of {purse.limit:.3f} USD")
    assert purse.spent <= purse.limit
    await agent.aclose()


if __name__ == "__main__":
    asyncio.run(main())

"""A budget in money: a request that would exceed it is not sent; one closing reply is.

A SharedBudget is shared by an agent and all of its child agents. Here the model would never stop;
the budget is 5.5 cents, and each reply costs one cent. Uses a scripted model and needs no key.
"""

from __future__ import annotations

import asyncio

from treadle import Agent, Usage, tool
from treadle.budgets import CostBudget, SharedBudget
from treadle.contracts import ModelCard, ModelRequest
from treadle.models import Say, Scripted

CARD = ModelCard("priced", max_output=500, input_price=1.0, output_price=10.0)
ONE_CENT = Usage(input=5_000, output=500, requests=1, cost=0.01)


@tool(effect="pure")
async def look(place: int) -> str:
    """Look at one place."""
    return f"nothing at {place}"


def answer(request: ModelRequest) -> Say:
    """Calls the tool without end; writes a summary when tools are not allowed any more."""
    if request.options.tool_choice == "none":
        return Say("I looked at some places and found nothing yet.", usage=ONE_CENT)
    return Say(calls=[("look", {"place": len(request.transcript)})], usage=ONE_CENT)


async def main() -> None:
    budget = SharedBudget(0.055)
    agent = Agent(Scripted(answer, card=CARD), [look], gates=[CostBudget(budget)])
    result = await agent.run("Find it.")
    print(f"{result.reason}: {result.turn.metadata['detail']}")
    print(f"closing reply after {result.turn.rounds} rounds: {result.text}")
    print(f"spent {budget.spent:.3f} of {budget.limit:.3f} USD")
    assert budget.spent <= budget.limit
    await agent.aclose()


if __name__ == "__main__":
    asyncio.run(main())

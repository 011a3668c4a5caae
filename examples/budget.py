"""One budget for an agent and all of its child agents.

The worst case of each request is reserved before it is sent, so a request that could exceed the
budget is not sent, also when several children work at once; one short closing reply is still paid.
The parent gives each child a part of it; what a child leaves is still the parent's.
A child does not see the conversation of its parent; its last reply is the result of the call.
"""

from __future__ import annotations

import asyncio

from treadle import Agent, AgentDefinition, Usage, UserItem, tool
from treadle.budgets import CostBudget, SharedBudget
from treadle.contracts import ModelCard, ModelRequest
from treadle.models import Say, Scripted
from treadle.observe import Totals

CARD = ModelCard("priced", max_output=500, input_price=1.0, output_price=10.0)
ONE_CENT = Usage(input=5_000, output=500, requests=1, cost=0.01)
CLERK = AgentDefinition("clerk", "Looks at places.", "Look at every place.", tools=("look",))
PLACES = ("cellar", "attic", "garden")


@tool(effect="pure")
async def look(place: str) -> str:
    """Look at a place."""
    return f"nothing in the {place}"


def answer(request: ModelRequest) -> Say:
    """Each clerk would look for ever; every reply costs a cent."""
    first = request.transcript[0]
    assert isinstance(first, UserItem)
    place = first.text.removeprefix("Search the ")
    if request.options.tool_choice == "none":
        return Say("Nothing was found before the money ran out.", usage=ONE_CENT)
    if place in PLACES:
        return Say(calls=[("look", {"place": place})], usage=ONE_CENT)
    if len(request.transcript) > 1:
        return Say("The clerks found nothing.", usage=ONE_CENT)
    work = [
        {"description": p, "prompt": f"Search the {p}", "subagent_type": "clerk", "max_cost": 0.05}
        for p in PLACES
    ]
    return Say(calls=[("task", one) for one in work], usage=ONE_CENT)


async def main() -> None:
    budget, totals = SharedBudget(0.20), Totals()
    gates = [CostBudget(budget)]
    model = Scripted(answer, card=CARD)
    agent = Agent(model, [look], subagents=[CLERK], gates=gates, observers=[totals])
    result = await agent.run("Find the key. Ask a clerk for each place.")
    print("a child reports:", result.transcript[2].text)
    print(f"{result.reason}: {result.text}")
    print(f"{len(totals.child_sessions)} children and their parent: {totals}")
    print(f"spent {budget.spent:.2f} of {budget.limit:.2f} USD in {len(model.requests)} requests")
    assert budget.spent <= budget.limit


if __name__ == "__main__":
    asyncio.run(main())

"""Research: an agent plans, several searchers, agents as tools, look at the same time, one writes.

    python examples/products/research.py

What they use, their budget, their events and spans are those of the run.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from treadle import Agent, ChildEvent, ToolStarted, tool
from treadle.budgets import TokenBudget
from treadle.contracts import ModelRequest
from treadle.models import Say, Scripted

MODEL, SMALL = "anthropic/claude-sonnet-5-5", "anthropic/claude-haiku-5-5"
PAGES = {"tea": "Tea grows in Assam.", "coffee": "Coffee grows in Ethiopia."}


@dataclass
class Report:
    text: str
    sources: list[str]


@tool(effect="pure")
async def search(word: str) -> str:
    """Search the web."""
    return PAGES.get(word, "nothing")


searcher = Agent(SMALL, [search], instructions="Find the facts. Name the page.")
researcher = Agent(
    MODEL,
    [searcher.as_tool("look_up", "Finds out one thing.")],
    instructions="Plan, look things up at the same time, then write.",
    output_type=Report,
    gates=[TokenBudget(100_000)],
)


async def research(question: str) -> Report:
    async with researcher.stream(question) as events:
        async for event in events:
            if isinstance(event, ChildEvent) and isinstance(event.child, ToolStarted):
                print("a searcher:", event.child.summary)
    return events.result.output


# --- the show: what a real model would do ----------------------------------------------------


def plan(request: ModelRequest) -> Say:
    found = [item.text for item in request.transcript if hasattr(item, "call_id")]
    if not found:
        return Say(calls=[("look_up", {"prompt": f"Where does {one} grow?"}) for one in PAGES])
    return Say(
        f'{{"text": "{" ".join(found)}", "sources": {len(found) * ["web"]!r}}}'.replace("'", '"')
    )


def look(request: ModelRequest) -> Say:
    word = request.transcript[0].text.split()[2]
    is_found = len(request.transcript) > 1
    return Say(request.transcript[-1].text) if is_found else Say(calls=[("search", {"word": word})])


async def main() -> None:
    with researcher.override(model=Scripted(plan)), searcher.override(model=Scripted(look)):
        report = await research("Where do tea and coffee grow?")
    print(report.text, len(report.sources), "sources")


if __name__ == "__main__":
    asyncio.run(main())

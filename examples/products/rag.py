"""Retrieval: the agent searches a store of passages, answers from them, and has to cite them.

    python examples/products/rag.py

`check_output` refuses an answer whose sources were not found; the model reads why and tries again.
The store here counts words; a database of vectors is asked in the same place.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from treadle import Agent, RunContext, ToolContext, ToolError, tool
from treadle.models import Say, Scripted


@dataclass
class Passages:
    texts: dict[str, str]
    found: set[str] = field(default_factory=set[str])

    def search(self, query: str, limit: int = 2) -> dict[str, str]:
        words = Counter(query.lower().split())
        score = {
            name: sum((Counter(t.lower().split()) & words).values())
            for name, t in self.texts.items()
        }
        best = sorted((name for name in score if score[name]), key=lambda name: -score[name])
        return {name: self.texts[name] for name in best[:limit]}


@dataclass
class Answer:
    text: str
    sources: list[str]


@tool(effect="pure")
def search(context: ToolContext[Passages], query: str) -> dict[str, str]:
    """Search the handbook; passages by their names."""
    found = context.deps.search(query)
    context.deps.found |= found.keys()
    return found


def check_sources(answer: Answer, context: RunContext[Passages]) -> None:
    unknown = set(answer.sources) - context.deps.found
    if unknown or not answer.sources:
        raise ToolError(f"cite passages that you found, not {sorted(unknown)}")


agent = Agent(
    "anthropic/claude-sonnet-5-5",
    [search],
    deps_type=Passages,
    output_type=Answer,
    check_output=check_sources,
    instructions="Answer from the handbook only, and cite the passages.",
)


# --- the show: what a real model would do ----------------------------------------------------


async def main() -> None:
    passages = Passages({"leave": "You get 25 days of leave.", "travel": "Trains are first class."})
    replies: list[str | Say] = [
        Say(calls=[("search", {"query": "days of leave"})]),
        '{"text": "25 days.", "sources": ["law-7"]}',
        '{"text": "25 days.", "sources": ["leave"]}',
    ]
    with agent.override(model=Scripted(replies)):
        result = await agent.run("How many days of leave do I get?", deps=passages)
    print(result.output.text, result.output.sources, "after", result.usage.requests, "requests")


if __name__ == "__main__":
    asyncio.run(main())

"""A mutator of your own: only the results of the last rounds stay in the view."""

from __future__ import annotations

import asyncio

from treadle import Agent, tool
from treadle.contracts import (
    AssistantItem,
    Item,
    MutationContext,
    MutationPoint,
    Text,
    ToolResultItem,
    Transcript,
)
from treadle.models import Say, Scripted

REMOVED = "[this result was removed; call the tool again if you need it]"


class ForgetResults:
    name = "forget_results"
    points: frozenset[MutationPoint] = frozenset({"before_model"})

    def __init__(self, keep: int = 3) -> None:
        self._keep = keep

    async def mutate(self, context: MutationContext) -> Transcript | None:
        items: list[Item] = []
        rounds_after = sum(_is_round(item) for item in context.transcript)
        for item in context.transcript:
            rounds_after -= _is_round(item)
            is_old = rounds_after >= self._keep
            if is_old and isinstance(item, ToolResultItem) and item.text != REMOVED:
                item = ToolResultItem(item.call_id, item.name, (Text(REMOVED),))
            items.append(item)  # an item that stays is the same object
        changed = any(new is not old for new, old in zip(items, context.transcript, strict=True))
        return Transcript(items) if changed else None


def _is_round(item: Item) -> bool:
    return isinstance(item, AssistantItem) and bool(item.calls)


@tool(effect="pure")
async def read_page(number: int) -> str:
    """Read a page."""
    return f"The long text of page {number}."


async def main() -> None:
    pages = [Say(calls=[("read_page", {"number": number})]) for number in range(3)]
    agent = Agent(Scripted([*pages, "Done."]), [read_page], mutators=[ForgetResults(keep=1)])
    print(*(await agent.run("Read three pages")).transcript, sep="\n")


if __name__ == "__main__":
    asyncio.run(main())

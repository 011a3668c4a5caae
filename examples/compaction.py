"""A long conversation in a small window: old results and replies are replaced by a summary.

The user's words, open todos and decisions on calls stay verbatim. The log keeps everything:
`session.history` has also what compaction took out of `session.transcript`.
"""

from __future__ import annotations

import asyncio
import tempfile

from treadle import Agent, tool
from treadle.context import Compactor
from treadle.contracts import ModelCard, ModelRequest, SummaryItem
from treadle.models import Say, Scripted

CARD = ModelCard("small", window=4_000, max_output=500)


@tool(effect="pure")
async def read_page(number: int) -> str:
    """Read one page of a book."""
    return f"Page {number}: " + "and the river went on, slowly, to the sea; " * 60


def answer(request: ModelRequest) -> Say:
    """Read a page for each question; then answer. Asked for a summary, write one."""
    last = request.transcript[-1].text
    if request.purpose == "summary":
        return Say("So far: a river runs to the sea, page after page.")
    if last.startswith("Page"):
        return Say(f"{last.partition(':')[0]} is about a river.")
    return Say(calls=[("read_page", {"number": int(last.rpartition(" ")[2])})])


async def main() -> None:
    model = Scripted(answer, card=CARD)
    agent = Agent(model, [read_page], mutators=[Compactor()])
    with tempfile.TemporaryDirectory() as folder:
        await read_book(agent, folder)


async def read_book(agent: Agent, folder: str) -> None:
    async with agent.session("book", store=folder) as session:
        results = [await session.run(f"What is on page {number}") for number in range(1, 13)]
        print(results[-1].text)
        kept = [item for item in session.transcript if isinstance(item, SummaryItem)]
        print(f"the model sees {len(session.transcript)} of {len(session.history)} items")
        print("summary:", kept[0].text.splitlines()[0] if kept else "none was needed")


if __name__ == "__main__":
    asyncio.run(main())

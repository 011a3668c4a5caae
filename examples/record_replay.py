"""A test that needs no network: a conversation is recorded once, then replayed from the file.

A request that was not recorded is an error that shows the first difference, so the test also
notices a change of the prompt or of a tool. Secrets are removed before the file is written.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from treadle import Agent, ModelError, tool
from treadle.contracts import Model
from treadle.models import Recorded, Say, Scripted


@tool(effect="pure")
async def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


def make_agent(model: Model, instructions: str = "Be brief.") -> Agent:
    return Agent(model, [count_words], instructions=instructions)


async def record(path: Path) -> None:
    """Done once, with a real model; here a script stands for it."""
    real = Scripted([Say(calls=[("count_words", {"text": "to be or not"})]), "Four words."])
    await make_agent(Recorded(real, path)).run("How long is 'to be or not'?")


async def test_the_agent_counts_with_its_tool(path: Path) -> None:
    """The test as it would be in a test file; the recording lies beside it in the repository."""
    agent = make_agent(Recorded(None, path, mode="replay"))
    result = await agent.run("How long is 'to be or not'?")
    assert result.output == "Four words."
    assert result.turn.rounds == 1


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        await show(Path(folder) / "count_words.jsonl")


async def show(path: Path) -> None:
    await record(path)
    await test_the_agent_counts_with_its_tool(path)
    print("replayed: the test passes without a network")
    try:
        changed = make_agent(Recorded(None, path, mode="replay"), instructions="Be polite.")
        await changed.run("How long is 'to be or not'?")
    except ModelError as error:
        print("changed instructions are noticed:", error)


if __name__ == "__main__":
    asyncio.run(main())

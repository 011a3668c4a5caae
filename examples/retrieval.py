"""Answers from your own notes: an embedder finds the notes that are near a question.

`embedder(name)` takes names as models do: openai/text-embedding-3-small, voyage/voyage-3.5,
gemini/gemini-embedding-001, ollama/nomic-embed-text, or embedded, on this machine. Here a provider
on loopback and a scripted model stand for the real ones, so that it runs without a key.
"""

from __future__ import annotations

import asyncio

from treadle import Agent, tool
from treadle.models import Embedder, Say, Scripted, embedder
from treadle.testing import ProviderServer

NOTES = [
    "The ferry to the island leaves at nine and at four.",
    "The library is closed on Mondays.",
    "Bicycles are free on the ferry, dogs pay half.",
    "Market day is Saturday, in front of the town hall.",
]


class NoteIndex:
    """The notes with their vectors, in memory. A database with vectors would stand here."""

    def __init__(self, vectors: Embedder) -> None:
        self._embedder = vectors
        self._notes: list[tuple[str, list[float]]] = []

    async def add(self, notes: list[str]) -> None:
        found = await self._embedder.embed(notes)
        self._notes += zip(notes, found.vectors, strict=True)
        print(f"{len(notes)} notes, {found.usage.input} tokens")

    async def search(self, question: str, count: int = 2) -> list[str]:
        [query] = (await self._embedder.embed([question], purpose="query")).vectors

        def similarity(entry: tuple[str, list[float]]) -> float:
            return sum(a * b for a, b in zip(query, entry[1], strict=True))

        return [note for note, _ in sorted(self._notes, key=similarity, reverse=True)[:count]]


def make_agent(index: NoteIndex) -> Agent:
    @tool(effect="pure")
    async def find_notes(question: str) -> list[str]:
        """Find the notes that are nearest to a question."""
        notes = await index.search(question)
        print("found:", *notes, sep="\n  ")
        return notes

    question = {"question": "May bicycles go on the ferry?"}
    answer = "Yes: bicycles are free on the ferry."
    model = Scripted([Say(calls=[("find_notes", question)]), answer])
    return Agent(model, [find_notes], instructions="Answer from the notes.")


async def main() -> None:
    async with ProviderServer([]) as provider:
        environ = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{provider.url}/v1"}
        index = NoteIndex(embedder("openai/text-embedding-3-small", environ=environ))
        await index.add(NOTES)
        result = await make_agent(index).run("Can I take my bicycle?")
        print(result.output)


if __name__ == "__main__":
    asyncio.run(main())

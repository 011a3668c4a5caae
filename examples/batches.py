"""Many questions at half the price: replies by the batch interface of Anthropic or OpenAI.

`Batched(model)` is a model like any other, for runs that may wait: requests of runs that wait at
the same moment go into one batch, and each round of tool calls is one more. Each question has a
session: if the process is killed, the next one finds the batch and fetches its results.
Here a provider on loopback stands for the real one, so that it runs without a key.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from treadle import Agent, tool
from treadle.models import Anthropic, Batched, BatchQueue
from treadle.testing import FakeCall, FakeReply, ProviderServer

CITIES = {"Oslo": 4, "Rome": 19, "Cairo": 28}


@tool(effect="pure")
async def temperature(city: str) -> int:
    """The temperature of a city, in degrees."""
    return CITIES[city]


async def ask(agent: Agent, city: str) -> str:
    """The answer, of this process or of an earlier one: an open turn is continued."""
    async with agent.session(f"weather-{city}") as session:
        prompt = None if session.history else f"Which coat do I need in {city}?"
        result = await session.run(prompt)
        return f"{city}: {result.text}, {result.usage.requests} requests, ${result.cost:.4f}"


async def main() -> None:
    async with ProviderServer(answer) as provider:
        with tempfile.TemporaryDirectory() as folder:
            queue = BatchQueue(f"{folder}/batches", count_running=lambda: len(CITIES))
            model = Anthropic("claude-sonnet-5-5", base_url=provider.url, api_key="k")
            agent = Agent(Batched(model, queue), [temperature], store=Path(folder, "sessions"))
            answers = await asyncio.gather(*(ask(agent, city) for city in CITIES))
        print(*answers, sep="\n")
        sizes = [len(batch.answers) for batch in provider.batches.batches]
        print(f"{len(sizes)} batches with {sizes} requests")


def answer(request: Any) -> FakeReply:
    """What stands for the model: it asks for the temperature, then answers."""
    city = next(city for city in CITIES if city.encode() in request.body)
    if b"tool_result" not in request.body:
        return FakeReply(calls=(FakeCall("temperature", {"city": city}),))
    return FakeReply("a warm one" if CITIES[city] < 15 else "none")


if __name__ == "__main__":
    asyncio.run(main())

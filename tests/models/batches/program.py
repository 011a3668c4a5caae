"""A program whose agent waits for a batch: `python -m … KIND URL FOLDER PROMPT`, prints the answer.

The same arguments again continue the session that a killed process left.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from treadle import Agent
from treadle.core.contracts.model import ModelCard
from treadle.models import Anthropic, Batched, BatchQueue, OpenAIChat, OpenAIResponses

CARD = ModelCard("priced", window=100_000, max_output=1_000, input_price=10.0, output_price=100.0)


async def main(kind: str, url: str, folder: Path, prompt: str) -> None:
    if kind == "messages":
        model: object = Anthropic("m", base_url=url, api_key="k", card=CARD)
    else:
        make = OpenAIChat if kind == "chat" else OpenAIResponses
        model = make("m", base_url=f"{url}/v1", api_key="k", card=CARD)
    queue = BatchQueue(str(folder / "batches"), poll_seconds=0.05, count_running=lambda: 1)
    agent = Agent(Batched(model, queue), store=folder / "logs")  # type: ignore[arg-type]
    async with agent.session("one") as session:
        result = await session.run(None if session.history else prompt)
        print(result.text, session.cost)


asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]))

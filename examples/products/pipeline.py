"""A pipeline: 500 reviews get a label each, 50 at once, with one budget for all of them.

    python examples/products/pipeline.py

Each request reserves its worst case before it is sent, so the budget holds although 50 run at once.
What it does not pay is left for the next start, which does not repeat what is done.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Literal

from treadle import Agent, OutputMissing, Usage
from treadle.budgets import CostBudget, SharedBudget
from treadle.contracts import ModelCard, ModelRequest
from treadle.models import Say, Scripted

Label = Literal["good", "bad"]
agent = Agent("anthropic/claude-haiku-5-5", instructions="Label the review.", output_type=Label)


def read_done(done: Path) -> dict[str, Label]:
    lines = done.read_text().splitlines() if done.exists() else []
    return dict(json.loads(line) for line in lines)


async def label_all(reviews: dict[str, str], done: Path, budget: SharedBudget) -> dict[str, Label]:
    """The labels by the ids of the reviews; those in the file are not asked for again."""
    labels, places = read_done(done), asyncio.Semaphore(50)

    async def label(name: str, text: str, file: Path) -> None:
        async with places:
            try:
                found = await agent.run(text, gates=[CostBudget(budget)])
            except OutputMissing:  # the budget is used up
                return
        labels[name] = found.output
        with file.open("a") as out:
            out.write(json.dumps([name, found.output]) + "\n")

    async with asyncio.TaskGroup() as group:
        for name, text in reviews.items():
            if name not in labels:
                group.create_task(label(name, text, done))
    return labels


# --- the show: what a real model would do ----------------------------------------------------

CARD = ModelCard("priced", max_output=100, input_price=1.0, output_price=10.0)
PRICE = Usage(input=500, output=50, requests=1, cost=0.001)


def answer(request: ModelRequest) -> Say:
    is_good = "love" in request.transcript[0].text
    return Say('"good"' if is_good else '"bad"', usage=PRICE)


async def main(folder: Path) -> None:
    reviews = {str(n): "I love it" if n % 2 else "It broke" for n in range(500)}
    with agent.override(model=Scripted(answer, card=CARD)):
        for limit in (0.4, 0.2):
            budget = SharedBudget(limit, when_reserved="wait")
            labels = await label_all(reviews, folder / "labels.jsonl", budget)
            in_time = budget.spent <= limit
            print(f"{len(labels)} labels, {budget.spent:.2f} USD, within the budget: {in_time}")
            print("good:", sum(label == "good" for label in labels.values()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(name)))

"""Earlier tasks, which a forecast is made from."""

from __future__ import annotations

import time
from pathlib import Path

from treadle.core.transcript.entries import ItemAdded, TurnBegan, TurnEnded, UsageRecorded
from treadle.core.transcript.items import AssistantItem, to_user_item
from treadle.core.transcript.usage import Usage
from treadle.sessions.library import Library

MODEL = "anthropic/claude-sonnet-5-5"


async def past(text: str, cost: float, seconds: float, model: str = MODEL) -> None:
    """A run of `-p` of the current folder, which began so long ago."""
    began = time.time() - seconds
    journal = Library().create(Path(), origin="print", clock=lambda: began)
    journal.append(TurnBegan("turn-1"))
    journal.append(ItemAdded(to_user_item(text)))
    journal.append(ItemAdded(AssistantItem(())))
    journal.append(UsageRecorded(model, Usage(100, 100, requests=1, cost=cost), "turn"))
    journal.append(TurnEnded("turn-1", "end_turn"))
    await journal.aclose()

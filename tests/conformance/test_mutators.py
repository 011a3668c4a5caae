from __future__ import annotations

from pathlib import Path

from treadle.context import Compactor, Reminders, ToolSummaries
from treadle.contracts import ModelRequest
from treadle.models import Scripted
from treadle.testing import check_mutator
from treadle.workspace import CheckpointRecorder, Checkpoints


def summarize(request: ModelRequest) -> str:
    return "They tidied up. The next step is to look at the rest."


async def test_the_compactor_keeps_the_promises_of_a_mutator():
    await check_mutator(Compactor)
    await check_mutator(lambda: Compactor(Scripted(summarize)))


async def test_the_reminders_keep_the_promises_of_a_mutator():
    await check_mutator(Reminders)
    await check_mutator(lambda: Reminders(mode=lambda: "plan", is_attended=False))


async def test_tool_summaries_and_checkpoints_keep_the_promises_of_a_mutator(own_place: Path):
    await check_mutator(lambda: ToolSummaries(Scripted(summarize)))
    checkpoints = Checkpoints(own_place / "cwd", own_place / "checkpoints")
    await check_mutator(lambda: CheckpointRecorder(checkpoints, lambda entry: None).mutator)

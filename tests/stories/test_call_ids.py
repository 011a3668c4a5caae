"""The id of a call is its own in the whole session, so that the keys of two effects differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from treadle import Agent
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.steps import Finished
from treadle.core.transcript import SummaryItem, ToolCall, Transcript
from treadle.core.transcript.integrity import find_violations
from treadle.models.scripted import Say, Scripted
from treadle.sessions import Journal, resume
from treadle.testing.tools import RecordingTool


class SummarizeRounds:
    """Replaces every finished round by a summary before the next model call."""

    name = "summarize-rounds"
    points: frozenset[MutationPoint] = frozenset({"before_model"})

    async def mutate(self, context: MutationContext) -> Transcript | None:
        if len(context.transcript) < 3:
            return None
        return Transcript([SummaryItem("paid", len(context.transcript))])


async def test_two_payments_around_a_compaction_have_two_keys(tmp_path: Path) -> None:
    pay = RecordingTool("pay", effect="irreversible")
    same_id = ToolCall("call_0", "pay", "{}")
    script: list[Any] = [Say(calls=[same_id]), Say(calls=[same_id]), Say(calls=[same_id]), "done"]
    agent = Agent(Scripted(script), [pay], mutators=[SummarizeRounds()])
    driver = agent.start(prompt="pay", store=Journal.create(tmp_path / "s"))
    await driver.next()
    await driver.aclose()
    resumed = resume(tmp_path / "s")
    driver = agent.start(state=resumed.state, store=resumed.journal)
    while not isinstance(await driver.next(), Finished):
        pass
    assert len(pay.idempotency_keys) == len(set(pay.idempotency_keys)) == 3
    assert driver.uncompact()
    assert find_violations(driver.transcript) == []
    await driver.aclose()
    assert resume(tmp_path / "s").state.transcript == driver.transcript

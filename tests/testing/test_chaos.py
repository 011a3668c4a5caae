"""The model that fails by a seed: it fails as it says, and a loop that retries finishes."""

from __future__ import annotations

import asyncio

import pytest

from tests.patience import PATIENCE
from treadle import Agent
from treadle.core.contracts.model import ModelEvent, ModelRequest, Reply
from treadle.core.errors import ModelError, StreamBroken
from treadle.core.transcript import Transcript
from treadle.core.transcript.items import to_user_item
from treadle.models import Say, Scripted
from treadle.testing.chaos import STREAM_FAULTS, ChaosModel
from treadle.testing.clock import ManualClock
from treadle.testing.tools import RecordingTool

REQUEST = ModelRequest(Transcript([to_user_item("go")]))


async def attempt(model: ChaosModel) -> tuple[list[ModelEvent], ModelError | None]:
    events: list[ModelEvent] = []
    try:
        async for event in model.stream(REQUEST):
            events.append(event)  # noqa: PERF401 - those before a failure count
    except ModelError as error:
        return events, error
    return events, None


async def test_each_fault_breaks_a_stream_in_its_own_way() -> None:
    model = ChaosModel(Scripted(["one two three"] * 40), seed=1, rate=0.9, max_consecutive=5)
    cut_lengths = set()
    for _ in range(40):
        known = len(model.faults)
        events, error = await attempt(model)
        fault = model.faults[-1] if len(model.faults) > known else None
        has_reply = any(isinstance(event, Reply) for event in events)
        assert has_reply == (fault is None)
        assert (error is None) == (fault in (None, "silent"))
        assert isinstance(error, StreamBroken) == (fault == "cut")
        assert not events or fault in (None, "cut")
        if fault == "cut":
            cut_lengths.add(len(events))
    assert set(model.faults) == set(STREAM_FAULTS)
    assert len(cut_lengths) > 1


async def test_the_same_seed_breaks_the_same_streams() -> None:
    models = [ChaosModel(Scripted(["x"] * 50), seed=7) for _ in range(2)]
    for model in models:
        for _ in range(50):
            await attempt(model)
    assert models[0].faults == models[1].faults != []


@pytest.mark.parametrize("seed", range(20))
async def test_a_run_finishes_with_every_call_made_once(seed: int) -> None:
    script = [Say(calls=[("record", {"n": n})]) for n in range(5)]
    model = ChaosModel(Scripted([*script, "done"]), seed=seed, rate=0.6)
    tool = RecordingTool()
    agent = Agent(model, [tool], clock=ManualClock())
    result = await asyncio.wait_for(agent.run("go"), PATIENCE)
    assert (result.text, result.reason) == ("done", "end_turn")
    assert [call["n"] for call in tool.calls] == list(range(5))

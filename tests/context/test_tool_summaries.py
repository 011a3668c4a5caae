"""One line about each round of tools, by a small model in the background."""

from __future__ import annotations

import asyncio

import msgspec

from treadle import Agent
from treadle.budgets import CostBudget, SharedBudget
from treadle.context.tool_summaries import ToolSummaries
from treadle.core.contracts.model import ModelCard
from treadle.core.errors import Overloaded
from treadle.core.events import Event, ToolsSummarized, TurnFinished
from treadle.core.steps import AfterToolResult, Finished
from treadle.core.transcript import Usage, last_reply
from treadle.models import Pause, Say, Scripted
from treadle.testing.conformance.mutator import TRANSCRIPTS, make_mutation_context
from treadle.testing.observers import RecordingObserver
from treadle.testing.tools import RecordingTool

CARD = ModelCard("small", window=9_000, max_output=100, input_price=1.0, output_price=1.0)
FREE = ModelCard("main", input_price=0.0, output_price=0.0)
ROUND = Say(calls=[("record", {})])


class Watcher(RecordingObserver):
    def __init__(self) -> None:
        super().__init__()
        self.has_summary = asyncio.Event()

    def on_event(self, event: Event) -> None:
        super().on_event(event)
        if isinstance(event, ToolsSummarized):
            self.has_summary.set()


def summaries(seen: RecordingObserver) -> list[ToolsSummarized]:
    return [event for event in seen.events if isinstance(event, ToolsSummarized)]


async def test_a_small_model_sums_up_a_round_while_the_loop_goes_on():
    reply = Say("Recorded\n a thing", usage=Usage(10, 2, requests=1, cost=0.25))
    small, seen, pause = Scripted([reply], card=CARD), Watcher(), Pause()
    model = Scripted([ROUND, [pause, "done"]], card=FREE)
    budget = SharedBudget(10.0)
    agent = Agent(
        model, [RecordingTool()], mutators=[ToolSummaries(small)], gates=[CostBudget(budget)]
    )
    driver = agent.start(prompt="go")
    driver.watch(seen)
    assert isinstance(await driver.next(), AfterToolResult)
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    await seen.has_summary.wait()
    pause.release()
    finished = await step
    assert isinstance(finished, Finished)
    (event,) = summaries(seen)
    (call,) = last_reply(model.requests[1].transcript).calls  # type: ignore[union-attr]
    assert (event.text, event.call_ids) == ("Recorded a thing", (call.id,))
    assert "record" in str(small.requests[0].transcript[0])
    assert finished.result.usage.cost == driver.usage.cost == 0.25
    assert budget.spent == 0.25
    assert len(driver.transcript) == 4  # the model does not see the summary


async def test_a_summary_that_is_not_ready_is_cancelled_at_the_end_of_the_turn():
    pause, seen = Pause(), RecordingObserver()
    small = Scripted([[pause, "too late"]], card=CARD)
    driver = Agent(
        Scripted([ROUND, ROUND, "done"]), [RecordingTool()], mutators=[ToolSummaries(small)]
    ).start(prompt="go")
    driver.watch(seen)
    await driver.next()
    await pause.reached.wait()
    await driver.next()
    assert isinstance(await driver.next(), Finished)
    assert small.open_streams == 0
    assert len(small.requests) == 1  # one at a time
    assert summaries(seen) == []
    assert isinstance(seen.events[-1], TurnFinished)


async def test_a_failing_small_model_or_an_empty_budget_disturbs_nothing():
    small = Scripted([Overloaded("busy")], card=CARD)
    broken = Agent(Scripted([ROUND, "done"]), [RecordingTool()], mutators=[ToolSummaries(small)])
    assert (await broken.run("go")).text == "done"
    dear = ModelCard("small", window=9_000, max_output=100, input_price=1e6, output_price=1e6)
    unpaid = Scripted(["x"], card=dear)
    poor = Agent(
        Scripted([ROUND, "done"], card=FREE),
        [RecordingTool()],
        mutators=[ToolSummaries(unpaid)],
        gates=[CostBudget(SharedBudget(0.01))],
    )
    assert (await poor.run("go")).text == "done"
    assert unpaid.requests == []


async def test_a_summary_that_is_cancelled_before_it_begins_asks_no_model():
    """An interruption right after the round."""
    small = Scripted(["Late."], card=CARD)
    context, mutator = (
        make_mutation_context("after_tool_result", TRANSCRIPTS[3]),
        ToolSummaries(small),
    )
    await mutator.mutate(context)
    await mutator.mutate(msgspec.structs.replace(context, point="after_turn_ended"))
    assert small.requests == []

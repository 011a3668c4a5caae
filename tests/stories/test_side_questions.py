"""A question beside the conversation: it is answered from the context and leaves no trace in it."""

from __future__ import annotations

import asyncio

import pytest

from treadle import Agent, Usage
from treadle.budgets import CostBudget
from treadle.core.contracts.model import ModelCard, ModelOptions, ModelRequest, ModelUsageUpdated
from treadle.core.errors import LoopError, Overloaded
from treadle.core.events import UsageUpdated
from treadle.core.transcript import ToolResultItem
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.state import fold_entries
from treadle.models import Pause, Say, Scripted
from treadle.testing.clock import ManualClock
from treadle.testing.observers import RecordingObserver
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import RecordingTool

CARD = ModelCard("scripted", input_price=1.0, output_price=1.0)
USED = Usage(input=1_000, output=100, requests=1)


async def test_the_answer_sees_the_conversation_and_leaves_it_as_it_is():
    model = Scripted(["Paris.", Say("In Europe.", usage=USED), "Rome."], card=CARD)
    agent, store = Agent(model, instructions="Be brief."), MemoryStore()
    driver = agent.start("capital of France?", store=store)
    await agent.finish_turn(driver)
    before, watch = driver.transcript, RecordingObserver()
    driver.watch(watch)
    reply = await driver.ask_aside("where is that?")
    assert reply.text == "In Europe."
    assert driver.transcript is before
    [told] = watch.events_of(UsageUpdated)
    assert (told.purpose, told.last.output, len(watch.events)) == ("side_question", 100, 1)
    assert not watch.items
    asked = model.requests[1]
    assert asked.transcript[: len(before)] == before[:]
    assert asked.system == model.requests[0].system
    assert asked.tools == model.requests[0].tools
    assert asked.options == ModelOptions(tool_choice="none")
    assert "where is that?" in str(asked.transcript[-1])
    driver.submit("and of Italy?")
    await agent.finish_turn(driver)
    assert "where is that?" not in str(list(model.requests[2].transcript))
    await driver.aclose()


async def test_its_usage_counts_in_the_session_and_in_its_log():
    model = Scripted(["Yes.", Say("Aside.", usage=USED)], card=CARD)
    agent, store = Agent(model), MemoryStore()
    driver = agent.start("really?", store=store)
    await agent.finish_turn(driver)
    await driver.ask_aside("why?")
    assert driver.usage.output == 100
    assert driver.usage.cost == pytest.approx(0.0011)
    await driver.aclose()
    assert fold_entries(await store.load()).usage.output == 100


async def test_it_is_answered_in_the_middle_of_a_tool_round():
    pause = Pause()
    tool = RecordingTool("wait", release=pause.until)
    model = Scripted([Say(calls=[("wait", {})]), "It waits.", "Done."])
    agent = Agent(model, [tool])
    driver = agent.start("go")
    turn = asyncio.ensure_future(agent.finish_turn(driver))
    await tool.started.wait()
    reply = await driver.ask_aside("what happens?")
    assert reply.text == "It waits."
    asked = model.requests[1].transcript
    assert not find_violations(asked)
    running = [item for item in asked if isinstance(item, ToolResultItem)]
    assert [item.text for item in running] == ["(still running)"]
    pause.release()
    assert (await turn).text == "Done."


async def test_a_failed_attempt_is_retried_and_a_limit_forbids_the_question():
    model = Scripted(["Hi.", Overloaded("busy"), "Again."], card=CARD)
    agent = Agent(model, clock=ManualClock())
    driver = agent.start("hello")
    await agent.finish_turn(driver)
    assert (await driver.ask_aside("still there?")).text == "Again."

    def spend(request: ModelRequest) -> Say:
        return Say("Hi.", usage=Usage(input=100_000, output=100, requests=1))

    spent = Scripted(spend, card=CARD)
    agent = Agent(spent, gates=[CostBudget(0.1)])
    driver = agent.start("hello")
    await agent.finish_turn(driver)
    count = len(spent.requests)
    with pytest.raises(LoopError, match="the side question is not asked"):
        await driver.ask_aside("more?")
    assert len(spent.requests) == count


async def test_a_session_that_is_closed_does_not_wait_for_the_answer():
    pause = Pause()
    model = Scripted(["Hi.", [ModelUsageUpdated(USED), pause, "Never."]], card=CARD)
    agent, store = Agent(model), MemoryStore()
    driver = agent.start("hello", store=store)
    await agent.finish_turn(driver)
    asking = asyncio.ensure_future(driver.ask_aside("why?"))
    await pause.reached.wait()
    await driver.aclose()
    with pytest.raises(LoopError, match="the session was closed"):
        await asking
    assert model.open_streams == 0
    assert fold_entries(await store.load()).usage.output == 100  # what is known to be paid


async def test_a_side_question_is_stopped_and_what_it_used_is_counted():
    pause = Pause()
    used = ModelUsageUpdated(USED)
    model = Scripted(["Yes.", [used, "Because ", pause, "of that."], "Rome."], card=CARD)
    agent, store = Agent(model), MemoryStore()
    driver = agent.start("really?", store=store)
    await agent.finish_turn(driver)
    assert not driver.stop_aside()
    asking = asyncio.ensure_future(driver.ask_aside("why?"))
    await pause.reached.wait()
    assert driver.stop_aside()
    reply = await asking
    assert (reply.stop, reply.text) == ("aborted", "")
    assert reply.usage.output == 100
    assert driver.usage.output == 100
    assert not driver.stop_aside()
    driver.submit("capital of Italy?")
    await agent.finish_turn(driver)
    assert driver.transcript[-1].text == "Rome."
    await driver.aclose()
    assert fold_entries(await store.load()).usage.output == 100

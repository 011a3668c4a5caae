"""Every model call, whatever it is for, is admitted, retried, settled, and in the log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from treadle import Agent, Transcript, Usage
from treadle.budgets import CostBudget
from treadle.core.contracts.gate import Admit, BaseGate, RequestEstimate, Stop, Wait
from treadle.core.contracts.hook import Block, HookInput, HookPoint
from treadle.core.contracts.model import ModelCard, ModelOptions, ModelRequest, PartQuarantined
from treadle.core.errors import EmptyReply, Overloaded, StreamBroken
from treadle.core.events import Notified
from treadle.core.steps import Finished
from treadle.core.transcript import to_user_item
from treadle.core.transcript.entries import UsageRecorded
from treadle.core.transcript.state import fold_entries
from treadle.models import Say, Scripted
from treadle.testing.clock import ManualClock
from treadle.testing.observers import RecordingObserver
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import RecordingTool

USED = Usage(100, 10, requests=1, cost=1.0)
CALL = Say(calls=[("record", {})], usage=USED)


def purposes(store: MemoryStore) -> list[str]:
    return [entry.purpose for entry in store.entries if isinstance(entry, UsageRecorded)]


# --- side questions ----------------------------------------------------------------------


async def test_a_side_question_is_not_held_to_the_output_of_the_turn():
    card = ModelCard("m", abilities=frozenset({"schema"}))
    model = Scripted(['{"value": 3}', "I count."], card=card)
    agent = Agent(model, output_type=int)
    driver = agent.start("how many?")
    await agent.finish_turn(driver)
    assert model.requests[0].options.output_schema is not None
    assert (await driver.ask_aside("what are you doing?")).text == "I count."
    assert model.requests[1].options == ModelOptions(tool_choice="none")
    assert model.requests[1].purpose == "side_question"


async def test_a_side_question_that_is_answered_with_a_call_is_an_error():
    model = Scripted(["Hi.", CALL])
    agent = Agent(model, [RecordingTool()])
    driver = agent.start("hello")
    await agent.finish_turn(driver)
    with pytest.raises(EmptyReply, match="it called a tool"):
        await driver.ask_aside("how many files?")
    assert driver.usage.cost == 1.0


async def test_a_side_question_is_no_part_of_the_turn_live_and_in_the_log():
    model, store = Scripted([CALL, Say("Aside.", usage=USED), "Done."]), MemoryStore()
    driver = Agent(model, [RecordingTool()]).start("go", store=store)
    await driver.next()
    await driver.ask_aside("why?")
    live, logged = driver.state, fold_entries(store.entries)
    assert live.turn is not None
    assert live.turn.usage.cost == 1.0
    assert (logged.turn, logged.usage) == (live.turn, USED + USED)
    assert purposes(store) == ["turn", "side_question"]


# --- keys --------------------------------------------------------------------------------


async def test_a_fallback_and_a_request_without_a_refused_part_have_keys_of_their_own():
    spare = Scripted(["Hi."], name="b")
    model = Scripted(lambda request: Overloaded("busy"), name="a", fallback=spare)
    await Agent(model, clock=ManualClock()).run("x")
    assert len({request.idempotency_key for request in model.requests}) == 1  # the same body
    assert spare.requests[0].idempotency_key != model.requests[0].idempotency_key

    refused: list[Any] = [PartQuarantined(0, 0, "refused"), Overloaded("busy")]
    model = Scripted([refused, "Hi."])
    await Agent(model, clock=ManualClock()).run("x")
    first, second = [request.idempotency_key for request in model.requests]
    assert first != second


async def test_a_request_that_is_sent_again_after_a_crash_has_its_key_again():
    async def send(**options: Any) -> str:
        model = Scripted(["Hi."])
        view = fold_entries(store.entries)  # as the process left it
        await (
            Agent(model, [tool], options=ModelOptions(**options))
            .start(state=view, session_id="s")
            .next()
        )
        return model.requests[0].idempotency_key

    tool, store = RecordingTool(), MemoryStore("s")
    first = Scripted([CALL, ZeroDivisionError("killed")])
    driver = Agent(first, [tool]).start("go", store=store)
    await driver.next()
    with pytest.raises(ZeroDivisionError):
        await driver.next()
    assert await send() == first.requests[1].idempotency_key
    assert await send(temperature=0.5) != first.requests[1].idempotency_key


# --- gates, usage ------------------------------------------------------------------------


class OneAtATime(BaseGate):
    """A gate that lets calls wait for one another."""

    def __init__(self) -> None:
        self.is_free = asyncio.Event()
        self.is_free.set()
        self.asked = 0

    def admit(self, estimate: RequestEstimate) -> Admit | Stop | Wait:  # type: ignore[override]
        self.asked += 1
        if not self.is_free.is_set():
            return Wait("another call is running", self.is_free.wait)  # type: ignore[arg-type]
        self.is_free.clear()
        return Admit()

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        self.is_free.set()


class Reserves(BaseGate):
    reserved = 0

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        self.reserved += 1
        return Admit()

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        self.reserved -= 1


async def start_waiting() -> tuple[Any, asyncio.Task[Any], Reserves, OneAtATime]:
    other, gate, told = Reserves(), OneAtATime(), asyncio.Event()

    class Told(RecordingObserver):
        def on_event(self, event: Any) -> None:
            if isinstance(event, Notified):
                told.set()

    gate.is_free.clear()
    driver = Agent(Scripted(["Hi."]), gates=[other, gate], observers=[Told()]).start("x")
    step = asyncio.create_task(driver.next())
    await told.wait()
    assert other.reserved == 0, "a call that waits holds nothing"
    return driver, step, other, gate


async def test_a_call_that_has_to_wait_asks_all_gates_again():
    _, step, other, gate = await start_waiting()
    gate.is_free.set()
    finished = await step
    assert isinstance(finished, Finished)
    assert finished.result.text == "Hi."
    assert (gate.asked, other.reserved) == (2, 0)


async def test_a_call_that_waits_can_be_interrupted():
    driver, step, other, _ = await start_waiting()
    driver.interrupt()
    finished = await step
    assert isinstance(finished, Finished)
    assert (finished.result.reason, other.reserved) == ("aborted", 0)


async def test_what_a_broken_reply_used_is_unknown_if_the_provider_did_not_tell():
    store = MemoryStore()
    model = Scripted([["Hel", StreamBroken("cut")], Say("Hello!", usage=USED)])
    result = await Agent(model, clock=ManualClock()).run("x", session=store)
    assert (result.text, result.cost, result.usage.requests) == ("Hello!", None, 2)
    assert fold_entries(store.entries).usage == result.usage


async def test_a_stop_that_ends_turns_does_not_forbid_a_side_question():
    class Ends(BaseGate):
        def admit(self, estimate: RequestEstimate) -> Admit | Stop:
            return Stop("end_turn", "All is said.") if estimate.transcript[1:] else Admit()

    agent = Agent(Scripted(["Hi.", "Aside."]), gates=[Ends()])
    driver = agent.start("x")
    await agent.finish_turn(driver)
    assert (await driver.ask_aside("really?")).text == "Aside."


# --- hooks -------------------------------------------------------------------------------


class Judges:
    points: frozenset[HookPoint] = frozenset({"pre_tool_use"})

    def __init__(self, model: Scripted) -> None:
        self._model = model

    async def run(self, hook_input: HookInput[Any]) -> Block | None:
        request = ModelRequest(Transcript([to_user_item("May it?")]))
        reply = await hook_input.call_model(request, "judge", self._model)
        return Block(reply.text) if reply.text != "yes" else None


async def test_a_model_call_of_a_hook_is_retried_paid_and_in_the_log():
    card = ModelCard("judge", input_price=1.0, output_price=1.0)
    judge = Scripted([Overloaded("busy"), Say("yes", usage=USED)], card=card)
    store, budget, free = MemoryStore(), CostBudget(100.0), ModelCard("m", 9_000, 100, 0.0, 0.0)
    model = Scripted([Say(calls=[("record", {})]), "Done."], card=free)
    agent = Agent(
        model, [RecordingTool()], hooks=[Judges(judge)], gates=[budget], clock=ManualClock()
    )
    result = await agent.run("go", session=store)
    assert (result.text, len(judge.requests)) == ("Done.", 2)
    assert purposes(store) == ["turn", "judge", "turn"]
    assert budget.budget.spent == 1.0
    assert (result.usage.cost, fold_entries(store.entries).usage.cost) == (0.0, 1.0)

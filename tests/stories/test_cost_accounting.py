"""Stories of the books: whatever a provider was asked for is reserved, settled once and counted."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any

import pytest

from tests.work import count_work
from treadle import Agent, Transcript, Usage
from treadle.budgets import CallLimit, CostBudget, RepetitionGuard, SharedBudget, TokenBudget
from treadle.context.compaction import Compactor
from treadle.core.contracts.gate import Admit, RequestEstimate, Stop
from treadle.core.contracts.model import CacheRequest, ModelCard, ModelRequest, ModelUsageUpdated
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.errors import AccessDenied, Overloaded, QuotaExhausted, StreamBroken
from treadle.core.events import RequestStarted, WarningRaised
from treadle.core.loop.config import TurnSettings
from treadle.core.steps import Finished
from treadle.core.transcript import NoticeItem, Text, to_user_item
from treadle.core.transcript.entries import ItemAdded, UsageRecorded, ViewRewritten
from treadle.core.transcript.state import fold_entries
from treadle.models import Pause, Say, Scripted
from treadle.testing.clock import ManualClock
from treadle.testing.observers import RecordingObserver
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import RecordingTool

CARD = ModelCard("priced", window=100_000, max_output=1_000, input_price=10.0, output_price=100.0)
USED = Usage(100, 100, requests=1, cost=0.25)
LOST = Usage(80, 5, requests=1, cost=0.125)


class Books:
    """A gate that keeps what it was told."""

    def __init__(self) -> None:
        self.admitted = 0
        self.settled: list[Usage] = []

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        self.admitted += 1
        return Admit()

    def settle(self, estimate: RequestEstimate, used: Usage) -> None:
        self.settled.append(used)


async def test_a_broken_attempt_that_was_paid_for_is_counted():
    books, store = Books(), MemoryStore()
    model = Scripted(
        [["Hel", ModelUsageUpdated(LOST), StreamBroken("cut")], Say("Hello!", usage=USED)]
    )
    result = await Agent(model, clock=ManualClock(), gates=[books]).run("x", session=store)
    assert result.usage.cost == 0.375
    assert [used.cost for used in books.settled] == [0.125, 0.25]  # the second was asked for anew
    assert fold_entries(store.entries).usage.cost == 0.375


COUNTED = Usage(1_000, 100, requests=1)  # tokens only: $0.02 at the prices of CARD


async def test_a_reply_without_a_cost_costs_what_the_card_of_its_model_says():
    store = MemoryStore()
    model = Scripted(lambda request: Say("Hello!", usage=COUNTED), card=CARD)
    agent = Agent(model, gates=[CostBudget(0.15)])
    assert (await agent.run("x", session=store)).cost == pytest.approx(0.02)
    assert fold_entries(store.entries).usage.cost == pytest.approx(0.02)
    reasons = [(await agent.run("x")).reason for _ in range(4)]
    assert reasons[-1] == "budget_exceeded"


async def test_a_broken_attempt_without_a_cost_costs_what_the_card_says():
    model = Scripted(
        [["Hel", ModelUsageUpdated(COUNTED), StreamBroken("cut")], Say("Hello!", usage=USED)],
        card=CARD,
    )
    result = await Agent(model, clock=ManualClock()).run("x")
    assert result.cost == pytest.approx(0.02 + 0.25)


@pytest.mark.parametrize("cost", [0.5, None])
async def test_a_model_that_gives_the_cost_of_a_reply_keeps_it(cost: float | None):
    used = Usage(1_000, 100, requests=1, cost=cost)
    result = await Agent(Scripted([Say("Hello!", usage=used)], card=CARD)).run("x")
    assert result.cost == cost


async def test_the_cost_of_a_reply_is_unknown_if_the_model_and_its_card_do_not_tell_it():
    result = await Agent(Scripted([Say("Hello!", usage=COUNTED)])).run("x")
    assert result.cost is None


DEARER = ModelCard("dearer", 100_000, 1_000, input_price=100.0, output_price=1_000.0)
BUSY = [Overloaded("busy")] * 4  # one more than it is asked again


async def test_what_the_first_model_lost_is_priced_by_its_own_card_when_the_fallback_answers():
    spare = Scripted([Say("Hello!", usage=COUNTED)], name="spare", card=DEARER)
    model = Scripted(
        [["Hel", ModelUsageUpdated(COUNTED), QuotaExhausted("no credit")]],
        name="first", card=CARD, fallback=spare,
    )  # fmt: skip
    result = await Agent(model, clock=ManualClock()).run("x")
    assert result.cost == pytest.approx(0.02 + 0.2)


async def test_a_fallback_that_the_budget_cannot_pay_is_not_asked():
    spare = Scripted(["never asked"], name="spare", card=DEARER)
    model = Scripted(BUSY, name="first", card=CARD, fallback=spare)
    purse = SharedBudget(0.5)  # enough for the first at its worst; the other takes a whole dollar
    result = await Agent(model, clock=ManualClock(), gates=[CostBudget(purse)]).run("x")
    assert (result.reason, len(model.requests), spare.requests) == ("budget_exceeded", 4, [])
    assert (purse.spent, purse.reserved) == pytest.approx((0.0, 0.0))


async def test_a_fallback_is_reserved_at_its_own_price():
    reserved: list[float] = []

    def answer(request: ModelRequest) -> Say:
        reserved.append(purse.reserved)
        return Say("Hello!", usage=Usage(1_000, 100, requests=1, cost=None))

    spare = Scripted(answer, name="spare", card=DEARER)
    model = Scripted(BUSY, name="first", card=CARD, fallback=spare)
    purse = SharedBudget(10.0)
    agent = Agent(model, clock=ManualClock(), gates=[CostBudget(purse)])
    driver = agent.start(prompt="x")
    driver.set_next_turn_cache(CacheRequest(ttl="1h"))
    assert isinstance(await driver.next(), Finished)
    assert 1.0 < reserved[0] < 1.1  # the longest reply, at the price of the fallback
    assert purse.spent == pytest.approx(0.2)
    assert spare.requests[0].cache.ttl == "1h"
    assert spare.requests[0].idempotency_key != model.requests[0].idempotency_key
    assert "fallback" in [transition.reason for transition in driver.trace]


async def test_a_fallback_with_a_smaller_window_is_shown_to_the_mutators_first():
    seen: list[str] = []

    class Looks:
        name = "looks"
        points: frozenset[MutationPoint] = frozenset({"before_model"})

        async def mutate(self, context: MutationContext) -> None:
            seen.append(context.card.name)

    spare = Scripted(["Hello!"], card=DEARER)
    model = Scripted(BUSY, card=CARD, fallback=spare)
    await Agent(model, clock=ManualClock(), mutators=[Looks()]).run("x")
    assert seen == ["priced", "dearer"]


async def test_an_attempt_is_not_repeated_with_money_that_the_first_has_lost():
    lost = Usage(80, 5, requests=1, cost=0.2)
    model = Scripted(
        [["Hel", ModelUsageUpdated(lost), StreamBroken("cut")], "never asked"], card=CARD
    )
    purse = SharedBudget(0.25)
    result = await Agent(model, clock=ManualClock(), gates=[CostBudget(purse)]).run("x")
    assert (result.reason, len(model.requests)) == ("budget_exceeded", 1)
    assert (purse.spent, purse.reserved) == pytest.approx((0.2, 0.0))


async def test_paid_attempts_are_repeated_as_often_as_free_ones_and_no_more():
    broken: list[Any] = ["Hel", ModelUsageUpdated(LOST), StreamBroken("cut")]
    model = Scripted([broken, broken, broken, broken, "never asked"])
    witness = RecordingObserver()
    driver = Agent(model, clock=ManualClock(), observers=[witness]).start(prompt="x")
    step = await driver.next()
    assert isinstance(step, Finished)
    assert (step.result.reason, len(model.requests)) == ("error", 4)
    assert [event.attempt for event in witness.events_of(RequestStarted)] == [1, 2, 3, 4]
    assert driver.usage.cost == 0.5


async def test_a_closing_reply_is_not_asked_of_a_fallback_that_is_too_dear():
    spare = Scripted(["never asked"], name="spare", card=DEARER)
    first = Say(calls=[("record", {})], usage=USED)
    model = Scripted([first, *BUSY], card=CARD, fallback=spare)
    purse = SharedBudget(0.7)
    agent = Agent(
        model, [RecordingTool()], clock=ManualClock(), gates=[CallLimit(1), CostBudget(purse)]
    )
    result = await agent.run("x")
    assert (result.reason, len(model.requests), spare.requests) == ("budget_exceeded", 5, [])
    assert (purse.spent, purse.reserved) == pytest.approx((0.25, 0.0))


async def test_an_attempt_that_ends_in_an_error_is_counted():
    books = Books()
    model = Scripted([["Hel", ModelUsageUpdated(LOST), AccessDenied("the key was withdrawn")]])
    driver = Agent(model, gates=[books]).start(prompt="x")
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.usage.cost == 0.125
    assert books.settled == [LOST]


async def test_what_an_interrupted_reply_used_is_counted_once():
    books, pause, store = Books(), Pause(), MemoryStore()
    model = Scripted([["Half a th", ModelUsageUpdated(LOST), pause]])
    driver = Agent(model, gates=[books]).start(prompt="x", store=store)
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    driver.interrupt()
    finished = await step
    assert isinstance(finished, Finished)
    assert finished.result.usage.cost == driver.usage.cost == 0.125
    assert books.settled == [LOST]
    assert [entry for entry in store.entries if isinstance(entry, UsageRecorded)] == [
        UsageRecorded("scripted", LOST, "turn")
    ]


async def test_what_a_broken_attempt_used_does_not_pass_for_the_size_of_the_request():
    seen: list[Usage] = []

    class Looks:
        name = "looks"
        points: frozenset[MutationPoint] = frozenset({"after_turn_ended"})

        async def mutate(self, context: MutationContext) -> None:
            seen.append(context.last_usage)

    model = Scripted(
        [["x", ModelUsageUpdated(LOST), StreamBroken("cut")], Say("Hello!", usage=USED)]
    )
    await Agent(model, clock=ManualClock(), mutators=[Looks()]).run("x")
    assert seen == [USED]


async def test_a_model_that_fails_in_an_unknown_way_leaves_no_reservation():
    purse = SharedBudget(10.0)
    model = Scripted([ZeroDivisionError("a bug in the codec"), "fine"], card=CARD)
    driver = Agent(model, gates=[CostBudget(purse)]).start(prompt="x")
    with pytest.raises(ZeroDivisionError):
        await driver.next()
    assert purse.reserved == pytest.approx(0.0)
    assert isinstance(await driver.next(), Finished)
    assert purse.reserved == pytest.approx(0.0)


async def test_a_closing_reply_is_paid_from_every_purse_whoever_asked_for_it():
    purse = SharedBudget(10.0)
    model = Scripted(
        [Say(calls=[("record", {})], usage=USED), Say("summed up", usage=USED)], card=CARD
    )
    agent = Agent(model, [RecordingTool()], gates=[CallLimit(1), CostBudget(purse)])
    result = await agent.run("x")
    assert (result.reason, result.text) == ("budget_exceeded", "summed up")
    assert purse.spent == pytest.approx(0.5)
    assert purse.reserved == pytest.approx(0.0)


async def test_there_is_no_closing_reply_where_another_gate_has_no_money_for_it():
    purse = SharedBudget(0.27)  # what is left after the first round pays for nothing
    model = Scripted(
        [Say(calls=[("record", {})], usage=USED), Say("summed up", usage=USED)], card=CARD
    )
    agent = Agent(model, [RecordingTool()], gates=[CallLimit(1), CostBudget(purse, None)])
    result = await agent.run("x")
    assert result.reason == "budget_exceeded"
    assert len(model.requests) == 1
    assert purse.spent <= 0.27
    assert purse.reserved == pytest.approx(0.0)


async def test_a_summary_is_paid_from_the_same_purse_and_counted():
    books, store = Books(), MemoryStore()
    notes = Scripted(lambda request: Say("Goal: go on.", usage=LOST), card=ModelCard("notes"))
    driver = Agent(
        Scripted([Say("a" * 3_000, usage=USED)] * 4), gates=[books], mutators=[Compactor(notes)]
    ).start(store=store)
    for n in range(4):
        driver.submit(f"{n}")
        await driver.next()
    before = driver.usage
    assert await driver.compact() is True
    assert driver.usage.cost == pytest.approx((before.cost or 0) + 0.125)
    assert books.settled[-1] == LOST
    assert len(books.settled) == books.admitted
    assert fold_entries(store.entries).usage == driver.usage


async def test_a_gate_of_a_turn_sees_the_summaries_that_are_written_in_it():
    books = Books()
    notes = Scripted(lambda request: Say("Goal: go on.", usage=LOST), card=ModelCard("notes"))
    card = ModelCard("small", window=4_000)
    driver = Agent(
        Scripted([Say("a" * 8_000, usage=USED)] * 4, card=card), mutators=[Compactor(notes)]
    ).start()
    driver.configure_turns(TurnSettings(gates=(books,)))
    for n in range(4):
        driver.submit(f"{n}")
        await driver.next()
    assert notes.requests
    assert books.settled.count(LOST) == len(notes.requests)


async def test_without_money_for_a_summary_older_work_is_named_instead():
    notes = Scripted(lambda request: Say("Goal: go on."), card=CARD)
    purse = SharedBudget(0.0)
    driver = Agent(Scripted([Say("a" * 3_000)] * 4), mutators=[Compactor(notes)], gates=[]).start()
    for n in range(4):
        driver.submit(f"{n}")
        await driver.next()
    poor = Agent(Scripted([]), mutators=[Compactor(notes)], gates=[CostBudget(purse)]).start(
        history=driver.transcript
    )
    assert await poor.compact() is True
    assert notes.requests == []
    assert purse.reserved == pytest.approx(0.0)


class PaysForItself:
    """A mutator that makes a model call of its own before each call of the driver."""

    name = "pays"
    points: frozenset[MutationPoint] = frozenset({"before_model"})

    async def mutate(self, context: MutationContext) -> Transcript | None:
        paid = Scripted([Say("Notes.", usage=LOST)], card=CARD)
        await context.call_model(ModelRequest(Transcript()), "summary", paid)
        return None


@pytest.mark.parametrize("kind", ["cost", "tokens"])
async def test_a_mutators_call_before_the_closing_reply_leaves_no_reservation(kind):
    cost, tokens = CostBudget(SharedBudget(10.0)), TokenBudget(100_000)
    budget = cost.budget if kind == "cost" else tokens.budget
    model = Scripted(
        [Say(calls=[("record", {})], usage=USED), Say("summed up", usage=USED)], card=CARD
    )
    agent = Agent(
        model,
        [RecordingTool()],
        gates=[CallLimit(1), cost if kind == "cost" else tokens],
        mutators=[PaysForItself()],
    )
    assert (await agent.run("x")).text == "summed up"
    assert budget.reserved == pytest.approx(0.0)
    assert budget.spent == pytest.approx(0.625 if kind == "cost" else 485)


async def test_a_summary_that_is_cut_off_leaves_no_reservation():
    pause = Pause()
    notes = Scripted([[pause]], card=CARD)
    purse = SharedBudget(10.0)
    agent = Agent(Scripted([]), mutators=[Compactor(notes)], gates=[CostBudget(purse)])
    driver = agent.start(history=[to_user_item("a"), *_replies(6)])
    compacting = asyncio.create_task(driver.compact())
    await pause.reached.wait()
    assert purse.reserved > 0
    driver.interrupt()
    assert await compacting is False
    assert purse.reserved == pytest.approx(0.0)


def _replies(count: int) -> list[Any]:
    from treadle.core.transcript import AssistantItem

    return [
        item
        for n in range(count)
        for item in (AssistantItem((Text("y" * 900),)), to_user_item(f"{n}"))
    ]


async def test_a_text_without_spaces_or_latin_letters_is_not_underestimated():
    seen: list[int] = []

    class Looks(Books):
        def admit(self, estimate: RequestEstimate) -> Admit | Stop:
            seen.append(estimate.request_chars)
            return Admit()

    await Agent(Scripted(["ok"]), gates=[Looks()]).run("語" * 1_000)
    await Agent(Scripted(["ok"]), gates=[Looks()]).run("abcd " * 200)
    await Agent(Scripted(["ok"]), gates=[Looks()]).run(b64encode(bytes(750)).decode())
    assert seen == [3_000, 1_000, 2_000]
    await Agent(Scripted(["ok"]), gates=[Looks()], instructions="語" * 1_000).run("a")
    assert seen[-1] == 3_001


async def test_asking_again_about_the_same_round_is_no_repetition():
    gate = RepetitionGuard(2, 3)
    call = Say(calls=[("record", {})])
    model = Scripted([call, ["x", StreamBroken("cut")], "done"])
    account: list[RequestEstimate] = []

    class Twice(Books):
        def admit(self, seen: RequestEstimate) -> Admit | Stop:
            account.append(seen)
            return Admit()

    await Agent(model, [RecordingTool()], gates=[Twice()], clock=ManualClock()).run("x")
    for _ in range(5):
        assert gate.admit(account[1]) == Admit()


async def test_a_gate_that_cannot_settle_does_not_lose_the_reply_that_was_paid_for():
    class Broken(Books):
        def settle(self, estimate: RequestEstimate, used: Usage) -> None:
            raise ZeroDivisionError("no such account")

    books, witness = Books(), RecordingObserver()
    model = Scripted([Say("paid for", usage=USED)])
    result = await Agent(model, gates=[Broken(), books], observers=[witness]).run("x")
    assert result.text == "paid for"
    assert books.settled == [USED]
    [warning] = witness.events_of(WarningRaised)
    assert "gate Broken could not settle a model call" in warning.text


# --- growth ------------------------------------------------------------------------------


class Reminds:
    """A mutator that adds a line before each model call."""

    name = "reminds"
    points: frozenset[MutationPoint] = frozenset({"before_model"})

    async def mutate(self, context: MutationContext) -> Transcript:
        return context.transcript.append(NoticeItem("Mind the gap.", kind="reminder"))


async def test_a_mutator_that_only_adds_is_an_append_and_keeps_what_encoders_derived():
    store = MemoryStore()
    model = Scripted([Say(calls=[("record", {})])] * 3 + ["done"])
    driver = Agent(model, [RecordingTool()], mutators=[Reminds()]).start(prompt="x", store=store)
    await driver.next()
    driver.transcript.cache["kept"] = True
    while not isinstance(await driver.next(), Finished):
        pass
    assert driver.transcript.cache.get("kept") is True
    assert not any(isinstance(entry, ViewRewritten) for entry in store.entries)
    assert sum(isinstance(e, ItemAdded) for e in store.entries) == len(driver.transcript)
    assert fold_entries(store.entries).transcript == driver.transcript


async def test_the_cost_of_a_reminder_does_not_grow_with_the_history():
    def rounds(count: int) -> Agent:
        script = [Say(calls=[("record", {"n": n})]) for n in range(count)]
        return Agent(
            Scripted([*script, "done"]), [RecordingTool()], mutators=[Reminds()], max_turns=count
        )

    async def cost(count: int) -> float:
        agent = rounds(count)
        with count_work() as work:
            await agent.run("x")
        return work.calls / count

    await cost(50)
    assert await cost(400) < 1.2 * await cost(100)


async def test_tokens_are_settled_for_children_and_parents_apart():
    gate = TokenBudget(100_000)
    first = Scripted([Say("a", usage=Usage(100, 10, requests=1))])
    second = Scripted([Say("b", usage=Usage(100, 10, requests=1))])
    await asyncio.gather(Agent(first, gates=[gate]).run("x"), Agent(second, gates=[gate]).run("x"))
    assert gate.budget.spent == 220
    assert gate.budget.reserved == pytest.approx(0.0)

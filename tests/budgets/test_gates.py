"""Budgets: a request that could exceed one is never sent."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from treadle import Agent, Usage
from treadle.budgets import (
    CallLimit,
    CostBudget,
    RepetitionGuard,
    SharedBudget,
    TimeLimit,
    TokenBudget,
)
from treadle.core.contracts.model import ModelCard, ModelOptions, ModelRequest
from treadle.core.errors import ConfigError
from treadle.core.transcript import AssistantItem, NoticeItem
from treadle.models import Pause, Say, Scripted
from treadle.testing.tools import RecordingTool

CARD = ModelCard("priced", window=100_000, max_output=1_000, input_price=10.0, output_price=100.0)


def working(rounds: int, usage: Usage, card: ModelCard = CARD) -> Scripted:
    """A model that works for so many rounds, and then writes a summary."""
    numbers = iter(range(rounds))

    def answer(request: ModelRequest) -> Say:
        number = None if request.options.tool_choice == "none" else next(numbers, None)
        if number is None:
            return Say("done", usage=usage)
        return Say(calls=[("record", {"n": number})], usage=usage)

    return Scripted(answer, card=card)


async def test_the_request_that_would_break_the_budget_is_never_sent():
    model = working(9, Usage(100, 1_000, requests=1, cost=0.1))
    result = await Agent(
        model, [RecordingTool()], gates=[CostBudget(purse := SharedBudget(0.52))]
    ).run("go")
    assert result.reason == "budget_exceeded"
    assert result.cost is not None
    assert result.cost == pytest.approx(purse.spent)
    assert purse.spent <= 0.52
    assert purse.reserved == pytest.approx(0.0)
    assert len(model.requests) == 5


async def test_a_reserve_pays_for_one_closing_summary_without_tools():
    model = working(9, Usage(100, 1_000, requests=1, cost=0.1))
    result = await Agent(model, [RecordingTool()], gates=[CostBudget(SharedBudget(0.52))]).run("go")
    last = model.requests[-1]
    assert (last.options.tool_choice, last.options.max_tokens) == ("none", 1_000)
    assert isinstance(result.transcript[-1], AssistantItem)


SONNET = ModelCard("sonnet", max_output=64_000, input_price=3.0, output_price=15.0)


@pytest.mark.parametrize(
    ("gate", "low", "high"),
    [
        (lambda: CostBudget(SharedBudget(0.3)), 18_500, 20_000),
        (lambda: CostBudget(SharedBudget(0.02)), 1_200, 1_334),
        (lambda: TokenBudget(5_000), 3_800, 5_000),
    ],
)
async def test_a_budget_below_one_longest_reply_asks_for_a_shorter_one(gate, low, high):
    model = Scripted([Say("done", usage=Usage(100, 500, requests=1, cost=0.008))], card=SONNET)
    result = await Agent(model, gates=[gate()]).run("go")
    assert (result.reason, result.text) == ("end_turn", "done")
    asked = model.requests[0].options.max_tokens
    assert asked is not None
    assert low < asked < high


async def test_with_enough_money_the_request_stays_as_it_is():
    model = Scripted(["done"], card=SONNET)
    await Agent(model, gates=[CostBudget(SharedBudget(5.0)), TokenBudget(500_000)]).run("go")
    assert model.requests[0].options.max_tokens is None


@pytest.mark.parametrize("limit", [0.02, 0.05, 0.2, 0.9, 3.0])
async def test_no_more_is_reserved_than_the_provider_is_asked_for(limit):
    purse = SharedBudget(limit)

    def answer(request: ModelRequest) -> Say:
        output = request.options.max_tokens or SONNET.max_output
        output_cost = output * 15 / 1e6
        assert output_cost <= purse.reserved < output_cost + 0.01  # the input is small
        done = request.options.tool_choice == "none"
        usage = Usage(100, output, requests=1, cost=purse.reserved)  # as much as is allowed
        return Say("done", usage=usage) if done else Say(calls=[("record", {})], usage=usage)

    model = Scripted(answer, card=SONNET)
    await Agent(model, [RecordingTool()], gates=[CostBudget(purse)]).run("go")
    assert model.requests
    assert purse.spent <= limit
    assert purse.reserved == pytest.approx(0.0)


async def test_of_two_budgets_the_smaller_one_limits_the_reply():
    model = Scripted(["done"], card=SONNET)
    cost, tokens = CostBudget(SharedBudget(0.3)), TokenBudget(5_000)
    await Agent(model, gates=[cost, tokens]).run("go")
    asked = model.requests[0].options.max_tokens
    assert asked is not None
    assert asked < 5_000


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        (
            CostBudget(SharedBudget(0.01)),
            r"may cost .* \$0\.01\d?, but the limit of \$0\.01 leaves only \$0\.01;",
        ),
        (
            TokenBudget(1),
            r"may use about 1,\d\d\d tokens, but the limit of 1 token leaves only 1 token",
        ),
    ],
)
async def test_a_stop_says_what_the_request_needs_what_is_left_and_that_nothing_was_sent(
    gate, words
):
    model = Scripted([], card=SONNET)
    result = await Agent(model, gates=[gate]).run("go")
    assert (result.reason, model.requests) == ("budget_exceeded", [])
    detail = str(result.turn.metadata["detail"])
    assert re.search(words, detail)
    assert detail.endswith("; nothing was sent")


async def test_a_stop_after_paid_requests_does_not_say_that_nothing_was_sent():
    model = working(9, Usage(100, 1_000, requests=1, cost=0.1))
    result = await Agent(model, [RecordingTool()], gates=[CostBudget(SharedBudget(0.52))]).run("go")
    detail = str(result.turn.metadata["detail"])
    assert detail.startswith("the next request and a closing reply may cost about $0.20, but the")
    assert detail.endswith(" limit of $0.52 leaves only $0.12; it was not sent")


async def test_four_children_in_parallel_share_one_purse():
    purse = SharedBudget(1.0)

    async def one() -> str:
        model = working(9, Usage(100, 900, requests=1, cost=0.09))
        return (await Agent(model, [RecordingTool()], gates=[CostBudget(purse)]).run("go")).reason

    assert set(await asyncio.gather(*(one() for _ in range(4)))) == {"budget_exceeded"}
    assert 0.7 < purse.spent <= 1.0
    assert purse.reserved == pytest.approx(0.0)


SHORT = ModelCard("short", max_output=300, input_price=0.0, output_price=15.0)
SHORT_RUN = Usage(1_000, 300, requests=1, cost=0.0045)  # as much as a request may cost


async def test_a_budget_pays_for_as_many_runs_as_fit_in_it():
    model = Scripted(lambda request: Say("ok", usage=SHORT_RUN), card=SHORT)
    agent = Agent(model, gates=[CostBudget(0.05)])
    for _ in range(11):
        assert (await agent.run("go")).reason == "end_turn"
    refused = await agent.run("go")
    assert (refused.reason, len(model.requests)) == ("budget_exceeded", 11)
    assert refused.detail == (
        "the next request may cost about $0.0045, but the limit of $0.05 leaves only $0.0005; "
        "nothing was sent"
    )


async def test_a_budget_of_exactly_one_request_pays_for_it():
    model = Scripted([Say("ok", usage=SHORT_RUN)], card=SHORT)
    assert (await Agent(model, gates=[CostBudget(0.0045)]).run("go")).reason == "end_turn"


async def test_a_long_run_that_has_ended_keeps_nothing_of_the_budget():
    gate = TokenBudget(40_000)
    used = Usage(10, 10, requests=1)
    model = Scripted(lambda request: Say("ok", usage=used), card=ModelCard("m", window=200_000))
    agent = Agent(model, gates=[gate], options=ModelOptions(max_tokens=2_000))
    for prompt in ("word " * 10_000, "hi"):
        assert (await agent.run(prompt)).reason == "end_turn"
    assert (gate.budget.spent, gate.budget.reserved) == (40, 0)


async def test_a_run_that_does_not_fit_beside_another_is_refused_with_the_figure():
    pause = Pause()
    model = Scripted([[pause, "first"], "third"], card=SHORT)
    agent = Agent(model, gates=[CostBudget(0.008)])
    first = asyncio.create_task(agent.run("go"))
    await pause.reached.wait()
    refused = await agent.run("go")
    assert refused.detail == (
        "the next request may cost about $0.0045, but the limit of $0.008 leaves only $0.0035 "
        "($0.0045 reserved by other requests); nothing was sent"
    )
    pause.release()
    assert (await first).reason == (await agent.run("go")).reason == "end_turn"


async def test_a_budget_of_a_run_and_one_of_all_runs_both_count():
    everything = CostBudget(0.012)

    async def run(limit: float) -> str:
        model = working(9, SHORT_RUN, SHORT)
        gates = [CostBudget(limit), everything]
        result = await Agent(model, [RecordingTool()], gates=gates).run("go")
        return f"{result.detail} / {len(model.requests)}"

    assert "limit of $0.006 leaves only $0.0015" in (told := await run(0.006))
    assert told.endswith("/ 1")
    assert "limit of $0.012 leaves only $0.003" in (told := await run(1.0))
    assert told.endswith("/ 1")
    assert everything.budget.spent == pytest.approx(0.009)
    assert everything.budget.reserved == 0.0


async def test_a_budget_per_session_counts_what_a_reopened_session_used_before(tmp_path: Path):
    used = Usage(3_000, 1_000, requests=1)

    def make_agent() -> Agent:
        model = Scripted(
            lambda request: Say("ok", usage=used), card=ModelCard("m", max_output=2_000)
        )
        return Agent(model, gates=[TokenBudget(6_000, per_session=True)], store=tmp_path)

    agent = make_agent()
    for name in ("a", "b"):
        async with agent.session(name) as session:
            assert (await session.run("go")).reason == "end_turn"
            assert (await session.run("go")).reason == "end_turn"
            assert (await session.run("go")).reason == "budget_exceeded"
    async with make_agent().session("a") as session:
        refused = await session.run("go")
    assert "(8,000 tokens used before this run); nothing was sent" in refused.detail


def test_a_shared_budget_is_no_budget_per_session():
    with pytest.raises(ConfigError, match="give CostBudget the amount"):
        CostBudget(SharedBudget(1.0), per_session=True)
    with pytest.raises(ConfigError, match="when_reserved is 'later'; expected refuse or wait"):
        CostBudget(1.0, when_reserved="later")  # type: ignore[arg-type]


async def test_a_budget_of_zero_sends_nothing():
    model = working(1, Usage())
    result = await Agent(model, gates=[CostBudget(SharedBudget(0.0))]).run("go")
    assert (result.reason, model.requests) == ("budget_exceeded", [])


async def test_an_unknown_price_fails_closed_and_says_what_to_do():
    model = Scripted(["x"], card=ModelCard("mystery"))
    result = await Agent(model, gates=[CostBudget(SharedBudget(5.0))]).run("go")
    assert result.reason == "budget_exceeded"
    assert "price of mystery is not known" in str(result.turn.metadata["detail"])
    assert "give CostBudget assumed_prices" in str(result.turn.metadata["detail"])
    assumed = Agent(
        Scripted(["x"], card=ModelCard("mystery")), gates=[CostBudget(SharedBudget(5), (15, 75))]
    )
    assert (await assumed.run("go")).reason == "end_turn"


async def test_the_model_gets_one_notice_at_each_threshold():
    model = working(18, Usage(10, 10, requests=1, cost=0.1), card=CARD)
    result = await Agent(model, [RecordingTool()], gates=[CostBudget(SharedBudget(2.0))]).run("go")
    notices = [item.text for item in result.transcript if isinstance(item, NoticeItem)]
    assert [text.split(" are")[0] for text in notices[:2]] == [
        "Budget: $1.00 of $2.00",
        "Budget: $0.40 of $2.00",
    ]


async def test_tokens_are_counted_as_the_provider_counts_them():
    model = working(9, Usage(900, 100, requests=1))
    result = await Agent(model, [RecordingTool()], gates=[TokenBudget(3_500)]).run("go")
    assert result.reason == "budget_exceeded"
    assert result.usage.total <= 3_500


async def test_tool_calls_and_time_have_limits_of_their_own():
    model = working(9, Usage())
    result = await Agent(model, [RecordingTool()], gates=[CallLimit(2)]).run("go")
    assert (result.reason, result.turn.rounds) == ("budget_exceeded", 2)
    times = iter(range(100))
    clocked = TimeLimit(5, now=lambda: float(next(times)))
    result = await Agent(working(9, Usage()), [RecordingTool()], gates=[clocked]).run("go")
    assert result.reason == "budget_exceeded"


async def test_fault_53_repeated_calls_get_a_warning_and_then_stop_the_turn():
    model = Scripted(lambda request: Say(calls=[("record", {})]))
    result = await Agent(model, [RecordingTool()], gates=[RepetitionGuard(3, 5)]).run("go")
    assert result.reason == "repetition"
    assert result.turn.rounds == 5
    notices = [item.text for item in result.transcript if isinstance(item, NoticeItem)]
    assert len(notices) == 2
    answers = iter("abcdefghij")
    varied = RecordingTool(answer=lambda given: next(answers))
    model = Scripted([Say(calls=[("record", {})])] * 8 + ["done"])
    assert (await Agent(model, [varied], gates=[RepetitionGuard(3, 5)]).run("go")).text == "done"


async def test_what_was_used_before_counts_at_a_price_if_it_had_none():
    money, tokens = CostBudget(SharedBudget(0.5)), TokenBudget(3_000)
    earlier = Usage(100, 4_000, cost=None)
    money.add_earlier(earlier, CARD)
    tokens.add_earlier(Usage(100, 2_000))
    assert money.budget.spent == money.budget.spent_before == pytest.approx(0.401)
    for gate, words in ((money, "$0.40 used before"), (tokens, "2,100 tokens used before")):
        result = await Agent(working(1, Usage(1, 1)), [RecordingTool()], gates=[gate]).run("go")
        assert result.reason == "budget_exceeded"
        assert words in str(result.turn.metadata["detail"])


async def test_a_call_whose_usage_is_not_known_counts_with_what_was_reserved():
    pause, budget = Pause(), CostBudget(1.0)
    agent = Agent(Scripted([["Half a th", pause]], card=CARD), gates=[budget])
    driver = agent.start("go")
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    reserved = budget.budget.reserved
    driver.interrupt()
    await step
    await driver.aclose()
    assert budget.budget.spent == reserved > 0
    assert budget.budget.reserved == 0

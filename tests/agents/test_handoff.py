"""Hand-offs: another agent takes over the conversation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from treadle import Agent, ChildEvent, PendingApproval, tool
from treadle.budgets import CostBudget
from treadle.contracts import ModelCard, UserItem
from treadle.core.errors import ConfigError
from treadle.core.transcript.usage import Usage
from treadle.models import Say, Scripted
from treadle.testing.observers import RecordingObserver

PAID = Usage(input=100, output=10, requests=1, cost=1.0)


def hand_over(prompt: str = "Refund the ticket.") -> Say:
    return Say(calls=[("refunds", {"prompt": prompt})], usage=PAID)


def make_pair(*replies: object, **settings: object) -> tuple[Agent, Scripted, Scripted]:
    """The agent that hands over, its model, and that of the other agent."""
    first, second = Scripted([hand_over()]), Scripted(list(replies))  # type: ignore[arg-type]
    other = Agent(second, name="refunds", instructions="You refund.")
    tools = [other.as_handoff("refunds", "Handles refunds.")]
    return Agent(first, tools, **settings), first, second  # type: ignore[call-overload]


async def test_the_answer_of_the_other_agent_is_that_of_the_run():
    seen = RecordingObserver()
    agent, first, second = make_pair(Say("Refunded.", usage=PAID), observers=[seen])
    result = await agent.run("I want my money back")
    assert (result.output, result.text, result.reason) == ("Refunded.", "Refunded.", "end_turn")
    assert result.cost == 2.0
    assert len(first.requests) == 1
    texts = [item.text for item in second.requests[0].transcript if isinstance(item, UserItem)]
    assert texts == ["I want my money back", "Refund the ticket."]
    assert second.requests[0].system.startswith("You refund.")
    assert [event for event in seen.events if isinstance(event, ChildEvent)]


async def test_what_the_agent_says_that_took_over_streams_as_the_text_of_the_run():
    helper = Agent(Scripted(["I look."])).as_tool("helper", "Looks.")
    refunds = Agent(
        Scripted([Say("Wait. ", calls=[("helper", {"prompt": "p"})]), "Paid back."]), [helper]
    )
    calling = Say("A moment. ", calls=[("refunds", {"prompt": "p"})])
    desk = Agent(Scripted([calling]), [refunds.as_handoff("refunds", "Refunds.")])
    async with desk.stream("I want my money back") as events:
        said = [text async for text in events.texts()]
    assert "".join(said) == "A moment. Wait. Paid back."
    assert events.result.text == "Paid back."


@pytest.mark.parametrize("store", ["sessions.db", None])
async def test_the_next_message_goes_to_the_agent_that_took_over(store: str | None, tmp_path: Path):
    agent, first, second = make_pair("Refunded.", "To your card.")
    location = None if store is None else tmp_path / store
    async with agent.session("s", store=location or tmp_path) as session:
        await session.run("I want my money back")
        result = await session.run("Where to?")
    assert result.output == "To your card."
    assert len(first.requests) == 1, "no request for passing it on"
    texts = [item.text for item in second.requests[1].transcript if isinstance(item, UserItem)]
    assert texts == ["I want my money back", "Refund the ticket.", "Where to?"]


async def test_another_process_continues_with_the_agent_that_took_over(tmp_path: Path):
    agent, first, _ = make_pair("Refunded.", "To your card.")
    agent = agent.replace(store=tmp_path / "sessions.db")
    await agent.run("I want my money back", session="s")
    assert (await agent.run("Where to?", session="s")).output == "To your card."
    assert len(first.requests) == 1


async def test_a_history_is_continued_by_another_agent_of_that_kind():
    agent, _, second = make_pair("Refunded.", "To your card.")
    earlier = await agent.run("I want my money back")
    result = await agent.run("Where to?", history=earlier.transcript)
    assert result.output == "To your card."
    texts = [item.text for item in second.requests[1].transcript if isinstance(item, UserItem)]
    assert texts == ["I want my money back", "Where to?", "Where to?"]


async def test_its_calls_are_approved_by_the_approver_of_the_run():
    asked: list[str] = []

    @tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    def approve(approval: PendingApproval) -> bool:
        asked.append(approval.summary)
        return True

    other = Agent(Scripted([Say(calls=[("pay", {"amount": 3})]), "Paid."]), [pay])
    model = Scripted([hand_over()])
    agent = Agent(model, [other.as_handoff("refunds", "Handles refunds.")], approve=approve)
    assert (await agent.run("x")).output == "Paid."
    assert asked == ["[pay: 3]"]


async def test_the_budget_of_the_run_holds_for_the_agent_that_took_over():
    card = ModelCard("priced", max_output=100, input_price=0.0, output_price=1_000.0)
    second = Scripted(["Refunded."], card=card)
    call = Say(
        calls=[("refunds", {"prompt": "Refund."})], usage=Usage(0, 100, requests=1, cost=0.1)
    )
    tools = [Agent(second).as_handoff("refunds", "Handles refunds.")]
    result = await Agent(Scripted([call], card=card), tools).run("x", gates=[CostBudget(0.15)])
    assert result.reason == "budget_exceeded"
    assert second.requests == []


@dataclass
class Refund:
    euros: int


async def test_the_answer_has_the_output_type_of_the_run():
    other = Agent(Scripted(['{"euros": 12}']), output_type=Refund)
    tools = [other.as_handoff("refunds", "Handles refunds.")]
    agent = Agent(Scripted([hand_over()]), tools, output_type=Refund)
    assert (await agent.run("x")).output == Refund(12)


def test_an_agent_of_another_output_type_cannot_take_over():
    tools = [Agent(Scripted([])).as_handoff("refunds", "Handles refunds.")]
    with pytest.raises(ConfigError, match=r"'refunds'.* str.* Refund"):
        Agent(Scripted([]), tools, output_type=Refund)
    other = Agent(Scripted([]), output_type=Refund).as_handoff("refunds", "Handles refunds.")
    Agent(Scripted([]), [other])
    Agent(Scripted([]), [other], output_type=Refund | int)


async def test_a_hand_off_that_fails_is_a_result_for_the_first_agent():
    other = Agent(Scripted([RuntimeError("broken")]))
    model = Scripted([hand_over(), "I could not reach them."])
    agent = Agent(model, [other.as_handoff("refunds", "Handles refunds.")])
    assert (await agent.run("x")).output == "I could not reach them."

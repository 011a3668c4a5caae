"""An irreversible call whose values were guessed is asked about; one that was renamed is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import treadle
from treadle import Agent, tool
from treadle.core.steps import ApprovalRequest, Finished, PendingApproval
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.items import ToolResultItem
from treadle.models import Say, Scripted
from treadle.permissions import AllowAll

LISTED = json.dumps({"command": ["touch", "made"]})
PYTHON = "{'command': 'touch made'}"


def calling(raw: str, name: str = "bash") -> Scripted:
    return Scripted([Say(calls=[ToolCall("c1", name, raw)]), "done"])


def get_answer(result: treadle.Result[Any]) -> ToolResultItem:
    [answer] = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    return answer


@pytest.mark.parametrize(
    ("raw", "is_asked"),
    [
        (LISTED, True),
        (PYTHON, True),
        ('"touch made"', True),
        (json.dumps({"command": "```sh\ntouch made\n```"}), True),
        (json.dumps({"command": "touch made"}), False),
        (json.dumps({"cmd": "touch made", "explanation": "why"}), False),
        (json.dumps({"command": ["bash", "-lc", "touch made"]}), False),
        ('```json\n{"command": "touch made",}\n```', False),
    ],
)
async def test_a_guessed_command_is_asked_about_in_the_widest_mode(
    raw: str, is_asked: bool, tmp_path: Path
):
    asked: list[PendingApproval] = []

    def approve(approval: PendingApproval) -> bool:
        asked.append(approval)
        return True

    async with treadle.coding_agent(
        tmp_path, model=calling(raw), permission_mode="bypass", sandbox="off", approve=approve
    ) as agent:
        answer = get_answer(await agent.run("go"))
    assert [one.call.repaired in one.reason for one in asked] == [True] * is_asked
    assert not answer.is_error
    assert (tmp_path / "made").exists()


async def test_without_a_user_the_model_reads_what_was_guessed(tmp_path: Path):
    async with treadle.coding_agent(
        tmp_path, model=calling(PYTHON), allow=["Bash(touch:*)"], sandbox="off"
    ) as agent:
        answer = get_answer(await agent.run("go"))
    assert answer.outcome == "denied"
    assert "are a guess: the arguments were Python, not JSON" in answer.text
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("effect", ["pure", "irreversible"])
async def test_the_effect_of_your_own_tool_decides_whether_a_guess_runs(effect: Any):
    @tool(effect=effect)
    def pay(amount: int) -> str:
        "Pay."
        return f"paid {amount}"

    agent = Agent(calling("{'amount': 3}", "pay"), [pay], policy=AllowAll())
    answer = get_answer(await agent.run("go"))
    assert (answer.text == "paid 3") == (effect == "pure")


async def test_a_guessed_call_is_asked_about_again_after_a_restart(tmp_path: Path):
    paid: list[int] = []

    @tool(effect="irreversible")
    def pay(amount: int) -> str:
        "Pay."
        paid.append(amount)
        return f"paid {amount}"

    def make_agent(model: Scripted) -> Agent:
        return Agent(model, [pay], store=tmp_path, policy=AllowAll())

    async with make_agent(calling("{'amount': 3}", "pay")).session("s") as session:
        session.submit("go")
        assert isinstance(await session.next(), ApprovalRequest)
    async with make_agent(Scripted(["done"])).session("s") as session:
        request = await session.next()
        assert isinstance(request, ApprovalRequest)
        assert paid == []
        request.approve(request.pending[0].call.id)
        while not isinstance(await session.next(), Finished):
            pass
    assert paid == [3]

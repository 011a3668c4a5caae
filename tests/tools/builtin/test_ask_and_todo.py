from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.tools.builtin.helpers import failed, hands, plain
from treadle import Agent
from treadle.apps.conversation.choices import PlanAnswer
from treadle.core.contracts.policy import AllowAll
from treadle.core.contracts.tool import RepairingTool
from treadle.core.transcript.items import Item, ToolResultItem, to_user_item
from treadle.models import Say, Scripted
from treadle.tools.builtin import UserQuestion


async def test_the_list_is_answered_briefly_and_shown_whole(folder: Path) -> None:
    todos = [
        {"content": "look", "status": "completed", "id": "1", "activeForm": "Looking"},
        {"content": "think", "status": "in_progress"},
        {"content": "act"},
    ]
    async with hands(folder) as agent:
        item, wrong = await agent.do(
            ("todo", {"todos": todos}), ("todo", {"todos": [{"content": "x", "status": "later"}]})
        )
        tool = next(one for one in agent.tools.tools() if one.spec.name == "todo")
    assert plain(item) == "The list is saved; 2 of 3 are open."
    assert item.display == "[x] look\n[>] think\n[ ] act"
    assert "later" in failed(wrong)
    assert tool.summary({"todos": todos}) == "[todo: 1 of 3 done]"
    for one_step in ({"subject": "x", "description": "y"}, {"taskId": "1", "status": "done"}, {}):
        assert isinstance(tool, RepairingTool)
        problem = tool.check(tool.repair(one_step).arguments)
        assert problem is not None
        assert "send the whole list in `todos`" in problem
    assert tool.check({"plan": todos}) is None


async def test_the_person_is_asked_one_question_at_a_time(folder: Path) -> None:
    asked: list[UserQuestion] = []
    open_questions = 0

    async def ask(question: UserQuestion) -> str | None:
        nonlocal open_questions
        open_questions += 1
        assert open_questions == 1
        asked.append(question)
        await asyncio.sleep(0)
        open_questions -= 1
        return "blue" if question.choices else None

    calls: list[tuple[str, dict[str, Any]]] = [
        ("ask", {"question": "Colour?", "options": ["red", {"label": "blue", "description": "b"}]}),
        ("ask", {"question": "Why?"}),
    ]
    async with hands(folder, agent={"services": {"ask": ask}}) as agent:
        answered, unanswered = await agent.do(calls)
    assert plain(answered) == "The user answered: blue"
    assert [choice.label for choice in asked[0].choices] == ["red", "blue"]
    assert plain(unanswered).startswith("The user did not answer. Decide yourself")


async def test_without_a_user_the_model_decides(folder: Path) -> None:
    async with hands(folder) as agent:
        assert "no user can be asked" in failed(await agent.one("ask", question="Really?"))


async def test_without_a_user_the_plan_is_the_answer(folder: Path) -> None:
    async with hands(folder) as agent:
        problem = failed(await agent.one("exit_plan_mode", plan="1. Do it"))
        assert "answer now with the whole plan" in problem
        assert "the plan is empty" in failed(await agent.one("present_plan", plan=" "))


async def test_an_accepted_plan_is_kept_with_its_result(folder: Path) -> None:
    decisions = [
        PlanAnswer("auto", "1. Do it well"),
        PlanAnswer(comment="shorter"),
        PlanAnswer(),
        None,
    ]

    async def present(session_id: str, plan: str) -> PlanAnswer | None:
        return decisions.pop(0)

    async with hands(folder, agent={"services": {"present_plan": present}}) as agent:
        results = [await agent.one("present_plan", plan="1. Do it") for _ in range(4)]
    accepted, sent_back, kept, outside = results
    assert accepted.data == {"plan": {"text": "1. Do it well", "mode": "auto"}}
    assert plain(accepted).endswith("this is the plan now:\n1. Do it well")
    assert "wants this changed: shorter" in plain(sent_back)
    assert sent_back.data == {"user_answer": "shorter"}
    assert "End your turn now" in plain(kept)
    assert "not in plan mode" in failed(outside)


async def test_earlier_history_is_found_by_words_and_by_id(folder: Path) -> None:
    long = "x" * 25_000 + " the zebra " + "y" * 10
    earlier = [
        to_user_item("Please use the PORT 8123 for the server."),
        *(to_user_item(f"noise {n}") for n in range(5)),
    ]
    (folder / "long.txt").write_text(long)
    async with hands(folder) as agent:
        model = Scripted(
            [
                Say(calls=[("bash", {"command": "cat long.txt"})]),
                Say(calls=[("recall", {"query": "port 8123"})]),
                Say(calls=[("recall", {"query": "zebra"})]),
                Say(calls=[("recall", {"id": "call_1", "offset": 20_000})]),
                Say(calls=[("recall", {"query": "unsaid"}), ("recall", {"id": "nope"})]),
                Say(calls=[("recall", {})]),
                "done",
            ]
        )
        messages: list[Item] = [*earlier]
        messages = list(
            (await Agent(model, [agent.tools], policy=AllowAll()).run(history=messages)).transcript
        )
    items = [item for item in messages if isinstance(item, ToolResultItem)]
    _, port, zebra, whole, nothing, unknown, neither = items
    assert plain(port).startswith("[1 of ")
    assert "the user]\nPlease use the PORT 8123" in port.text
    assert 'answer of bash, id "call_1"]\n... ' in plain(zebra)
    assert " the zebra " in zebra.text
    assert plain(whole).endswith("the zebra yyyyyyyyyy")
    assert len(whole.text) < 6_000
    assert "Nothing was found" in plain(nothing)
    assert "no result has the id" in failed(unknown)
    assert "either a query" in failed(neither)


async def test_a_host_may_bring_its_own_searcher(folder: Path) -> None:
    async def recall(session_id: str, query: str, limit: int) -> list[str]:
        return [f"{query} {limit}"]

    async with hands(folder, agent={"services": {"recall": recall}}) as agent:
        item = await agent.one("recall", query="words", limit=99)
    assert plain(item) == "words 20"

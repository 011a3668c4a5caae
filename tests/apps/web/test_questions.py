"""The cards of questions on the page, without a browser."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from treadle.apps.conversation.approval_text import answer_approval
from treadle.apps.conversation.open_questions import OpenQuestions, PendingQuestion
from treadle.apps.conversation.plans import make_plan_question
from treadle.apps.web.render.questions import render_question
from treadle.core.contracts.policy import Risk
from treadle.core.steps import Approval, PendingApproval
from treadle.core.transcript.content import ToolCall


def test_a_plan_is_shown_as_markdown_with_its_choices():
    card = render_question(
        1, PendingQuestion(model_question=make_plan_question("# One\n\n<b>x</b>"))
    )
    assert ">One</h" in card
    assert "<b>x</b>" not in card
    assert "Yes, and edit files without asking" in card


def test_an_approval_names_its_risks_and_offers_edits_for_the_session():
    call = ToolCall("1", "edit", "{}")
    risks = (Risk("outside", "/opt/<b>"), Risk("recursive_delete", "build"))
    approval = PendingApproval(call, "[edit]", "", risks=risks, wider_mode="accept-edits")
    card = render_question(1, PendingQuestion(approval))
    assert "<dd>deletes with all that is in it: build</dd>" in card  # a line for each risk
    assert "<dd>outside of the folder: /opt/&lt;b&gt;</dd>" in card
    assert "Edits, this session" in card


@pytest.mark.parametrize(
    "given", [None, {}, {"command": ""}, {"command": " \n"}, {"command": 7}, {"timeout": 9},
              {"command": "ls", "sandbox": "off"}]
)  # fmt: skip
async def test_an_edit_without_a_text_allows_nothing(given):
    call = ToolCall("1", "bash", '{"command": "rm x"}')
    decision: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    question = PendingQuestion(PendingApproval(call, "bash", ""), answer=decision)
    questions = OpenQuestions(None, lambda: None, None)  # type: ignore[arg-type]
    questions.waiting.append(question)
    assert not answer_approval(questions, question, "edit", "", given)
    assert not decision.done()
    assert answer_approval(questions, question, "edit", "", {"command": "ls"})
    assert decision.result() == Approval({"command": "ls"})

"""Asks the user the open questions of a conversation: approvals, and questions of the model.

The options and what each answer does are the same in both frontends; a QuestionView shows them
(widgets/dialogs.py, plain.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from treadle.apps.conversation.approval_text import (
    ApprovalAnswer,
    answer_approval,
    find_coverage,
    find_editable_argument,
    format_approval_title,
    format_risk_marks,
    format_waiting_calls,
    list_approval_options,
    make_confirmation,
)
from treadle.apps.conversation.choices import ChoiceOption, ModelQuestion, PlanAnswer
from treadle.apps.conversation.commands.answers import Question
from treadle.apps.conversation.conversation import Conversation
from treadle.apps.conversation.open_questions import PendingQuestion
from treadle.apps.conversation.plans import PLAN_OPTIONS, PLAN_TITLE, is_accepting
from treadle.core.steps import PendingApproval
from treadle.core.transcript.content import Arguments

REASON_PROMPT = "Why not? The model reads your answer (may be empty)"


class ApprovalQuestion(msgspec.Struct, frozen=True):
    """A call to be approved, with the answers that a view offers. `is_in_list`: the user has just
    opened it from the list of calls."""

    title: str
    approval: PendingApproval
    options: Sequence[ChoiceOption]
    is_in_list: bool = False


class QuestionView(Protocol):
    """How a frontend asks. None as an answer means that the user closed the question."""

    @property
    def hidden_answers(self) -> frozenset[ApprovalAnswer]:
        """Answers to an approval that this view does not offer as options."""

    async def choose(self, question: Question) -> str | None:
        """The value of an option. If the user has not just opened the question, keys may be on
        their way to the prompt."""

    async def choose_several(self, title: str, options: Sequence[ChoiceOption]) -> list[int] | None:
        """The positions of the options that the user chose; the question opens by itself."""

    async def choose_approval(self, question: ApprovalQuestion) -> str | None:
        """Like `choose`; shows what the call would do."""

    @property
    def hidden_plan_answers(self) -> frozenset[str]:
        """Answers to a plan that this view does not offer."""

    async def choose_plan(
        self, title: str, plan: str, options: Sequence[ChoiceOption]
    ) -> str | None:
        """Like `choose`, below the plan as Markdown; the question opens by itself."""

    async def choose_calls(
        self, title: str, approvals: Sequence[PendingApproval], options: Sequence[ChoiceOption]
    ) -> tuple[str, list[int]] | None:
        """What the user does with the listed calls, and which ones: `open` one of them, allow
        (`once`) or `deny` several. The question opens by itself."""

    async def run_editor(self, text: str) -> tuple[str, str]:
        """The text, edited in the user's editor, and why it could not be edited."""

    async def ask_text(
        self, prompt: str, text: str = "", *, by_user: bool = True, draft: str = ""
    ) -> str | None:
        """A text of the user, who edits `text`. `draft` names the question: if the user closes it,
        the next one of this name may begin with what was typed."""


async def ask_question(
    view: QuestionView, conversation: Conversation, question: PendingQuestion
) -> None:
    """Ask the user, and pass the answer to the conversation."""
    if question.model_question is not None:
        conversation.questions.answer(
            question, await _ask_model_question(view, question.model_question)
        )
    elif question.approval is not None and question.is_child:
        await _ask_approval(view, conversation, question, question.approval)
    elif question.approval is not None:
        await _ask_calls(view, conversation, question)


async def _ask_calls(
    view: QuestionView, conversation: Conversation, question: PendingQuestion
) -> None:
    """Ask about the calls that wait until this one is answered: in a list while there are several.
    An answer from the list is for all marked calls."""
    while question in conversation.questions.waiting:
        waiting = conversation.questions.list_calls()
        approvals = [one.approval for one in waiting if one.approval is not None]
        if len(waiting) == 1:
            await _ask_approval(view, conversation, question, approvals[0])
            return
        title = f"{len(waiting)} calls need your approval"
        match await view.choose_calls(title, approvals, format_waiting_calls(approvals)):
            case "open", [place]:
                one, approval = waiting[place], approvals[place]
                await _ask_approval(view, conversation, one, approval, is_in_list=True)
            case "once", places:
                for place in places:
                    conversation.questions.approve(waiting[place])
            case "deny", places:
                names = " ".join(_name(approvals[place]) for place in places)
                reason = await view.ask_text(REASON_PROMPT, draft=f"deny {names}")
                for place in places if reason is not None else ():
                    conversation.questions.deny(waiting[place], (reason or "").strip())
            case _:
                conversation.interrupt()
                return


async def _ask_plan(view: QuestionView, plan: str) -> PlanAnswer:
    """Ask about a plan until the user accepts it, comments on it, or keeps planning."""
    problem = ""  # with the editor
    while True:
        options = [one for one in PLAN_OPTIONS if one.value not in view.hidden_plan_answers]
        title, problem = (f"{problem}\n{PLAN_TITLE}" if problem else PLAN_TITLE), ""
        match await view.choose_plan(title, plan, options):
            case str(mode) if is_accepting(mode):
                return PlanAnswer(mode, plan)
            case "edit":
                edited = await view.ask_text(
                    "Edit the plan; enter ends, shift+enter: new line", plan, draft=f"edit {plan}"
                )
                plan, problem = _take_edited(plan, edited)
            case "editor":
                edited, problem = await view.run_editor(plan)
                if not problem:
                    plan, problem = _take_edited(plan, edited)
            case "comment":
                comment = await view.ask_text(
                    "What should change? The model reads it", draft=f"comment {plan}"
                )
                if comment and comment.strip():
                    return PlanAnswer(comment=comment.strip())
            case _:
                return PlanAnswer()


def _take_edited(plan: str, edited: str | None) -> tuple[str, str]:
    """The plan from now on, and why it is not the edited one."""
    if edited is None or edited.strip():
        return plan if edited is None else edited, ""
    return plan, "The edited plan was empty: the plan is unchanged."


async def _ask_model_question(
    view: QuestionView, question: ModelQuestion
) -> str | PlanAnswer | None:
    if question.plan:
        return await _ask_plan(view, question.plan)
    options = [ChoiceOption(label, label, description) for label, description in question.choices]
    if not options:
        return await view.ask_text(question.text, by_user=False)
    options.append(ChoiceOption("", "Another answer"))
    if question.is_multiple:
        return await _ask_for_several(view, question.text, options)
    answer = await view.choose(Question(question.text, options, by_user=False, takes_text=True))
    return await view.ask_text(question.text) if answer == "" else answer


async def _ask_for_several(
    view: QuestionView, title: str, options: Sequence[ChoiceOption]
) -> str | None:
    chosen = await view.choose_several(title, options)
    if chosen is None:
        return None
    answers = [options[position].value for position in chosen]
    if "" in answers:
        text = await view.ask_text(title)
        if text is None:
            return None
        answers = [text if answer == "" else answer for answer in answers]
    return ", ".join(answers)


async def _ask_approval(
    view: QuestionView,
    conversation: Conversation,
    question: PendingQuestion,
    approval: PendingApproval,
    *,
    is_in_list: bool = False,
) -> None:
    marks = format_risk_marks(approval)
    title = format_approval_title(approval) + (f"  {marks}" if marks else "")
    options = list_approval_options(approval, is_child=question.is_child)
    options = [option for option in options if option.value not in view.hidden_answers]
    asked = ApprovalQuestion(title, approval, options, is_in_list)
    while True:
        answer = await view.choose_approval(asked)
        given = await _complete_answer(view, approval, answer)
        if given is None:
            continue
        is_answered = answer_approval(conversation.questions, question, answer, *given)
        if not is_answered and not (answer is None and is_in_list):
            conversation.interrupt()
        return


async def _complete_answer(
    view: QuestionView, approval: PendingApproval, answer: str | None
) -> tuple[str, Arguments | None] | None:
    """The reason and the edited arguments that belong to an answer; None: the user went back."""
    coverage = await find_coverage(approval.rules, Path.cwd()) if answer == "always" else ""
    confirmation = make_confirmation(approval, answer, coverage)
    if confirmation is not None:
        return ("", None) if await view.choose(confirmation) == "yes" else None
    if answer == "edit":
        name, text = find_editable_argument(approval)
        prompt = f"{approval.call.name}: edit {name}, then press enter to run it"
        edited = await view.ask_text(prompt, text, draft=f"edit {_name(approval)}")
        return ("", {name: edited}) if edited and edited.strip() else None
    if answer == "reason":
        reason = await view.ask_text(REASON_PROMPT, draft=f"deny {_name(approval)}")
        return None if reason is None else (reason, None)
    return "", None


def _name(approval: PendingApproval) -> str:
    """Names the call among those of all agents of the session."""
    return f"{approval.session_id}/{approval.call.id}"

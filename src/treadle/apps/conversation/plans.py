"""The plan of plan mode: the question about it, the answers, and the plan that was accepted.

All hosts ask it as a question of the model (`ModelQuestion.plan`); the terminal also lets the user
edit the plan. hosted_session.py gives the tool `present_plan` the user's answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from treadle.apps.conversation.choices import ChoiceOption, ModelQuestion, PlanAnswer
from treadle.context.compaction.pins import get_accepted_plan
from treadle.core.transcript.items import Item, ToolResultItem

PLAN_TITLE = "The plan is ready. Accept it?"
_ACCEPTING = (
    ChoiceOption("accept-edits", "Yes, and edit files without asking", key="y"),
    ChoiceOption("auto", "Yes, and also run commands in the sandbox", key="a"),
    ChoiceOption("ask", "Yes, and ask before each change", key="m"),
)
_KEEP = ChoiceOption("keep", "Keep planning", key="k")
PLAN_OPTIONS = (
    *_ACCEPTING,
    ChoiceOption("edit", "Edit the plan", key="e"),
    ChoiceOption("editor", "Edit the plan in your editor", key="g"),
    ChoiceOption("comment", "No, say what to change", key="n"),
    _KEEP,
)
_MODES = {option.value for option in _ACCEPTING}


def is_accepting(value: str | None) -> bool:
    """Whether the value of an option is the mode that the plan is accepted into."""
    return value in _MODES


def make_plan_question(plan: str) -> ModelQuestion:
    """The question about a plan; an answer that is no choice is a comment on it."""
    return ModelQuestion(
        PLAN_TITLE, tuple((one.label, "") for one in (*_ACCEPTING, _KEEP)), plan=plan
    )


def parse_plan_answer(plan: str, answer: str | PlanAnswer | None) -> PlanAnswer:
    """The answer to `make_plan_question`: of a host that knows plans, or the text of a choice."""
    if isinstance(answer, PlanAnswer):
        return answer
    chosen = next((one.value for one in (*_ACCEPTING, _KEEP) if one.label == answer), "")
    if is_accepting(chosen):
        return PlanAnswer(chosen, plan)
    return PlanAnswer(comment="" if chosen else (answer or "").strip())


def find_accepted_plan(items: Iterable[Item]) -> str:
    """The plan that the user accepted last; "" if there is none."""
    found = ""
    for item in items:
        if isinstance(item, ToolResultItem):
            found = get_accepted_plan(item) or found
    return found

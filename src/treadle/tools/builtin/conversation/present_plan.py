"""`present_plan`: the plan of plan mode, which the user accepts, edits or sends back.

The host provides the service "present_plan": an async function that takes the id of the session and
the plan, and returns the user's decision, or None if this session is not in plan mode. The accepted
plan is the `data` of the result: it stays in the session, and compaction keeps it.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, ClassVar, Protocol

import msgspec

from treadle.core.contracts.tool import Access, ToolOutput
from treadle.core.errors import ToolError
from treadle.core.transcript.content import Arguments
from treadle.lib.text.text import find_title
from treadle.tools.builtin.base import BuiltinTool, describe, escape_multiline
from treadle.tools.builtin.session_memory import CallSite

NO_USER_MESSAGE = (
    "no user can decide on a plan in this run. In plan mode answer now with the whole plan: your "
    "answer is all that the user gets. In another mode carry it out"
)
NOT_PLANNING_MESSAGE = (
    "this session is not in plan mode, or it is a child agent's: the user accepts no plan here. "
    "Carry out the work, or give the plan as your answer if that is your task"
)
ACCEPTED = "The user accepted the plan. The permission mode is now {mode}. Carry out the plan."
EDITED = " The user changed it; this is the plan now:\n{plan}"
SENT_BACK = "The user did not accept the plan and wants this changed: {comment}"
KEPT = "The user did not accept the plan yet and will say more. End your turn now and wait."


class PlanDecision(Protocol):
    """What the user decided.

    mode      the permission mode in which the plan is carried out; "" if it is not accepted
    plan      the accepted plan, which the user may have edited
    comment   what should change in a plan that is not accepted
    """

    @property
    def mode(self) -> str: ...

    @property
    def plan(self) -> str: ...

    @property
    def comment(self) -> str: ...


PresentPlan = Callable[[str, str], Awaitable[PlanDecision | None]]


class PresentPlanArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    plan: Annotated[str, describe("Markdown: what you found, files to change, steps, how to check")]


class PresentPlanTool(BuiltinTool[PresentPlanArguments]):
    name = "present_plan"
    arguments_type = PresentPlanArguments
    timeout = 7 * 24 * 3600.0  # people sleep
    aliases = ("exit_plan_mode", "submit_plan", "propose_plan", "create_plan")
    text_argument = "plan"
    argument_aliases: ClassVar = {"text": "plan", "content": "plan", "markdown": "plan"}

    def validate(self, args: PresentPlanArguments) -> str | None:
        return None if args.plan.strip() else "the plan is empty"

    def summary(self, arguments: Arguments) -> str:
        return super().summary({"plan": find_title(str(arguments.get("plan", "")))})

    def access(self, arguments: Arguments, session_id: str) -> Access:
        return Access(writes=frozenset({"the user's attention"}))  # one question at a time

    async def run(self, args: PresentPlanArguments, site: CallSite) -> ToolOutput:
        present: PresentPlan | None = site.context.services.get("present_plan")
        if present is None:
            raise ToolError(NO_USER_MESSAGE)
        decision = await present(site.context.session_id, args.plan)
        if decision is None:
            raise ToolError(NOT_PLANNING_MESSAGE)
        if decision.mode:
            return _make_accepted_output(args.plan, decision)
        if not decision.comment:
            return ToolOutput(KEPT, display="not accepted yet")
        text, data = SENT_BACK.format(comment=decision.comment), {"user_answer": decision.comment}
        return ToolOutput(text, display=escape_multiline(decision.comment), data=data)


def _make_accepted_output(given: str, decision: PlanDecision) -> ToolOutput:
    plan = decision.plan or given
    is_edited = plan.strip() != given.strip()
    text = ACCEPTED.format(mode=decision.mode) + (EDITED.format(plan=plan) if is_edited else "")
    data = {"plan": {"text": plan, "mode": decision.mode}}
    return ToolOutput(text, display=escape_multiline(plan), data=data)

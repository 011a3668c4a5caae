"""Questions to the user in the editor: approvals, questions of the model, choices of commands.

An approval is a permission request; "always" is offered if the policy has a rule for it. A question
of the model is a form, where the editor has forms; otherwise its choices are the options of a
permission request. No answer is never a yes. Used by session.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path

from acp.interfaces import Client
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ClientCapabilities,
    ElicitationFormSessionMode,
    ElicitationMultiSelectPropertySchema,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    EnumOption,
    PermissionOption,
    PermissionOptionKind,
    TitledMultiSelectItems,
    ToolCallUpdate,
)
from pydantic import ValidationError

from treadle.apps.acp import tool_calls
from treadle.apps.acp.outbox import Outbox
from treadle.apps.acp.terminals import CLIENT_ERRORS
from treadle.apps.acp.updates import SessionUpdates, make_child_call_id
from treadle.apps.conversation.approval_text import (
    find_coverage,
    list_approval_options,
    list_risk_lines,
    open_network,
)
from treadle.apps.conversation.choices import ChoiceOption, ModelQuestion
from treadle.apps.conversation.commands.answers import Question
from treadle.core.steps import Approval, Denial, PendingApproval
from treadle.lib.text.sanitize import escape_invisible

_KINDS: Mapping[str, PermissionOptionKind] = {
    "once": "allow_once",
    "network": "allow_once",
    "session": "allow_always",
    "always": "allow_always",
    "deny": "reject_once",
}
_DENIED = "The user denied this call."
_REJECTING = frozenset({"", "no", "never", "deny", "skip"})


class EditorQuestions:
    """`interrupt` stops the turn: the editor answers so when the user stops it. `allow_for_session`
    gets the approval whose rules or mode the user allows until the session is closed."""

    def __init__(
        self,
        client: Client,
        capabilities: ClientCapabilities,
        session_id: str,
        folder: Path,
        outbox: Outbox,
        updates: SessionUpdates,
        interrupt: Callable[[], None],
        allow_for_session: Callable[[PendingApproval], None],
    ) -> None:
        self._client = client
        elicitation = capabilities.elicitation
        self._has_forms = elicitation is not None and elicitation.form is not None
        self._session_id = session_id
        self._folder = folder
        self._outbox = outbox
        self._updates = updates
        self._interrupt = interrupt
        self._allow_for_session = allow_for_session
        self._numbers = count(1)
        self._asked: tuple[ModelQuestion, asyncio.Future[str]] | None = None

    async def ask_approval(self, approval: PendingApproval) -> Approval | Denial | None:
        """The user's decision on a call. If the editor cannot ask, the call is denied."""
        is_child = approval.session_id not in ("", self._session_id)
        offered = list_approval_options(approval, is_child=is_child)
        options = [
            _make_option(one.value, "No" if one.value == "deny" else one.label, _KINDS[one.value])
            for one in offered
            if one.value in _KINDS
        ]
        # Told at once: an editor asks no second time before the rule is saved.
        is_offered = any(one.value == "always" for one in offered)
        coverage = await find_coverage(approval.rules, self._folder) if is_offered else ""
        try:
            answer = await self._request(self._describe_call(approval, is_child, coverage), options)
        except ValidationError:  # an answer that cannot be read is a no
            return Denial(f"{_DENIED} The editor's answer could not be read.")
        except CLIENT_ERRORS as error:
            return Denial(f"The editor could not ask the user: {error}", "headless")
        if answer is None:
            self._interrupt()
        if answer == "deny" or answer not in [one.option_id for one in options]:
            return Denial(_DENIED)
        if answer == "session":
            self._allow_for_session(approval)
        opened = open_network(approval) if answer == "network" else None
        return Approval(opened, always=answer == "always")

    def _describe_call(
        self, approval: PendingApproval, is_child: bool, coverage: str
    ) -> ToolCallUpdate:
        call, cwd = approval.call, approval.access.cwd or self._updates.cwd
        call_id = call.id
        if is_child:
            call_id = make_child_call_id(approval.session_id, call.id)
            self._updates.add_child_call(call_id)
        content = tool_calls.make_preview_content(approval.preview, cwd)
        if risks := [line.text for line in list_risk_lines(approval)]:
            content.append(tool_calls.make_text("\n".join(risks)))
        if approval.reason:
            content.append(tool_calls.make_text(escape_invisible(approval.reason)))
        if coverage:
            text = f"The rules to always allow would have covered {coverage}."
            content.append(tool_calls.make_text(text))
        return ToolCallUpdate(
            tool_call_id=call_id,
            title=tool_calls.make_title(call.name, call.arguments, approval.summary),
            kind=tool_calls.get_kind(call.name),
            status="pending",
            content=content,
            locations=tool_calls.list_accessed(approval.access, cwd),
            raw_input=call.arguments,
        )

    async def choose(self, question: Question) -> str | None:
        """The value of the chosen option; None if the user chose none."""
        kinds: dict[bool, PermissionOptionKind] = {True: "reject_once", False: "allow_once"}
        given = [
            _make_option(option.value, _label(option), kinds[option.value in _REJECTING])
            for option in question.options
        ]
        changes = [f"- {one.sign} {one.path}{one.note}" for one in question.changes]
        message = question.message or "\n".join(changes)
        asked = ToolCallUpdate(
            tool_call_id=f"question-{next(self._numbers)}",
            title=question.title,
            kind="other",
            status="pending",
            content=[tool_calls.make_text(message)] if message else [],
        )
        try:
            return await self._request(asked, given)
        except CLIENT_ERRORS:
            return None

    async def ask_user(self, question: ModelQuestion) -> str | None:
        """The user's answer to a question of the model, chosen or typed; None if there is none."""
        typed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        chosen = asyncio.ensure_future(self._ask_editor(question))
        self._asked = question, typed
        try:
            await asyncio.wait((chosen, typed), return_when=asyncio.FIRST_COMPLETED)
            return typed.result() if typed.done() else await chosen
        finally:
            self._asked = None
            chosen.cancel()

    def answer_with_text(self, text: str) -> bool:
        """Take a prompt as the answer to the open question of the model; False if none is open."""
        if self._asked is None or not text.strip() or self._asked[1].done():
            return False
        self._asked[1].set_result(self._asked[0].read_answer(text))
        return True

    async def _ask_editor(self, question: ModelQuestion) -> str | None:
        if self._has_forms:
            return await self._ask_form(question)
        if not question.choices:
            return None  # the tool tells the model to decide itself and to say what it assumed
        options = [ChoiceOption(label, label, text) for label, text in question.choices]
        skip = ChoiceOption("skip", "None of these")
        answer = await self.choose(Question(question.text, [*options, skip], message=question.plan))
        return None if answer == "skip" else answer

    async def _ask_form(self, question: ModelQuestion) -> str | None:
        form = ElicitationFormSessionMode(
            session_id=self._session_id, requested_schema=_make_form(question)
        )
        await self._outbox.flush()
        try:
            shown = f"{question.plan}\n\n{question.text}" if question.plan else question.text
            response = await self._client.create_elicitation(message=shown, mode=form)
        except CLIENT_ERRORS:
            return None
        if not isinstance(response, AcceptElicitationResponse):
            return None
        content = response.content or {}
        chosen = content.get("choice", [])
        answers = [*(chosen if isinstance(chosen, list) else [chosen]), content.get("answer", "")]
        return ", ".join(str(answer) for answer in answers if answer) or None

    async def _request(
        self, question: ToolCallUpdate, options: list[PermissionOption]
    ) -> str | None:
        """The id of the chosen option; None if the user stopped the turn."""
        await self._outbox.flush()
        response = await self._client.request_permission(
            session_id=self._session_id, tool_call=question, options=options
        )
        outcome = response.outcome
        return outcome.option_id if isinstance(outcome, AllowedOutcome) else None


def _make_option(value: str, name: str, kind: PermissionOptionKind) -> PermissionOption:
    return PermissionOption(option_id=value, name=name, kind=kind)


def _label(option: ChoiceOption) -> str:
    return f"{option.label}: {option.description}" if option.description else option.label


def _make_form(question: ModelQuestion) -> ElicitationSchema:
    """The choices, and a field for another answer."""
    if not question.choices:
        answer = ElicitationStringPropertySchema(type="string", title="Answer")
        return ElicitationSchema(type="object", properties={"answer": answer}, required=["answer"])
    options = [
        EnumOption(const=label, title=_label(ChoiceOption(label, label, text)))
        for label, text in question.choices
    ]
    choice: ElicitationStringPropertySchema | ElicitationMultiSelectPropertySchema
    if question.is_multiple:
        items = TitledMultiSelectItems(any_of=options)
        choice = ElicitationMultiSelectPropertySchema(type="array", title="Choices", items=items)
    else:
        choice = ElicitationStringPropertySchema(type="string", title="Choice", one_of=options)
    other = ElicitationStringPropertySchema(type="string", title="Another answer")
    return ElicitationSchema(type="object", properties={"choice": choice, "answer": other})

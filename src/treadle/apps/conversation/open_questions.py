"""The open questions of a conversation: calls that wait for an approval, questions of the model.

Passes each decision to the driver, or to the coroutine that asked. Does not show the questions: the
frontends do. Used by conversation.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from treadle.apps.conversation.choices import ModelQuestion, PlanAnswer
from treadle.core.loop.driver import Driver
from treadle.core.steps import Approval, ApprovalRequest, Denial, PendingApproval
from treadle.core.transcript.content import Arguments

QuestionAnswer = Approval | Denial | PlanAnswer | str | None


class PendingQuestion(msgspec.Struct, frozen=True, eq=False):
    """A question for the user: an approval, or a question of the model. A child's approval has no
    "always" and no edited arguments."""

    approval: PendingApproval | None = None
    model_question: ModelQuestion | None = None
    is_child: bool = False
    answer: asyncio.Future[QuestionAnswer] | None = None


class OpenQuestions:
    """`waiting` are the questions, the oldest first. `allow_for_session` gets the approval whose
    rules or mode the user allows until the session is closed."""

    def __init__(
        self,
        driver: Driver,
        on_change: Callable[[], None],
        allow_for_session: Callable[[PendingApproval], None] | None,
    ) -> None:
        self._driver = driver
        self._on_change = on_change
        self._allow_for_session = allow_for_session
        self.waiting: list[PendingQuestion] = []
        self._decision_made = asyncio.Event()

    def list_calls(self) -> list[PendingQuestion]:
        """The calls of this agent, not of a child, that wait for an approval."""
        return [one for one in self.waiting if one.approval is not None and not one.is_child]

    def approve(
        self, question: PendingQuestion, *, arguments: Arguments | None = None, always: bool = False
    ) -> None:
        """Approve the call; nothing happens if the question is no longer open."""
        if question.answer is not None:
            self.answer(question, Approval(arguments, always))
        elif question.approval is not None:
            call, session_id = question.approval.call, question.approval.session_id
            self._driver.approve(call.id, arguments=arguments, always=always, session_id=session_id)
            self._finish_decision(question)

    def approve_for_session(self, question: PendingQuestion) -> None:
        """Approve the call, and until the session is closed all that its rules or its mode allow;
        that mode allows the other waiting calls that name it, too."""
        if question.approval is None or question not in self.waiting:
            return
        mode = question.approval.wider_mode
        if self._allow_for_session is not None and not question.is_child:
            self._allow_for_session(question.approval)
            for other in [one for one in self.list_calls() if mode and one != question]:
                if other.approval is not None and other.approval.wider_mode == mode:
                    self.approve(other)
        self.approve(question)

    def deny(self, question: PendingQuestion, reason: str) -> None:
        if question.answer is not None:
            self.answer(question, Denial(reason or "The user said no."))
        elif question.approval is not None:
            denial = "The user denied this call" + (f": {reason}" if reason else ".")
            session_id = question.approval.session_id
            self._driver.deny(question.approval.call.id, denial, session_id=session_id)
            self._finish_decision(question)

    def answer(self, question: PendingQuestion, answer: QuestionAnswer) -> None:
        if question.answer is not None:
            if not question.answer.done():
                question.answer.set_result(answer)
            self._remove(question)

    @property
    def hold_all(self) -> bool:
        """Whether nothing runs but what asks the user, and asks again where the turn continues: a
        round that has not begun, a question of the model, a child agent."""
        state = self._driver.state
        begun = state.intents.keys() - state.early_results.keys()
        asking = sum(one.is_child for one in self.waiting)
        return bool(self.list_calls()) or (bool(self.waiting) and len(begun) <= asking)

    @property
    def takes_text(self) -> bool:
        """Whether the first question is one of the model: a text that the user sends answers it."""
        return bool(self.waiting) and self.waiting[0].model_question is not None

    def answer_with_text(self, text: str) -> bool:
        """Answer the first question with what the user sent; False if that is no answer to it."""
        if not self.takes_text or not text.strip():
            return False
        question = self.waiting[0]
        assert question.model_question is not None, "it takes text"
        self.answer(question, question.model_question.read_answer(text))
        return True

    async def ask_approval(self, approval: PendingApproval) -> Approval | Denial | None:
        """Ask the user to approve the call of a child; None: the question was closed."""
        answer = await self.ask(PendingQuestion(approval, is_child=True))
        return answer if isinstance(answer, (Approval, Denial)) else None

    async def ask(self, question: PendingQuestion) -> QuestionAnswer:
        answer: asyncio.Future[QuestionAnswer] = asyncio.get_running_loop().create_future()
        question = msgspec.structs.replace(question, answer=answer)
        self.waiting.append(question)
        self._on_change()
        try:
            return await answer
        finally:
            self._remove(question)

    async def wait_for_approvals(self, request: ApprovalRequest) -> None:
        self.waiting += [PendingQuestion(approval) for approval in request.pending]
        self._on_change()
        while request.unresolved and not self._driver.is_interrupted:
            self._decision_made.clear()
            await self._decision_made.wait()
        self.waiting = [
            one for one in self.waiting if one.approval not in request.pending or one.is_child
        ]

    def close_all(self) -> None:
        """The turn is interrupted."""
        self.waiting = []
        self._decision_made.set()

    def _finish_decision(self, question: PendingQuestion) -> None:
        self._decision_made.set()
        self._remove(question)

    def _remove(self, question: PendingQuestion) -> None:
        self.waiting = [other for other in self.waiting if other is not question]
        self._on_change()

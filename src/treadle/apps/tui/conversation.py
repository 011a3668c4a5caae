"""One driver at work, for any face: what it tells becomes the view, what the person says goes in.

Runs `Driver.next()` in a task of its own and keeps the view and the open questions. Knows nothing
of a terminal; the app and the plain mode stand above.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from treadle.apps.tui.host import ModelQuestion
from treadle.apps.tui.state.blocks import NoteBlock, Tone, ViewBlock
from treadle.apps.tui.state.from_transcript import build_view
from treadle.apps.tui.state.reducer import apply_event, apply_tool_result
from treadle.apps.tui.state.view_state import ViewState, add_block, queue_message, replace_block
from treadle.core.events import Event
from treadle.core.loop.driver import Driver
from treadle.core.steps import ApprovalRequest, AwaitingInput, PendingApproval
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.items import Item, ToolResultItem, UserItem
from treadle.core.transcript.pending import AskModel, RunTools, pending


class PendingQuestion(msgspec.Struct, frozen=True, eq=False):
    """Something that only the person can decide. A child's call can be allowed or not, no more."""

    approval: PendingApproval | None = None
    model_question: ModelQuestion | None = None
    is_child: bool = False
    answer: asyncio.Future[bool | str | None] | None = None


class Conversation:
    """`changed` is called after anything that can be seen has changed; it must return quickly."""

    def __init__(self, driver: Driver, on_change: Callable[[], None]) -> None:
        self.driver = driver
        self.view = self._initial_view(driver)
        self.questions: list[PendingQuestion] = []
        self._on_change = on_change
        self._input_ready = asyncio.Event()
        self._decision_made = asyncio.Event()
        self._is_idle = True
        self._task: asyncio.Task[None] | None = None
        driver.watch(self)

    @staticmethod
    def _initial_view(driver: Driver) -> ViewState:
        view = build_view(driver.history)
        view = msgspec.structs.replace(view, usage=driver.usage)
        for waiting in driver.snapshot().pending_input:
            if isinstance(waiting, UserItem):
                view = queue_message(view, waiting)
        return view

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def has_unfinished_turn(self) -> bool:
        """Whether an earlier process left a turn in the middle."""
        move = pending(self.driver.transcript)
        return not self.view.is_busy and isinstance(move, AskModel | RunTools)

    # --- what the person does ------------------------------------------------------------

    def submit(self, item: UserItem) -> None:
        """Begin a turn, or steer the one that runs."""
        if self.view.is_busy:
            self.driver.steer(item)
            self.view = queue_message(self.view, item)
        else:
            self.driver.submit(item)
        self.resume()
        self._on_change()

    def resume(self) -> None:
        """Take up what was said, or a turn that was left unfinished."""
        self._is_idle = False
        self._input_ready.set()

    @property
    def is_idle(self) -> bool:
        """Whether everything that was said is dealt with."""
        return self._is_idle

    def interrupt(self) -> None:
        self.driver.interrupt()
        self._clear_questions()
        self._decision_made.set()
        self._on_change()

    def approve(
        self, question: PendingQuestion, *, arguments: Arguments | None = None, always: bool = False
    ) -> None:
        """An answer to a question that is gone changes nothing."""
        if question.answer is not None:
            self._resolve(question, True)
        elif question.approval is not None:
            self.driver.approve(question.approval.call.id, arguments=arguments, always=always)
            self._finish_decision(question)

    def deny(self, question: PendingQuestion, reason: str) -> None:
        if question.answer is not None:
            self._resolve(question, reason or False)
        elif question.approval is not None:
            said = f"The user said no: {reason}" if reason else "The user said no."
            self.driver.deny(question.approval.call.id, said)
            self._finish_decision(question)

    def answer(self, question: PendingQuestion, text: str | None) -> None:
        if question.answer is not None:
            self._resolve(question, text)

    # --- what the program shows of its own ------------------------------------------------

    def show_note(self, text: str, tone: Tone = "faint") -> None:
        self.show_block(NoteBlock(text, tone))

    def show_block(self, block: ViewBlock) -> int:
        """Put a block under the others; where it stands."""
        self.view = add_block(self.view, block)
        self._on_change()
        return len(self.view.blocks) - 1

    def replace_block(self, index: int, block: ViewBlock) -> None:
        """Another block in a place that `show` gave; one that is gone meanwhile stays gone."""
        blocks = self.view.blocks
        if index < len(blocks) and type(blocks[index]) is type(block):
            self.view = replace_block(self.view, index, block)
            self._on_change()

    # --- doors for what is below ----------------------------------------------------------

    async def ask_approval(self, approval: PendingApproval) -> bool | str:
        """A child's call waits for the person."""
        answer = await self._wait_for_answer(
            PendingQuestion(approval, is_child=True, answer=self._create_future())
        )
        return answer if answer is not None else False

    async def ask_user(self, question: ModelQuestion) -> str | None:
        answer = await self._wait_for_answer(
            PendingQuestion(model_question=question, answer=self._create_future())
        )
        return answer if isinstance(answer, str) else None

    def _create_future(self) -> asyncio.Future[bool | str | None]:
        return asyncio.get_running_loop().create_future()

    async def _wait_for_answer(self, question: PendingQuestion) -> bool | str | None:
        assert question.answer is not None
        self.questions.append(question)
        self._on_change()
        try:
            return await question.answer
        finally:
            self._remove_question(question)

    # --- as an observer -------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        view = apply_event(self.view, event)
        if view is not self.view:
            self.view = view
            self._on_change()

    def on_item(self, position: int, item: Item) -> None:
        if isinstance(item, ToolResultItem):
            self.view = apply_tool_result(self.view, item)
            self._on_change()

    # --- the work -------------------------------------------------------------------------

    async def _run(self) -> None:
        await self._input_ready.wait()  # an unfinished turn waits for the person, too
        while True:
            try:
                await self._run_driver()
            except Exception as error:  # noqa: BLE001 - shown to the person, who decides what next
                self.view = msgspec.structs.replace(self.view, is_busy=False, activity="")
                self.show_note(f"{type(error).__name__}: {error}", "error")
                self._input_ready.clear()
                self._is_idle = True
                await (
                    self._input_ready.wait()
                )  # what was said is kept, and tried with the next word

    async def _run_driver(self) -> None:
        while True:
            match await self.driver.next():
                case AwaitingInput():
                    await self._wait_for_input()
                case ApprovalRequest() as request:
                    await self._wait_for_approvals(request)
                case _:
                    pass

    async def _wait_for_input(self) -> None:
        self._input_ready.clear()
        if any(isinstance(item, UserItem) for item in self.driver.snapshot().pending_input):
            return  # they came while the last step ended
        self._is_idle = True
        self._on_change()
        await self._input_ready.wait()

    async def _wait_for_approvals(self, request: ApprovalRequest) -> None:
        self.questions += [PendingQuestion(approval) for approval in request.pending]
        self._on_change()
        while request.unresolved and not self.driver.is_interrupted:
            self._decision_made.clear()
            await self._decision_made.wait()
        asked = {approval.call.id for approval in request.pending}
        self.questions = [q for q in self.questions if _call_id(q) not in asked or q.is_child]

    def _finish_decision(self, question: PendingQuestion) -> None:
        self._remove_question(question)
        self._decision_made.set()
        self._on_change()

    def _resolve(self, question: PendingQuestion, answer: bool | str | None) -> None:
        if question.answer is not None and not question.answer.done():
            question.answer.set_result(answer)
        self._remove_question(question)

    def _remove_question(self, question: PendingQuestion) -> None:
        self.questions = [other for other in self.questions if other is not question]
        self._on_change()

    def _clear_questions(self) -> None:
        self.questions = []

    async def aclose(self) -> None:
        """Stop whatever runs; the driver stays open for its host to close."""
        work, self._task = self._task, None
        if work is not None and not work.done():
            self.driver.interrupt("closed")
            work.cancel()
            await asyncio.wait([work])
        self.driver.unwatch(self)


def _call_id(question: PendingQuestion) -> str:
    return question.approval.call.id if question.approval is not None else ""

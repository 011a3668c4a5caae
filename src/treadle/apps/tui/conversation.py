"""One driver at work, for any face: what it tells becomes the view, what the person says goes in.

Runs `Driver.next()` in a task of its own and keeps the view and the open questions. Knows nothing
of a terminal; the app and the plain mode stand above.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from treadle.apps.tui.blocks import Block, Note, Tone
from treadle.apps.tui.host import Ask
from treadle.apps.tui.recall import recalled
from treadle.apps.tui.scene import View, added, queued, replaced
from treadle.apps.tui.view import settled, step
from treadle.core.events import Event
from treadle.core.loop.driver import Driver
from treadle.core.loop.steps import ApprovalRequest, AwaitingInput, PendingApproval
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.items import Item, ToolResultItem, UserItem
from treadle.core.transcript.pending import AskModel, RunTools, pending


class Question(msgspec.Struct, frozen=True, eq=False):
    """Something that only the person can decide. A child's call can be allowed or not, no more."""

    approval: PendingApproval | None = None
    ask: Ask | None = None
    is_child: bool = False
    answer: asyncio.Future[bool | str | None] | None = None


class Conversation:
    """`changed` is called after anything that can be seen has changed; it must return quickly."""

    def __init__(self, driver: Driver, changed: Callable[[], None]) -> None:
        self.driver = driver
        self.view = self._first_view(driver)
        self.questions: list[Question] = []
        self._changed = changed
        self._spoken = asyncio.Event()
        self._decided = asyncio.Event()
        self._is_resting = True
        self._work: asyncio.Task[None] | None = None
        driver.watch(self)

    @staticmethod
    def _first_view(driver: Driver) -> View:
        view = recalled(driver.history)
        view = msgspec.structs.replace(view, usage=driver.usage)
        for waiting in driver.snapshot().pending_input:
            if isinstance(waiting, UserItem):
                view = queued(view, waiting)
        return view

    def start(self) -> None:
        self._work = asyncio.get_running_loop().create_task(self._run())

    @property
    def is_unfinished(self) -> bool:
        """Whether an earlier process left a turn in the middle."""
        move = pending(self.driver.transcript)
        return not self.view.is_busy and isinstance(move, AskModel | RunTools)

    # --- what the person does ------------------------------------------------------------

    def say(self, item: UserItem) -> None:
        """Begin a turn, or steer the one that runs."""
        if self.view.is_busy:
            self.driver.steer(item)
            self.view = queued(self.view, item)
        else:
            self.driver.submit(item)
        self.go_on()
        self._changed()

    def go_on(self) -> None:
        """Take up what was said, or a turn that was left unfinished."""
        self._is_resting = False
        self._spoken.set()

    @property
    def is_resting(self) -> bool:
        """Whether everything that was said is dealt with."""
        return self._is_resting

    def interrupt(self) -> None:
        self.driver.interrupt()
        self._drop_questions()
        self._decided.set()
        self._changed()

    def approve(
        self, question: Question, *, arguments: Arguments | None = None, always: bool = False
    ) -> None:
        """An answer to a question that is gone changes nothing."""
        if question.answer is not None:
            self._resolve(question, True)
        elif question.approval is not None:
            self.driver.approve(question.approval.call.id, arguments=arguments, always=always)
            self._after_decision(question)

    def deny(self, question: Question, reason: str) -> None:
        if question.answer is not None:
            self._resolve(question, reason or False)
        elif question.approval is not None:
            said = f"The user said no: {reason}" if reason else "The user said no."
            self.driver.deny(question.approval.call.id, said)
            self._after_decision(question)

    def answer(self, question: Question, text: str | None) -> None:
        if question.answer is not None:
            self._resolve(question, text)

    # --- what the program shows of its own ------------------------------------------------

    def note(self, text: str, tone: Tone = "faint") -> None:
        self.show(Note(text, tone))

    def show(self, block: Block) -> int:
        """Put a block under the others; where it stands."""
        self.view = added(self.view, block)
        self._changed()
        return len(self.view.blocks) - 1

    def replace(self, place: int, block: Block) -> None:
        """Another block in a place that `show` gave; one that is gone meanwhile stays gone."""
        blocks = self.view.blocks
        if place < len(blocks) and type(blocks[place]) is type(block):
            self.view = replaced(self.view, place, block)
            self._changed()

    # --- doors for what is below ----------------------------------------------------------

    async def ask_approval(self, approval: PendingApproval) -> bool | str:
        """A child's call waits for the person."""
        answer = await self._ask(Question(approval, is_child=True, answer=self._future()))
        return answer if answer is not None else False

    async def ask(self, ask: Ask) -> str | None:
        answer = await self._ask(Question(ask=ask, answer=self._future()))
        return answer if isinstance(answer, str) else None

    def _future(self) -> asyncio.Future[bool | str | None]:
        return asyncio.get_running_loop().create_future()

    async def _ask(self, question: Question) -> bool | str | None:
        assert question.answer is not None
        self.questions.append(question)
        self._changed()
        try:
            return await question.answer
        finally:
            self._forget(question)

    # --- as an observer -------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        view = step(self.view, event)
        if view is not self.view:
            self.view = view
            self._changed()

    def on_item(self, position: int, item: Item) -> None:
        if isinstance(item, ToolResultItem):
            self.view = settled(self.view, item)
            self._changed()

    # --- the work -------------------------------------------------------------------------

    async def _run(self) -> None:
        await self._spoken.wait()  # an unfinished turn waits for the person, too
        while True:
            try:
                await self._drive()
            except Exception as error:  # noqa: BLE001 - shown to the person, who decides what next
                self.view = msgspec.structs.replace(self.view, is_busy=False, activity="")
                self.note(f"{type(error).__name__}: {error}", "error")
                self._spoken.clear()
                self._is_resting = True
                await self._spoken.wait()  # what was said is kept, and tried with the next word

    async def _drive(self) -> None:
        while True:
            match await self.driver.next():
                case AwaitingInput():
                    await self._wait_for_words()
                case ApprovalRequest() as request:
                    await self._wait_for_decisions(request)
                case _:
                    pass

    async def _wait_for_words(self) -> None:
        self._spoken.clear()
        if any(isinstance(item, UserItem) for item in self.driver.snapshot().pending_input):
            return  # they came while the last step ended
        self._is_resting = True
        self._changed()
        await self._spoken.wait()

    async def _wait_for_decisions(self, request: ApprovalRequest) -> None:
        self.questions += [Question(approval) for approval in request.pending]
        self._changed()
        while request.unresolved and not self.driver.is_interrupted:
            self._decided.clear()
            await self._decided.wait()
        asked = {approval.call.id for approval in request.pending}
        self.questions = [q for q in self.questions if _call_id(q) not in asked or q.is_child]

    def _after_decision(self, question: Question) -> None:
        self._forget(question)
        self._decided.set()
        self._changed()

    def _resolve(self, question: Question, answer: bool | str | None) -> None:
        if question.answer is not None and not question.answer.done():
            question.answer.set_result(answer)
        self._forget(question)

    def _forget(self, question: Question) -> None:
        self.questions = [other for other in self.questions if other is not question]
        self._changed()

    def _drop_questions(self) -> None:
        self.questions = []

    async def aclose(self) -> None:
        """Stop whatever runs; the driver stays open for its host to close."""
        work, self._work = self._work, None
        if work is not None and not work.done():
            self.driver.interrupt("closed")
            work.cancel()
            await asyncio.wait([work])
        self.driver.unwatch(self)


def _call_id(question: Question) -> str:
    return question.approval.call.id if question.approval is not None else ""

"""Runs one driver for a frontend: events update the view, input goes to the driver.

Calls `Driver.next()` in a task of its own and keeps the view; open_questions.py has the questions
to the user. Used by all frontends; knows nothing about terminals.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from treadle.apps.conversation.child_views import ChildViews
from treadle.apps.conversation.choices import ModelQuestion, PlanAnswer
from treadle.apps.conversation.context_usage import estimate_change
from treadle.apps.conversation.open_questions import OpenQuestions, PendingQuestion
from treadle.apps.conversation.state.background_tasks import end_task
from treadle.apps.conversation.state.blocks import (
    IDLE,
    Activity,
    NoteBlock,
    ThinkingBlock,
    Tone,
    ViewBlock,
)
from treadle.apps.conversation.state.from_transcript import apply_item, build_view
from treadle.apps.conversation.state.reducer import apply_event, apply_tool_result
from treadle.apps.conversation.state.view_state import (
    ViewState,
    add_block,
    iterate_blocks,
    replace_block,
    set_queued_messages,
)
from treadle.core.events import (
    Event,
    InputAccepted,
    RunFailed,
    TaskFinished,
    ThinkingDelta,
    ToolDetached,
    WarningRaised,
)
from treadle.core.loop.driver import Driver
from treadle.core.steps import ApprovalRequest, AwaitingInput, PendingApproval
from treadle.core.transcript.content import Text
from treadle.core.transcript.items import Item, NoticeItem, ToolResultItem, UserItem
from treadle.core.transcript.pending import AskModel, RunTools, pending
from treadle.core.transcript.recover import is_interrupted
from treadle.core.transcript.transcript import Transcript


class ThoughtClock:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = 0.0
        self._index: int | None = None  # of the first block of the thinking that goes on

    def update(self, view: ViewState, event: Event) -> ViewState:
        """The view after an event; complete thinking gets its number of words and its time."""
        if isinstance(event, ThinkingDelta):
            if self._index is None:
                self._index, self._started = view.stream_index, self._clock()
            return view
        growing = None if view.stream_index is None else view.blocks[view.stream_index]
        if self._index is None or isinstance(growing, ThinkingBlock):
            return view
        index, self._index = self._index, None
        first = view.blocks[index] if index < len(view.blocks) else None
        if not isinstance(first, ThinkingBlock):
            return view  # the reply was discarded
        words = len(first.text.split())
        for block in iterate_blocks(view, index + 1):
            if not isinstance(block, ThinkingBlock) or not block.is_continuation:
                break
            words += len(block.text.split())
        seconds = self._clock() - self._started
        return replace_block(
            view, index, msgspec.structs.replace(first, words=words, seconds=seconds)
        )


class Conversation:
    """`on_change` is called after every visible change; it must return quickly. `on_returned` gets
    the queued messages that an interrupt gives back to the user. `allow_for_session` gets the
    approval whose rules or mode the user allows until the session is closed. `may_wake`: a
    background task that ended begins a turn, if none runs. `is_pausing`: the host wants no further
    step; `is_paused`: none runs any more."""

    def __init__(
        self,
        driver: Driver,
        on_change: Callable[[], None],
        on_returned: Callable[[list[UserItem]], None],
        view: ViewState | None = None,
        allow_for_session: Callable[[PendingApproval], None] | None = None,
        may_wake: Callable[[], bool] = lambda: False,
    ) -> None:
        self.driver = driver
        view = _end_lost_tasks(view or build_view(driver.history), driver)
        view = msgspec.structs.replace(view, usage=driver.total_usage, model="")
        self.view = set_queued_messages(view, _queued_items(driver))
        self.questions = OpenQuestions(driver, self._on_change, allow_for_session)
        self._notify_frontend = on_change
        self._changed: asyncio.Event | None = None  # made by those who wait for a change
        self._on_returned = on_returned
        self._input_ready = asyncio.Event()
        self._is_idle = True
        self._began_interrupted = is_interrupted(driver.transcript)
        self._thought_clock = ThoughtClock()
        self.children = ChildViews()
        self._shown_error: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        self._may_wake = may_wake
        self.is_pausing = self.is_paused = False
        self._is_woken = False  # no message of the user since
        self._waking_tasks = set[str]()
        driver.watch(self.children)  # before the conversation, which shows them
        driver.watch(self)

    def _on_change(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None
        self._notify_frontend()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def has_unfinished_turn(self) -> bool:
        """Whether an earlier process left a turn unfinished, also one that was interrupted: by the
        user, or because its terminal was closed."""
        transcript = self.driver.transcript
        is_idle = self.is_idle and not self.view.is_busy
        is_open = isinstance(pending(transcript), AskModel | RunTools)
        return is_idle and (is_open or (self._began_interrupted and is_interrupted(transcript)))

    # --- actions of the user -------------------------------------------------------------

    def submit(self, item: UserItem, *, is_answer: bool = True) -> None:
        """Begin a turn, or steer the one that runs. A text is the answer if a question of the model
        is open, unless the user wrote it before (`is_answer`)."""
        is_text = all(isinstance(part, Text) for part in item.content)
        if is_answer and is_text and self.questions.answer_with_text(item.text):
            return
        self._is_woken = False
        if self.view.is_busy:
            self.driver.steer(item)
            self.view = set_queued_messages(self.view, _queued_items(self.driver))
        else:
            self.driver.submit(item)
        self.resume()
        self._on_change()

    def continue_turn(self) -> None:
        """Continue a turn that is not finished, also one that failed in this process."""
        self.driver.retry()
        self.resume()

    def resume(self) -> None:
        """Run the driver: with the submitted input, or to continue an unfinished turn."""
        self._is_idle = self._began_interrupted = False
        self._input_ready.set()

    @property
    def is_idle(self) -> bool:
        """Whether no turn runs and no input waits."""
        return self._is_idle

    def list_queued(self) -> list[UserItem]:
        """The messages that wait for their place in the transcript."""
        return _queued_items(self.driver)

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Return when this holds, which is looked at after every visible change."""
        while not holds():
            self._changed = self._changed or asyncio.Event()
            await self._changed.wait()

    def withdraw(self, item: UserItem) -> bool:
        """Take back a queued message; False if it has been accepted already."""
        is_withdrawn = self.driver.withdraw(item)
        self._update_queue()
        return is_withdrawn

    def move_queued(self, item: UserItem, by: int) -> bool:
        """Give a queued message another place; False if it has been accepted already."""
        is_moved = self.driver.move_message(item, by)
        self._update_queue()
        return is_moved

    def _update_queue(self) -> None:
        self.view = set_queued_messages(self.view, _queued_items(self.driver))
        self._on_change()

    def interrupt(self) -> None:
        """Stop the turn; queued messages go back to the user instead of starting the next one."""
        returned = [item for item in self.list_queued() if self.driver.withdraw(item)]
        self._update_queue()
        self.driver.interrupt()
        if returned:
            self._on_returned(returned)
        self.questions.close_all()
        self._on_change()

    def detach(self) -> bool:
        """Move the running command to the background; False if there is none."""
        return self.driver.detach() > 0

    def set_context_tokens(self, tokens: int) -> None:
        """The size of the context after the view of the model has changed, until the next reply."""
        self.view = msgspec.structs.replace(self.view, context_tokens=tokens)
        self._on_change()

    async def compact(self, instructions: str = "") -> bool:
        """Shorten the history for the model; False if it is short already."""
        before = self.driver.transcript
        is_compacted = await self.driver.compact(instructions)
        if is_compacted:
            self._update_context(before)
        return is_compacted

    def uncompact(self) -> bool:
        """Undo all compactions; False if there was none."""
        before = self.driver.transcript
        is_changed = self.driver.uncompact()
        self._update_context(before)
        return is_changed

    def _update_context(self, before: Transcript) -> None:
        used, after = self.view.context_tokens, self.driver.transcript
        self.set_context_tokens(estimate_change(used, before, after))

    # --- blocks of the frontend -----------------------------------------------------------

    def show_note(self, text: str, tone: Tone = "faint") -> None:
        self.show_block(NoteBlock(text, tone))

    def show_block(self, block: ViewBlock) -> int:
        """Add a block; its index."""
        self.view = add_block(self.view, block)
        self._on_change()
        return len(self.view.blocks) - 1

    def replace_block(self, index: int, block: ViewBlock) -> None:
        """Replace a block by the index that `show_block` returned, if it is still there."""
        blocks = self.view.blocks
        if index < len(blocks) and type(blocks[index]) is type(block):
            self.view = replace_block(self.view, index, block)
            self._on_change()

    # --- callbacks for the host -----------------------------------------------------------

    async def ask_user(self, question: ModelQuestion) -> str | PlanAnswer | None:
        activity = self.view.activity
        self.view = msgspec.structs.replace(self.view, activity=Activity("question"))
        answer = await self.questions.ask(PendingQuestion(model_question=question))
        self.view = msgspec.structs.replace(self.view, activity=activity)
        return answer if isinstance(answer, (str, PlanAnswer)) else None

    # --- as an observer -------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        view = self._thought_clock.update(apply_event(self.view, event), event)
        match event:
            case RunFailed(result=result):
                self._shown_error = result.error
            case ToolDetached(task_id=task) if not self._is_woken:
                self._waking_tasks.add(task)
            case TaskFinished(is_cancelled=False):
                asyncio.get_running_loop().call_soon(self._wake)  # its report waits then
            case InputAccepted() | WarningRaised():  # accepted, or refused by a hook
                view = set_queued_messages(view, _queued_items(self.driver))
            case _:
                pass
        if view is not self.view:
            self.view = view
            self._on_change()

    def on_item(self, position: int, item: Item) -> None:
        if isinstance(item, ToolResultItem):
            self.view = apply_tool_result(self.view, item)
            self._on_change()

    def _wake(self) -> None:
        """Let the agent read the report of a task, once: a task that it began in such a turn waits
        for the user."""
        ended = {one for one in self._waking_tasks if not _is_task_running(self.driver, one)}
        if not ended or not self._is_idle or self._task is None or not self._may_wake():
            return
        self._waking_tasks -= ended
        if self.driver.continue_with_reports():
            self._is_woken = True
            self.resume()

    # --- the task -------------------------------------------------------------------------

    async def _run(self) -> None:
        await self._input_ready.wait()  # an unfinished turn continues only when the user wants it
        while True:
            try:
                await self._run_driver()
            except Exception as error:  # noqa: BLE001 - shown to the user, who decides what to do
                self.view = msgspec.structs.replace(self.view, is_busy=False, activity=IDLE)
                if error is not self._shown_error:
                    self.show_note(f"{type(error).__name__}: {error}", "error")
                self._input_ready.clear()
                self._is_idle = True
                await self._input_ready.wait()  # queued input is kept for the next attempt

    async def _run_driver(self) -> None:
        while True:
            step = await self.driver.next()
            if self.is_pausing and not isinstance(step, ApprovalRequest):
                self.is_paused = True
                self._on_change()
                await asyncio.Event().wait()  # until it is closed
            match step:
                case AwaitingInput():
                    await self._wait_for_input()
                case ApprovalRequest() as request:
                    await self.questions.wait_for_approvals(request)
                case _:
                    pass

    async def _wait_for_input(self) -> None:
        self._input_ready.clear()
        if _queued_items(self.driver):
            return  # submitted while the last step ended
        self._is_idle = True
        self._on_change()
        self._wake()  # a task may have ended at the end of the turn
        await self._input_ready.wait()

    async def aclose(self) -> None:
        """Stop the turn; the host closes the driver."""
        task, self._task = self._task, None
        if task is not None and not task.done():
            self.driver.interrupt("closed")
            task.cancel()
            await asyncio.wait([task])
        self.driver.unwatch(self)
        self.driver.unwatch(self.children)


async def wait_for_queue_change(conversation: Conversation) -> None:
    """Return when a message is queued, taken back or accepted."""
    queued = conversation.view.queued_messages
    await conversation.wait_until(lambda: conversation.view.queued_messages != queued)


def _end_lost_tasks(view: ViewState, driver: Driver) -> ViewState:
    """The view of a resumed session, with the end of the tasks of earlier processes."""
    if not view.tasks:
        return view
    for message in driver.state.queued:
        if isinstance(message.item, NoticeItem):  # the report of a task that ended with its process
            view = apply_item(view, message.item)
    for task in view.tasks:
        if driver.tasks.read(task.task_id) is None:
            view = end_task(view, task.task_id, "lost")
    return view


def _is_task_running(driver: Driver, task_id: str) -> bool:
    task = driver.tasks.read(task_id)
    return task is not None and task.state == "running"


def _queued_items(driver: Driver) -> list[UserItem]:
    items = [message.item for message in driver.queued_messages]
    return [item for item in items if isinstance(item, UserItem)]

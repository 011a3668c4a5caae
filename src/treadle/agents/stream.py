"""The events of a run: `async with agent.stream(prompt) as events`.

The loop runs in a task of its own; the events arrive through a queue, and the last one is
terminal. Leaving the block early interrupts the run and waits for its end. While the block is
open the run can be steered and interrupted, and approvals can be answered. Without an approver the
reader of the events is asked: a call on which it does not decide before it waits for the next event
is denied, because the run would wait for ever. With `suspend` the events end there instead, and the
turn waits in its session, for another process that answers and continues it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Generic, cast

from treadle.agents.run import NO_APPROVER, Result, Run, RunAnswer, RunSuspended
from treadle.core.contracts.observer import BaseObserver
from treadle.core.errors import LoopError, error_message
from treadle.core.events import (
    ApprovalRequired,
    ApprovalResolved,
    ChildEvent,
    Event,
    RequestStarted,
    RunFailed,
    TextDelta,
    ToolCallBegan,
    ToolCallDelta,
    TurnFinished,
    TurnResult,
    unwrap,
)
from treadle.core.loop.driver import Driver
from treadle.core.steps import ApprovalRequest, PendingApproval, UserInput
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.entries import Suspended, WakeCondition
from treadle.core.transcript.items import Metadata
from treadle.core.type_variables import OutputT
from treadle.lib.logger import logger
from treadle.lib.tasks import cancel_all
from treadle.lib.text.text import plural

if TYPE_CHECKING:
    from typing import Self

_NOT_ANSWERED = (
    "the call of %s is denied: the reader of the events did not answer ApprovalRequired; give the "
    "agent approve=, or call events.approve, events.deny or events.answer_later"
)

_ABOUT_APPROVALS = frozenset({ApprovalRequired, ApprovalResolved, ChildEvent})
_NOTED = _ABOUT_APPROVALS | {RequestStarted, ToolCallBegan, TurnFinished, RunFailed}

CallKey = tuple[str, str]  # the session of a call, and its id


class Stream(BaseObserver, Generic[OutputT]):
    """One run and the queue of its events. `driver` is there once the block is entered."""

    driver: Driver

    def __init__(
        self,
        opening: AbstractAsyncContextManager[Run],
        *,
        has_approver: bool = False,
        suspend: bool = False,
    ) -> None:
        self._opening = opening
        self._may_suspend = suspend
        self.waiting: tuple[PendingApproval, ...] = ()  # what a suspended run waits for
        self._run: Run | None = None
        self._answer_parts: list[str] = []
        self._answer_call: str | None = None  # whose arguments are the answer; None: the text is
        self._events: deque[Event] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._approval_resolved = asyncio.Event()
        self._has_approver = has_approver
        self._told: set[CallKey] = set()  # what the reader is asked, or will be when it reads on
        self._asked: dict[CallKey, ApprovalRequired] = {}  # what the reader was asked
        self._kept_waiting: set[CallKey] = set()  # of these, those that are not denied
        self._early_answers: dict[CallKey, Callable[[], bool]] = {}
        self._run_task: asyncio.Task[RunAnswer] | None = None
        self._last_event: Event | None = None
        self._has_started = self._is_entered = self._is_awaited = self._is_read = False
        self._is_finished = self._is_suspended = False

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise LoopError("this stream was entered before: call agent.stream() for another run")
        self._is_entered = True
        self._run = run = await self._opening.__aenter__()
        self.driver = run.driver
        self.driver.watch(self)
        self._run_task = asyncio.create_task(self._drive(run))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        work, failure = self._run_task, None
        try:
            if work is not None and not work.done():
                self.interrupt("stream_closed")
                await _wait_ended(work)
            failure = None if work is None or work.cancelled() else work.exception()
        finally:
            self.driver.unwatch(self)
            await self._opening.__aexit__(None, None, None)
        if failure is not None and kind is None:
            raise failure

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        self._is_read = True
        while not self._events:
            if not self._is_entered:
                raise LoopError("enter the stream first: async with agent.stream(prompt) as events")
            if self._is_finished or self._run_task is None or self._run_task.done():
                raise StopAsyncIteration
            if self._asked:
                self._deny_unanswered()
                if self._events:
                    break
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        event = self._events.popleft()
        if self._told and not self._has_approver and type(event) in _ABOUT_APPROVALS:
            self._note_asked(event)
        return event

    async def texts(self) -> AsyncIterator[str]:
        """What the run says, piece by piece, also after a hand-off; instead of its events."""
        async for event in self:
            if text := find_text(event):
                yield text

    @property
    def result(self) -> Result[OutputT]:
        """How the run ended; available after the last event. Raises what a failed run raised."""
        if self._run is None or self._run_task is None or not self._run_task.done():
            raise LoopError("the run is not over: read all events first")
        if self.waiting:
            waiting = plural(len(self.waiting), "waiting call")
            raise LoopError(
                f"the run is suspended with {waiting}: open the session, decide, and run it "
                "without a prompt"
            )
        return self._run.make_result(self._run_task.result())

    @property
    def partial_output(self) -> OutputT | None:
        """The answer as far as it has arrived, while it is streamed; None before it begins."""
        text = "".join(self._answer_parts)
        output = self._run.output if self._run is not None else None
        partial = output.read_partial(text) if output is not None else text or None
        return cast("OutputT | None", partial)

    async def wait(self) -> None:
        """Wait until the run is over, whether or not its events are read. Without a reader a
        call that needs an approval suspends the run, or is denied."""
        self._is_awaited = True
        self._decide_unread()
        if self._run_task is not None:
            await asyncio.wait([self._run_task])

    def steer(self, user_input: UserInput, *, metadata: Metadata | None = None) -> str:
        """Queue a message for the agent at work; returns its id."""
        return self.driver.steer(user_input, metadata=metadata)

    def interrupt(self, reason: str = "user_cancelled") -> None:
        self.driver.interrupt(reason)
        if not self._has_started:  # the task has not run its first step yet
            asyncio.get_running_loop().call_soon(self.driver.interrupt, reason)

    def approve(
        self,
        call_id: str,
        *,
        arguments: Arguments | None = None,
        always: bool = False,
        session_id: str = "",
    ) -> bool:
        """Answer ApprovalRequired, also that of a child agent (inside a ChildEvent); `session_id`
        is that of the event, if several children use the same call ids. False if it is answered
        already; LoopError if no such call has asked."""
        approve = partial(self.driver.approve, call_id, arguments=arguments, always=always)
        return self._answer(call_id, session_id, approve)

    def deny(
        self, call_id: str, reason: str = "The user said no.", *, session_id: str = ""
    ) -> bool:
        return self._answer(call_id, session_id, partial(self.driver.deny, call_id, reason))

    def answer_later(self, call_id: str, session_id: str = "") -> None:
        """Keep a call waiting although the reader of the events goes on: another task will call
        `approve` or `deny`. Without it, such a call is denied."""
        self._kept_waiting.update(self._find_asked(call_id, session_id))

    # --- approvals -----------------------------------------------------------------------

    def _note_asked(self, event: Event) -> None:
        event = unwrap(event)
        if isinstance(event, ApprovalRequired):
            self._asked[event.session_id, event.call.id] = event
        elif isinstance(event, ApprovalResolved):
            self._forget(event.session_id, event.call_id)

    def _forget(self, session_id: str, call_id: str) -> None:
        self._asked.pop((session_id, call_id), None)
        self._kept_waiting.discard((session_id, call_id))

    def _find_asked(self, call_id: str, session_id: str) -> list[CallKey]:
        return [one for one in self._asked if one[1] == call_id and session_id in ("", one[0])]

    def _answer(self, call_id: str, session_id: str, answer: Callable[..., bool]) -> bool:
        """Answer now, or when the request of a child arrives here, which is after its event."""
        if answer(session_id=session_id):
            return True
        match self._find_asked(call_id, session_id):
            case [(child, _) as key] if child != self.driver.session_id:
                self._kept_waiting.add(key)
                self._early_answers[key] = partial(answer, session_id=child)
                return True
        if all(told != call_id for _, told in self._told):
            raise LoopError(f"no call {call_id!r} of this run has asked for an approval")
        return False

    def _decide_unread(self) -> None:
        """What was asked gets no answer if the end is waited for and the events are not read."""
        if self._is_awaited and not self._is_read and not self._has_approver:
            for event in self._events:
                self._note_asked(event)
            self._deny_unanswered()

    def _deny_unanswered(self) -> None:
        unanswered = [one for one in self._asked if one not in self._kept_waiting]
        if unanswered and self._may_suspend:
            self._is_suspended = True
            self._approval_resolved.set()
            return
        for key in unanswered:
            session_id, call_id = key
            name = self._asked[key].call.name
            if self.driver.deny(call_id, NO_APPROVER, session_id=session_id):
                self._forget(*key)
                logger.warning(_NOT_ANSWERED, name)

    async def _wait_for_decisions(self, request: ApprovalRequest) -> None:
        """Wait until the reader of the events has answered; see ApprovalRequired."""
        for approval in request.pending:
            key = approval.session_id, approval.call.id
            answer = self._early_answers.pop(key, None)
            if answer is not None:
                answer()
            elif key not in self._told:  # of a child in the background, before this stream began
                call, summary, reason = approval.call, approval.summary, approval.reason
                turn_id, seq = self._next_place
                self.on_event(ApprovalRequired(key[0], turn_id, seq, call, summary, reason))
        if self._reader is not None:  # it has read the events, and waits for more
            self._deny_unanswered()
        self._decide_unread()
        while request.unresolved:
            if self._is_suspended:
                raise RunSuspended
            self._approval_resolved.clear()
            await self._approval_resolved.wait()

    # --- as an observer ------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        if self._is_finished:
            return  # a background task that ends after the terminal event
        self._events.append(event)
        self._last_event = event
        kind = type(event)
        if kind is TextDelta or kind is ToolCallDelta:
            if getattr(event, "call_id", None) == self._answer_call:
                self._answer_parts.append(event.text)  # type: ignore[attr-defined]
        elif kind in _NOTED:
            self._note(event)
        if self._reader is not None:
            self._wake()

    def _note(self, event: Event) -> None:
        kind = type(event)
        if kind is RequestStarted:
            self._answer_call = None
            self._answer_parts.clear()
        elif isinstance(event, ToolCallBegan):
            self._note_call(event)
        elif kind in _ABOUT_APPROVALS:
            inner = unwrap(event)
            if isinstance(inner, ApprovalRequired):
                self._told.add((inner.session_id, inner.call.id))
            self._approval_resolved.set()
        else:
            # With an output type, another turn may follow until the answer fits.
            is_last = self._run is None or self._run.output is None
            self._is_finished = is_last or kind is RunFailed

    def _note_call(self, event: ToolCallBegan) -> None:
        """A reply with calls is no answer, unless one of them is the call that answers."""
        output = self._run.output if self._run is not None else None
        if output is not None and output.is_answer_call(event.name):
            self._answer_call = event.call_id
        elif self._answer_call:
            return  # beside the answer
        else:
            self._answer_call = ""
        self._answer_parts.clear()

    def _wake(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)

    async def _drive(self, run: Run) -> RunAnswer:
        self._has_started = True
        try:
            return await run.drive(self._wait_for_decisions)
        except RunSuspended:
            return await self._suspend()
        except Exception as error:
            self._emit_failure(error)
            raise
        finally:
            self._is_finished = True
            self._wake()

    async def _suspend(self) -> RunAnswer:
        self.waiting = self.driver.approvals
        await suspend_at_approval(self.driver)
        return RunAnswer(TurnResult(self._next_place[0], "end_turn"))

    def _emit_failure(self, error: Exception) -> None:
        """The loop itself failed without a terminal event: the reader gets one from here."""
        turn_id, seq = self._next_place
        result = TurnResult(turn_id, "error", error=error)
        details = error_message(error), type(error).__name__, result
        self.on_event(RunFailed(self.driver.session_id, turn_id, seq, *details))

    @property
    def _next_place(self) -> tuple[str, int]:
        """The turn and the number of an event that comes from here."""
        last = self._last_event
        return (last.turn_id, last.seq + 1) if last is not None else ("", 1)


async def suspend_at_approval(driver: Driver) -> None:
    """Write that the turn waits for approvals, and the message that came meanwhile; closing the
    session leaves it so."""
    from treadle.sessions.detached.suspend import suspend_turn

    turn = driver.state.turn
    assert turn is not None, "calls wait in a turn"
    driver.keep_offers()
    detail = ", ".join(one.summary for one in driver.approvals)
    await suspend_turn(driver.log, Suspended(turn.id, "approval", WakeCondition("answer"), detail))


def find_text(event: Event) -> str:
    """The text that an event adds to what the run says; "" if it adds none."""
    event = unwrap_handoff(event)
    return event.text if isinstance(event, TextDelta) else ""


def unwrap_handoff(event: Event) -> Event:
    """The event itself, also if it is of a child that has the conversation after a hand-off."""
    while isinstance(event, ChildEvent) and event.takes_over:
        event = event.child
    return event


async def _wait_ended(task: asyncio.Task[RunAnswer]) -> None:
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        await cancel_all([task])
        raise

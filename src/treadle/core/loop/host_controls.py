"""What a host does with a session at any moment: send messages, answer approvals, interrupt, look.

Driver, which is the loop, inherits it. Nothing here calls a model or runs a tool.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from treadle.core.argument_checks import FLAG, TEXT, check
from treadle.core.contracts.hook import HookAnswer, HookPoint
from treadle.core.contracts.observer import Observer
from treadle.core.contracts.store import Store
from treadle.core.errors import ApprovalPending, DriverBusy, LoopError
from treadle.core.events import MessageDropped, MessageQueued, TurnResult
from treadle.core.loop.calls.approvals import Approvals, ChildApprovals
from treadle.core.loop.config import NO_CHANGES, DriverConfig, TurnSettings
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.hooks import Hooks
from treadle.core.loop.inbox import CONTINUED, CONTINUED_TEXT, REPORTS_TEXT, Inbox
from treadle.core.loop.interruption import Interruption
from treadle.core.loop.loop_session import LoopSession, Transition
from treadle.core.loop.session_log import SessionLog
from treadle.core.steps import (
    ApprovalRequest,
    Doubt,
    DriverSnapshot,
    PendingApproval,
    UserInput,
    make_doubt,
)
from treadle.core.transcript import (
    Arguments,
    Metadata,
    NoticeItem,
    Text,
    ToolResultItem,
    Transcript,
    Usage,
    UserItem,
    to_user_item,
)
from treadle.core.transcript.entries import EarlyResult
from treadle.core.transcript.integrity import is_empty
from treadle.core.transcript.pending import AskModel, RunTools, pending
from treadle.core.transcript.recover import is_interrupted, list_entries
from treadle.core.transcript.state import QueuedMessage, SessionState
from treadle.lib.text.text import fix_surrogates

T = TypeVar("T")


class DriverState(ABC):
    """What a driver holds of one session, for a host to read and to watch, and how a step begins
    and ends."""

    _hooks: Hooks

    def __init__(
        self,
        config: DriverConfig,
        session_id: str | None,
        view: SessionState | None,
        store: Store | None,
    ) -> None:
        self.session_id = session_id or (store.session_id if store else os.urandom(8).hex())
        self.children: Any = config.children  # of the session, which the tools get
        self.deps: Any = config.deps
        self._interruption = Interruption()
        self.check_loop = self._interruption.check_loop
        self._emitter = emitter = Emitter(config.observers, self.session_id, config.name)
        self._log = store if isinstance(store, SessionLog) else SessionLog(store, view)
        self._session = LoopSession(self._log, emitter, config.caller, config.parent_ids)
        self._inbox = Inbox(self._session)
        self._approvals = Approvals(self._session, emitter)
        self._child_approvals = ChildApprovals()
        # A round that continues while the host decides on a call of a child agent.
        self._open_round: asyncio.Task[tuple[ToolResultItem, ...]] | None = None
        self._last_result: TurnResult | None = None
        self._has_failed = False  # the loop itself, in the middle of a turn
        self._is_closed = False
        self._next_settings = NO_CHANGES
        self._may_resume = True  # an earlier process may have left a turn unfinished

    def watch(self, observer: Observer) -> None:
        self._emitter.add(observer)

    def unwatch(self, observer: Observer) -> None:
        self._emitter.remove(observer)

    def snapshot(self) -> DriverSnapshot:
        """What the driver holds now; see `DriverSnapshot` for how to store and resume it."""
        return DriverSnapshot(self.session_id, self._session.state)

    @property
    def log(self) -> SessionLog:
        """The log of the session, which is a Store, and its state."""
        return self._log

    @property
    def state(self) -> SessionState:
        """All that the log says about the session."""
        return self._session.state

    @property
    def transcript(self) -> Transcript:
        return self._session.state.transcript

    @property
    def history(self) -> Transcript:
        """Every item of the session, also those that compaction took out of the view."""
        return self._session.state.full_history

    @property
    def usage(self) -> Usage:
        return self._session.state.usage  # of the whole session

    @property
    def total_usage(self) -> Usage:
        """With that of the child agents of the session."""
        return self._session.state.usage + self._session.state.child_usage

    @property
    def trace(self) -> tuple[Transition, ...]:
        """Why the loop continued each time, newest last."""
        return tuple(self._session.trace)

    @property
    def is_interrupted(self) -> bool:
        return self._interruption.reason is not None

    # --- for the loop --------------------------------------------------------------------

    @abstractmethod
    async def _close_interrupted_turn(self) -> TurnResult: ...

    async def _close_cancelled_turn(self) -> TurnResult:
        for _ in range(2):  # cancelled again: each attempt gets further, the last awaits nothing
            with suppress(asyncio.CancelledError):
                return await self._close_interrupted_turn()
        return await self._close_interrupted_turn()

    def _report_failure(self, error: Exception) -> None:
        """The loop itself failed: observers get the terminal event. The turn, if one is running,
        stays open, so that next() can try again."""
        if self._last_result is not None:
            return  # the turn has ended before
        self._has_failed = self._session.is_turn_running
        self._session.emit_turn_end(self._session.make_failed_result(error))

    def _check_open(self) -> None:
        if self._is_closed:
            raise LoopError("this driver is closed: start another, with the view of its session")

    def _check_free(self, method: str) -> None:
        if self._interruption.is_running:
            raise DriverBusy(
                f"{method}() in the middle of a step: await it, or interrupt it, first"
            )

    def _enter(self) -> None:
        self._check_open()
        is_free = not self.is_interrupted and not self._interruption.is_running
        if is_free and (pending_ids := self._undecided_ids):
            raise ApprovalPending(pending_ids)
        self._begin_step()

    @property
    def _undecided_ids(self) -> tuple[str, ...]:
        return (*self._approvals.pending_ids, *self._child_approvals.shown_ids)

    @property
    def is_at_approval(self) -> bool:
        """Whether the last step was an `ApprovalRequest` that is open, and nothing has interrupted
        or failed since."""
        has_ended = self._has_failed or self.is_interrupted
        return not has_ended and not self._interruption.is_running and bool(self._undecided_ids)

    def _begin_step(self) -> None:
        self._log.claim()
        self._interruption.enter()
        self._last_result = None

    def _leave(self, *, is_handled: bool = True) -> None:
        self._interruption.leave(is_handled=is_handled)
        self._log.release()

    async def _run_as_step(self, work: Coroutine[Any, Any, T], otherwise: T) -> T:
        """Run this alone; `otherwise` if it is interrupted."""
        try:
            return await work
        except asyncio.CancelledError:
            if self._interruption.is_only_interruption:
                return otherwise
            raise
        finally:
            self._leave()


class HostControls(DriverState):
    """What a host may ask of the session between and during the steps."""

    def log_transcript(self) -> None:
        """Log what the driver began with: it is new to its store, which must be empty."""
        self._log.begin_with(list_entries(self._session.state))

    def offer(self, user_input: UserInput, metadata: Metadata | None = None) -> None:
        """Let the next turn begin with this message: it is in that turn, or nowhere. An empty one
        is ignored."""
        self._check_open()
        item = to_user_item(user_input, metadata)
        if not is_empty(item):
            self._inbox.offer(item)

    def configure_turns(self, settings: TurnSettings) -> None:
        """Use these settings for the next turns, until others are given. A turn that runs ends
        with its own."""
        self._next_settings = settings

    def withdraw_offers(self) -> None:
        """Forget what was offered and is in no turn."""
        self._inbox.withdraw_offers()

    def keep_offers(self) -> None:
        """Queue the messages that were offered and are in no turn: the session is suspended."""
        self._inbox.keep_offers()

    def submit(self, user_input: UserInput, *, metadata: Metadata | None = None) -> str:
        """Queue a message; it enters at the next legal point. Returns the id of the message, "" for
        an empty one, which is ignored.

        `metadata` goes into the requests and the result of the turn that answers the message.
        """
        self.check_loop("submit")
        return self._queue(to_user_item(user_input, metadata))

    def steer(self, user_input: UserInput, *, metadata: Metadata | None = None) -> str:
        """Queue a message for the agent at work; it is marked as steering. Returns its id."""
        self.check_loop("steer")
        item = to_user_item(user_input, metadata)
        return self._queue(msgspec.structs.replace(item, steered=True))

    def _queue(self, item: UserItem) -> str:
        self._check_open()
        if is_empty(item):
            return ""
        message_id = self._inbox.put(item)
        if self._session.is_turn_running:
            self._emitter.emit(MessageQueued, message_id, item)
        return message_id

    def withdraw(self, message: str | UserItem) -> bool:
        """Take back a queued message, by its id or as one of `snapshot().pending_input`; False if
        it has entered the transcript already."""
        self.check_loop("withdraw")
        waiting = self._inbox.find(message)
        if waiting is None:
            return False
        self._inbox.drop(waiting)
        self._emitter.emit(MessageDropped, waiting.id, "withdrawn")
        return True

    def move_message(self, message: str | UserItem, by: int) -> bool:
        """Give a queued message an earlier (`by` < 0) or a later place among the queued ones; False
        if it has entered the transcript already."""
        self.check_loop("move_message")
        waiting = self._inbox.find(message)
        if waiting is not None:
            self._inbox.move(waiting, by)
        return waiting is not None

    @property
    def queued_messages(self) -> tuple[QueuedMessage, ...]:
        """The messages that wait, in their order."""
        return tuple([one for one in self._inbox.waiting if isinstance(one.item, UserItem)])

    def approve(
        self,
        call_id: str,
        *,
        arguments: Arguments | None = None,
        always: bool = False,
        session_id: str = "",
    ) -> bool:
        """Let a pending call run, as it is or edited; False if none is meant. `session_id` is that
        of the approval; without it, a call of this agent is meant, or the only one of a child."""
        self.check_loop("approve")
        child = self._find_child_request(call_id, session_id)
        if child is not None:
            return child.approve(call_id, arguments=arguments, always=always)
        return self._is_own(session_id) and self._approvals.approve(call_id, arguments, always)

    def deny(
        self, call_id: str, reason: str = "The user said no.", *, session_id: str = ""
    ) -> bool:
        self.check_loop("deny")
        child = self._find_child_request(call_id, session_id)
        if child is not None:
            return child.deny(call_id, reason)
        return self._is_own(session_id) and self._approvals.deny(call_id, reason)

    def _is_own(self, session_id: str) -> bool:
        return session_id in ("", self.session_id)

    def _find_child_request(self, call_id: str, session_id: str) -> ApprovalRequest | None:
        if self._is_own(session_id) and call_id in self._approvals.pending_ids:
            return None
        return self._child_approvals.find(call_id, session_id)

    @property
    def approvals(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for a decision, those of child agents last."""
        return (*self._approvals.pending, *self._child_approvals.pending)

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """The calls that an earlier process had begun and whose outcome is not known, those of
        child agents last."""
        state, move = self._session.state, pending(self._session.state.transcript)
        calls = move.calls if isinstance(move, RunTools) else ()
        open_ids = self._session.old_intents & state.intents.keys() - state.early_results.keys()
        own = [
            make_doubt(call, state.intents[call.id], self.session_id)
            for call in calls
            if call.id in open_ids
        ]
        return (*own, *(self.children.doubts if self.children is not None else ()))

    def settle(
        self, call_id: str, result: str, *, is_error: bool = False, session_id: str = ""
    ) -> None:
        """Tell the outcome of a call in doubt: the model reads `result`, and the call is not run.
        `session_id` is that of the doubt, if child agents use the same call ids. LoopError if no
        call in doubt has that id, or several have, DriverBusy in the middle of a step."""
        self._check_free("settle")
        doubts = self.doubts
        ids = [one.session_id for one in doubts if one.call.id == call_id]
        found = [one for one in ids if session_id in ("", one)]
        if len(found) != 1:
            known = ", ".join(f"{one.call.id} (session {one.session_id})" for one in doubts)
            problem = f"no call {call_id!r:.80} is in doubt"
            if found:
                problem = f"several calls {call_id!r:.80} are in doubt: give session_id"
            raise LoopError(f"{problem}; calls in doubt: {known or 'none'}")
        check("result", result, TEXT)
        check("is_error", is_error, FLAG)
        if found != [self.session_id]:
            self.children.settle(found[0], call_id, result, is_error)
            return
        name = next(one.call.name for one in doubts if one.call.id == call_id)
        text = Text(fix_surrogates(result))
        item = ToolResultItem(call_id, name, (text,), is_error=is_error, outcome="recovered")
        self._session.write(EarlyResult(item))

    async def run_hooks(self, point: HookPoint, data: Mapping[str, Any]) -> list[HookAnswer]:
        """Run the hooks of a point that only the host can know of: `config_change`."""
        return await self._hooks.run(point, data)

    async def resolve(
        self, request: ApprovalRequest, decide: Callable[[ApprovalRequest], Awaitable[None]]
    ) -> None:
        """Let `decide` answer. An interruption cancels it, and next() then ends the turn. A
        cancellation from outside ends the turn here."""
        self._check_open()
        if self._interruption.reason is not None:
            return
        self._log.claim()
        self._interruption.enter()
        is_ended = False
        try:
            await decide(request)
            self._interruption.check()
        except asyncio.CancelledError:
            if not self._interruption.is_only_interruption:
                is_ended = True
                await self._close_cancelled_turn()
                raise
        except Exception as error:
            self._report_failure(error)
            raise
        finally:
            self._leave(is_handled=is_ended)

    def interrupt(self, reason: str = "user_cancelled") -> None:
        """Cancel the stream, every tool and every child agent; the turn, if there is one, ends
        `aborted`. Between two steps, next() reports the end."""
        self.check_loop("interrupt")
        check("reason", reason, TEXT)
        if self._session.is_turn_running or self._interruption.is_running:
            self._interruption.request(reason)
        if self._open_round is not None:
            self._child_approvals.withdraw(self._session.open_call_ids)
            self._open_round.cancel()

    def stop_with(self, is_stopping: Callable[[], bool]) -> None:
        """Begin no call while this is true: the call that this agent runs in is being stopped."""
        self._interruption.is_parent_stopping = is_stopping

    def retry(self) -> bool:
        """Let next() continue what the last turn left unfinished: after an error, at a limit, or
        when it was interrupted. False if it left nothing. Without this call, next() waits for a
        message."""
        if self._session.is_turn_running:
            return False
        if is_interrupted(self.transcript):
            self._inbox.offer(NoticeItem(CONTINUED_TEXT, kind=CONTINUED, next_move="ask"))
            return True
        self._may_resume = self._is_unanswered()
        return self._may_resume

    @property
    def can_continue(self) -> bool:
        """Whether something is left to do without a new message: a turn that runs or is unfinished,
        as `retry` says, or a message that waits."""
        is_busy = self._session.is_turn_running or self._inbox.has_message
        return is_busy or is_interrupted(self.transcript) or self._is_unanswered()

    def _is_unanswered(self) -> bool:
        return isinstance(pending(self._session.state.transcript), (AskModel, RunTools))

    def continue_with_reports(self) -> bool:
        """Let next() begin a turn in which the model reads the reports of background tasks that
        have ended since the last one. False if there is none."""
        if self._session.is_turn_running or not self._inbox.has_report:
            return False
        self._inbox.offer(NoticeItem(REPORTS_TEXT, kind=CONTINUED, next_move="ask"))
        return True

    def uncompact(self) -> bool:
        """Bring the whole history back into the view; False if nothing was out of it."""
        self._check_free("uncompact")
        return self._session.uncompact()

"""The loop: the whole life of an agent on one page.

    call the model  ->  run the tools that it calls  ->  feed the results back  ->  repeat

`next()` runs until the host can act: input needed, approval needed, a tool round finished, or the
turn finished. Nothing else advances the loop. The next move is read off the transcript by
pending(); there is no other state that a crash could lose. Details: model_call.py, tool_round.py,
reply_handling.py, mutators.py, gates.py, session_state.py. `run` and `stream` are in agents/.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import msgspec

from treadle.core.contracts.hook import AddContext
from treadle.core.contracts.model import CacheRequest, Model
from treadle.core.contracts.observer import Observer
from treadle.core.contracts.store import Store
from treadle.core.contracts.task_manager import TaskManager
from treadle.core.errors import ApprovalPending, DriverBusy, LoopError, ModelError
from treadle.core.events import (
    MessageDropped,
    MessageQueued,
    RunStarted,
    TurnResult,
    WarningRaised,
)
from treadle.core.loop.approvals import Approvals
from treadle.core.loop.background import BackgroundTasks, TaskReports, cancel_all
from treadle.core.loop.child_approvals import ChildApprovals
from treadle.core.loop.config import DriverConfig
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.gates import GateRunner
from treadle.core.loop.hooks import Hooks
from treadle.core.loop.inbox import CONTINUED, CONTINUED_TEXT, Inbox, InputAcceptor
from treadle.core.loop.interruption import Interruption
from treadle.core.loop.model_call import ModelCaller, RetryWithBudget, build_request
from treadle.core.loop.mutators import MutatorRunner
from treadle.core.loop.prepare import Toolbox
from treadle.core.loop.reply_handling import (
    TurnEnd,
    handle_model_error,
    handle_reply,
    handle_stop,
    run_stop_hooks,
)
from treadle.core.loop.session_state import DurableLog, SessionState, Transition
from treadle.core.loop.tool_round import ToolRound
from treadle.core.steps import (
    AfterToolResult,
    ApprovalRequest,
    AwaitingInput,
    DriverSnapshot,
    Finished,
    PendingApproval,
    QueuedMessage,
    Step,
    UserInput,
)
from treadle.core.transcript import (
    Arguments,
    AssistantItem,
    Metadata,
    NoticeItem,
    ToolCall,
    ToolResultItem,
    Transcript,
    Usage,
    UserItem,
    to_user_item,
)
from treadle.core.transcript.entries import ItemAdded, View, list_entries
from treadle.core.transcript.integrity import is_empty
from treadle.core.transcript.pending import AskModel, Rest, RunTools, pending


class OpenRound(msgspec.Struct, frozen=True):
    """A round that continues while the host decides on a call of a child agent."""

    work: asyncio.Task[tuple[ToolResultItem, ...]]
    call_count: int


INTERRUPTED_NOTICE = "The user interrupted the turn here."


class Driver:
    """One session at work. Made by an agent; many can run at once."""

    def __init__(
        self,
        config: DriverConfig,
        *,
        session_id: str | None = None,
        view: View | None = None,
        store: Store | None = None,
    ) -> None:
        self.session_id = session_id or (store.session_id if store else os.urandom(8).hex())
        view = view or View()
        self._config = config
        self._interruption = Interruption()
        self._emitter = emitter = Emitter(config.observers, self.session_id)
        self._log = DurableLog(store)
        self._session = session = SessionState(view, emitter, self._log, config.caller)
        self._inbox = inbox = Inbox(view.queued, self._log.write)
        self._toolbox = toolbox = Toolbox(config.source, emitter)
        self._hooks = hooks = Hooks(config.hooks, emitter, config.caller)
        self._approvals = Approvals(session, emitter)
        self._input_acceptor = InputAcceptor(inbox, hooks, session, emitter)
        self._task_reports = reports = TaskReports(emitter, inbox.put)
        make_tasks = config.task_manager or BackgroundTasks
        self.tasks: TaskManager = make_tasks(reports.report_end)
        self._child_approvals = ChildApprovals()
        self._open_round: OpenRound | None = None
        self._tool_round = ToolRound(
            config,
            emitter,
            toolbox,
            hooks,
            self.tasks,
            session,
            inbox.put,
            self._child_approvals.ask,
        )
        self._model_caller = ModelCaller(
            config.model,
            emitter,
            config.clock,
            is_taken_id=session.has_call_id,
            on_call=self._tool_round.eager.schedule,
            on_quarantine=session.quarantine_part,
            is_interrupted=self._interruption.is_requested,
        )
        self._gates = GateRunner(config, emitter, session, toolbox, self._model_caller)
        self._mutators = MutatorRunner(
            config, emitter, session, toolbox, hooks, inbox, self._model_caller
        )
        self._next_cache: CacheRequest | None = None
        self._last_result: TurnResult | None = None
        self._has_started = self._has_run_start_hooks = self._has_ended = False
        self._has_failed = False  # the loop itself, in the middle of a turn
        self._is_closed = False
        self._may_resume = True  # an earlier process may have left a turn unfinished

    # --- the page ------------------------------------------------------------------------

    async def next(self) -> Step:
        """Run until the host can act; see core/steps.py for what is returned."""
        self._enter()
        try:
            step = await self._advance()
            self._interruption.raise_if_cancelled()
            if self._interruption.is_requested() and not isinstance(step, Finished):
                step = Finished(await self._close_interrupted_turn())
            return step
        except asyncio.CancelledError:
            try:
                result = await self._close_interrupted_turn()
            except asyncio.CancelledError:
                result = await self._close_interrupted_turn()  # cancelled again: report the end
            if self._interruption.is_only_interruption:
                return Finished(result)
            raise
        except Exception as error:
            self._report_failure(error)
            raise
        finally:
            self._leave()

    async def _advance(self) -> Step:
        if self._has_failed:
            self._has_failed = False
            self._session.resume_turn()
        await self._start_once()
        while True:
            self._interruption.raise_if_cancelled()
            if self._interruption.is_requested():
                return Finished(await self._close_interrupted_turn())
            if (request := self._child_approvals.take_new()) is not None:
                return request
            if self._open_round is not None:
                return await self._continue_round(self._open_round)
            if self._session.state.turn is None and not await self._begin_turn():
                return AwaitingInput(self.submit)
            match pending(self._session.state.transcript):
                case RunTools(calls=calls):
                    return await self._run_tools(calls)
                case Rest(reply=reply) if not self._inbox.has_message:
                    end = await self._run_stop_hooks(reply)
                case _:
                    end = await self._call_model()
            if end is not None:
                return Finished(await self._finish_turn(end))

    async def _begin_turn(self) -> bool:
        """A turn begins with a message, or with what an earlier process left unfinished."""
        move = pending(self._session.state.transcript)
        is_unfinished = isinstance(move, (AskModel, RunTools)) and self._may_resume
        if not is_unfinished and not self._inbox.has_message:
            return False
        self._may_resume = False
        self._session.begin_turn()
        if isinstance(move, RunTools):
            return True  # messages wait until the calls are answered
        await self._input_acceptor.accept_queued()
        if isinstance(pending(self._session.state.transcript), AskModel):
            return True
        await self._finish_turn(TurnEnd("aborted", metadata={"blocked": True}))  # by a hook
        return False

    async def _call_model(self) -> TurnEnd | None:
        """One model call, at the only place where one is made."""
        has_refused = await self._input_acceptor.accept_queued()
        if has_refused and isinstance(pending(self._session.state.transcript), Rest):
            return None  # there is no new message to answer
        try:
            self._model_caller.switch_to_chosen_model()
            self._toolbox.refresh()
            await self._mutators.run("before_model")
            await self._log.flush_before_model_call()
            system = self._config.system_prompt()
            stop = self._gates.admit(system)
            if stop is not None:
                return handle_stop(stop, self._session)
            self._tool_round.eager.reset(may_start=self._gates.call_stop is None)
            cache = self._next_cache or self._config.cache
            limit = self._gates.max_output
            request = build_request(
                self._session, system, self._toolbox, self._config, cache, limit
            )
            reply = await self._model_caller.call(request)
            if isinstance(reply, RetryWithBudget):
                self._gates.settle()
                self._session.record_transition(reply.reason)
                return None
            self._gates.settle(reply.usage)
            self._session.add_reply_usage(reply)
            self._next_cache = None
            most = self._config.max_continuations
            end = handle_reply(reply, self._session, most, self._gates.call_stop)
            if not reply.calls:  # no call of this reply will use what a failed attempt started
                await self._tool_round.eager.cancel_started()
            return end
        except Exception as error:
            self._gates.settle()
            if not isinstance(error, ModelError):
                raise
            return await handle_model_error(error, self._session, self._mutators.run)

    async def _run_stop_hooks(self, reply: AssistantItem | None) -> TurnEnd | None:
        agent_type = self._config.agent_type
        end = await run_stop_hooks(reply, self._session, self._hooks, agent_type)
        return None if self._inbox.has_message else end  # a message that arrived meanwhile

    async def _run_tools(self, calls: tuple[ToolCall, ...]) -> Step:
        """One tool round, or the approvals that it needs first."""
        self._toolbox.refresh()
        prepared, approvals = await self._tool_round.prepare(calls)
        if approvals:
            request = self._approvals.request(approvals)
            await self._hooks.run("notification", {"notification_type": "permission_prompt"})
            return request
        if any(ready.tool is not None and ready.tool.spec.asks_host for ready in prepared):
            work = asyncio.get_running_loop().create_task(self._tool_round.run(prepared))
            self._open_round = OpenRound(work, len(calls))
            return await self._continue_round(self._open_round)
        return await self._close_round(await self._tool_round.run(prepared), len(calls))

    async def _continue_round(self, opened: OpenRound) -> Step:
        """Wait for the end of the round, or for a child agent that needs an approval."""
        request = await self._child_approvals.take_new_before(opened.work)
        if request is not None:
            return request
        self._open_round = None
        return await self._close_round(opened.work.result(), opened.call_count)

    async def _close_round(self, results: tuple[ToolResultItem, ...], call_count: int) -> Step:
        self._session.close_round(call_count)
        await self._mutators.run("after_tool_result")
        return AfterToolResult(results, self.submit)

    async def _cancel_round(self) -> None:
        """Stop a round that is open between two steps, or that the step was waiting for."""
        opened, self._open_round = self._open_round, None
        if opened is not None:
            await cancel_all([opened.work])
            if opened.work.done() and not opened.work.cancelled():
                opened.work.exception()  # retrieved, or asyncio would log it

    async def _finish_turn(self, end: TurnEnd) -> TurnResult:
        """Close the turn; the terminal event is the last one of it."""
        self._interruption.is_requested()  # acknowledged: too late to change how the turn ends
        result = self._last_result = self._session.end_turn(end.reason, end.error, end.metadata)
        if end.warning:
            self._emitter.emit(WarningRaised, end.warning)
        try:
            await self._tool_round.eager.cancel_started()
            await self._mutators.run("after_turn_ended")
            await self._log.flush()
        except Exception as error:
            # The end is not in the log: it is reported as a failure, with what the turn did.
            result = self._last_result = msgspec.structs.replace(
                result, reason="error", error=error
            )
            raise
        finally:
            self._session.emit_turn_end(result)
        return result

    def _report_failure(self, error: Exception) -> None:
        """The loop itself failed: observers get the terminal event. The turn, if one is running,
        stays open, so that next() can try again."""
        if self._last_result is not None:
            return  # the turn has ended before
        self._has_failed = self._session.state.turn is not None
        self._session.emit_turn_end(self._session.make_failed_result(error))

    async def _close_interrupted_turn(self) -> TurnResult:
        """Leave a lawful transcript and nothing running, wherever the turn was interrupted."""
        session = self._session
        self._approvals.clear()
        await self._cancel_round()
        partial = self._model_caller.take_partial_reply()
        self._gates.settle()
        reason = self._interruption.reason or "cancelled"
        end = TurnEnd("aborted", metadata={"interrupted": True, "interrupt_reason": reason})
        if session.state.turn is None:  # interrupted before the turn began: input stays queued
            if self._last_result is None:
                self._last_result = TurnResult("", end.reason, metadata=end.metadata)
                session.emit_turn_end(self._last_result)
            return self._last_result
        move = pending(session.state.transcript)
        if isinstance(move, RunTools):
            for call in move.calls:
                early = session.state.early_results.get(call.id)
                session.append(early or self._tool_round.answer_interrupted(call))
        elif partial is not None:
            session.append(partial)
        session.append(NoticeItem(INTERRUPTED_NOTICE, kind="interrupted", next_move="rest"))
        return await self._finish_turn(end)

    def _check_open(self) -> None:
        if self._is_closed:
            raise LoopError("this driver is closed: start another, with the view of its session")

    def _enter(self) -> None:
        self._check_open()
        is_free = self._interruption.reason is None and not self._interruption.is_running
        pending_ids = (*self._approvals.pending_ids, *self._child_approvals.shown_ids)
        if pending_ids and is_free:
            raise ApprovalPending(pending_ids)
        self._log.claim()
        self._interruption.enter()
        self._last_result = None

    def _leave(self, *, is_handled: bool = True) -> None:
        self._interruption.leave(is_handled=is_handled)
        self._log.release()

    async def _start_once(self) -> None:
        if not self._has_started:
            await self._config.source.open()
            self._has_started = True
            self._emitter.emit(RunStarted)
            if self._may_resume:
                items = (*self._session.history, *self._inbox.queued)
                self._task_reports.report_lost(self.tasks, items)
        if not self._has_run_start_hooks:
            answers = await self._hooks.run("session_start", {})
            self._has_run_start_hooks = True  # an interrupted one is asked again
            for answer in answers:
                if isinstance(answer, AddContext):
                    self._inbox.put(NoticeItem(answer.text, kind="hook"))

    # --- for the host --------------------------------------------------------------------

    def log_transcript(self) -> None:
        """Log what the driver began with: it is new to its store."""
        for entry in list_entries(self._session.make_view(self._inbox.queued)):
            if isinstance(entry, ItemAdded):
                self._log.write_item(entry.item)
            else:
                self._log.write(entry)

    def submit(self, user_input: UserInput, *, metadata: Metadata | None = None) -> str:
        """Queue a message; it enters at the next legal point. Returns the id of the message, "" for
        an empty one, which is ignored.

        `metadata` goes into the requests and the result of the turn that answers the message.
        """
        item = to_user_item(user_input, metadata)
        return self._queue(item, is_busy=self._session.state.turn is not None)

    def steer(self, user_input: UserInput, *, metadata: Metadata | None = None) -> str:
        """Queue a message for the agent at work; it is marked as steering. Returns its id."""
        item = to_user_item(user_input, metadata)
        return self._queue(msgspec.structs.replace(item, steered=True))

    def _queue(self, item: UserItem, *, is_busy: bool = True) -> str:
        self._check_open()
        if is_empty(item):
            return ""
        message_id = self._inbox.put(item, is_busy=is_busy)
        if self._session.state.turn is not None:
            self._emitter.emit(MessageQueued, message_id, item)
        return message_id

    def withdraw(self, message: str | UserItem) -> bool:
        """Take back a queued message, by its id or as one of `snapshot().pending_input`; False if
        it has entered the transcript already."""
        message_id = self._inbox.withdraw(message)
        if message_id:
            self._emitter.emit(MessageDropped, message_id, "withdrawn")
        return bool(message_id)

    @property
    def queued_messages(self) -> tuple[QueuedMessage, ...]:
        """The messages that wait, in their order."""
        waiting = self._inbox.waiting
        return tuple(
            [QueuedMessage(one.id, one.item) for one in waiting if isinstance(one.item, UserItem)]
        )

    def approve(
        self,
        call_id: str,
        *,
        arguments: Arguments | None = None,
        always: bool = False,
        session_id: str = "",
    ) -> bool:
        """Let a pending call run, as it is or edited; False if none has that id. `session_id` is
        that of the child agent, if children use the same call ids."""
        child = self._find_child_request(call_id, session_id)
        if child is not None:
            return child.approve(call_id, arguments=arguments, always=always)
        return self._is_own(session_id) and self._approvals.approve(call_id, arguments, always)

    def deny(
        self, call_id: str, reason: str = "The user said no.", *, session_id: str = ""
    ) -> bool:
        child = self._find_child_request(call_id, session_id)
        if child is not None:
            return child.deny(call_id, reason)
        return self._is_own(session_id) and self._approvals.deny(call_id, reason)

    def _is_own(self, session_id: str) -> bool:
        return session_id in ("", self.session_id)

    def _find_child_request(self, call_id: str, session_id: str) -> ApprovalRequest | None:
        if session_id == self.session_id or call_id in self._approvals.pending_ids:
            return None
        return self._child_approvals.find(call_id, session_id)

    async def resolve(
        self, request: ApprovalRequest, decide: Callable[[ApprovalRequest], Awaitable[None]]
    ) -> None:
        """Let `decide` answer. An interruption cancels it, and next() then ends the turn."""
        if self._interruption.reason is not None:
            return
        self._log.claim()
        self._interruption.enter()
        try:
            await decide(request)
            self._interruption.raise_if_cancelled()
        except asyncio.CancelledError:
            if not self._interruption.is_only_interruption:
                raise
        except Exception as error:
            self._report_failure(error)
            raise
        finally:
            self._leave(is_handled=False)

    def interrupt(self, reason: str = "user_cancelled") -> None:
        """Cancel the stream and every tool; the turn, if there is one, ends `aborted`."""
        if self._session.state.turn is not None or self._interruption.is_running:
            self._interruption.request(reason)

    def retry(self) -> bool:
        """Let next() continue what the last turn left unfinished: after an error, at a limit, or
        when it was interrupted. False if it left nothing. Without this call, next() waits for a
        message."""
        if self._session.state.turn is not None:
            return False
        last = self._session.state.transcript[-1:]
        if last and isinstance(last[0], NoticeItem) and last[0].kind == "interrupted":
            notice = NoticeItem(CONTINUED_TEXT, kind=CONTINUED, next_move="ask")
            self._inbox.put(notice, is_busy=False)
            return True
        move = pending(self._session.state.transcript)
        self._may_resume = isinstance(move, (AskModel, RunTools))
        return self._may_resume

    def set_next_turn_cache(self, cache: CacheRequest) -> None:
        self._next_cache = cache  # for the next model call only

    def use_model(self, model: Model) -> None:
        """Use another model from the next request on, also in the middle of a turn. The reply that
        is being streamed is finished by its own model. The caller closes both."""
        self._model_caller.choose_model(model)

    async def compact(self, focus: str = "") -> bool:
        """Compact the view now, between turns; whether it became smaller."""
        self._enter()
        try:
            return await self._mutators.run("on_request", focus)
        except asyncio.CancelledError:
            if self._interruption.is_only_interruption:
                return False
            raise
        finally:
            self._leave()

    def uncompact(self) -> bool:
        """Bring the whole history back into the view; False if nothing was out of it."""
        if self._interruption.is_running:
            raise DriverBusy("the view cannot change in the middle of a step; await it first")
        return self._session.uncompact()

    def watch(self, observer: Observer) -> None:
        self._emitter.add(observer)

    def unwatch(self, observer: Observer) -> None:
        self._emitter.remove(observer)

    def snapshot(self) -> DriverSnapshot:
        """What the driver holds now; see `DriverSnapshot` for how to store and resume it."""
        return DriverSnapshot(self.session_id, self._session.make_view(self._inbox.queued))

    @property
    def transcript(self) -> Transcript:
        return self._session.state.transcript

    @property
    def history(self) -> Transcript:
        """Every item of the session, also those that compaction took out of the view."""
        return self._session.history

    @property
    def usage(self) -> Usage:
        return self._session.state.usage  # of the whole session

    @property
    def total_usage(self) -> Usage:
        """With that of the child agents which this driver started."""
        return self._session.state.usage + self._session.state.child_usage

    @property
    def trace(self) -> tuple[Transition, ...]:
        """Why the loop continued each time, newest last."""
        return tuple(self._session.trace)

    @property
    def is_interrupted(self) -> bool:
        return self._interruption.reason is not None

    @property
    def approvals(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for a decision, those of child agents last."""
        return (*self._approvals.pending, *self._child_approvals.pending)

    async def aclose(self) -> None:
        """Cancel background tasks, run the session_end hooks, and wait until all is written."""
        self._is_closed = True
        try:
            await self._cancel_round()
            await self.tasks.aclose()
            await self._tool_round.aclose()
            if self._has_started and not self._has_ended:
                self._has_ended = True
                await self._hooks.run("session_end", {})
        finally:
            if self._log.is_writable:
                self._inbox.log_waiting()
                await self._log.aclose()

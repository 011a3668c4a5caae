"""The loop: the whole life of an agent on one page.

    call the model  ->  run the tools that it calls  ->  feed the results back  ->  repeat

`next()` runs until the host can act: input needed, approval needed, a tool round finished, or the
turn finished. Nothing else advances the loop. The next move is read off the transcript by
pending(); there is no other state that a crash could lose. Details: model_gateway.py,
tool_round.py, turn_end.py, mutators.py, loop_session.py; what a host can do besides `next()`:
host_controls.py. `run` and `stream` are in agents/.
"""

from __future__ import annotations

import asyncio

import msgspec

from treadle.core.contracts.gate import Stop
from treadle.core.contracts.hook import AddContext
from treadle.core.contracts.model import CacheRequest, Model, ModelOptions
from treadle.core.contracts.store import Store
from treadle.core.contracts.task_manager import TaskManager
from treadle.core.errors import LoopError, ModelError, error_text
from treadle.core.events import RunStarted, TurnResult, WarningRaised
from treadle.core.loop.calls.background import BackgroundTasks, TaskReports
from treadle.core.loop.calls.tool_round import ToolRound
from treadle.core.loop.calls.toolbox import Toolbox
from treadle.core.loop.config import DriverConfig, TurnSettings
from treadle.core.loop.hooks import Hooks
from treadle.core.loop.host_controls import HostControls
from treadle.core.loop.model_call import RetryWithBudget
from treadle.core.loop.model_gateway import ModelGateway, build_request
from treadle.core.loop.mutators import MutatorRunner
from treadle.core.loop.parts import DriverParts, Instructions
from treadle.core.loop.side_question import SideQuestions
from treadle.core.loop.turn_end import (
    TurnEnd,
    handle_model_error,
    handle_reply,
    handle_stop,
    run_stop_hooks,
)
from treadle.core.steps import AfterToolResult, AwaitingInput, Finished, Step
from treadle.core.transcript import AssistantItem, NoticeItem, ToolCall, ToolResultItem
from treadle.core.transcript.items import Metadata
from treadle.core.transcript.pending import AskModel, Rest, RunTools, pending
from treadle.core.transcript.recover import INTERRUPTED
from treadle.core.transcript.state import SessionState
from treadle.lib.shielded import complete
from treadle.lib.tasks import forget_result, wait_cancelled

INTERRUPTED_NOTICE = "The user interrupted the turn here."
CLOSE_SECONDS = 30.0  # closing waits no longer for a step that does not stop


class Driver(HostControls):
    """One session at work. Made by an agent; many can run at once."""

    def __init__(
        self,
        config: DriverConfig,
        *,
        session_id: str | None = None,
        state: SessionState | None = None,
        store: Store | None = None,
    ) -> None:
        super().__init__(config, session_id, state, store)
        emitter, session, inbox = self._emitter, self._session, self._inbox
        self._config = config
        self._hooks = Hooks(config, emitter, lambda *call: self._gateway.call(*call))
        self._source = config.source.bind(config.deps)
        self._toolbox = Toolbox(self._source, emitter)
        self._task_reports = TaskReports(emitter, inbox.put)
        self.tasks: TaskManager = (config.task_manager or BackgroundTasks)(
            self._task_reports.report_end
        )
        self._parts = parts = DriverParts(
            config,
            emitter,
            session,
            inbox,
            self._toolbox,
            self._hooks,
            self.tasks,
            self._interruption,
            Instructions(config, emitter, session, self._source),
        )
        self._tool_round = ToolRound(parts, self._child_approvals.ask)
        self.detach = self._tool_round.detach  # running calls continue in the background
        self._gateway = ModelGateway(parts, self._tool_round.eager)
        self._mutators = MutatorRunner(parts, self._gateway)
        self._side_questions = SideQuestions(parts, self._gateway)
        self._next_cache: CacheRequest | None = None
        self._has_started = self._has_run_start_hooks = self._has_ended = False
        self._closing: asyncio.Task[None] | None = None

    # --- the page ------------------------------------------------------------------------

    async def next(self) -> Step:
        """Run until the host can act; see core/steps.py for what is returned."""
        self._enter()
        try:
            step = await self._advance()
            if self._interruption.check() and not isinstance(step, Finished):
                step = Finished(await self._close_interrupted_turn())
            return step
        except asyncio.CancelledError:
            result = await self._close_cancelled_turn()
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
            self._use_settings(self._next_settings)  # they may be why it failed
            self._session.resume_turn()
        if not self._has_run_start_hooks:
            await self._start_once()
        children, inbox = self._child_approvals, self._inbox
        while True:
            if self._interruption.check():
                return Finished(await self._close_interrupted_turn())
            if children.waiting and (request := children.take_new()) is not None:
                return request
            if self._open_round is not None:
                return await self._continue_round(self._open_round)
            if not self._session.is_turn_running and (idle := await self._begin_turn()) is not None:
                return idle
            match pending(self._session.state.transcript):
                case RunTools(calls=calls):
                    return await self._run_tools(calls)
                case Rest(reply=reply) if not inbox.has_message:
                    end = await self._run_stop_hooks(reply)
                case _ if not inbox.is_empty:
                    refused = await inbox.accept_all(self._hooks, self._emitter)
                    if refused is not None and refused.is_offer:
                        return AwaitingInput(self.submit, refused.reason)  # the turn stays open
                    continue
                case _:
                    end = await self._call_model()
            if end is not None:
                return Finished(await self._finish_turn(end))

    async def _begin_turn(self) -> AwaitingInput | None:
        """A turn begins with a message, or with what an earlier process left unfinished."""
        move = pending(self._session.state.transcript)
        is_unfinished = isinstance(move, (AskModel, RunTools)) and self._may_resume
        if not is_unfinished and not self._inbox.has_message:
            return AwaitingInput(self.submit)
        self._may_resume = False
        self._use_settings(self._next_settings)
        self._forget_approvals()  # what is not decided now is asked again
        self._session.begin_turn()
        if isinstance(move, RunTools):
            return None  # messages wait until the calls are answered
        refused = await self._inbox.accept_all(self._hooks, self._emitter)
        reason, is_offer = (refused.reason, refused.is_offer) if refused else ("", False)
        if not isinstance(pending(self._session.state.transcript), AskModel):
            blocked: Metadata = {"blocked": True, "detail": reason}  # by a hook
            await self._finish_turn(TurnEnd("aborted", metadata=blocked))
        elif not is_offer:
            return None
        return AwaitingInput(self.submit, reason)

    async def _call_model(self) -> TurnEnd | None:
        """One reply of the turn, at the only place where one is asked for."""
        config, session, gateway = self._config, self._session, self._gateway
        try:
            gateway.caller.switch_to_chosen_model()
            self._toolbox.refresh()
            if config.mutators:
                await self._mutators.run("before_model")
            if self._log.must_flush:
                await self._log.flush()
            system = await self._parts.instructions.read()
            cache, closing = self._next_cache or config.cache, session.closing_stop
            reply = await gateway.call_turn(build_request(self._parts, system, cache, closing))
            if isinstance(reply, Stop):
                return handle_stop(reply, session)
            if isinstance(reply, RetryWithBudget):
                session.record_transition(reply.reason)
                return None
            self._next_cache = None
            most = config.max_continuations
            end = handle_reply(reply, session, most, closing, gateway.call_stop)
            if not reply.calls:  # no call of this reply will use what a failed attempt started
                await self._tool_round.eager.cancel_started()
            return end
        except Exception as error:
            gateway.release()
            if not isinstance(error, ModelError):
                raise
            return await handle_model_error(error, session, self._mutators.run)

    async def _run_stop_hooks(self, reply: AssistantItem | None) -> TurnEnd | None:
        agent_type = self._config.agent_type
        end = await run_stop_hooks(reply, self._session, self._hooks, agent_type)
        return None if self._inbox.has_message else end  # a message that arrived meanwhile

    async def _run_tools(self, calls: tuple[ToolCall, ...]) -> Step:
        """One tool round, or the approvals that it needs first. The tools are those that the model
        was told about; after a crash, those of now."""
        if not self._toolbox.has_been_read:
            self._toolbox.refresh()
        prepared, approvals = await self._tool_round.prepare(calls)
        if approvals:
            await self._log.flush()  # what the user is asked about is asked again after a crash
            request = self._approvals.request(approvals)
            await self._hooks.run("notification", {"notification_type": "permission_prompt"})
            return request
        if any(ready.tool is not None and ready.tool.spec.asks_host for ready in prepared):
            work = asyncio.get_running_loop().create_task(self._tool_round.run(prepared))
            self._open_round = work
            return await self._continue_round(work)
        return await self._close_round(await self._tool_round.run(prepared))

    async def _continue_round(self, work: asyncio.Task[tuple[ToolResultItem, ...]]) -> Step:
        """Wait for the end of the round, or for a child agent that needs an approval."""
        request = await self._child_approvals.take_new_before(work)
        if request is not None:
            return request
        self._open_round = None
        return await self._close_round(work.result())

    async def _close_round(self, results: tuple[ToolResultItem, ...]) -> Step:
        self._session.close_round()
        if self._tool_round.fault is not None and self._config.raises_faults:
            return Finished(await self._finish_turn(TurnEnd("error", self._tool_round.fault)))
        if self._config.mutators:
            await self._mutators.run("after_tool_result")
        return AfterToolResult(results, self.submit)

    async def _cancel_round(self) -> None:
        """Stop a round that is open between two steps, or that the step was waiting for."""
        work, self._open_round = self._open_round, None
        if work is not None:
            if not work.cancelling():  # one that was cancelled before gets its time to end
                work.cancel()
            await wait_cancelled([work])
            forget_result(work)

    async def _finish_turn(self, end: TurnEnd) -> TurnResult:
        """Close the turn; the terminal event is the last one of it."""
        self._interruption.is_requested()  # acknowledged: too late to change how the turn ends
        result = self._last_result = self._session.end_turn(end.reason, end.error, end.metadata)
        if end.warning:
            self._emitter.emit(WarningRaised, end.warning)
        try:
            await self._tool_round.eager.cancel_started()
            await self._mutators.run("after_turn_ended")
            await self._hooks.run_failure(end.error)
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

    async def _close_interrupted_turn(self) -> TurnResult:
        """Leave a lawful transcript and nothing running, wherever the turn was interrupted."""
        session = self._session
        self._forget_approvals()
        await self._cancel_round()
        self._tool_round.forget_asked()
        partial = self._gateway.take_partial_reply()
        self._gateway.release()
        reason = self._interruption.reason or "cancelled"
        end = TurnEnd("aborted", metadata={"interrupted": True, "interrupt_reason": reason})
        if not session.is_turn_running:  # interrupted before the turn began: input stays queued
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
        session.append(NoticeItem(INTERRUPTED_NOTICE, kind=INTERRUPTED, next_move="rest"))
        return await self._finish_turn(end)

    def _forget_approvals(self) -> None:
        self._approvals.clear()
        self._child_approvals.forget_restored()

    async def _start_once(self) -> None:
        if not self._has_started:
            await self._source.open()
            self._has_started = True
            self._emitter.emit(RunStarted, self._config.name)
            if self._may_resume:
                waiting = [one.item for one in self._inbox.waiting]
                items = (*self._session.state.full_history, *waiting)
                self._task_reports.report_lost(self.tasks, items)
        if not self._has_run_start_hooks:
            has_history = len(self._session.state.full_history) > 0
            answers = await self._hooks.run_start(has_history, self._config.agent_type)
            self._has_run_start_hooks = True  # an interrupted one is asked again
            for answer in answers:
                if isinstance(answer, AddContext):
                    self._inbox.put(NoticeItem(answer.text, kind="hook"))

    def _use_settings(self, settings: TurnSettings) -> None:
        session = self._session
        for observer in session.settings.observers:
            self._emitter.remove(observer)
        for observer in settings.observers:
            self._emitter.add(observer)
        session.settings = settings
        self._toolbox.add_tools(settings.tools)

    # --- what the host asks of it --------------------------------------------------------

    def set_next_turn_cache(self, cache: CacheRequest) -> None:
        self._next_cache = cache  # for the next model call only

    @property
    def model(self) -> Model:
        """The model of the next request."""
        return self._gateway.caller.next_model

    @property
    def options(self) -> ModelOptions:
        """The options of requests, without what a turn changes."""
        return self._config.options

    def use_model(self, model: Model) -> None:
        """Use another model from the next request on, also in the middle of a turn; a retry is a
        request. The reply that is being streamed is finished by its own model. Child agents use
        the agent's model. The caller closes both."""
        self._gateway.caller.choose_model(model)

    async def ask_aside(self, question: str) -> AssistantItem:
        """The model answers a question about the conversation, which does not change; also while a
        turn runs. Its usage is counted. Raises ModelError, and LoopError at a limit."""
        self._check_open()
        return await self._side_questions.ask(question)

    def stop_aside(self) -> bool:
        """Stop the question of `ask_aside` that is being answered, whose reply is then empty, with
        the stop reason `aborted` and its usage so far; False if there is none."""
        return self._side_questions.stop()

    async def compact(self, focus: str = "") -> bool:
        """Compact the view now, between turns; whether it became smaller."""
        self._enter()
        return await self._run_as_step(self._mutators.run("on_request", focus), otherwise=False)

    async def restore_approvals(self) -> None:
        """Put the calls that an earlier process left waiting, also those of child agents, into
        `approvals`, so that the host can answer before next(), which asks again about those without
        an answer. Opens the tools."""
        move = pending(self._session.state.transcript)
        calls = move.calls if isinstance(move, RunTools) else ()
        if not self._session.undecided_call_ids and not self._may_ask_host(calls):
            return
        self._enter()
        await self._run_as_step(self._restore_approvals(calls), None)

    async def _restore_approvals(self, calls: tuple[ToolCall, ...]) -> None:
        await self._start_once()
        self._toolbox.refresh()
        prepared, approvals = await self._tool_round.prepare(calls)
        self._approvals.restore(approvals)  # `next` does not ask policy and hooks again
        for call_id, request in await self._tool_round.find_child_requests(prepared):
            self._child_approvals.restore(call_id, request)

    def _may_ask_host(self, calls: tuple[ToolCall, ...]) -> bool:
        """Whether one of these calls was begun, and may have asked for approvals."""
        begun = {call.name for call in calls if call.id in self._session.state.intents}
        if not begun:
            return False
        specs = [tool.spec for tool in self._source.tools()]
        return any(spec.asks_host and spec.name in begun for spec in specs)

    async def rewind(self, turn_id: str) -> None:
        """Take back this turn and all later ones; the log keeps them. Their background tasks are
        cancelled. LoopError if the turn is not in the view, DriverBusy in the middle of a step."""
        self._check_open()
        if all(start.turn_id != turn_id for start in self._session.state.turn_starts):
            raise LoopError(f"session {self.session_id} has no turn {turn_id!r}")
        self._check_free("rewind")
        self._begin_step()
        await self._run_as_step(complete(self._rewind(turn_id)), None)

    async def _rewind(self, turn_id: str) -> None:
        await self._cancel_round()
        await self._task_reports.cancel_since(self.tasks, turn_id, self._session.state)
        self._forget_approvals()
        self._may_resume = self._has_failed = False
        self._session.rewind(turn_id)
        await self._log.flush()

    async def aclose(self) -> None:
        """Interrupt what runs and wait for it, cancel background tasks, run the session_end hooks,
        write all of it and release the session: nothing of it happens afterwards. A cancellation
        takes effect when that is done."""
        self.check_loop("aclose")
        self._is_closed = True
        caller, closing = asyncio.current_task(), self._closing
        if self._has_nothing_to_stop:
            await self._close(caller)  # it does not wait, so that nothing can cut it: no task
            return
        if closing is None or closing.done() or self._interruption.is_step(caller):
            closing = self._closing = asyncio.get_running_loop().create_task(self._close(caller))
        await complete(closing)

    @property
    def _has_nothing_to_stop(self) -> bool:
        """Whether closing waits for nothing: no step, no task, no hook and no store."""
        running = self._interruption.is_running, self._closing, self._open_round, self.tasks.list()
        begun = self._side_questions.asking, self._tool_round.is_running
        others = type(self.tasks) is not BackgroundTasks, self._hooks.has("session_end")
        is_bound = self._source is not self._config.source
        return not any((*running, *begun, *others, is_bound, self._log.has_store))

    async def _close(self, caller: asyncio.Task[object] | None) -> None:
        try:
            if not await self._interruption.stop_step("closed", CLOSE_SECONDS, caller):
                move = pending(self._session.state.transcript)
                calls = move.calls if isinstance(move, RunTools) else ()
                names = ", ".join(call.name for call in calls) or "a step"
                self._emitter.emit(WarningRaised, f"the session is closed, but {names} still runs")
            await self._cancel_round()
            await self._side_questions.aclose()
            await self._task_reports.close(self.tasks)
            await self._tool_round.aclose()
            if self._has_started and not self._has_ended:
                self._has_ended = True
                await self._hooks.run("session_end", {})
            if self._source is not self._config.source:
                try:
                    await self._source.aclose()
                except Exception as error:  # noqa: BLE001 - what the run returns stays
                    self._emitter.emit(WarningRaised, f"tools are not closed: {error_text(error)}")
        finally:
            if self._log.is_writable:
                await self._log.aclose()

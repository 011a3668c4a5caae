"""The loop: the whole life of an agent on one page.

    call the model  ->  run the tools that it calls  ->  feed the results back  ->  repeat

`next()` runs until the host can act: input needed, approval needed, a tool round finished, or the
turn finished. Nothing else advances the loop. The next move is read off the transcript by
pending(); there is no other state that a crash could lose. Details: model_gateway.py,
tool_round.py, reply_handling.py, mutators.py, loop_session.py; what a host can do besides
`next()`: host_controls.py. `run` and `stream` are in agents/.
"""

from __future__ import annotations

import asyncio

import msgspec

from treadle.core.contracts.gate import Stop
from treadle.core.contracts.hook import AddContext
from treadle.core.contracts.model import CacheRequest, Model, ModelOptions
from treadle.core.contracts.store import Store
from treadle.core.contracts.task_manager import TaskManager
from treadle.core.errors import LoopError, ModelError
from treadle.core.events import RunStarted, TurnResult, WarningRaised
from treadle.core.loop.background import BackgroundTasks, TaskReports
from treadle.core.loop.call_repair import CallRepairer
from treadle.core.loop.child_approvals import OpenRound
from treadle.core.loop.config import DriverConfig, TurnSettings
from treadle.core.loop.hooks import Hooks
from treadle.core.loop.host_controls import HostControls
from treadle.core.loop.inbox import InputAcceptor
from treadle.core.loop.instructions import Instructions
from treadle.core.loop.model_call import ModelCaller, RetryWithBudget, build_request
from treadle.core.loop.model_gateway import ModelGateway
from treadle.core.loop.mutators import MutatorRunner
from treadle.core.loop.prepare import Toolbox
from treadle.core.loop.reply_handling import (
    TurnEnd,
    handle_model_error,
    handle_reply,
    handle_stop,
    run_stop_hooks,
)
from treadle.core.loop.side_question import SideQuestions
from treadle.core.loop.tool_round import ToolRound
from treadle.core.steps import AfterToolResult, AwaitingInput, Finished, Step
from treadle.core.transcript import AssistantItem, NoticeItem, ToolCall, ToolResultItem
from treadle.core.transcript.items import Metadata
from treadle.core.transcript.pending import AskModel, Rest, RunTools, pending
from treadle.core.transcript.recover import INTERRUPTED
from treadle.core.transcript.state import SessionState
from treadle.lib.shielded import complete

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
        self._toolbox = toolbox = Toolbox(config.source, emitter)
        self._hooks = hooks = Hooks(
            config.hooks, emitter, config.caller, lambda *call: self._gateway.call(*call)
        )
        self._input_acceptor = InputAcceptor(inbox, hooks, session, emitter)
        self._task_reports = reports = TaskReports(emitter, inbox.put)
        make_tasks = config.task_manager or BackgroundTasks
        self.tasks: TaskManager = make_tasks(reports.report_end)
        self._tool_round = ToolRound(
            config,
            emitter,
            toolbox,
            hooks,
            self.tasks,
            session,
            inbox.put,
            self._child_approvals.ask,
            self._interruption.is_stopping,
        )
        self._model_caller = ModelCaller(
            config.model,
            emitter,
            config.clock,
            config.retry,
            is_taken_id=session.has_call_id,
            on_call=self._tool_round.eager.schedule,
            repair=CallRepairer(toolbox).repair,
            on_quarantine=session.quarantine_part,
            interruption=self._interruption,
        )
        self._gateway = ModelGateway(
            config,
            emitter,
            session,
            toolbox,
            inbox,
            self._model_caller,
            self._tool_round.eager.reset,
        )
        self._instructions = Instructions(config, emitter, session)
        self._mutators = MutatorRunner(
            config,
            emitter,
            session,
            toolbox,
            hooks,
            self._gateway,
            self._instructions,
        )
        self._side_questions = SideQuestions(
            config, session, toolbox, self._instructions, self._gateway
        )
        self._next_cache: CacheRequest | None = None
        self._has_started = self._has_run_start_hooks = self._has_ended = False

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
            if not self._session.is_turn_running and (idle := await self._begin_turn()) is not None:
                return idle
            match pending(self._session.state.transcript):
                case RunTools(calls=calls):
                    return await self._run_tools(calls)
                case Rest(reply=reply) if not self._inbox.has_message:
                    end = await self._run_stop_hooks(reply)
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
        refusal = await self._input_acceptor.accept_queued()
        if isinstance(pending(self._session.state.transcript), AskModel):
            return None
        blocked: Metadata = {"blocked": True, "detail": refusal}  # by a hook
        await self._finish_turn(TurnEnd("aborted", metadata=blocked))
        return AwaitingInput(self.submit, refusal)

    async def _call_model(self) -> TurnEnd | None:
        """One reply of the turn, at the only place where one is asked for."""
        refusal = await self._input_acceptor.accept_queued()
        if refusal and isinstance(pending(self._session.state.transcript), Rest):
            return None  # there is no new message to answer
        try:
            self._model_caller.switch_to_chosen_model()
            self._toolbox.refresh()
            await self._mutators.run("before_model")
            await self._log.flush_before_model_call()
            system = await self._instructions.read()
            cache = self._next_cache or self._config.cache
            request = build_request(self._session, system, self._toolbox, self._config, cache)
            reply = await self._gateway.call_turn(request)
            if isinstance(reply, Stop):
                return handle_stop(reply, self._session)
            if isinstance(reply, RetryWithBudget):
                self._session.record_transition(reply.reason)
                return None
            self._next_cache = None
            most = self._config.max_continuations
            end = handle_reply(reply, self._session, most, self._gateway.call_stop)
            if not reply.calls:  # no call of this reply will use what a failed attempt started
                await self._tool_round.eager.cancel_started()
            return end
        except Exception as error:
            self._gateway.release()
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
            await self._log.flush()  # what the user is asked about is asked again after a crash
            request = self._approvals.request(approvals)
            await self._hooks.run("notification", {"notification_type": "permission_prompt"})
            return request
        if any(ready.tool is not None and ready.tool.spec.asks_host for ready in prepared):
            work = asyncio.get_running_loop().create_task(self._tool_round.run(prepared))
            self._open_round = OpenRound(work)
            return await self._continue_round(self._open_round)
        return await self._close_round(await self._tool_round.run(prepared))

    async def _continue_round(self, opened: OpenRound) -> Step:
        """Wait for the end of the round, or for a child agent that needs an approval."""
        request = await self._child_approvals.take_new_before(opened.work)
        if request is not None:
            return request
        self._open_round = None
        return await self._close_round(opened.work.result())

    async def _close_round(self, results: tuple[ToolResultItem, ...]) -> Step:
        self._session.close_round()
        await self._mutators.run("after_tool_result")
        return AfterToolResult(results, self.submit)

    async def _cancel_round(self) -> None:
        """Stop a round that is open between two steps, or that the step was waiting for."""
        opened, self._open_round = self._open_round, None
        if opened is not None:
            await opened.stop()

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
            await self._config.source.open()
            self._has_started = True
            self._emitter.emit(RunStarted, self._config.name)
            if self._may_resume:
                items = (*self._session.history, *(one.item for one in self._inbox.waiting))
                self._task_reports.report_lost(self.tasks, items)
        if not self._has_run_start_hooks:
            source = "resume" if len(self._session.history) else "startup"
            answers = await self._hooks.run("session_start", {"source": source})
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
        return self._model_caller.next_model

    @property
    def options(self) -> ModelOptions:
        """The options of requests, without what a turn changes."""
        return self._config.options

    def use_model(self, model: Model) -> None:
        """Use another model from the next request on, also in the middle of a turn; a retry is a
        request. The reply that is being streamed is finished by its own model. Child agents use
        the agent's model. The caller closes both."""
        self._model_caller.choose_model(model)

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
        try:
            return await self._mutators.run("on_request", focus)
        except asyncio.CancelledError:
            if self._interruption.is_only_interruption:
                return False
            raise
        finally:
            self._leave()

    async def restore_approvals(self) -> None:
        """Put the calls that an earlier process left waiting, also those of child agents, into
        `approvals`, so that the host can answer before next(), which asks again about those without
        an answer. Opens the tools."""
        move = pending(self._session.state.transcript)
        calls = move.calls if isinstance(move, RunTools) else ()
        if not self._session.undecided_call_ids and not self._may_ask_host(calls):
            return
        self._enter()
        try:
            await self._start_once()
            self._toolbox.refresh()
            prepared, approvals = await self._tool_round.prepare(calls)
            self._approvals.restore(approvals)  # `next` does not ask policy and hooks again
            for call_id, request in await self._tool_round.find_child_requests(prepared):
                self._child_approvals.restore(call_id, request)
        finally:
            self._leave()

    def _may_ask_host(self, calls: tuple[ToolCall, ...]) -> bool:
        """Whether one of these calls was begun, and may have asked for approvals."""
        begun = {call.name for call in calls if call.id in self._session.state.intents}
        if not begun:
            return False
        specs = [tool.spec for tool in self._config.source.tools()]
        return any(spec.asks_host and spec.name in begun for spec in specs)

    async def rewind(self, turn_id: str) -> None:
        """Take back this turn and all later ones; the log keeps them. Their background tasks are
        cancelled. LoopError if the turn is not in the view, DriverBusy in the middle of a step."""
        self._check_open()
        if all(start.turn_id != turn_id for start in self._session.state.turn_starts):
            raise LoopError(f"session {self.session_id} has no turn {turn_id!r}")
        self._check_free("rewind")
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
        self._is_closed = True
        await complete(self._close(asyncio.current_task()))

    async def _close(self, caller: asyncio.Task[object] | None) -> None:
        try:
            if not await self._interruption.stop_step("closed", CLOSE_SECONDS, caller):
                names = ", ".join(self._list_running()) or "a step"
                self._emitter.emit(WarningRaised, f"the session is closed, but {names} still runs")
            await self._cancel_round()
            await self._side_questions.aclose()
            await self._task_reports.close(self.tasks)
            await self._tool_round.aclose()
            if self._has_started and not self._has_ended:
                self._has_ended = True
                await self._hooks.run("session_end", {})
        finally:
            if self._log.is_writable:
                await self._log.aclose()

    def _list_running(self) -> list[str]:
        move = pending(self._session.state.transcript)
        return [call.name for call in move.calls] if isinstance(move, RunTools) else []

"""The loop: the whole life of an agent on one page.

    ask the model  ->  run the tools it calls for  ->  feed the results back  ->  again

`next()` advances to the next point where somebody may want a word, and is the only thing that
does. What comes next is read off the transcript by pending(); nothing else is remembered that
a crash could lose. One model call is model_call.py, one tool round tool_round.py, what a reply leads
to reply_handling.py, the mutators' turn mutators.py, the way out interruption.py, the books session_state.py. The
doors over this (run, stream, chat) are in agents/.
"""

from __future__ import annotations

import asyncio
import os

import msgspec

from treadle.core.contracts.hook import AddContext, Block, HookPoint
from treadle.core.contracts.model import CacheRequest, ModelRequest
from treadle.core.contracts.observer import Observer
from treadle.core.contracts.store import Store
from treadle.core.errors import ApprovalPending, DriverBusy, ModelError
from treadle.core.events import RunStarted, TurnResult
from treadle.core.loop.approvals import Approvals
from treadle.core.loop.background import BackgroundTasks
from treadle.core.loop.config import DriverConfig
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.gates import GateRunner
from treadle.core.loop.hooks import Hooks
from treadle.core.loop.inbox import Inbox, InputAcceptor
from treadle.core.loop.interruption import Interruption
from treadle.core.loop.model_call import ModelCaller, RetryWithBudget
from treadle.core.loop.mutators import MutatorRunner
from treadle.core.loop.prepare import Toolbox
from treadle.core.loop.recovery import may_compact
from treadle.core.loop.reply_handling import (
    CONTINUE_NOTICE,
    TurnEnd,
    handle_reply,
    handle_stop,
    handle_stop_hook,
)
from treadle.core.loop.session_state import DurableLog, SessionState, Transition
from treadle.core.loop.tool_round import ToolRound
from treadle.core.steps import (
    AfterToolResult,
    AwaitingInput,
    Finished,
    PendingApproval,
    Step,
    UserInput,
)
from treadle.core.transcript.content import Arguments, ToolCall
from treadle.core.transcript.entries import View
from treadle.core.transcript.integrity import is_empty
from treadle.core.transcript.items import (
    AssistantItem,
    NoticeItem,
    ToolResultItem,
    UserItem,
    to_user_item,
)
from treadle.core.transcript.pending import AskModel, Rest, RunTools, pending
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage

INTERRUPTED_NOTICE = "The user interrupted the turn here."


class DriverSnapshot(msgspec.Struct, frozen=True):
    """A look inside; nothing can be changed through it."""

    session_id: str
    transcript: Transcript
    pending_input: tuple[UserItem | NoticeItem, ...]


class Driver:
    """One session at work. Made by an agent; many can run at once."""

    _next_cache: CacheRequest | None
    _last_result: TurnResult | None
    _may_resume: bool
    _has_ended: bool

    # --- the page ------------------------------------------------------------------------

    async def next(self) -> Step:
        """Advance to the next point where somebody may want a word."""
        self._enter()
        try:
            step = await self._advance()
            if self._interruption.is_requested() and not isinstance(step, Finished):
                step = Finished(await self._close_interrupted_turn())
            return step
        except asyncio.CancelledError:
            result = await self._finish_interrupted()
            if self._interruption.is_only_interruption:
                return Finished(result)
            raise
        finally:
            self._interruption.leave()

    async def _advance(self) -> Step:
        await self._start_once()
        while True:
            if self._interruption.is_requested():
                return Finished(await self._close_interrupted_turn())
            if self._session.state.turn is None and not await self._begin_turn():
                return AwaitingInput(self.submit)
            match pending(self._session.state.transcript):
                case RunTools(calls=calls):
                    return await self._run_tools(calls)
                case Rest(reply=reply) if not self._inbox.has_message:
                    ending = await self._run_stop_hooks(reply)
                case _:
                    ending = await self._call_model()
            if ending is not None:
                return Finished(await self._finish_turn(ending))

    async def _begin_turn(self) -> bool:
        """A turn begins with a message, or with what an earlier process left unfinished."""
        move = pending(self._session.state.transcript)
        unfinished = isinstance(move, (AskModel, RunTools)) and self._may_resume
        if not unfinished and not self._inbox.has_message:
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
            return None  # there is nothing new to be answered
        try:
            self._toolbox.refresh()
            await self._mutators.run("before_model")
            await self._log.flush_before_model_call()
            system = self._config.system_prompt()
            stop = self._gates.admit(system)
            if stop is not None:
                return handle_stop(stop, self._session)
            self._tool_round.eager.reset()
            reply = await self._model_caller.call(self._build_request(system))
            if isinstance(reply, RetryWithBudget):
                self._gates.settle()
                self._session.record_transition(reply.reason)
                return None
            self._gates.settle(reply.usage)
            self._session.add_reply_usage(reply)
            self._next_cache = None
            return handle_reply(reply, self._session, self._config.max_continuations)
        except ModelError as error:
            self._gates.settle()
            return await self._recover_or_fail(error)
        except Exception:
            self._gates.settle()
            raise

    async def _run_tools(self, calls: tuple[ToolCall, ...]) -> Step:
        """One tool round, or the question whether it may happen."""
        ledger, state = self._session, self._session.state
        self._toolbox.refresh()
        prepared, asked = await self._tool_round.prepare(
            calls, state.decisions, state.intents, state.early_results
        )
        if asked:
            request = self._approvals.request(asked)
            await self._hooks.run("notification", {"notification_type": "permission_prompt"})
            return request
        results: list[ToolResultItem] = []

        def answer(result: ToolResultItem) -> None:
            results.append(result)
            ledger.append(result)

        await self._tool_round.run(prepared, state.intents, answer, ledger.record_early_result)
        await self._tool_round.eager.cancel_started()
        ledger.close_round(len(calls))
        await self._mutators.run("after_tool_result")
        return AfterToolResult(tuple(results), self.submit)

    async def _run_stop_hooks(self, reply: AssistantItem | None) -> TurnEnd | None:
        """The model has nothing more to do, unless somebody objects."""
        role = self._config.agent_type
        point: HookPoint = "subagent_stop" if role else "stop"
        if self._hooks.has(point):
            data = {
                "last_message": reply.text if reply else "",
                "rounds": self._session.turn.rounds,
            }
            if role:
                data["agent_type"] = role
            for answer in await self._hooks.run(point, data):
                if isinstance(answer, Block):
                    return handle_stop_hook(answer, self._session)
        return TurnEnd("end_turn")

    async def _recover_or_fail(self, error: ModelError) -> TurnEnd | None:
        """No answer. A request that is too long is made smaller, once; else the turn is over."""
        ledger = self._session
        smaller = may_compact(error) and not ledger.turn.was_compacted
        try:
            if not smaller or not await self._mutators.run("context_too_long"):
                return TurnEnd("error", error)
        except ModelError as hopeless:
            return TurnEnd("error", hopeless)
        if isinstance(pending(ledger.state.transcript), Rest):
            ledger.append(NoticeItem(CONTINUE_NOTICE, kind="continue", next_move="ask"))
        ledger.record_transition(
            "reactive_compaction", msgspec.structs.replace(ledger.turn, was_compacted=True)
        )
        return None

    async def _finish_turn(self, end: TurnEnd) -> TurnResult:
        """Close the turn; the terminal event is the last thing told."""
        self._interruption.is_requested()  # too late to change how it ends, and nothing need be cut short
        result = self._session.end_turn(end.reason, end.error, end.metadata)
        self._last_result = result
        try:
            await self._tool_round.eager.cancel_started()
            await self._mutators.run("after_turn_ended")
            await self._log.flush()
        finally:
            self._session.emit_turn_end(result)
        return result

    async def _close_interrupted_turn(self) -> TurnResult:
        """Leave a lawful transcript and nothing running, whatever was going on."""
        ledger = self._session
        self._approvals.clear()
        partial = self._model_caller.take_partial_reply()
        self._gates.settle()
        why = self._interruption.reason or "cancelled"
        ending = TurnEnd("aborted", metadata={"interrupted": True, "interrupt_reason": why})
        if ledger.state.turn is None:
            return self._last_result or self._finish_without_turn(ending)
        move = pending(ledger.state.transcript)
        if isinstance(move, RunTools):
            for call in move.calls:
                known = ledger.state.early_results.get(call.id)
                ledger.append(known or self._tool_round.answer_interrupted(call))
        elif partial is not None:
            ledger.append(partial)
        ledger.append(NoticeItem(INTERRUPTED_NOTICE, kind="interrupted", next_move="rest"))
        return await self._finish_turn(ending)

    async def _finish_interrupted(self) -> TurnResult:
        try:
            return await self._close_interrupted_turn()
        except asyncio.CancelledError:
            return (
                await self._close_interrupted_turn()
            )  # cut once more: the turn is over, this only says how

    def _finish_without_turn(self, end: TurnEnd) -> TurnResult:
        """Stopped before there was a turn; what was said waits for the next step."""
        self._last_result = TurnResult("", end.reason, metadata=end.metadata)
        self._session.emit_turn_end(self._last_result)
        return self._last_result

    # --- doors for the host --------------------------------------------------------------

    def submit(self, user_input: UserInput) -> None:
        """Say something; it enters at the next legal point. An empty message is none."""
        item = to_user_item(user_input)
        if not is_empty(item):
            self._inbox.put(item, is_busy=self._session.state.turn is not None)

    def steer(self, user_input: UserInput) -> None:
        """Say something while the agent works; it is marked as such."""
        item = msgspec.structs.replace(to_user_item(user_input), steered=True)
        if not is_empty(item):
            self._inbox.put(item)

    def approve(
        self, call_id: str, *, arguments: Arguments | None = None, always: bool = False
    ) -> bool:
        """Let a waiting call happen; False if none waits under that id."""
        return self._approvals.approve(call_id, arguments, always)

    def deny(self, call_id: str, reason: str = "The user said no.") -> bool:
        return self._approvals.deny(call_id, reason)

    def interrupt(self, reason: str = "user_cancelled") -> None:
        """Stop now. The stream and every tool are cancelled; the turn ends `aborted`.

        Without a turn nothing happens. A tool that does not stop is left to itself.
        """
        if self._session.state.turn is not None or self._interruption.is_running:
            self._interruption.request(reason)

    def set_next_turn_cache(self, cache: CacheRequest) -> None:
        """For the next model call only."""
        self._next_cache = cache

    async def compact(self, focus: str = "") -> bool:
        """Make the view smaller now; whether somebody did. Between turns only."""
        self._enter()
        try:
            return await self._mutators.run("on_request", focus)
        except asyncio.CancelledError:
            if self._interruption.is_only_interruption:
                return False
            raise
        finally:
            self._interruption.leave()

    def uncompact(self) -> bool:
        """Bring the whole history back into view; False if all of it is there."""
        if self._interruption.is_running:
            raise DriverBusy("the view cannot change in the middle of a step; await it first")
        return self._session.uncompact()

    def watch(self, observer: Observer) -> None:
        self._emitter.add(observer)

    def unwatch(self, observer: Observer) -> None:
        self._emitter.remove(observer)

    def snapshot(self) -> DriverSnapshot:
        return DriverSnapshot(self.session_id, self.transcript, self._inbox.queued)

    @property
    def transcript(self) -> Transcript:
        return self._session.state.transcript

    @property
    def history(self) -> Transcript:
        """Everything that was ever said, whatever was taken out of view."""
        return self._session.history

    @property
    def usage(self) -> Usage:
        """Of the whole session."""
        return self._session.state.usage

    @property
    def trace(self) -> tuple[Transition, ...]:
        """Why the loop went on, newest last."""
        return tuple(self._session.trace)

    @property
    def is_interrupted(self) -> bool:
        return self._interruption.reason is not None

    @property
    def approvals(self) -> tuple[PendingApproval, ...]:
        """What waits for a decision."""
        return self._approvals.pending

    async def aclose(self) -> None:
        """End background tasks, tell the hooks, and wait until everything is written."""
        try:
            await self.tasks.aclose()
            await self._tool_round.aclose()
            if self._has_started and not self._has_ended:
                self._has_ended = True
                await self._hooks.run("session_end", {})
        finally:
            await self._log.aclose()

    # --- putting it together -------------------------------------------------------------

    def __init__(
        self,
        config: DriverConfig,
        *,
        session_id: str | None = None,
        view: View | None = None,
        store: Store | None = None,
    ) -> None:
        self.session_id = session_id or (store.session_id if store else os.urandom(8).hex())
        self._config = config
        self._interruption = Interruption()
        self._emitter = teller = Emitter(config.observers, self.session_id)
        self._log = DurableLog(store)
        view = view or View()
        self._session = SessionState(view, teller, self._log)
        self._inbox = Inbox(view.queued, self._log.write)
        self._toolbox = Toolbox(config.source, teller)
        self._hooks = Hooks(config.hooks, teller)
        self._mutators = MutatorRunner(
            config,
            teller,
            self._session,
            self._toolbox,
            self._hooks,
            self._inbox,
            lambda: self._model_caller.model.card,
        )
        self._approvals = Approvals(self._session, teller)
        self._input_acceptor = InputAcceptor(self._inbox, self._hooks, self._session, teller)
        self.tasks = BackgroundTasks(teller, self._inbox.put)
        self._tool_round = ToolRound(
            config,
            teller,
            self._toolbox,
            self._hooks,
            self.tasks,
            self._session.record_intent,
            self._inbox.put,
            lambda: self._session.history,
        )
        self._model_caller = ModelCaller(
            config.model,
            teller,
            config.clock,
            on_call=self._tool_round.eager.schedule,
            on_quarantine=self._session.quarantine_part,
            is_interrupted=self._interruption.is_requested,
        )
        self._gates = GateRunner(config, self._session, self._toolbox, self._model_caller)
        self._next_cache = None
        self._last_result = None
        self._has_started = False
        self._has_ended = False
        self._may_resume = True

    def _enter(self) -> None:
        if (
            self._approvals.pending_ids
            and self._interruption.reason is None
            and not self._interruption.is_running
        ):
            raise ApprovalPending(self._approvals.pending_ids)
        self._interruption.enter()
        self._last_result = None

    async def _start_once(self) -> None:
        if self._has_started:
            return
        await self._config.source.open()
        self._has_started = True
        self._emitter.emit(RunStarted)
        if self._may_resume:
            self.tasks.report_lost((*self._session.history, *self._inbox.queued))
        for answer in await self._hooks.run("session_start", {}):
            if isinstance(answer, AddContext):
                self._inbox.put(NoticeItem(answer.text, kind="hook"))

    def _build_request(self, system: str) -> ModelRequest:
        state, turn = self._session.state, self._session.turn
        options = self._config.options
        if turn.closing_stop:
            # The tools are still named, so that the cached beginning of the request holds.
            options = msgspec.structs.replace(
                options, max_tokens=turn.closing_stop.closing_tokens, tool_choice="none"
            )
        return ModelRequest(
            state.transcript,
            system,
            self._toolbox.specs,
            options,
            self._next_cache or self._config.cache,
            state.quarantine,
            self.session_id,
            turn.id,
            f"{self.session_id}/{turn.id}/{len(self._session.history)}"
            + ("/smaller" if turn.was_compacted else ""),
        )

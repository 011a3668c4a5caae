"""The loop: the whole life of an agent on one page.

    ask the model  ->  run the tools it calls for  ->  feed the results back  ->  again

`next()` advances to the next point where somebody may want a word, and is the only thing that
does. What comes next is read off the transcript by pending(); nothing else is remembered that
a crash could lose. One model call is asking.py, one tool round calling.py, what a reply leads
to taking.py, the mutators' turn rewriting.py, the way out stopping.py, the books ledger.py. The
doors over this (run, stream, chat) are in agents/.
"""

from __future__ import annotations

import asyncio
import os

import msgspec

from treadle.core.contracts.hook import Add, Block, HookPoint
from treadle.core.contracts.model import CacheRequest, ModelRequest
from treadle.core.contracts.observer import Observer
from treadle.core.contracts.store import Store
from treadle.core.errors import ApprovalPending, DriverBusy, ModelError
from treadle.core.events import RunStarted, TurnResult
from treadle.core.loop.approving import Approvals
from treadle.core.loop.asking import Again, Asking
from treadle.core.loop.calling import Calling
from treadle.core.loop.consulting import Hooks
from treadle.core.loop.equipment import Equipment
from treadle.core.loop.inbox import Inbox
from treadle.core.loop.journaling import Journaling
from treadle.core.loop.ledger import Ledger
from treadle.core.loop.listening import Listening
from treadle.core.loop.paying import Paying
from treadle.core.loop.recovery import may_compact
from treadle.core.loop.rewriting import Rewriting
from treadle.core.loop.state import Transition
from treadle.core.loop.steps import (
    AfterToolResult,
    AwaitingInput,
    Finished,
    PendingApproval,
    Said,
    Step,
)
from treadle.core.loop.stopping import Stopping
from treadle.core.loop.taking import CONTINUE, Ending, take, take_objection, take_stop
from treadle.core.loop.tasks import Tasks
from treadle.core.loop.telling import Teller
from treadle.core.loop.toolbox import Toolbox
from treadle.core.transcript.content import Arguments, ToolCall
from treadle.core.transcript.entries import View
from treadle.core.transcript.integrity import is_empty
from treadle.core.transcript.items import AssistantItem, NoticeItem, ToolResultItem, UserItem, user
from treadle.core.transcript.pending import AskModel, Rest, RunTools, pending
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage

INTERRUPTED = "The user interrupted the turn here."


class Snapshot(msgspec.Struct, frozen=True):
    """A look inside; nothing can be changed through it."""

    session_id: str
    transcript: Transcript
    pending_input: tuple[UserItem | NoticeItem, ...]


class Driver:
    """One session at work. Made by an agent; many can run at once."""

    _next_cache: CacheRequest | None
    _last_result: TurnResult | None
    _is_fresh: bool
    _has_ended: bool

    # --- the page ------------------------------------------------------------------------

    async def next(self) -> Step:
        """Advance to the next point where somebody may want a word."""
        self._enter()
        try:
            step = await self._advance()
            if self._stopping.heard() and not isinstance(step, Finished):
                step = Finished(await self._wind_down())
            return step
        except asyncio.CancelledError:
            result = await self._wind_down_surely()
            if self._stopping.is_ours_alone:
                return Finished(result)
            raise
        finally:
            self._stopping.leave()

    async def _advance(self) -> Step:
        await self._start_once()
        while True:
            if self._stopping.heard():
                return Finished(await self._wind_down())
            if self._ledger.state.turn is None and not await self._begin_turn():
                return AwaitingInput(self.submit)
            match pending(self._ledger.state.transcript):
                case RunTools(calls=calls):
                    return await self._run_tools(calls)
                case Rest(reply=reply) if not self._inbox.has_message:
                    ending = await self._rest(reply)
                case _:
                    ending = await self._ask_model()
            if ending is not None:
                return Finished(await self._finish(ending))

    async def _begin_turn(self) -> bool:
        """A turn begins with a message, or with what an earlier process left unfinished."""
        move = pending(self._ledger.state.transcript)
        unfinished = isinstance(move, (AskModel, RunTools)) and self._is_fresh
        if not unfinished and not self._inbox.has_message:
            return False
        self._is_fresh = False
        self._ledger.begin_turn()
        if isinstance(move, RunTools):
            return True  # messages wait until the calls are answered
        await self._listening.accept()
        if isinstance(pending(self._ledger.state.transcript), AskModel):
            return True
        await self._finish(Ending("aborted", metadata={"blocked": True}))  # by a hook
        return False

    async def _ask_model(self) -> Ending | None:
        """One model call, at the only place where one is made."""
        has_refused = await self._listening.accept()
        if has_refused and isinstance(pending(self._ledger.state.transcript), Rest):
            return None  # there is nothing new to be answered
        try:
            self._toolbox.refresh()
            await self._rewriting.mutate("before_model")
            await self._journal.before_asking()
            system = self._equipment.system()
            stop = self._paying.admit(system)
            if stop is not None:
                return take_stop(stop, self._ledger)
            self._calling.early.renew()
            reply = await self._asking.ask(self._request(system))
            if isinstance(reply, Again):
                self._paying.settle()
                self._ledger.go_on(reply.why)
                return None
            self._paying.settle(reply.usage)
            self._ledger.spend(reply)
            self._next_cache = None
            return take(reply, self._ledger, self._equipment.max_continuations)
        except ModelError as error:
            self._paying.settle()
            return await self._give_up(error)
        except Exception:
            self._paying.settle()
            raise

    async def _run_tools(self, calls: tuple[ToolCall, ...]) -> Step:
        """One tool round, or the question whether it may happen."""
        ledger, state = self._ledger, self._ledger.state
        self._toolbox.refresh()
        prepared, asked = await self._calling.prepare(
            calls, state.rulings, state.intents, state.settled
        )
        if asked:
            request = self._approvals.request(asked)
            await self._hooks.ask("notification", {"notification_type": "permission_prompt"})
            return request
        results: list[ToolResultItem] = []

        def answer(result: ToolResultItem) -> None:
            results.append(result)
            ledger.append(result)

        await self._calling.run(prepared, state.intents, answer, ledger.settle)
        await self._calling.early.drop()
        ledger.close_round(len(calls))
        await self._rewriting.mutate("after_tool_result")
        return AfterToolResult(tuple(results), self.submit)

    async def _rest(self, reply: AssistantItem | None) -> Ending | None:
        """The model has nothing more to do, unless somebody objects."""
        role = self._equipment.role
        point: HookPoint = "subagent_stop" if role else "stop"
        if self._hooks.has(point):
            data = {"last_message": reply.text if reply else "", "rounds": self._ledger.turn.rounds}
            if role:
                data["agent_type"] = role
            for answer in await self._hooks.ask(point, data):
                if isinstance(answer, Block):
                    return take_objection(answer.reason, self._ledger)
        return Ending("end_turn")

    async def _give_up(self, error: ModelError) -> Ending | None:
        """No answer. A request that is too long is made smaller, once; else the turn is over."""
        ledger = self._ledger
        smaller = may_compact(error) and not ledger.turn.was_compacted
        try:
            if not smaller or not await self._rewriting.mutate("context_too_long"):
                return Ending("error", error)
        except ModelError as hopeless:
            return Ending("error", hopeless)
        if isinstance(pending(ledger.state.transcript), Rest):
            ledger.append(NoticeItem(CONTINUE, kind="continue", then="ask"))
        ledger.go_on(
            "reactive_compaction", msgspec.structs.replace(ledger.turn, was_compacted=True)
        )
        return None

    async def _finish(self, ending: Ending) -> TurnResult:
        """Close the turn; the terminal event is the last thing told."""
        self._stopping.heard()  # too late to change how it ends, and nothing need be cut short
        result = self._ledger.end_turn(ending.reason, ending.error, ending.metadata)
        self._last_result = result
        try:
            await self._calling.early.drop()
            await self._rewriting.mutate("after_turn_ended")
            await self._journal.flush()
        finally:
            self._ledger.tell_end(result)
        return result

    async def _wind_down(self) -> TurnResult:
        """Leave a lawful transcript and nothing running, whatever was going on."""
        ledger = self._ledger
        self._approvals.forget()
        partial = self._asking.partial()
        self._paying.settle()
        why = self._stopping.reason or "cancelled"
        ending = Ending("aborted", metadata={"interrupted": True, "interrupt_reason": why})
        if ledger.state.turn is None:
            return self._last_result or self._end_before_it_began(ending)
        move = pending(ledger.state.transcript)
        if isinstance(move, RunTools):
            for call in move.calls:
                known = ledger.state.settled.get(call.id)
                ledger.append(known or self._calling.cut_off(call))
        elif partial is not None:
            ledger.append(partial)
        ledger.append(NoticeItem(INTERRUPTED, kind="interrupted", then="rest"))
        return await self._finish(ending)

    async def _wind_down_surely(self) -> TurnResult:
        try:
            return await self._wind_down()
        except asyncio.CancelledError:
            return await self._wind_down()  # cut once more: the turn is over, this only says how

    def _end_before_it_began(self, ending: Ending) -> TurnResult:
        """Stopped before there was a turn; what was said waits for the next step."""
        self._last_result = TurnResult("", ending.reason, metadata=ending.metadata)
        self._ledger.tell_end(self._last_result)
        return self._last_result

    # --- doors for the host --------------------------------------------------------------

    def submit(self, said: Said) -> None:
        """Say something; it enters at the next legal point. An empty message is none."""
        item = user(said)
        if not is_empty(item):
            self._inbox.put(item, is_busy=self._ledger.state.turn is not None)

    def steer(self, said: Said) -> None:
        """Say something while the agent works; it is marked as such."""
        item = msgspec.structs.replace(user(said), steered=True)
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
        if self._ledger.state.turn is not None or self._stopping.is_inside:
            self._stopping.ask(reason)

    def set_next_turn_cache(self, cache: CacheRequest) -> None:
        """For the next model call only."""
        self._next_cache = cache

    async def compact(self, focus: str = "") -> bool:
        """Make the view smaller now; whether somebody did. Between turns only."""
        self._enter()
        try:
            return await self._rewriting.mutate("on_request", focus)
        except asyncio.CancelledError:
            if self._stopping.is_ours_alone:
                return False
            raise
        finally:
            self._stopping.leave()

    def uncompact(self) -> bool:
        """Bring the whole history back into view; False if all of it is there."""
        if self._stopping.is_inside:
            raise DriverBusy("the view cannot change in the middle of a step; await it first")
        return self._ledger.uncompact()

    def watch(self, observer: Observer) -> None:
        self._teller.add(observer)

    def unwatch(self, observer: Observer) -> None:
        self._teller.remove(observer)

    def snapshot(self) -> Snapshot:
        return Snapshot(self.session_id, self.transcript, self._inbox.waiting)

    @property
    def transcript(self) -> Transcript:
        return self._ledger.state.transcript

    @property
    def history(self) -> Transcript:
        """Everything that was ever said, whatever was taken out of view."""
        return self._ledger.history

    @property
    def usage(self) -> Usage:
        """Of the whole session."""
        return self._ledger.state.usage

    @property
    def trace(self) -> tuple[Transition, ...]:
        """Why the loop went on, newest last."""
        return tuple(self._ledger.trace)

    @property
    def is_interrupted(self) -> bool:
        return self._stopping.reason is not None

    @property
    def approvals(self) -> tuple[PendingApproval, ...]:
        """What waits for a decision."""
        return self._approvals.waiting

    async def aclose(self) -> None:
        """End background tasks, tell the hooks, and wait until everything is written."""
        try:
            await self.tasks.aclose()
            await self._calling.aclose()
            if self._has_started and not self._has_ended:
                self._has_ended = True
                await self._hooks.ask("session_end", {})
        finally:
            await self._journal.aclose()

    # --- putting it together -------------------------------------------------------------

    def __init__(
        self,
        equipment: Equipment,
        *,
        session_id: str | None = None,
        view: View | None = None,
        store: Store | None = None,
    ) -> None:
        self.session_id = session_id or (store.session_id if store else os.urandom(8).hex())
        self._equipment = equipment
        self._stopping = Stopping()
        self._teller = teller = Teller(equipment.observers, self.session_id)
        self._journal = Journaling(store)
        view = view or View()
        self._ledger = Ledger(view, teller, self._journal)
        self._inbox = Inbox(view.queued, self._journal.write)
        self._toolbox = Toolbox(equipment.source, teller)
        self._hooks = Hooks(equipment.hooks, teller)
        self._rewriting = Rewriting(
            equipment,
            teller,
            self._ledger,
            self._toolbox,
            self._hooks,
            self._inbox,
            lambda: self._asking.model.card,
        )
        self._approvals = Approvals(self._ledger, teller)
        self._listening = Listening(self._inbox, self._hooks, self._ledger, teller)
        self.tasks = Tasks(teller, self._inbox.put)
        self._calling = Calling(
            equipment,
            teller,
            self._toolbox,
            self._hooks,
            self.tasks,
            self._ledger.intend,
            self._inbox.put,
            lambda: self._ledger.history,
        )
        self._asking = Asking(
            equipment.model,
            teller,
            equipment.clock,
            on_call=self._calling.early.offer,
            on_quarantine=self._ledger.quarantine,
            is_stopped=self._stopping.heard,
        )
        self._paying = Paying(equipment, self._ledger, self._toolbox, self._asking)
        self._next_cache = None
        self._last_result = None
        self._has_started = False
        self._has_ended = False
        self._is_fresh = True

    def _enter(self) -> None:
        if self._approvals.ids and self._stopping.reason is None and not self._stopping.is_inside:
            raise ApprovalPending(self._approvals.ids)
        self._stopping.enter()
        self._last_result = None

    async def _start_once(self) -> None:
        if self._has_started:
            return
        await self._equipment.source.open()
        self._has_started = True
        self._teller.tell(RunStarted)
        if self._is_fresh:
            self.tasks.recall((*self._ledger.history, *self._inbox.waiting))
        for answer in await self._hooks.ask("session_start", {}):
            if isinstance(answer, Add):
                self._inbox.put(NoticeItem(answer.text, kind="hook"))

    def _request(self, system: str) -> ModelRequest:
        state, turn = self._ledger.state, self._ledger.turn
        options = self._equipment.options
        if turn.closing:
            # The tools are still named, so that the cached beginning of the request holds.
            options = msgspec.structs.replace(
                options, max_tokens=turn.closing.closing, tool_choice="none"
            )
        return ModelRequest(
            state.transcript,
            system,
            self._toolbox.specs,
            options,
            self._next_cache or self._equipment.cache,
            state.quarantine,
            self.session_id,
            turn.id,
            f"{self.session_id}/{turn.id}/{len(self._ledger.history)}"
            + ("/smaller" if turn.was_compacted else ""),
        )

"""The one gateway for model calls: every call of a session passes here, whatever it is for.

    admitted   the gates see its worst case (gates.py)
    retried    by the one table (model_call.py, retry.py)
    settled    with what it used, also if it fails or is cancelled
    recorded   in the log, with its purpose

`call_turn` is for the replies of turns: the driver streams them and decides what comes next. `call`
is for all others, which leave the conversation and its events alone: side questions, summaries of
mutators, hooks that judge. Probes of a search for what a provider refuses come from the model,
through `ModelRequest.admit_probe`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial

import msgspec

from treadle.core.contracts.gate import Gate, RequestEstimate, Stop
from treadle.core.contracts.model import (
    CacheRequest,
    Model,
    ModelCard,
    ModelOptions,
    ModelRequest,
    SettleUsage,
    add_cost,
)
from treadle.core.contracts.observer import BaseObserver
from treadle.core.errors import CallNotAdmitted
from treadle.core.events import Event, Notified, WarningRaised
from treadle.core.loop.calls.eager import EagerCalls
from treadle.core.loop.calls.toolbox import estimate_spec_chars
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.gates import ADMITTED, Gates
from treadle.core.loop.loop_session import LoopSession
from treadle.core.loop.model_call import ModelCaller, RetryWithBudget
from treadle.core.loop.parts import DriverParts
from treadle.core.transcript.items import AssistantItem, NoticeItem
from treadle.core.transcript.size_estimate import (
    estimate_chars,
    estimate_item_chars,
    estimate_text_chars,
)
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import NO_USAGE, TURN_PURPOSES, CallPurpose, Usage


class ModelGateway:
    def __init__(self, parts: DriverParts, eager: EagerCalls) -> None:
        self._parts = parts
        self._config, self._emitter, self._session = parts.config, parts.emitter, parts.session
        self._toolbox = parts.toolbox
        self._eager = eager
        self.caller = ModelCaller(parts, parts.config.model, parts.emitter, eager)  # of turns
        self.caller.admit_probe = partial(self._admit_probe, self.caller, parts.emitter)
        self._turn_gates = Gates(parts.config.gates, parts.emitter)
        self._added_gates: tuple[Gate, ...] = ()  # of the turn
        self._partial_reply: AssistantItem | None = None
        self.call_stop: Stop | None = None  # how the turn ends if the last reply calls tools

    @property
    def model(self) -> Model:
        """The model of the next turn."""
        return self.caller.model

    # --- replies of turns ----------------------------------------------------------------

    async def call_turn(self, request: ModelRequest) -> AssistantItem | RetryWithBudget | Stop:
        """The reply; or RetryWithBudget: ask again with a new request; or why it is not asked for.
        Raises ModelError."""
        self._partial_reply = None
        session, gates, admitted = self._session, self._turn_gates, ADMITTED
        is_closing = request.purpose == "closing"
        if session.settings.gates is not self._added_gates:
            self._added_gates = session.settings.gates
            gates.set_gates((*self._config.gates, *self._added_gates))
        # A closing reply is reserved already, when the gates stopped the turn.
        if gates.gates and not (is_closing and gates.has_reservations):
            stop, admitted = await gates.admit(self._estimate_turn(request))
            for text in admitted.notices:
                session.append(NoticeItem(text, kind="budget"))
            if stop is not None and not (is_closing and stop.closing_tokens):
                return stop
        self.call_stop = admitted.call_stop
        self._eager.reset(may_start=admitted.call_stop is None)
        if admitted.notices or admitted.max_output is not None:
            request = msgspec.structs.replace(
                request,
                transcript=session.state.transcript,
                options=_limit_output(request.options, admitted.max_output),
                idempotency_key=make_turn_key(session),
            )
        return await self._make_call(self.caller, request, gates)

    def take_partial_reply(self) -> AssistantItem | None:
        """The text that was streamed before the call was cancelled, without calls."""
        reply, self._partial_reply = self._partial_reply, None
        return reply

    def release(self) -> None:
        """Give back what is reserved for a closing reply that is not asked for."""
        self._turn_gates.settle(NO_USAGE)

    def _estimate_turn(self, request: ModelRequest) -> RequestEstimate:
        card, session = self.caller.model.card, self._session
        max_output = _find_max_output(session.settings.options or self._config.options, card)
        chars = 0
        if self._turn_gates.reads_size:
            fixed = estimate_text_chars(request.system) + self._toolbox.spec_chars
            chars = estimate_chars(session.state.transcript) + fixed
        return session.estimate_request(card, chars, max_output, request.purpose)

    # --- all other calls -----------------------------------------------------------------

    async def call(
        self,
        request: ModelRequest,
        purpose: CallPurpose,
        model: Model | None = None,
        on_settled: Callable[[Usage], None] | None = None,
    ) -> AssistantItem:
        """The reply of `model`, or of that of the session. Raises ModelError, and CallNotAdmitted.

        `on_settled` is told what each attempt used, also if the call is cancelled."""
        session_id, config = self._session.id, self._config
        silent = Emitter((_Relay(self._emitter),), session_id, config.name)
        caller = ModelCaller(self._parts, model or self.model, silent)
        request = msgspec.structs.replace(
            request,
            session_id=request.session_id or session_id,
            idempotency_key=f"{session_id}/{purpose}/{os.urandom(8).hex()}",
            caller=config.caller,
            purpose=purpose,
        )
        caller.admit_probe = partial(self._admit_probe, caller, silent)
        while True:
            gates = self._make_gates(purpose, silent)
            max_output = await self._admit(gates, caller.model.card, request)
            options = _limit_output(request.options, max_output)
            limited = msgspec.structs.replace(request, options=options)
            reply = await self._make_call(caller, limited, gates, on_settled)
            if isinstance(reply, AssistantItem):
                return reply

    def _make_gates(self, purpose: CallPurpose, emitter: Emitter) -> Gates:
        """With those of the turn for what is a part of it."""
        is_part = self._session.is_turn_running and purpose in TURN_PURPOSES
        of_turn = self._session.settings.gates if is_part else ()
        return Gates((*self._config.gates, *of_turn), emitter)

    async def _admit(self, gates: Gates, card: ModelCard, request: ModelRequest) -> int | None:
        """The most tokens of the reply, None: as the request says; CallNotAdmitted at a limit."""
        if not gates.gates:
            return None
        max_output, purpose = _find_max_output(request.options, card), request.purpose
        estimate = self._session.estimate_request(
            card, self._count_chars(request), max_output, purpose
        )
        stop, admitted = await gates.admit(estimate)
        for text in admitted.notices:
            self._parts.inbox.put(NoticeItem(text, kind="budget"))
        is_too_short = purpose == "summary" and admitted.max_output is not None
        if stop is None and not is_too_short:
            return admitted.max_output
        gates.settle(NO_USAGE)
        why = stop.detail or stop.reason if stop is not None else "the budget is too small for it"
        raise CallNotAdmitted(f"the {purpose.replace('_', ' ')} is not asked: {why}")

    async def _admit_probe(
        self, caller: ModelCaller, emitter: Emitter, probe: ModelRequest
    ) -> SettleUsage | None:
        gates, model = self._make_gates("search", emitter), caller.model
        try:
            probe = msgspec.structs.replace(probe, purpose="search")
            await self._admit(gates, model.card, probe)
        except CallNotAdmitted as error:
            emitter.emit(WarningRaised, f"what {model.name} refuses is not searched for: {error}")
            return None

        def settle(used: Usage) -> None:
            used = add_cost(used, model.card)
            gates.settle(used)
            self._record(model.name, used, "search")

        return settle

    # --- both ----------------------------------------------------------------------------

    async def _make_call(
        self,
        caller: ModelCaller,
        request: ModelRequest,
        gates: Gates,
        on_settled: Callable[[Usage], None] | None = None,
    ) -> AssistantItem | RetryWithBudget:
        """The call that was admitted; what it used is settled and recorded, whatever happens."""
        reply: AssistantItem | RetryWithBudget | None = None
        is_turn, purpose = caller is self.caller, request.purpose
        try:
            reply = await caller.call(request)
            return reply
        except asyncio.CancelledError:
            if is_turn:
                self._partial_reply = caller.take_partial_reply()  # with its usage
            raise
        finally:
            used = lost = caller.take_lost_usage()  # of attempts without a reply
            if isinstance(reply, AssistantItem):
                used = reply.usage if lost is NO_USAGE else lost + reply.usage
            gates.settle(used)  # first: the log may fail
            if on_settled is not None:
                on_settled(used)
            if lost is not NO_USAGE:
                self._record(caller.last_model_name, lost, purpose)
            if is_turn and isinstance(reply, AssistantItem):
                self._session.add_usage(reply.model, reply.usage, purpose, reply.stop)
            elif isinstance(reply, AssistantItem):
                self._record(caller.last_model_name, reply.usage, purpose)

    def _record(self, model: str, used: Usage, purpose: CallPurpose) -> None:
        if used != NO_USAGE:
            self._session.add_usage(model, used, purpose)

    def _count_chars(self, request: ModelRequest) -> int:
        is_own = request.tools is self._toolbox.specs
        tools = self._toolbox.spec_chars if is_own else estimate_spec_chars(request.tools)
        items = sum(map(estimate_item_chars, request.transcript))
        return items + tools + estimate_text_chars(request.system)


class _Relay(BaseObserver):
    """Passes on what concerns the user of a call that is otherwise silent."""

    kinds = frozenset({Notified, WarningRaised})

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter

    def on_event(self, event: Event) -> None:
        if isinstance(event, (Notified, WarningRaised)):
            self._emitter.emit(type(event), event.text)


def _limit_output(options: ModelOptions, most: int | None) -> ModelOptions:
    if most is None:
        return options
    if options.max_tokens is not None:
        most = min(most, options.max_tokens)
    return msgspec.structs.replace(options, max_tokens=most)


def _find_max_output(options: ModelOptions, card: ModelCard) -> int:
    """The most tokens that a model may use for a reply to a request with these options."""
    if options.max_tokens is not None:
        return options.max_tokens
    if options.thinking in (None, "auto") and card.default_output is not None:
        return card.default_output
    return card.max_output


# --- requests of turns -------------------------------------------------------------------


def build_request(
    parts: DriverParts, system: str, cache: CacheRequest, closing: Stop | None
) -> ModelRequest:
    """The request for the next reply, from the view as it is; `closing`: it is the last one."""
    config, session = parts.config, parts.session
    state, turn, options = session.state, session.turn, session.settings.options or config.options
    purpose: CallPurpose = config.purpose
    if closing is not None:
        # The tools stay in the request, so that its cached prefix stays valid.
        options = msgspec.structs.replace(
            options, max_tokens=closing.closing_tokens, tool_choice="none"
        )
        purpose = "closing"
    return ModelRequest(
        state.transcript,
        system,
        parts.toolbox.specs,
        options,
        cache,
        state.quarantine,
        session.id,
        turn.id,
        make_turn_key(session),
        caller=config.caller,
        metadata=turn.metadata,
        purpose=purpose,
    )


def build_aside_request(parts: DriverParts, system: str, transcript: Transcript) -> ModelRequest:
    """The request of the session with another end, for an answer beside the conversation: what the
    turn has to call or to return does not concern it, and the rest is read from the cache."""
    config, session = parts.config, parts.session
    given = session.settings.options or config.options
    options = msgspec.structs.replace(given, tool_choice="none", output_schema=None)
    specs, quarantine = parts.toolbox.specs, session.state.quarantine
    return ModelRequest(transcript, system, specs, options, config.cache, quarantine)


def make_turn_key(session: LoopSession) -> str:
    """Which reply the next request asks for: the same after a crash."""
    state = session.state
    return f"{session.id}/{session.turn.key}/{len(state.transcript)}.{state.view_changes}"

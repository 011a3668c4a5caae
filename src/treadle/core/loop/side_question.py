"""A question beside the conversation: the model sees the view and answers; nothing else changes.

The request is the next one of the session with the question at its end, so that the cached prefix
is read. The reply enters neither the transcript nor the events; only its usage is recorded, and the
gates count it. It may be asked while a turn runs. Used by driver.py.
"""

from __future__ import annotations

import asyncio
import os

import msgspec

from treadle.core.contracts.model import Model, ModelRequest
from treadle.core.errors import LoopError
from treadle.core.loop.background import cancel_all
from treadle.core.loop.config import DriverConfig
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.gates import Gates
from treadle.core.loop.instructions import Instructions
from treadle.core.loop.interruption import Interruption
from treadle.core.loop.model_call import ModelCaller, RetryWithBudget
from treadle.core.loop.prepare import Toolbox
from treadle.core.loop.session_state import SessionState
from treadle.core.transcript.content import Text
from treadle.core.transcript.items import AssistantItem, ToolResultItem, UserItem
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.size_estimate import estimate_text_chars
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import NO_USAGE, Usage

STILL_RUNNING = "(still running)"
QUESTION_TEMPLATE = """\
This is a side question of the user. Answer it now from what you know, briefly, and call no tool. \
Neither the question nor your answer will be part of the conversation, and the work is not changed \
by it.

{question}"""


class SideQuestions:
    def __init__(
        self,
        config: DriverConfig,
        session: SessionState,
        toolbox: Toolbox,
        instructions: Instructions,
    ) -> None:
        self._config = config
        self._session = session
        self._toolbox = toolbox
        self._instructions = instructions
        self._asking: set[asyncio.Task[AssistantItem]] = set()
        self._stopped: set[asyncio.Task[AssistantItem]] = set()
        self._is_closed = False

    async def ask(self, question: str, model: Model) -> AssistantItem:
        """The reply of the model; its `stop` is `aborted` if the question was stopped. Raises
        ModelError, and LoopError if a gate forbids the call, or the session is closed meanwhile."""
        asking = asyncio.get_running_loop().create_task(self._ask(question, model))
        self._asking.add(asking)
        try:
            return await asking
        except asyncio.CancelledError:
            if self._is_closed:
                raise LoopError("the session was closed before the answer came") from None
            if asking in self._stopped:  # before it was sent
                return _make_stopped_reply(model.name, NO_USAGE)
            raise
        finally:
            self._asking.discard(asking)
            self._stopped.discard(asking)

    def stop(self) -> bool:
        """Stop what is being asked; False if there is nothing."""
        for asking in self._asking:
            self._stopped.add(asking)
            asking.cancel()
        return bool(self._asking)

    async def aclose(self) -> None:
        """Cancel what is being asked; its usage is recorded while the log is open."""
        self._is_closed = True
        await cancel_all(list(self._asking))

    async def _ask(self, question: str, model: Model) -> AssistantItem:
        silent = Emitter((), self._session.id, self._config.name)
        caller = ModelCaller(
            model,
            silent,
            self._config.clock,
            self._config.retry,
            is_taken_id=self._session.has_call_id,
            on_call=lambda call: None,
            repair=lambda call: call,
            on_quarantine=lambda part: None,
            interruption=Interruption(),
        )
        request = await self._build_request(question)
        while True:
            reply = await self._call(caller, request, Gates(self._config.gates, silent))
            if isinstance(reply, AssistantItem):
                return reply

    async def _build_request(self, question: str) -> ModelRequest:
        if not self._session.is_turn_running:
            self._toolbox.refresh()
        text = QUESTION_TEMPLATE.format(question=question)
        system, state = await self._instructions.read(), self._session.state
        transcript = _answer_open_calls(state.transcript, state.early_results)
        return ModelRequest(
            transcript.append(UserItem((Text(text),))),
            system,
            self._toolbox.specs,
            self._config.options,
            self._config.cache,
            state.quarantine,
            self._session.id,
            idempotency_key=f"{self._session.id}/side/{os.urandom(8).hex()}",
            caller=self._config.caller,
        )

    async def _call(
        self, caller: ModelCaller, request: ModelRequest, gates: Gates
    ) -> AssistantItem | RetryWithBudget:
        """One attempt; its usage is recorded, also that of a failed one."""
        card, options = caller.model.card, request.options
        last = request.transcript[-1]
        assert isinstance(last, UserItem), "the question is the last item"
        texts = estimate_text_chars(request.system) + estimate_text_chars(last.text)
        chars = self._session.chars + texts + self._toolbox.spec_chars
        most = options.max_tokens or card.default_output or card.max_output
        stop, admitted = gates.admit(self._session.estimate_request(card, chars, most))
        if stop is not None:
            gates.settle(NO_USAGE)
            raise LoopError(f"the side question is not asked: {stop.detail or stop.reason}")
        if admitted.max_output is not None:
            options = msgspec.structs.replace(options, max_tokens=admitted.max_output)
            request = msgspec.structs.replace(request, options=options)
        used = NO_USAGE
        try:
            reply = await caller.call(request)
            if isinstance(reply, AssistantItem):
                used = reply.usage
            return reply
        except asyncio.CancelledError:
            if asyncio.current_task() not in self._stopped:
                raise
            used = caller.take_lost_usage()
            return _make_stopped_reply(caller.last_model_name, used)
        finally:
            used = used + caller.take_lost_usage()
            gates.settle(used)
            self._session.add_usage(caller.last_model_name, used, "side_question")


def _make_stopped_reply(model: str, used: Usage) -> AssistantItem:
    return AssistantItem((), "aborted", model, used)


def _answer_open_calls(
    transcript: Transcript, early_results: dict[str, ToolResultItem]
) -> Transcript:
    """A lawful transcript, also in the middle of a tool round."""
    move = pending(transcript)
    for call in move.calls if isinstance(move, RunTools) else ():
        running = ToolResultItem(call.id, call.name, (Text(STILL_RUNNING),))
        transcript = transcript.append(early_results.get(call.id, running))
    return transcript

"""A question beside the conversation: the model sees the view and answers; nothing else changes.

The request is the next one of the session with the question at its end, so that the cached prefix
is read. The reply enters neither the transcript nor the events; the gateway admits and counts it.
It may be asked while a turn runs. Used by driver.py.
"""

from __future__ import annotations

import asyncio

from treadle.core.contracts.model import ModelRequest
from treadle.core.errors import EmptyReply, LoopError
from treadle.core.loop.model_gateway import ModelGateway, build_aside_request
from treadle.core.loop.parts import DriverParts
from treadle.core.transcript.content import Text
from treadle.core.transcript.items import AssistantItem, ToolResultItem, UserItem
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import NO_USAGE, Usage
from treadle.lib.tasks import cancel_all

STILL_RUNNING = "(still running)"
QUESTION_TEMPLATE = """\
This is a side question of the user. Answer it now from what you know, briefly, and call no tool. \
Neither the question nor your answer will be part of the conversation, and the work is not changed \
by it.

{question}"""


class SideQuestions:
    def __init__(self, parts: DriverParts, gateway: ModelGateway) -> None:
        self._parts = parts
        self._gateway = gateway
        self.asking: set[asyncio.Task[AssistantItem]] = set()
        self._stopped: set[asyncio.Task[AssistantItem]] = set()
        self._is_closed = False

    async def ask(self, question: str) -> AssistantItem:
        """The reply of the model; its `stop` is `aborted` if the question was stopped. Raises
        ModelError, EmptyReply if it has no text, and LoopError if a gate forbids the
        call, or the session is closed meanwhile."""
        asking = asyncio.get_running_loop().create_task(self._ask(question))
        self.asking.add(asking)
        try:
            return await asking
        except asyncio.CancelledError:
            if self._is_closed:
                raise LoopError("the session was closed before the answer came") from None
            if asking in self._stopped:  # before it was sent
                return _make_stopped_reply(self._gateway.model.name, NO_USAGE)
            raise
        finally:
            self.asking.discard(asking)
            self._stopped.discard(asking)

    def stop(self) -> bool:
        """Stop what is being asked; False if there is nothing."""
        for asking in self.asking:
            self._stopped.add(asking)
            asking.cancel()
        return bool(self.asking)

    async def aclose(self) -> None:
        """Cancel what is being asked; its usage is recorded while the log is open."""
        self._is_closed = True
        await cancel_all(list(self.asking))

    async def _ask(self, question: str) -> AssistantItem:
        request, model = await self._build_request(question), self._gateway.model
        settled: list[Usage] = []
        try:
            reply = await self._gateway.call(request, "side_question", model, settled.append)
        except asyncio.CancelledError:
            if asyncio.current_task() not in self._stopped:
                raise
            return _make_stopped_reply(model.name, sum(settled, NO_USAGE))
        if not reply.text.strip():
            what = "it called a tool" if reply.calls else "its reply is empty"
            problem = f"{reply.model or model.name} did not answer the side question: {what}"
            raise EmptyReply(f"{problem}. Send the question as a message.", provider=model.name)
        return reply

    async def _build_request(self, question: str) -> ModelRequest:
        parts, state = self._parts, self._parts.session.state
        if not parts.session.is_turn_running:
            parts.toolbox.refresh()
        asked = UserItem((Text(QUESTION_TEMPLATE.format(question=question)),))
        system = await parts.instructions.read()
        transcript = _answer_open_calls(state.transcript, state.early_results)
        return build_aside_request(parts, system, transcript.append(asked))


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

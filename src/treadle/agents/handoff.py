"""A hand-off: another agent takes over the conversation, `agent.as_handoff("refunds", "Refunds.")`.

It is a tool of the agent that hands over. Its call runs the other agent as a child that begins with
the conversation so far (agent_tool.py), so budgets, usage, approvals, events and spans are those of
the run. What the other agent says is the answer of the run: the tool is also the gate that ends the
turn. The next messages of the session go to the other agent as well: `HandoffModel` calls the tool
with them and asks no model. Who has the conversation is read off the transcript. Made by agent.py.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from typing import get_args

import msgspec

from treadle.agents.child_agents import ChildAgents
from treadle.agents.child_tools.agent_tool import AgentTool
from treadle.agents.run import HANDOFF_KEY, find_handoff_answer
from treadle.agents.subagents import EARLY_KEY, ChildTask
from treadle.core.contracts.gate import Admit, BaseGate, RequestEstimate, Stop
from treadle.core.contracts.model import ModelEvent, ModelRequest, Reply
from treadle.core.contracts.tool import ToolContext, ToolOutput
from treadle.core.contracts.wrapped import WrappedModel
from treadle.core.errors import ConfigError
from treadle.core.transcript.content import ENGINE, Arguments, ToolCall
from treadle.core.transcript.items import (
    AssistantItem,
    Item,
    NoticeItem,
    ToolResultItem,
    UserItem,
)
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import NO_USAGE


class HandoffTool(AgentTool, BaseGate):
    """The tool that hands over, and the gate that ends the turn after it."""

    takes_over = True  # agent.py makes it a gate, too
    reads_size = False
    prompt_description = "what to do now; the other agent sees the conversation"

    @property
    def output_type(self) -> object:
        return self._agent._settings.output_type

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        """An agent that is stopped at a limit has not answered: the first one goes on."""
        output = await super().call(arguments, context)
        data = output.data or {}
        if EARLY_KEY in data:
            return output
        return msgspec.structs.replace(output, data={**data, HANDOFF_KEY: self.spec.name})

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        if find_handoff_answer(estimate.transcript) is None:
            return Admit()
        return Stop("end_turn", "Another agent has answered.")

    def _make_task(self, arguments: Arguments, context: ToolContext) -> ChildTask:
        """The agent that took over before goes on; else one begins with the conversation."""
        items, name, prompt = context.history(), self.spec.name, str(arguments["prompt"])
        children: ChildAgents = context.children
        results = [item for item in items if isinstance(item, ToolResultItem)]
        earlier = [one.call_id for one in results if (one.data or {}).get(HANDOFF_KEY) == name]
        if earlier and (children.is_stored or children.get_kept(earlier[0]) is not None):
            return ChildTask(self._definition, name, prompt, earlier[0], is_continued=True)
        before = _cut_before(items, context.call_id)
        return ChildTask(self._definition, name, prompt, context.call_id, history=before)


def check_outputs(handoffs: Sequence[HandoffTool], wanted: object) -> None:
    """ConfigError if another agent answers with another type than the agent that hands over."""
    for tool in handoffs:
        given = tool.output_type
        if wanted is str or given == wanted or given in get_args(wanted):
            continue
        own, other = (getattr(kind, "__name__", repr(kind)) for kind in (wanted, given))
        raise ConfigError(
            f"hand-off {tool.spec.name!r}: its agent answers with {other}, and output_type of this "
            f"agent is {own}; give that agent output_type={own}"
        )


class HandoffModel(WrappedModel):
    """The model of an agent with hand-offs: a message to an agent that has taken over is passed on
    to it without a request."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        offered = {tool.name for tool in request.tools}
        name, message = _find_receiver(request.transcript)
        if name not in offered:
            async for event in self._model.stream(request):
                yield event
            return
        raw = msgspec.json.encode({"prompt": message}).decode()
        call = ToolCall(f"handoff_{os.urandom(8).hex()}", name, raw, by=ENGINE)
        yield Reply(AssistantItem((call,), "tool_use", self.name, NO_USAGE))


def _find_receiver(transcript: Sequence[Item]) -> tuple[str, str]:
    """The hand-off tool whose agent has the conversation, and the message for it; "" if none."""
    messages: list[str] = []
    for item in reversed(transcript):
        if isinstance(item, UserItem):
            messages.insert(0, item.text)
        elif isinstance(item, ToolResultItem) and messages:
            data = item.data or {}
            return str(data.get(HANDOFF_KEY, "")), "\n\n".join(messages)
        elif not isinstance(item, NoticeItem):
            break
    return "", ""


def _cut_before(items: Sequence[Item], call_id: str) -> Transcript:
    """The conversation before the reply with this call."""
    for index, item in enumerate(items):
        if isinstance(item, AssistantItem) and any(call.id == call_id for call in item.calls):
            return Transcript(items[:index])
    return Transcript(items)

"""Sampling: an MCP server asks for a reply of the model, during a call of one of its tools.

It is judged like a call of `mcp__SERVER__sampling`, so rules and modes apply; where the policy
asks, the user sees the prompt and may edit it. The reply is a turn of an agent without tools that
shares the budget of the session; its events reach the parent's observers. Used by coding_agent.py.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from itertools import count

import msgspec

from treadle.agents.agent import Agent
from treadle.agents.child_agents import ChildAgents
from treadle.agents.subagents import EventRelay
from treadle.core.contracts.gate import Gate
from treadle.core.contracts.model import Model, ModelOptions
from treadle.core.contracts.policy import Allow, Deny, PermissionRequest, Policy
from treadle.core.contracts.tool import Preview, ToolContext, ToolSpec
from treadle.core.errors import ToolError
from treadle.core.steps import ApprovalCallbacks, ApprovalRequest, PendingApproval
from treadle.core.transcript import AssistantItem, Item, Text, ToolCall, UserItem
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.entries import DecidedBy
from treadle.tools.mcp.client_options import SamplingMessage, SamplingReply, SamplingRequest
from treadle.tools.mcp.tool import sanitize_server_name

_numbers = count(1)


class PolicySampler:
    """Replies to servers, as the policy and the user allow."""

    def __init__(self, model: Model, policy: Policy, gates: Sequence[Gate]) -> None:
        self._model, self._policy, self._gates = model, policy, tuple(gates)

    async def __call__(
        self, request: SamplingRequest, context: ToolContext | None
    ) -> SamplingReply:
        if context is None:
            raise ToolError("a reply of the model can be had only during a call of a tool")
        if not request.messages or request.messages[-1].role != "user":
            raise ToolError("the last message has to be one of the user")
        prompt = await self._decide(request, context)
        return await self._run(request, prompt, context)

    async def _decide(self, request: SamplingRequest, context: ToolContext) -> str:
        """The prompt as the user agreed to it; ToolError if it is denied."""
        arguments = {
            "content": request.messages[-1].text,
            "system_prompt": request.system_prompt,
            "earlier_messages": len(request.messages) - 1,
            "max_tokens": request.max_tokens,
        }
        name = f"mcp__{sanitize_server_name(request.server)}__sampling"
        call_id = f"{context.call_id}-sampling-{next(_numbers)}"
        spec = ToolSpec(name, "A reply of the model for the server.", {"type": "object"})
        summary = f"[{name}: a reply of the model for the server {request.server}]"
        asked = PermissionRequest(context.session_id, call_id, spec, arguments, summary)
        verdict = await self._policy.decide(asked)
        if isinstance(verdict, Allow):
            return request.messages[-1].text
        if isinstance(verdict, Deny):
            raise ToolError(f"the user does not allow sampling: {verdict.reason}")
        call = ToolCall(call_id, name, msgspec.json.encode(arguments).decode())
        shown = "\n\n".join(filter(None, [request.system_prompt, request.messages[-1].text]))
        pending = PendingApproval(
            call,
            summary,
            verdict.reason,
            verdict.rules,
            Preview("text", shown),
            session_id=context.session_id,
        )
        decision = _Decision(pending)
        await context.ask_host(decision.request)
        if decision.denial:
            raise ToolError(f"the user does not allow sampling: {decision.denial}")
        if decision.is_always:
            await self._policy.save_rules(asked, verdict.rules)
        return str((decision.arguments or arguments)["content"])

    async def _run(
        self, request: SamplingRequest, prompt: str, context: ToolContext
    ) -> SamplingReply:
        last = request.messages[-1]
        unchanged = prompt == last.text
        agent = Agent(
            self._model,
            instructions=request.system_prompt,
            max_turns=1,
            gates=self._gates,
            options=ModelOptions(
                max_tokens=request.max_tokens or None, temperature=request.temperature
            ),
            name="sampling",
            role="sampling",
            caller="child",
            parent_ids=(context.session_id,),
        )
        agent.config = msgspec.structs.replace(agent.config, purpose="sampling")
        store = None
        if isinstance(context.children, ChildAgents):
            own_id = f"{context.call_id}-{os.urandom(4).hex()}"  # a call may ask several times
            store = await context.children.open_store(context.session_id, own_id)
        driver = agent.start(
            list(last.content) if unchanged else prompt,
            history=[_convert_message(message) for message in request.messages[:-1]],
            store=store,
        )
        driver.watch(EventRelay(context.relay_event))
        try:
            turn = await agent.finish_turn(driver, context.ask_host)
        finally:
            await driver.aclose()
        if turn.error is not None or turn.reason != "end_turn":
            raise ToolError(f"there is no reply of the model: {turn.error or turn.reason}")
        return SamplingReply(turn.text, self._model.name)


def _convert_message(message: SamplingMessage) -> Item:
    if message.role == "user":
        return UserItem(message.content)
    return AssistantItem((Text(message.text),))


class _Decision:
    """An approval request of one call, and how it was answered."""

    def __init__(self, pending: PendingApproval) -> None:
        self._call_id = pending.call.id
        self._done = asyncio.Event()
        self.arguments: Arguments | None = None
        self.denial = ""
        self.is_always = False
        callbacks = ApprovalCallbacks(self._approve, self._deny, self._pending_ids)
        self.request = ApprovalRequest((pending,), callbacks)

    def _approve(self, call_id: str, arguments: Arguments | None, always: bool) -> bool:
        if not self._is_open(call_id):
            return False
        self.arguments, self.is_always = arguments, always
        self._done.set()
        return True

    def _deny(self, call_id: str, reason: str, decided_by: DecidedBy) -> bool:
        if not self._is_open(call_id):
            return False
        self.denial = reason or "the user said no"
        self._done.set()
        return True

    def _is_open(self, call_id: str) -> bool:
        return call_id == self._call_id and not self._done.is_set()

    def _pending_ids(self) -> tuple[str, ...]:
        return () if self._done.is_set() else (self._call_id,)

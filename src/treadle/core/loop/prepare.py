"""Before a call is carried out: lookup, parse, validate, and who decides whether it may happen.

Nothing runs here. What is wrong with a call is its answer; what nobody has decided yet is asked.
Above stands tool_round.py, which carries out what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.core.contracts.hook import Block, Permit
from treadle.core.contracts.policy import Ask, Deny, PermissionRequest, Policy, Verdict
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.tool import ForwardingTool, Tool, ToolSpec
from treadle.core.events import Notified, ToolsChanged, WarningRaised
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.hooks import Hooks
from treadle.core.loop.tool_runner import error_text
from treadle.core.steps import PendingApproval
from treadle.core.transcript.content import Arguments, ToolCall, parse_arguments
from treadle.core.transcript.entries import ApprovalDecision, Intent
from treadle.core.transcript.items import ToolResultItem


class PreparedCall(msgspec.Struct, frozen=True):
    """A call that was looked at: either ready to run, or already answered by `refusal`."""

    call: ToolCall
    tool: Tool | None = None
    arguments: Arguments = {}
    summary: str = ""
    refusal: str | None = None
    rerun_refusal: str | None = None  # why it may not be run now, if it was not before a crash
    early_result: ToolResultItem | None = None  # it ended before a crash, and waits for its place


class CallPreparer:
    """Looks at calls, and asks who has to decide."""

    def __init__(self, policy: Policy, emitter: Emitter, toolbox: Toolbox, hooks: Hooks) -> None:
        self._policy = policy
        self._emitter = emitter
        self._toolbox = toolbox
        self._hooks = hooks

    async def prepare(
        self,
        calls: Sequence[ToolCall],
        decisions: dict[str, ApprovalDecision],
        intents: dict[str, Intent],
        early_results: dict[str, ToolResultItem],
    ) -> tuple[list[PreparedCall], list[PendingApproval]]:
        """Look at every call, and at who must still be asked. Running it twice is harmless."""
        prepared: list[PreparedCall] = []
        asked: list[PendingApproval] = []
        for call in calls:
            if call.id in early_results:
                prepared.append(PreparedCall(call, early_result=early_results[call.id]))
                continue
            ruling, intent = decisions.get(call.id), intents.get(call.id)
            ready = self.validate(call, ruling)
            if ready.refusal is None and intent is None:
                ready = await self._authorize(ready, ruling, asked)
            elif ready.refusal is None and intent is not None and intent.effect == "verifiable":
                ready = await self._authorize_after_crash(ready, ruling)
            prepared.append(ready)
        return prepared, asked

    def validate(self, call: ToolCall, decision: ApprovalDecision | None) -> PreparedCall:
        """Lookup, parse, validate."""
        tool = self._toolbox.find(call.name)
        if tool is None:
            return PreparedCall(call, refusal=self._toolbox.unknown_tool_error(call.name))
        edited = decision.raw if decision is not None else None
        parsed = call.parsed if edited is None else parse_arguments(edited)
        if isinstance(parsed, str):
            return PreparedCall(call, tool, refusal=f"error: {parsed}. Nothing was run.")
        if hasattr(tool, "target") and isinstance(tool, ForwardingTool):
            meant = tool.target(parsed)
            if isinstance(meant, str):
                return PreparedCall(call, tool, refusal=f"error: {meant}")
            tool, parsed = meant
        return check_arguments(call, tool, parsed)

    async def _authorize(
        self,
        prepared: PreparedCall,
        decision: ApprovalDecision | None,
        pending_approvals: list[PendingApproval],
    ) -> PreparedCall:
        """Decide, or note that somebody has to."""
        if decision is not None and decision.decision == "deny":
            return msgspec.structs.replace(prepared, refusal=f"denied: {decision.reason}")
        verdict = await self.decide(prepared)
        if isinstance(verdict, Deny):
            return msgspec.structs.replace(prepared, refusal=f"denied: {verdict.reason}")
        if isinstance(verdict, Ask) and decision is None:
            answers = await self._hooks.run("permission_request", hook_data(prepared))
            if answers and isinstance(answers[-1], Block):
                return msgspec.structs.replace(prepared, refusal=f"denied: {answers[-1].reason}")
            if not (answers and isinstance(answers[-1], Permit)):
                pending_approvals.append(
                    PendingApproval(
                        prepared.call,
                        prepared.summary,
                        verdict.reason,
                        verdict.rules,
                        verdict.kind,
                    )
                )
        if isinstance(verdict, Ask) and decision is not None and decision.always:
            await self._save_rules(prepared, decision, verdict.rules)
        return prepared

    async def _authorize_after_crash(
        self, prepared: PreparedCall, decision: ApprovalDecision | None
    ) -> PreparedCall:
        """It may have happened before a crash. If it did not: may it happen now?"""
        asked: list[PendingApproval] = []
        judged = await self._authorize(prepared, decision, asked)
        objection = judged.refusal or (f"denied: {asked[0].reason}" if asked else None)
        return msgspec.structs.replace(prepared, rerun_refusal=objection)

    async def _save_rules(
        self, prepared: PreparedCall, decision: ApprovalDecision, rules: tuple[str, ...]
    ) -> None:
        if decision.raw is not None and parse_arguments(decision.raw) != prepared.call.arguments:
            text = f"no rule was saved for {prepared.summary}: it was edited after they were shown"
            self._emitter.emit(Notified, text)
            return
        try:
            await self._policy.save_rules(self._permission_request(prepared), rules)
        except Exception as error:  # noqa: BLE001 - the call is allowed all the same
            self._emitter.emit(WarningRaised, f"the rule could not be saved: {error_text(error)}")

    async def decide(self, prepared: PreparedCall) -> Verdict:
        try:
            return await self._policy.decide(self._permission_request(prepared))
        except Exception as error:  # noqa: BLE001 - becomes the call's answer
            return Deny(f"the policy failed ({type(error).__name__}: {error})")

    def _permission_request(self, prepared: PreparedCall) -> PermissionRequest:
        assert prepared.tool is not None, "only calls of known tools are judged"
        return PermissionRequest(
            self._emitter.session_id,
            prepared.call.id,
            prepared.tool.spec,
            prepared.arguments,
            prepared.summary,
        )


def check_arguments(call: ToolCall, tool: Tool, arguments: Arguments) -> PreparedCall:
    """The call with these arguments, if the tool can do something with them."""
    try:
        problem = tool.check(arguments)
        summary = tool.summary(arguments)
    except Exception as error:  # noqa: BLE001 - becomes the call's answer
        problem, summary = f"{type(error).__name__}: {error}", ""
    if problem is not None:
        return PreparedCall(call, tool, arguments, refusal=f"error: {problem}")
    return PreparedCall(call, tool, arguments, summary)


def hook_data(prepared: PreparedCall) -> dict[str, Any]:
    return {
        "tool_name": prepared.tool.spec.name if prepared.tool is not None else prepared.call.name,
        "tool_input": prepared.arguments,
        "call_id": prepared.call.id,
        "summary": prepared.summary,
    }


class Toolbox:
    def __init__(self, source: ToolSource, emitter: Emitter) -> None:
        self._source = source
        self._emitter = emitter
        self._source_tools: Sequence[Tool] | None = None
        self._by_name: dict[str, Tool] = {}
        self.specs: tuple[ToolSpec, ...] = ()
        self.spec_chars = 0

    def refresh(self) -> None:
        """Look at the source again; tell if something came or went."""
        tools = self._source.tools()
        if tools is self._source_tools:
            return
        before, is_first = self._by_name, self._source_tools is None
        self._source_tools = tools
        self._by_name = {tool.spec.name: tool for tool in tools}
        self.specs = tuple([tool.spec for tool in self._by_name.values()])
        self.spec_chars = sum(
            len(spec.name) + len(spec.description) + len(msgspec.json.encode(spec.schema))
            for spec in self.specs
        )
        added = tuple(name for name in self._by_name if name not in before)
        removed = tuple(name for name in before if name not in self._by_name)
        if not is_first and (added or removed):
            self._emitter.emit(ToolsChanged, added, removed)

    def find(self, name: str) -> Tool | None:
        return self._by_name.get(name)

    def unknown_tool_error(self, name: str) -> str:
        """What to tell a model that called for a tool which is not there."""
        from difflib import get_close_matches  # rarely needed

        close = get_close_matches(name.lower(), list(self._by_name), n=1, cutoff=0.6)
        hint = f"; did you mean `{close[0]}`?" if close else ""
        return f"error: unknown tool `{name}`{hint}"

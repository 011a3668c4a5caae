"""Prepare: before a call runs. Look up the tool, parse and validate, ask policy and hooks.

    prepare         every call of a reply: validated, decided, or put up for approval
    apply_hooks     pre_tool_use hooks, right before a call runs

Runs no tool. What is wrong with a call is its result. Used by tool_round.py; then comes execute.py.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from treadle.core.contracts.hook import AddContext, Block, Change, Permit
from treadle.core.contracts.policy import (
    Allow,
    AllowAll,
    Ask,
    DefaultPolicy,
    Deny,
    PermissionRequest,
    Policy,
    Verdict,
    require_approval,
)
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.tool import (
    NO_ACCESS,
    Access,
    FileAccess,
    ForwardingTool,
    Preview,
    Tool,
    ToolContext,
    ToolSpec,
)
from treadle.core.errors import ConfigError, ToolError, WorkspaceError, error_text
from treadle.core.events import Notified, ToolsChanged, WarningRaised
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.hooks import Hooks
from treadle.core.loop.interruption import await_contained
from treadle.core.loop.previews import RoundPreviews
from treadle.core.steps import PendingApproval
from treadle.core.transcript.content import Arguments, ToolCall, parse_arguments
from treadle.core.transcript.entries import ApprovalDecision, Intent
from treadle.core.transcript.items import CallOutcome, NoticeItem, ToolResultItem
from treadle.core.transcript.size_estimate import estimate_text_chars
from treadle.core.transcript.state import SessionState
from treadle.lib.json.schema import list_arguments
from treadle.lib.text.text import suggest

MAX_LISTED_TOOLS = 40
FAILING_UNREADABLE = (
    "{name} would fail on {paths} as it is now, so the user was not asked. Why is not told: "
    "reading it needs the user's approval. Read it first, then make the change on what is there"
)


class Toolbox:
    """The tools of a source by their names, as they were before the last model call."""

    def __init__(self, source: ToolSource, emitter: Emitter) -> None:
        self._source = source
        self._emitter = emitter
        self._source_tools: Sequence[Tool] | None = None
        self._added: tuple[Tool, ...] = ()
        self._by_name: dict[str, Tool] = {}
        self.all_specs: tuple[ToolSpec, ...] = ()
        self.specs: tuple[ToolSpec, ...] = ()  # those that the model is told about
        self.spec_chars = 0

    def add_tools(self, tools: tuple[Tool, ...]) -> None:
        """Add these to those of the source, for the turns that come; no event tells of them."""
        if tools != self._added:
            self._added, self._source_tools = tools, None

    def refresh(self) -> None:
        """Read the source again; emit an event if tools came or went."""
        tools = self._source.tools()
        if tools is self._source_tools:
            return
        before, is_first = self._by_name, self._source_tools is None
        self._source_tools = tools
        self._by_name = {tool.spec.name: tool for tool in tools}
        for tool in self._added:
            if self._by_name.setdefault(tool.spec.name, tool) is not tool:
                raise ConfigError(f"two tools are named {tool.spec.name!r}; rename your own")
        self.all_specs = tuple([tool.spec for tool in self._by_name.values()])
        self.specs = tuple([spec for spec in self.all_specs if not spec.unlisted])
        for spec in self.all_specs:
            schema: object = spec.schema
            if not isinstance(schema, dict):
                problem = f"its schema is {schema!r:.80}; it must be a dict"
                raise ConfigError(f"tool {spec.name!r}: {problem}")
        self.spec_chars = estimate_spec_chars(self.specs)
        added = tuple(name for name in self._by_name if name not in before)
        removed = tuple(name for name in before if name not in self._by_name)
        if not is_first and (added or removed):
            self._emitter.emit(ToolsChanged, added, removed)

    def find(self, name: str) -> Tool | None:
        """The tool of this name, also one that a tool of the list forwards to."""
        tool = self._by_name.get(name)
        if tool is not None:
            return tool
        forwards = (getattr(other, "find_target", None) for other in self._by_name.values())
        return next((found for find in forwards if find and (found := find(name))), None)

    def unknown_tool_error(self, name: str) -> str:
        names = [spec.name for spec in self.specs]
        near = suggest(name, names)
        hint = f"; did you mean `{near}`?" if near else "."
        more = f" and {len(names) - MAX_LISTED_TOOLS} more" if len(names) > MAX_LISTED_TOOLS else ""
        listed = f" The tools are {', '.join(names[:MAX_LISTED_TOOLS])}{more}." if names else ""
        return f"error: unknown tool `{name}`{hint}{listed}"


def estimate_spec_chars(specs: Sequence[ToolSpec]) -> int:
    """What the definitions of these tools add to a request."""
    return sum(
        len(spec.name)
        + estimate_text_chars(spec.description)
        + len(msgspec.json.encode(spec.schema))
        for spec in specs
        if not spec.deferred
    )


class PreparedCall(msgspec.Struct, frozen=True):
    """A call that was validated: ready to run, or already answered by `refusal`.

    refusal        why it does not run, in words for the model; `refusal_outcome` is its outcome
    rerun_refusal  why it may not run now, if it turns out that it did not run before a crash
    early_result   it ended before a crash, and its result waits for its place
    intent         an earlier process was about to run it
    """

    call: ToolCall
    tool: Tool | None = None
    arguments: Arguments = {}
    summary: str = ""
    access: Access = NO_ACCESS
    refusal: str | None = None
    refusal_outcome: CallOutcome = "finished"
    rerun_refusal: str | None = None
    early_result: ToolResultItem | None = None
    intent: Intent | None = None

    def denied(self, reason: str) -> PreparedCall:
        return msgspec.structs.replace(self, refusal=f"denied: {reason}", refusal_outcome="denied")


class CallPreparer:
    """Validates calls and finds out who has to decide about them."""

    def __init__(
        self,
        policy: Policy,
        emitter: Emitter,
        toolbox: Toolbox,
        hooks: Hooks,
        on_notice: Callable[[NoticeItem], object],
        make_context: Callable[[PreparedCall], ToolContext],
    ) -> None:
        self._make_context = make_context
        self._policy = policy
        self._emitter = emitter
        self._toolbox = toolbox
        self._hooks = hooks
        self._on_notice = on_notice
        # By call id: what the policy and the hooks said. None: a hook has permitted the call.
        self.asked: dict[str, tuple[Arguments, PendingApproval | None]] = {}

    async def prepare(
        self, calls: Sequence[ToolCall], state: SessionState
    ) -> tuple[list[PreparedCall], list[PendingApproval]]:
        """Every call, and the approvals that are still needed. May be repeated."""
        prepared: list[PreparedCall] = []
        approvals: list[PendingApproval] = []
        previews = RoundPreviews(self._make_context, self._emitter)
        for call in calls:
            if call.id in state.early_results:
                prepared.append(PreparedCall(call, early_result=state.early_results[call.id]))
                continue
            decision, intent = state.decisions.get(call.id), state.intents.get(call.id)
            ready = self.validate(call, decision)
            if intent is not None and intent.is_assumed and ready.tool is not None:
                intent = _assume_effect(intent, ready.tool.spec)
            if intent is not None:
                ready = msgspec.structs.replace(ready, intent=intent)
            if ready.refusal is None and intent is None:
                ready = await self._authorize(ready, decision, approvals, previews)
            elif ready.refusal is None and intent is not None and intent.effect == "verifiable":
                ready = await self._authorize_after_crash(ready, decision)
            if ready.refusal is None:
                previews.add_earlier(ready)
            prepared.append(ready)
        return prepared, approvals

    def validate(self, call: ToolCall, decision: ApprovalDecision | None = None) -> PreparedCall:
        """Look up the tool, parse the arguments (the user's, if edited), check them."""
        tool = self._toolbox.find(call.name)
        if tool is None:
            return PreparedCall(call, refusal=self._toolbox.unknown_tool_error(call.name))
        edited = decision.raw if decision is not None else None
        parsed = call.parsed if edited is None else parse_arguments(edited)
        if isinstance(parsed, str):
            expected = list_arguments(tool.spec.name, tool.spec.schema)
            return PreparedCall(call, tool, refusal=f"error: {parsed}. {expected} Nothing was run.")
        if hasattr(tool, "target") and isinstance(tool, ForwardingTool):
            target = tool.target(parsed)
            if isinstance(target, str):
                return PreparedCall(call, tool, refusal=f"error: {target}")
            tool, parsed = target
        return self._check(call, tool, parsed)

    async def decide(self, prepared: PreparedCall) -> Verdict:
        """The verdict on a call: of the policy, and of a tool that needs an approval."""
        assert prepared.tool is not None, "only calls of known tools are decided"
        return require_approval(await self._ask_policy(prepared), prepared.tool.spec)

    async def _ask_policy(self, prepared: PreparedCall) -> Verdict:
        """The policy's verdict. A policy that fails denies."""
        if type(self._policy) is AllowAll:
            return Allow()  # without a task
        if type(self._policy) is DefaultPolicy and prepared.tool is not None:
            return self._policy.judge(prepared.tool.spec)
        name = type(self._policy).__name__
        try:
            work: object = self._policy.decide(self._permission_request(prepared))
            if not inspect.isawaitable(work):
                return self._deny_failed(f"{name}.decide must be `async def`")
            verdict: object = await await_contained(work, "the policy", self._emitter)
        except Exception as error:  # noqa: BLE001 - becomes the call's result
            return self._deny_failed(error_text(error))
        if isinstance(verdict, Verdict):
            return verdict
        return self._deny_failed(f"{name} returned {verdict!r:.80}; expected Allow, Deny or Ask")

    def _deny_failed(self, problem: str) -> Deny:
        self._emitter.emit(WarningRaised, f"the policy failed, and the call is denied: {problem}")
        return Deny(f"the policy failed ({problem})")

    async def apply_hooks(self, prepared: PreparedCall) -> PreparedCall:
        """A hook may deny, add context, or change the arguments; changed ones are decided again."""
        tool, is_changed = prepared.tool, False
        for answer in await self._hooks.run("pre_tool_use", hook_data(prepared)):
            match answer:
                case Block(reason=reason):
                    return prepared.denied(reason)
                case Change(arguments=arguments) if arguments is not None and tool is not None:
                    prepared, is_changed = self._check(prepared.call, tool, arguments), True
                case AddContext(text=text):
                    self._on_notice(NoticeItem(text, kind="hook"))
        if not is_changed or prepared.refusal is not None:
            return prepared
        verdict = await self.decide(prepared)
        if isinstance(verdict, Allow):
            return prepared
        problem = f"error: a hook changed the call into one that is not allowed: {verdict.reason}"
        return msgspec.structs.replace(prepared, refusal=problem, refusal_outcome="denied")

    async def recheck(self, prepared: PreparedCall) -> PreparedCall:
        """Decide again if the call now touches something else, as in another folder."""
        assert prepared.tool is not None, "only calls of known tools are run"
        again = self._check(prepared.call, prepared.tool, prepared.arguments)
        if again.refusal is not None or again.access == prepared.access:
            return again
        verdict = await self.decide(again)
        return again if isinstance(verdict, Allow) else again.denied(verdict.reason)

    def _check(self, call: ToolCall, tool: Tool, arguments: Arguments) -> PreparedCall:
        try:
            problem = tool.check(arguments)
            summary = tool.summary(arguments)
        except Exception as error:  # noqa: BLE001 - becomes the call's result
            problem, summary = error_text(error), ""
        access: object = None
        if problem is None:
            try:
                access = tool.access(arguments, self._emitter.session_id)
                problem = _find_wrong_access(access)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the same
                problem = error_text(error)
            if problem is not None:
                problem = f"{tool.spec.name} was not run, because its `access` failed: {problem}"
        if problem is not None or not isinstance(access, Access):
            return PreparedCall(call, tool, arguments, refusal=f"error: {problem}")
        return PreparedCall(call, tool, arguments, summary, access)

    async def _authorize(
        self,
        prepared: PreparedCall,
        decision: ApprovalDecision | None,
        approvals: list[PendingApproval],
        previews: RoundPreviews | None = None,
    ) -> PreparedCall:
        """Decide, or add the call to the approvals that are needed, unless it would fail."""
        if decision is not None and decision.decision == "deny":
            return prepared.denied(decision.reason)
        arguments, asked = self.asked.get(prepared.call.id, (None, None))
        if arguments is not None and arguments == prepared.arguments:
            if asked is None or decision is None:
                approvals += [asked] if asked is not None else []
            elif decision.always:
                await self._save_rules(prepared, decision, asked.rules)
            return prepared
        verdict = await self.decide(prepared)
        if isinstance(verdict, Deny):
            return prepared.denied(verdict.reason)
        if isinstance(verdict, Allow):
            return prepared
        if decision is not None:
            if decision.always:
                await self._save_rules(prepared, decision, verdict.rules)
            return prepared
        try:
            shown = await previews.preview(prepared) if previews is not None else None
        except ToolError as error:
            return await self._refuse_failing(prepared, error)
        answers = await self._hooks.run("permission_request", hook_data(prepared))
        if answers and isinstance(answers[-1], Block):
            return prepared.denied(answers[-1].reason)
        if answers and isinstance(answers[-1], Permit):
            self.asked[prepared.call.id] = prepared.arguments, None
            return prepared
        asked = _pending_approval(prepared, verdict, shown, self._emitter.session_id)
        self.asked[prepared.call.id] = prepared.arguments, asked
        approvals.append(asked)
        return prepared

    async def _refuse_failing(self, prepared: PreparedCall, error: ToolError) -> PreparedCall:
        """A call that would fail gets its error, which may quote the files: only if the policy lets
        them be read."""
        assert prepared.tool is not None, "only calls of known tools are decided"
        access, spec, text = prepared.access, prepared.tool.spec, error_text(error)
        cause = error.__cause__
        is_outside = isinstance(cause, WorkspaceError) and cause.kind == "outside"  # quotes no file
        if (
            access.files and not is_outside and type(self._policy) is not DefaultPolicy
        ):  # that one lets all be read
            reads = tuple(FileAccess(file.path) for file in access.files)
            reading = msgspec.structs.replace(
                prepared, access=msgspec.structs.replace(access, files=reads)
            )
            if not isinstance(await self._ask_policy(reading), Allow):
                paths = ", ".join(file.path for file in access.files)
                text = FAILING_UNREADABLE.format(name=spec.name, paths=paths)
        return msgspec.structs.replace(prepared, refusal=f"error: {text}")

    async def _authorize_after_crash(
        self, prepared: PreparedCall, decision: ApprovalDecision | None
    ) -> PreparedCall:
        """The call may have run before a crash. If it did not: may it run now?"""
        approvals: list[PendingApproval] = []
        decided = await self._authorize(prepared, decision, approvals)
        refusal = decided.refusal or (f"denied: {approvals[0].reason}" if approvals else None)
        return msgspec.structs.replace(prepared, rerun_refusal=refusal)

    async def _save_rules(
        self, prepared: PreparedCall, decision: ApprovalDecision, rules: tuple[str, ...]
    ) -> None:
        if decision.raw is not None and parse_arguments(decision.raw) != prepared.call.arguments:
            text = f"no rule was saved for {prepared.summary}: the call was edited"
            self._emitter.emit(Notified, text)
            return
        try:
            request = self._permission_request(prepared)
            work = self._policy.save_rules(request, rules)
            await await_contained(work, "the policy", self._emitter)
        except Exception as error:  # noqa: BLE001 - the call is allowed all the same
            self._emitter.emit(WarningRaised, f"the rule could not be saved: {error_text(error)}")

    def _permission_request(self, prepared: PreparedCall) -> PermissionRequest:
        assert prepared.tool is not None, "only calls of known tools are decided"
        return PermissionRequest(
            self._emitter.session_id,
            prepared.call.id,
            prepared.tool.spec,
            prepared.arguments,
            prepared.summary,
            prepared.access,
        )


def _find_wrong_access(access: object) -> str | None:
    """Why a policy and the order of calls cannot use what a tool says that it touches."""
    if access is NO_ACCESS or access == NO_ACCESS:
        return None
    if not isinstance(access, Access):
        return f"it returned {access!r:.80}, not an Access"
    given: Any = access  # its fields may be anything, whatever its type says
    for name, keys in (("reads", given.reads), ("writes", given.writes)):
        if not isinstance(keys, frozenset | set) or not all(isinstance(key, str) for key in keys):
            return f"{name} is {keys!r:.80}, not a frozenset of texts"
    if not isinstance(given.files, tuple) or not all(map(_is_file_access, given.files)):
        return f"files is {given.files!r:.80}, not a tuple of FileAccess"
    for name, text in (("command", given.command), ("url", given.url), ("cwd", given.cwd)):
        if not isinstance(text, str) and (text is not None or name == "cwd"):
            return f"{name} is {text!r:.80}, not a text"
    return None


def _is_file_access(file: object) -> bool:
    return isinstance(file, FileAccess) and isinstance(file.path, str)


def _assume_effect(intent: Intent, spec: ToolSpec) -> Intent | None:
    """An assumed intent with the effect of its tool; None if the call may be repeated."""
    return None if spec.effect == "pure" else msgspec.structs.replace(intent, effect=spec.effect)


def _pending_approval(
    prepared: PreparedCall, ask: Ask, shown: Preview | None, session_id: str
) -> PendingApproval:
    return PendingApproval(
        prepared.call,
        prepared.summary,
        ask.reason,
        ask.rules,
        shown,
        prepared.access,
        kind=ask.kind,
        session_id=session_id,
        risks=ask.risks,
        wider_mode=ask.wider_mode,
    )


def hook_data(prepared: PreparedCall) -> dict[str, Any]:
    """What hooks see of a call."""
    return {
        "tool_name": prepared.tool.spec.name if prepared.tool is not None else prepared.call.name,
        "tool_input": prepared.arguments,
        "call_id": prepared.call.id,
        "summary": prepared.summary,
        "access": prepared.access,
    }

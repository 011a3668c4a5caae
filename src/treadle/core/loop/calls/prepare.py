"""Prepare: before a call runs. Look up the tool, parse and validate, ask policy and hooks.

    prepare         every call of a reply: validated, decided, or put up for approval
    RoundPreviews   what the calls would do, shown to the user who has to approve them
    apply_hooks     pre_tool_use hooks, right before a call runs

Runs no tool. What is wrong with a call is its result. Used by tool_round.py; then comes execute.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from treadle.core.contracts.hook import AddContext, Block, Change, Permit
from treadle.core.contracts.policy import (
    Allow,
    AllowAll,
    DefaultPolicy,
    Deny,
    PermissionRequest,
    Verdict,
    require_approval,
)
from treadle.core.contracts.tool import (
    NO_ACCESS,
    Access,
    FileAccess,
    ForwardingTool,
    Preview,
    Tool,
    ToolContext,
)
from treadle.core.errors import ToolError, TreadleError, WorkspaceError, error_text
from treadle.core.events import Notified, WarningRaised
from treadle.core.loop.calls.tool_runner import FAULT_TEXT
from treadle.core.loop.parts import DriverParts
from treadle.core.steps import PendingApproval
from treadle.core.transcript.content import Arguments, ToolCall, parse_arguments
from treadle.core.transcript.entries import ApprovalDecision, Intent
from treadle.core.transcript.items import CallOutcome, NoticeItem, ToolResultItem
from treadle.core.transcript.state import SessionState
from treadle.lib.contained import call_contained
from treadle.lib.json.schema import list_arguments

T = TypeVar("T")

POLICY_TIMEOUT = 600.0  # seconds; the call is denied after it
FAILING_UNREADABLE = (
    "{name} would fail on {paths} as it is now, so the user was not asked. Why is not told: "
    "reading it needs the user's approval. Read it first, then make the change on what is there"
)


class PreparedCall(msgspec.Struct, frozen=True):
    """A call that was validated: ready to run, or already answered by `refusal`.

    refusal        why it does not run, in words for the model; `refusal_outcome` is its outcome
    rerun_refusal  why it may not run now, if it turns out that it did not run before a crash
    early_result   it ended before a crash, and its result waits for its place
    intent         an earlier process was about to run it
    allowed_by     why the policy allowed it without asking
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
    allowed_by: str = ""

    def allowed(self, verdict: Allow) -> PreparedCall:
        is_new = verdict.reason != self.allowed_by
        return msgspec.structs.replace(self, allowed_by=verdict.reason) if is_new else self

    def denied(self, reason: str) -> PreparedCall:
        return msgspec.structs.replace(self, refusal=f"denied: {reason}", refusal_outcome="denied")


class CallPreparer:
    """Validates calls and finds out who has to decide about them."""

    def __init__(
        self, parts: DriverParts, make_context: Callable[[PreparedCall], ToolContext]
    ) -> None:
        self._parts = parts
        self._policy, self._emitter = parts.config.policy, parts.emitter
        self._toolbox, self._hooks = parts.toolbox, parts.hooks
        self._make_context = make_context
        self._previews: RoundPreviews | None = None  # of the round that is prepared
        # By call id: what the policy and the hooks said. None: a hook has permitted the call.
        self.asked: dict[str, tuple[Arguments, PendingApproval | None]] = {}
        self.faults: dict[str, Exception] = {}  # by call id: of a `check`, `access` or `preview`

    async def prepare(
        self, calls: Sequence[ToolCall], state: SessionState
    ) -> tuple[list[PreparedCall], list[PendingApproval]]:
        """Every call, and the approvals that are still needed. May be repeated."""
        prepared: list[PreparedCall] = []
        approvals: list[PendingApproval] = []
        self._previews = None
        for call in calls:
            if call.id in state.early_results:
                prepared.append(PreparedCall(call, early_result=state.early_results[call.id]))
                continue
            decision, intent = state.decisions.get(call.id), state.intents.get(call.id)
            ready = self.validate(call, decision)
            if intent is not None and intent.is_assumed and ready.tool is not None:
                effect = ready.tool.spec.effect
                is_pure = effect == "pure"  # it may be repeated
                intent = None if is_pure else msgspec.structs.replace(intent, effect=effect)
            if intent is not None:
                ready = msgspec.structs.replace(ready, intent=intent)
            if ready.refusal is None and intent is None:
                ready = await self._authorize(ready, decision, approvals, prepared)
            elif ready.refusal is None and intent is not None and intent.effect == "verifiable":
                ready = await self._authorize_after_crash(ready, decision)
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
            try:
                target = call_contained(tool.target, parsed)
            except Exception as error:  # noqa: BLE001 - becomes the call's result
                target = error_text(error)
            if isinstance(target, str):
                return PreparedCall(call, tool, refusal=f"error: {target}")
            tool, parsed = target
        return self._check(call, tool, parsed)

    async def decide(self, prepared: PreparedCall) -> Verdict:
        """The verdict on a call: of the policy, and of a call that needs an approval."""
        assert prepared.tool is not None, "only calls of known tools are decided"
        call, spec = prepared.call, prepared.tool.spec
        guesses = call.repaired if call.is_guessed else ""
        return require_approval(await self._ask_policy(prepared), spec, guesses)

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
            verdict: object = await self._contain_policy(work)
        except Exception as error:  # noqa: BLE001 - becomes the call's result
            return self._deny_failed(error_text(error))
        if isinstance(verdict, Verdict):
            return verdict
        return self._deny_failed(f"{name} returned {verdict!r:.80}; expected Allow, Deny or Ask")

    def _contain_policy(self, work: Awaitable[T]) -> Awaitable[T]:
        return self._emitter.await_contained(work, "the policy", POLICY_TIMEOUT)

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
                    self._parts.inbox.put(NoticeItem(text, kind="hook"))
        if not is_changed or prepared.refusal is not None:
            return prepared
        verdict = await self.decide(prepared)
        if isinstance(verdict, Allow):
            return prepared.allowed(verdict)
        problem = f"error: a hook changed the call into one that is not allowed: {verdict.reason}"
        return msgspec.structs.replace(prepared, refusal=problem, refusal_outcome="denied")

    async def recheck(self, prepared: PreparedCall) -> PreparedCall:
        """Decide again if the call now touches something else, as in another folder."""
        assert prepared.tool is not None, "only calls of known tools are run"
        again = self._check(prepared.call, prepared.tool, prepared.arguments)
        if again.refusal is not None or again.access == prepared.access:
            return msgspec.structs.replace(again, allowed_by=prepared.allowed_by)
        verdict = await self.decide(again)
        if isinstance(verdict, Allow):
            return again.allowed(verdict)
        return again.denied(verdict.reason)

    def _check(self, call: ToolCall, tool: Tool, arguments: Arguments) -> PreparedCall:
        part, problem, summary, access = "check", None, "", NO_ACCESS
        try:
            problem = call_contained(tool.check, arguments)
            if problem is None:
                part = "summary"
                summary = call_contained(tool.summary, arguments)
                part = "access"
                access = call_contained(tool.access, arguments, self._emitter.session_id)
                _require_access(access)
        except Exception as error:  # noqa: BLE001 - becomes the call's result
            problem = error_text(error)
            if self._note_fault(call.id, error):
                who = f"{tool.spec.name} was not run: its `{part}`"
                problem = FAULT_TEXT.format(name=who, kind=type(error).__name__)
        if problem is not None:
            return PreparedCall(call, tool, arguments, refusal=f"error: {problem}")
        return PreparedCall(call, tool, arguments, summary, access)

    def _note_fault(self, call_id: str, error: Exception) -> bool:
        """Keep what the code of a tool raised for the call's result, unless it is an error for the
        model."""
        if isinstance(error, (TreadleError, TimeoutError)):
            return False
        self.faults[call_id] = error
        return True

    async def _authorize(
        self,
        prepared: PreparedCall,
        decision: ApprovalDecision | None,
        approvals: list[PendingApproval],
        earlier: Sequence[PreparedCall] | None = None,
    ) -> PreparedCall:
        """Decide, or add the call to the approvals that are needed, unless it would fail; `earlier`
        are the calls before it, for a preview."""
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
            return prepared.allowed(verdict)
        if decision is not None:
            if decision.always:
                await self._save_rules(prepared, decision, verdict.rules)
            return prepared
        shown: Preview | None = None
        if earlier is not None:
            if self._previews is None:
                self._previews = RoundPreviews(self._parts, self._make_context, self._note_fault)
            try:
                shown = await self._previews.preview(prepared, earlier)
            except ToolError as error:
                return await self._refuse_failing(prepared, error)
        answers = await self._hooks.run("permission_request", hook_data(prepared))
        if answers and isinstance(answers[-1], Block):
            return prepared.denied(answers[-1].reason)
        if answers and isinstance(answers[-1], Permit):
            self.asked[prepared.call.id] = prepared.arguments, None
            return prepared
        asked = PendingApproval(
            prepared.call,
            prepared.summary,
            verdict.reason,
            verdict.rules,
            shown,
            prepared.access,
            kind=verdict.kind,
            session_id=self._emitter.session_id,
            risks=verdict.risks,
            wider_mode=verdict.wider_mode,
        )
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
            await self._contain_policy(self._policy.save_rules(request, rules))
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
            self._hooks.call_model,
            self._parts.config.deps,
        )


class RoundPreviews:
    """The previews of one round. Each sees the files as the earlier calls of the round will leave
    them. Its ToolError says that the call would fail: such a call is not put up for approval."""

    def __init__(
        self,
        parts: DriverParts,
        make_context: Callable[[PreparedCall], ToolContext],
        note_fault: Callable[[str, Exception], bool],
    ) -> None:
        self._parts = parts
        self._make_context, self._note_fault = make_context, note_fault
        self._looked_at = 0  # of the earlier calls
        self._shown: dict[str, Preview | None] = {}  # by call id
        self._planned_files: dict[str, bytes | None] = {}
        self._read_keys: set[str] = set()
        self._is_anything_changed = False  # by a command, or by a tool that does not say what

    async def preview(
        self, prepared: PreparedCall, earlier: Sequence[PreparedCall]
    ) -> Preview | None:
        """What the call would do. ToolError: it would fail, whatever the earlier calls do."""
        for one in earlier[self._looked_at :]:
            if one.refusal is None and one.early_result is None:
                await self._plan(one)
        self._looked_at = len(earlier)
        try:
            shown = self._shown[prepared.call.id] = await self._run_preview(prepared)
        except ToolError as error:
            if not self._may_change(prepared):
                raise
            return Preview("text", f"This call would fail as things are now: {error}")
        except Exception as error:  # noqa: BLE001 - the user decides without it
            self._note_fault(prepared.call.id, error)
            return Preview("text", f"no preview: {error_text(error)}")
        return msgspec.structs.replace(shown, files={}) if shown is not None else None

    def _may_change(self, prepared: PreparedCall) -> bool:
        """Whether an earlier call can change what the preview of this one depends on."""
        keys = prepared.access.reads | prepared.access.writes
        return self._is_anything_changed or not self._read_keys.isdisjoint(keys)

    async def _plan(self, prepared: PreparedCall) -> None:
        """Remember what a call will do to files."""
        access, tool = prepared.access, prepared.tool
        self._read_keys |= access.reads
        if tool is None or tool.spec.effect == "pure":
            return
        shown = self._shown.get(prepared.call.id)
        try:
            shown = shown or await self._run_preview(prepared)
        except Exception as error:  # noqa: BLE001 - its own approval or result tells what is wrong
            self._note_fault(prepared.call.id, error)
        if shown is not None and shown.files:
            self._planned_files |= shown.files
        else:
            self._is_anything_changed = True

    async def _run_preview(self, prepared: PreparedCall) -> Preview | None:
        assert prepared.tool is not None, "only calls of known tools are shown"
        context = msgspec.structs.replace(
            self._make_context(prepared), planned_files=dict(self._planned_files)
        )
        spec, work = prepared.tool.spec, prepared.tool.preview(prepared.arguments, context)
        timeout = self._parts.config.get_timeout(spec)
        who = f"the preview of {spec.name}"
        return await self._parts.emitter.await_contained(work, who, timeout)


def _require_access(access: object) -> None:
    """TypeError if a policy and the order of calls cannot use what a tool says that it touches."""
    if access is NO_ACCESS or access == NO_ACCESS:
        return
    if not isinstance(access, Access):
        raise TypeError(f"it returned {access!r:.80}, not an Access")
    given: Any = access  # its fields may be anything, whatever its type says
    for name, keys in (("reads", given.reads), ("writes", given.writes)):
        if not isinstance(keys, frozenset | set) or not all(isinstance(key, str) for key in keys):
            raise TypeError(f"{name} is {keys!r:.80}, not a frozenset of texts")
    if not isinstance(given.files, tuple) or not all(map(_is_file_access, given.files)):
        raise TypeError(f"files is {given.files!r:.80}, not a tuple of FileAccess")
    for name, text in (("command", given.command), ("url", given.url), ("cwd", given.cwd)):
        if not isinstance(text, str) and (text is not None or name == "cwd"):
            raise TypeError(f"{name} is {text!r:.80}, not a text")


def _is_file_access(file: object) -> bool:
    return isinstance(file, FileAccess) and isinstance(file.path, str)


def hook_data(prepared: PreparedCall) -> dict[str, Any]:
    """What hooks see of a call."""
    return {
        "tool_name": prepared.tool.spec.name if prepared.tool is not None else prepared.call.name,
        "tool_input": prepared.arguments,
        "call_id": prepared.call.id,
        "summary": prepared.summary,
        "access": prepared.access,
    }

"""Execute: run one prepared call, and give its output.

    execute   evidence -> before_effect hooks -> intent -> the tool -> post_tool_use hooks
    recover   an earlier process may have run it: probe, and say what is known

Nothing but cancellation leaves here as an exception. Before it: prepare.py. After it: the result is
finalized in tool_round.py. How a tool is stopped and timed out is tool_runner.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import Any

import msgspec

from treadle.core.contracts.hook import AddContext, Change
from treadle.core.contracts.tool import ProbeResult, Tool, ToolContext, ToolOutput
from treadle.core.errors import error_text
from treadle.core.events import (
    ChildEvent,
    Event,
    ToolProgress,
    ToolStarted,
    UsageUpdated,
    preview,
    unwrap,
)
from treadle.core.loop.calls.prepare import PreparedCall, hook_data
from treadle.core.loop.calls.tool_runner import RunResult, ToolRunner
from treadle.core.loop.parts import DriverParts
from treadle.core.steps import ApprovalRequest
from treadle.core.transcript.content import parse_arguments
from treadle.core.transcript.entries import Intent
from treadle.core.transcript.items import NoticeItem
from treadle.lib.json.strict_json import to_json_object

MAX_PROGRESS_CHARS = 4_000


def ignore_detach() -> None:
    """`ToolContext.detach` of a call that cannot continue in the background."""


class CallExecutor:
    def __init__(
        self,
        parts: DriverParts,
        runner: ToolRunner,
        ask_host: Callable[[str, ApprovalRequest], Awaitable[None]],
    ) -> None:
        self._ask_host = ask_host
        self._is_stopping = parts.interruption.is_stopping
        self._config, self._emitter, self._hooks = parts.config, parts.emitter, parts.hooks
        self._tasks, self._session, self._inbox = parts.tasks, parts.session, parts.inbox
        self._runner = runner
        self._started: set[str] = set()  # ids of calls without an answer
        self._progress: dict[str, str] = {}  # of these calls

    def forget_started(self) -> None:
        """Every call has its answer."""
        self._started.clear()
        self._progress.clear()

    def has_started(self, call_id: str) -> bool:
        """Whether the tool of this open call was run."""
        return call_id in self._started

    async def execute(
        self, prepared: PreparedCall, detach: Callable[[], None] = ignore_detach
    ) -> RunResult:
        tool, call = prepared.tool, prepared.call
        assert tool is not None, "a call without a tool is refused before"
        context, spec = self.make_context(prepared, detach), tool.spec
        if spec.effect != "pure":
            problem = await self._before_effect(prepared, tool, context)
            if problem is not None:
                return RunResult(ToolOutput(f"error: {problem}", is_error=True))
        self._started.add(call.id)
        # The tool's own context: what an observer sets in it, such as a span, the tool sees.
        variables = copy_context()
        started = (call.id, call.name, prepared.summary, spec.kind)
        variables.run(self._emitter.emit, ToolStarted, *started)
        timeout = self._config.get_timeout(spec)
        result = await self._runner.run(tool, prepared.arguments, context, timeout, variables)
        if self._hooks.has("post_tool_use"):
            return await self._run_post_hooks(prepared, result)
        return result

    async def recover(self, prepared: PreparedCall, intent: Intent) -> RunResult | None:
        """What became of a call that an earlier process was about to run; None if it did not."""
        arguments = f" with {preview(intent.raw)}" if intent.raw is not None else ""
        evidence = f"{intent.tool} was about to run{arguments}"
        if intent.is_assumed:
            evidence = f"the session log is damaged at this call; {intent.tool} may have run"
        if intent.effect == "verifiable" and prepared.tool is not None and prepared.refusal is None:
            work, who = self._probe(prepared.tool, prepared, intent), f"the probe of {intent.tool}"
            try:
                timeout = self._config.get_timeout(prepared.tool.spec)
                probe = await self._emitter.await_contained(work, who, timeout)
            except Exception as error:  # noqa: BLE001 - becomes the call's result
                probe = ProbeResult("unknown", f"the check failed: {error_text(error)}")
            if probe.outcome == "not_done":
                return None
            if probe.outcome == "done":
                text = f"Done before an interruption. {probe.evidence}"
                return RunResult(ToolOutput(text), "recovered")
            evidence = probe.evidence
        text = f"Interrupted, outcome unknown. Evidence: {evidence}"
        return RunResult(ToolOutput(text, is_error=True), "unknown")

    def make_context(
        self, prepared: PreparedCall, detach: Callable[[], None] = ignore_detach
    ) -> ToolContext:
        config, session_id, turn_id = self._config, self._emitter.session_id, self._emitter.turn_id
        turn, call_id = self._session.state.turn, prepared.call.id
        return ToolContext(
            session_id,
            turn_id,
            call_id,
            f"{session_id}/{turn.key if turn is not None else turn_id}/{call_id}",
            partial(self._report_progress, call_id),
            detach,
            partial(self._relay_event, call_id, getattr(prepared.tool, "takes_over", False)),
            config.workspace,
            self._tasks,
            config.services,
            lambda: self._session.state.full_history,
            prepared.access,
            partial(self._is_cancelled, call_id),
            partial(self._ask_host, call_id),
            config.deps,
            children=config.children,
            metadata=turn.metadata if turn is not None else {},
            usage=self._session.state.usage,
            view=lambda: self._session.state.transcript,
        )

    # --- what a tool asks of the loop while it runs ----------------------------------------

    def _report_progress(self, call_id: str, text: str) -> None:
        if call_id not in self._runner.abandoned:
            self._emitter.emit(ToolProgress, call_id, text)
            self._progress[call_id] = (self.get_progress(call_id) + text)[-MAX_PROGRESS_CHARS:]
            self._tasks.append_output(call_id, text)

    def get_progress(self, call_id: str) -> str:
        """The end of what a call has told of its progress: all that an interruption leaves."""
        return self._progress.get(call_id, "")

    def _relay_event(self, call_id: str, takes_over: bool, event: Event) -> None:
        if isinstance(update := unwrap(event), UsageUpdated):
            self._session.add_child_usage(update.session_id, update.model, update.last)
        if call_id not in self._runner.abandoned:
            self._emitter.emit(ChildEvent, call_id, event, takes_over)

    def _is_cancelled(self, call_id: str) -> bool:
        """Whether the call is being stopped; one in the background is not."""
        if self._is_stopping():
            return call_id in self._session.open_call_ids
        return call_id in self._runner.abandoned

    # --- before and after the tool ---------------------------------------------------------

    async def _before_effect(
        self, prepared: PreparedCall, tool: Tool, context: ToolContext
    ) -> str | None:
        """Run the before_effect hooks and log the intent; what went wrong, if something did. A call
        whose evidence fails has no effect, and runs no hook."""
        config, evidence = self._config, dict[str, Any]()
        raw: str | None = None
        try:
            if prepared.arguments != prepared.call.arguments:
                raw = msgspec.json.encode(prepared.arguments).decode()
            if tool.spec.effect == "verifiable":
                work = tool.evidence(prepared.arguments, context)
                who, timeout = f"the evidence of {tool.spec.name}", config.get_timeout(tool.spec)
                seen = await self._emitter.await_contained(work, who, timeout)
                evidence = to_json_object(seen)
        except Exception as error:  # noqa: BLE001 - becomes the call's result
            return error_text(error)
        if self._hooks.has("before_effect"):
            await self._hooks.run("before_effect", hook_data(prepared))
        await self._session.record_intent(
            Intent(
                prepared.call.id,
                tool.spec.name,
                context.idempotency_key,
                tool.spec.effect,
                evidence,
                raw,
                allowed_by=prepared.allowed_by,
            )
        )
        return None

    async def _probe(self, tool: Tool, prepared: PreparedCall, intent: Intent) -> ProbeResult:
        """Probe for what was really run, even if an edit or a hook would change the call now."""
        arguments = prepared.arguments if intent.raw is None else parse_arguments(intent.raw)
        if isinstance(arguments, str):
            return ProbeResult("unknown", f"its arguments cannot be read: {arguments}")
        context, evidence = self.make_context(prepared), intent.evidence
        if intent.is_assumed:
            evidence = await tool.evidence(arguments, context)
        return await tool.probe(arguments, evidence, context)

    async def _run_post_hooks(self, prepared: PreparedCall, result: RunResult) -> RunResult:
        output = result.output
        data = {**hook_data(prepared), "tool_response": output.text, "is_error": output.is_error}
        for answer in await self._hooks.run("post_tool_use", data):
            match answer:
                case Change(text=new) if new is not None:
                    output = msgspec.structs.replace(output, content=new)
                case AddContext(text=text):
                    self._inbox.put(NoticeItem(text, kind="hook"))
        return result if output is result.output else RunResult(output, result.outcome)

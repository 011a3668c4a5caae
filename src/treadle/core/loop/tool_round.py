"""One tool round: hook, run, cap, answer, once prepare.py has looked, checked and decided.

Whatever goes wrong with a call becomes its result; nothing but cancellation leaves here as an
exception. Safe calls run beside each other by resource, the others in order, and the answers
come in the model's order. A call with an effect has its intent in the log before it starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from treadle.core.contracts.hook import AddContext, Block, Change
from treadle.core.contracts.policy import Allow, Ask, Deny
from treadle.core.contracts.tool import ProbeResult, Tool, ToolContext, ToolOutput
from treadle.core.events import (
    ChildEvent,
    Event,
    ToolDetached,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    WarningRaised,
    preview,
)
from treadle.core.loop.background import RUNNING_TEXT, BackgroundTasks, cancel_all
from treadle.core.loop.config import DriverConfig
from treadle.core.loop.eager import EagerCalls
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.hooks import Hooks
from treadle.core.loop.prepare import (
    CallPreparer,
    PreparedCall,
    Toolbox,
    check_arguments,
    hook_data,
)
from treadle.core.loop.scheduler import ScheduledCall, run_calls
from treadle.core.loop.tool_runner import ToolRunner, error_text
from treadle.core.loop.truncation import truncate
from treadle.core.steps import PendingApproval
from treadle.core.transcript.content import Text, ToolCall, parse_arguments
from treadle.core.transcript.entries import ApprovalDecision, Intent
from treadle.core.transcript.integrity import make_interrupted_result
from treadle.core.transcript.items import NoticeItem, ToolResultItem
from treadle.core.transcript.transcript import Transcript

INTERRUPTED_CALL = "Interrupted by the user before it finished; its effect may be incomplete."
ABANDONED_CALL = (
    "Interrupted by the user, outcome unknown: it did not stop and may still be going on."
)


class ToolRound:
    """Carries out the calls of a reply."""

    def __init__(
        self,
        config: DriverConfig,
        emitter: Emitter,
        toolbox: Toolbox,
        hooks: Hooks,
        tasks: BackgroundTasks,
        record_intent: Callable[[Intent], Awaitable[None]],
        on_notice: Callable[[NoticeItem], None],
        history: Callable[[], Transcript],
    ) -> None:
        self._history = history
        self._config = config
        self._emitter = emitter
        self._toolbox = toolbox
        self._hooks = hooks
        self._preparer = CallPreparer(config.policy, emitter, toolbox, hooks)
        self._runner = ToolRunner(emitter)
        self._tasks = tasks
        self._record_intent = record_intent
        self._on_notice = on_notice
        self.eager = EagerCalls(toolbox, hooks, config.max_parallel, self._run_eagerly)

    async def aclose(self) -> None:
        """Nothing that was started here goes on, as far as that can be had."""
        await self.eager.cancel_started()
        await self._runner.aclose()

    # --- before anything happens ---------------------------------------------------------

    def prepare(
        self,
        calls: Sequence[ToolCall],
        decisions: dict[str, ApprovalDecision],
        intents: dict[str, Intent],
        early_results: dict[str, ToolResultItem],
    ) -> Awaitable[tuple[list[PreparedCall], list[PendingApproval]]]:
        """Look at every call, and at who must still be asked. Running it twice is harmless."""
        self.eager.cancel_scheduled()
        return self._preparer.prepare(calls, decisions, intents, early_results)

    # --- the round -----------------------------------------------------------------------

    async def run(
        self,
        prepared: Sequence[PreparedCall],
        intents: dict[str, Intent],
        on_result: Callable[[ToolResultItem], None],
        on_early_result: Callable[[ToolResultItem], None],
    ) -> None:
        """Answer every call. `on_result` gets the answers in the model's order, `on_early` one
        that came before its turn."""
        if len(prepared) == 1:
            on_result(await self._answer_call(prepared[0], intents))
            return
        slots = [
            ScheduledCall(partial(self._answer_call, ready, intents), *_call_access(ready))
            for ready in prepared
        ]
        await run_calls(slots, self._config.max_parallel, on_result, on_early_result)

    def answer_interrupted(self, call: ToolCall) -> ToolResultItem:
        """The answer to a call that the user interrupted."""
        output = self._runner.take_late_output(call.id)
        if output is not None:
            return self._finish_call(PreparedCall(call), output)
        return make_interrupted_result(
            call, ABANDONED_CALL if self._runner.is_abandoned(call.id) else INTERRUPTED_CALL
        )

    async def _answer_call(
        self, prepared: PreparedCall, intents: dict[str, Intent]
    ) -> ToolResultItem:
        if prepared.early_result is not None:
            return prepared.early_result
        intent = intents.get(prepared.call.id)
        if intent is not None:
            concluded = await self._resolve_intent(prepared, intent)
            if concluded is not None:
                return concluded
            if prepared.rerun_refusal is not None:
                text = f"{prepared.rerun_refusal} It was not done before the interruption."
                return self._finish_call(prepared, ToolOutput(text, is_error=True))
        if prepared.refusal is not None:
            await asyncio.sleep(0)  # others get a turn, also from a model that calls for nonsense
            return self._finish_call(prepared, ToolOutput(prepared.refusal, is_error=True))
        result = await self.eager.take_result(prepared.call)
        if result is not None:
            return self._with_call_id(result, prepared)
        if self._hooks.has("pre_tool_use"):
            prepared = await self._run_pre_hooks(prepared)
            if prepared.refusal is not None:
                return self._finish_call(prepared, ToolOutput(prepared.refusal, is_error=True))
        assert prepared.tool is not None, "a call without a tool is refused before"
        if prepared.tool.spec.detachable:
            return await self._run_detachable(prepared, prepared.tool.spec.detach_after)
        return await self._execute(prepared, _ignore_detach)

    async def _run_eagerly(self, call: ToolCall) -> ToolResultItem | None:
        """Run it now if nobody has to be asked; what is wrong with it is told at its turn."""
        prepared = self._preparer.validate(call, None)
        if prepared.refusal is not None:
            return None
        if not isinstance(await self._preparer.decide(prepared), Allow):
            return None
        return await self._execute(prepared, _ignore_detach)

    async def _run_pre_hooks(self, prepared: PreparedCall) -> PreparedCall:
        """A hook may deny, add, or change the arguments; changed ones are judged again."""
        tool, changed = prepared.tool, False
        for answer in await self._hooks.run("pre_tool_use", hook_data(prepared)):
            match answer:
                case Block(reason=reason):
                    return msgspec.structs.replace(prepared, refusal=f"denied: {reason}")
                case Change(arguments=arguments) if arguments is not None and tool is not None:
                    prepared, changed = check_arguments(prepared.call, tool, arguments), True
                case AddContext(text=text):
                    self._on_notice(NoticeItem(text, kind="hook"))
        if changed and prepared.refusal is None:
            verdict = await self._preparer.decide(prepared)
            if isinstance(verdict, (Deny, Ask)):
                problem = f"a hook changed the call into one that is not allowed: {verdict.reason}"
                return msgspec.structs.replace(prepared, refusal=f"error: {problem}")
        return prepared

    async def _run_detachable(self, prepared: PreparedCall, after: float | None) -> ToolResultItem:
        self._tasks.start_capture(prepared.call)
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[None] = loop.create_future()

        def detach() -> None:
            if not asked.done():
                asked.set_result(None)

        work = loop.create_task(self._execute(prepared, detach))
        try:
            either: list[asyncio.Future[Any]] = [work, asked]
            await asyncio.wait(either, timeout=after, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._tasks.stop_capture(prepared.call)
            await cancel_all([work])
            raise
        if work.done():
            self._tasks.stop_capture(prepared.call)
            return work.result()
        task_id = self._tasks.add(prepared.call, prepared.summary, work)
        self._emitter.emit(ToolDetached, prepared.call.id, task_id)
        text = RUNNING_TEXT.format(id=task_id)
        return ToolResultItem(prepared.call.id, prepared.call.name, (Text(text),), display=text)

    async def _execute(self, prepared: PreparedCall, detach: Callable[[], None]) -> ToolResultItem:
        """Write down the intent, run, contain."""
        tool, call = prepared.tool, prepared.call
        assert tool is not None, "only calls of known tools are run"
        context = self._make_context(call, detach)
        if tool.spec.effect != "pure":
            refused = await self._write_intent(prepared, tool, context)
            if refused is not None:
                return self._finish_call(prepared, refused)
        self._emitter.emit(ToolStarted, call.id, call.name, prepared.summary)
        limit = tool.spec.timeout or self._config.tool_timeout
        output = await self._runner.run(tool, prepared.arguments, context, limit)
        if self._hooks.has("post_tool_use"):
            output = await self._run_post_hooks(prepared, output)
        return self._finish_call(prepared, output)

    async def _write_intent(
        self, prepared: PreparedCall, tool: Tool, context: ToolContext
    ) -> ToolOutput | None:
        evidence: dict[str, Any] = {}
        raw: str | None = None
        try:
            if prepared.arguments != prepared.call.arguments:
                raw = msgspec.json.encode(prepared.arguments).decode()
            if tool.spec.effect == "verifiable":
                evidence = await tool.evidence(prepared.arguments, context)
        except Exception as error:  # noqa: BLE001 - becomes the call's answer
            return ToolOutput(f"error: {error_text(error)}", is_error=True)
        await self._record_intent(
            Intent(
                prepared.call.id,
                tool.spec.name,
                context.idempotency_key,
                tool.spec.effect,
                evidence,
                raw,
            )
        )
        return None

    async def _resolve_intent(
        self, prepared: PreparedCall, intent: Intent
    ) -> ToolResultItem | None:
        """An earlier process meant to do this and may have: find out, or say so."""
        given = f" with {preview(intent.raw)}" if intent.raw is not None else ""
        evidence = f"{intent.tool} was about to run{given} (key {intent.idempotency_key})"
        if intent.effect == "verifiable" and prepared.tool is not None and prepared.refusal is None:
            try:
                probe = await self._probe(prepared.tool, prepared, intent)
            except Exception as error:  # noqa: BLE001 - becomes the call's answer
                evidence = f"the check failed: {error_text(error)}"
            else:
                if probe.outcome == "not_done":
                    return None
                if probe.outcome == "done":
                    text = f"Done before an interruption. {probe.evidence}"
                    return self._finish_call(prepared, ToolOutput(text))
                evidence = probe.evidence
        unsure = make_interrupted_result(
            prepared.call, f"Interrupted, outcome unknown. Evidence: {evidence}"
        )
        return self._finish_call(prepared, ToolOutput(unsure.text, is_error=True))

    async def _probe(self, tool: Tool, prepared: PreparedCall, intent: Intent) -> ProbeResult:
        """Look for what was really run, whatever the call or a hook would have it be by now."""
        arguments = prepared.arguments if intent.raw is None else parse_arguments(intent.raw)
        if isinstance(arguments, str):
            return ProbeResult("unknown", f"what it was run with cannot be read: {arguments}")
        return await tool.probe(
            arguments, intent.evidence, self._make_context(prepared.call, _ignore_detach)
        )

    async def _run_post_hooks(self, prepared: PreparedCall, output: ToolOutput) -> ToolOutput:
        text = output.content if isinstance(output.content, str) else ""
        data = {**hook_data(prepared), "tool_response": text, "is_error": output.is_error}
        for answer in await self._hooks.run("post_tool_use", data):
            match answer:
                case Change(text=new) if new is not None:
                    output = msgspec.structs.replace(output, content=new)
                case AddContext(text=text):
                    self._on_notice(NoticeItem(text, kind="hook"))
        return output

    def _make_context(self, call: ToolCall, detach: Callable[[], None]) -> ToolContext:
        equipment, teller, tasks = self._config, self._emitter, self._tasks

        def progress(text: str) -> None:
            if not self._runner.is_abandoned(call.id):
                teller.emit(ToolProgress, call.id, text)
                tasks.append_output(call.id, text)

        def relay(event: Event) -> None:
            if not self._runner.is_abandoned(call.id):
                teller.emit(ChildEvent, call.id, event)

        return ToolContext(
            teller.session_id,
            teller.turn_id,
            call.id,
            f"{teller.session_id}/{teller.turn_id}/{call.id}",
            progress,
            detach,
            relay,
            equipment.workspace,
            tasks,
            equipment.services,
            self._history,
        )

    def _finish_call(self, prepared: PreparedCall, output: ToolOutput) -> ToolResultItem:
        """Cap, tell, answer."""
        limit = self._config.max_result_chars
        if prepared.tool is not None:
            limit = min(limit, prepared.tool.spec.max_result_chars)
        keep = self._save_output if self._config.save_output is not None else None
        result = truncate(prepared.call, output, limit, keep)
        self._emit_finished(result)
        return result

    def _save_output(self, call_id: str, text: str) -> str:
        """Where the whole output is, or nothing if it could not be kept."""
        keep = self._config.save_output
        try:
            return keep(call_id, text) if keep is not None else ""
        except Exception as error:  # noqa: BLE001 - the beginning of it is an answer, too
            self._emitter.emit(
                WarningRaised, f"an output could not be kept whole: {error_text(error)}"
            )
            return ""

    def _with_call_id(self, result: ToolResultItem, prepared: PreparedCall) -> ToolResultItem:
        """The result of a call that started early, perhaps under the id of a broken attempt."""
        if result.call_id == prepared.call.id:
            return result
        result = msgspec.structs.replace(result, call_id=prepared.call.id)
        self._emitter.emit(ToolStarted, prepared.call.id, prepared.call.name, prepared.summary)
        self._emit_finished(result)
        return result

    def _emit_finished(self, result: ToolResultItem) -> None:
        self._emitter.emit(
            ToolFinished,
            result.call_id,
            result.name,
            preview(result.text),
            result.display,
            result.is_error,
            result.is_truncated,
        )


def _ignore_detach() -> None:
    """For calls that cannot go on in the background."""


def _call_access(prepared: PreparedCall) -> tuple[bool, frozenset[str], frozenset[str]]:
    """Whether it may run beside others, what it reads, what it writes."""
    if prepared.refusal is not None or prepared.tool is None:
        return True, frozenset(), frozenset()
    spec = prepared.tool.spec
    try:
        touched = prepared.tool.resources(prepared.arguments)
    except Exception:  # noqa: BLE001 - a tool's own code: in doubt it runs alone
        return False, frozenset(), frozenset()
    return spec.concurrent or spec.effect == "pure", touched.reads, touched.writes

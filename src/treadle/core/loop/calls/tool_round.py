"""One tool round: prepare every call, execute those that may run, finalize their results.

    prepare.py  ->  execute.py  ->  finalize (here: truncate, emit, result)

Whatever goes wrong with a call becomes its result; only cancellation leaves here as an exception.
Concurrent calls run beside each other by resource, the others in order; the results come in the
model's order. Used by driver.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from treadle.core.contracts.policy import Allow
from treadle.core.contracts.tool import ToolOutput
from treadle.core.errors import error_text
from treadle.core.events import (
    ToolDetached,
    ToolFault,
    ToolFinished,
    ToolStarted,
    WarningRaised,
    preview,
)
from treadle.core.loop.calls.background import RUNNING_TEXT
from treadle.core.loop.calls.eager import EagerCalls
from treadle.core.loop.calls.execute import CallExecutor
from treadle.core.loop.calls.prepare import CallPreparer, PreparedCall, hook_data
from treadle.core.loop.calls.tool_runner import MAY_BE_DONE, RunResult, ToolRunner
from treadle.core.loop.parts import DriverParts
from treadle.core.steps import ApprovalRequest, PendingApproval
from treadle.core.transcript.content import ResultContent, Text, ToolCall
from treadle.core.transcript.entries import EarlyResult
from treadle.core.transcript.integrity import make_interrupted_result
from treadle.core.transcript.items import (
    CallOutcome,
    ResultNote,
    ToolResultItem,
    join_text,
)
from treadle.lib.scheduler import Job, run_jobs
from treadle.lib.tasks import cancel_all, mark_done
from treadle.lib.text.text import fix_surrogates

T = TypeVar("T")

CANCELLED_CALL = "Cancelled by the user before it ran; nothing was done."
INTERRUPTED_CALL = "Interrupted by the user before it finished; its effect may be incomplete."
INTERRUPTED_EFFECT = f"Interrupted by the user before it finished, {MAY_BE_DONE}."
ABANDONED_CALL = (
    "Interrupted by the user, outcome unknown: it did not stop and may still be running."
)

REPAIRED_CALL = "[corrected: {repaired}]"
EDITED_CALL = "The user changed the arguments before the call ran: {arguments}\n"


class ToolRound:
    """Carries out the calls of a reply."""

    def __init__(
        self, parts: DriverParts, ask_host: Callable[[str, ApprovalRequest], Awaitable[None]]
    ) -> None:
        self._config, self._emitter, self._hooks = parts.config, parts.emitter, parts.hooks
        self._tasks, self._session = parts.tasks, parts.session
        self._runner = ToolRunner(parts.emitter, parts.interruption.is_stopping)
        self._executor = CallExecutor(parts, self._runner, ask_host)
        self._preparer = CallPreparer(parts, self._executor.make_context)
        self.eager = EagerCalls(parts, self._run_eagerly)
        self._detachable = set[asyncio.Future[None]]()  # those in the foreground
        self.fault: BaseException | None = None  # the first one of a tool in this round

    async def prepare(
        self, calls: Sequence[ToolCall]
    ) -> tuple[list[PreparedCall], list[PendingApproval]]:
        """Every call, and the approvals that are needed first. May be repeated."""
        self.eager.cancel_scheduled()
        return await self._preparer.prepare(calls, self._session.state)

    async def run(self, prepared: Sequence[PreparedCall]) -> tuple[ToolResultItem, ...]:
        """Answer every call. The results enter the transcript in the model's order; one that comes
        before its turn is in the log until then."""
        results: list[ToolResultItem] = []
        self.fault = None

        def add_result(result: ToolResultItem) -> None:
            results.append(result)
            self._session.append(result)

        def save_early(result: ToolResultItem) -> None:
            self._session.write(EarlyResult(result))

        reusable, eager = frozenset[str](), self.eager
        if eager.started:
            reusable = eager.find_reusable([ready.call for ready in prepared])
        if len(prepared) == 1:
            add_result(await self._answer(prepared[0], reusable))
        else:
            jobs = [
                Job(
                    partial(self._answer, ready, reusable),
                    _is_concurrent(ready),
                    ready.access.reads,
                    ready.access.writes,
                )
                for ready in prepared
            ]
            await run_jobs(jobs, self._config.max_parallel, add_result, save_early)
        if eager.started:
            await eager.cancel_started()
        self._executor.forget_started()
        self.forget_asked()
        return tuple(results)

    def answer_interrupted(self, call: ToolCall) -> ToolResultItem:
        """The result of a call that the user interrupted; a person sees what it told so far."""
        item = self._make_interrupted(call)
        if item.outcome != "interrupted" or item.display:
            return item
        return msgspec.structs.replace(item, display=self._executor.get_progress(call.id))

    def _make_interrupted(self, call: ToolCall) -> ToolResultItem:
        result = self._runner.take_late_result(call.id)
        if result is not None:
            return self._finalize(PreparedCall(call), result)
        if call.id in self._runner.abandoned:
            return make_interrupted_result(call, ABANDONED_CALL, "unknown")
        # An intent of an earlier process: that one may have run the call.
        is_old = call.id in self._session.old_intents
        if not is_old and not self._executor.has_started(call.id):
            return make_interrupted_result(call, CANCELLED_CALL)
        intent = self._session.state.intents.get(call.id)
        is_irreversible = intent is not None and intent.effect == "irreversible"
        return make_interrupted_result(
            call, INTERRUPTED_EFFECT if is_irreversible else INTERRUPTED_CALL
        )

    async def find_child_requests(
        self, prepared: Sequence[PreparedCall]
    ) -> list[tuple[str, ApprovalRequest]]:
        """What the child agents of interrupted calls wait for, each with the id of its call."""
        found: list[tuple[str, ApprovalRequest]] = []
        for ready in prepared:
            restore = getattr(ready.tool, "restore_approvals", None)
            if restore is None or ready.intent is None or ready.refusal is not None:
                continue
            context, who = self._executor.make_context(ready), f"the approvals of {ready.call.name}"
            try:
                work = restore(ready.arguments, context)
                requests = await self._emitter.await_contained(work, who)
            except Exception as error:  # noqa: BLE001 - the call itself tells it when it continues
                self._emitter.emit(WarningRaised, f"{who}: {error_text(error)}")
            else:
                found += [(ready.call.id, request) for request in requests]
        return found

    def forget_asked(self) -> None:
        """The round is over: what policy and hooks said about its calls is not needed."""
        self._preparer.asked.clear()
        self._preparer.faults.clear()

    @property
    def is_running(self) -> bool:
        """Whether a call runs that was started early, or that did not stop."""
        return bool(self.eager.started or self._runner.abandoned)

    async def aclose(self) -> None:
        """Stop what was started here; bounded in time."""
        await self.eager.cancel_started()
        await self._runner.aclose()

    # --- one call ------------------------------------------------------------------------

    async def _answer(self, prepared: PreparedCall, reusable: frozenset[str]) -> ToolResultItem:
        if prepared.early_result is not None:
            return prepared.early_result
        intent = prepared.intent
        if intent is not None:
            recovered = await self._executor.recover(prepared, intent)
            if recovered is not None:
                return self._finalize(prepared, recovered)
            if prepared.rerun_refusal is not None:
                text = f"{prepared.rerun_refusal} It was not done before the interruption."
                return self._finalize(
                    prepared, RunResult(ToolOutput(text, is_error=True), "denied")
                )
            prepared = await self._preparer.recheck(prepared)
        if prepared.refusal is None:
            started: ToolResultItem | None = None
            if prepared.call.id in reusable:
                started = await self.eager.take_result(prepared.call)
            if started is not None:
                return self._with_call_id(started, prepared)
            if self._hooks.has("pre_tool_use"):
                prepared = await self._preparer.apply_hooks(prepared)
        if prepared.refusal is not None:
            await asyncio.sleep(0)  # a model that only makes bad calls must not block other tasks
            if prepared.refusal_outcome == "denied" and self._hooks.has("permission_denied"):
                data = {**hook_data(prepared), "reason": prepared.refusal}
                await self._hooks.run("permission_denied", data)
            output = ToolOutput(prepared.refusal, is_error=True)
            return self._finalize(prepared, RunResult(output, prepared.refusal_outcome))
        if prepared.tool is not None and prepared.tool.spec.detachable:
            return await self._run_detachable(prepared, prepared.tool.spec.detach_after)
        return self._finalize(prepared, await self._executor.execute(prepared))

    async def _run_eagerly(self, call: ToolCall) -> ToolResultItem | None:
        """Run the call now if no approval is needed; what is wrong with it is reported later."""
        prepared = self._preparer.validate(call)
        if prepared.refusal is not None:
            return None
        if not isinstance(await self._preparer.decide(prepared), Allow):
            return None
        return self._finalize(prepared, await self._executor.execute(prepared))

    async def _run_detachable(
        self, prepared: PreparedCall, declared: float | None
    ) -> ToolResultItem:
        """Run the call until it ends, asks to be detached, or its time in the foreground is over.
        If the task manager fails, the call ends in the foreground."""
        call, ask, tasks = prepared.call, self._ask_task_manager, self._tasks
        after = ask(lambda: _check_seconds(tasks.foreground_seconds(call, declared)), declared)
        ask(lambda: tasks.start_capture(call), None)
        loop = asyncio.get_running_loop()
        detach_requested: asyncio.Future[None] = loop.create_future()
        self._detachable.add(detach_requested)

        async def run() -> ToolResultItem:
            detach = partial(mark_done, detach_requested)
            return self._finalize(prepared, await self._executor.execute(prepared, detach))

        work = loop.create_task(run())
        try:
            either: list[asyncio.Future[Any]] = [work, detach_requested]
            await asyncio.wait(either, timeout=after, return_when=asyncio.FIRST_COMPLETED)
            task_id = ""
            if not work.done():
                task_id = ask(lambda: tasks.add(call, prepared.summary, work), "")
            if not task_id and not work.done():
                await asyncio.wait([work])
        except asyncio.CancelledError:
            ask(lambda: tasks.stop_capture(call), None)
            await cancel_all([work])
            raise
        finally:
            self._detachable.discard(detach_requested)
        if not task_id:
            ask(lambda: tasks.stop_capture(call), None)
            return work.result()
        self._emitter.emit(ToolDetached, call.id, task_id)
        text = RUNNING_TEXT.format(id=task_id)
        data = {"task_id": task_id, "summary": prepared.summary}
        return ToolResultItem(call.id, call.name, (Text(text),), display=text, data=data)

    def detach(self) -> int:
        """Let the calls that can continue in the background do so; how many these are."""
        for request in self._detachable:
            mark_done(request)
        return len(self._detachable)

    def _ask_task_manager(self, ask: Callable[[], T], otherwise: T) -> T:
        """What the task manager answers. It may be code of others: if it fails, that is told, and
        the call goes on."""
        try:
            return ask()
        except Exception as error:  # noqa: BLE001 - a task manager may raise anything
            self._emitter.emit(WarningRaised, f"the task manager failed: {error_text(error)}")
            return otherwise

    # --- finalize ------------------------------------------------------------------------

    def _finalize(self, prepared: PreparedCall, result: RunResult) -> ToolResultItem:
        """Truncate the output, emit the event, make the result item."""
        limit = self._config.max_result_chars
        if prepared.tool is not None:
            limit = min(limit, prepared.tool.spec.max_result_chars)
        save = self._save_output if self._config.save_output is not None else None
        item = truncate(prepared.call, result.output, limit, save, result.outcome)
        if prepared.call.repaired:
            item = _add_note(item, _note_correction(prepared.call.repaired))
        item = self._with_approval(item)
        earlier = self._preparer.faults.pop(item.call_id, None)
        error, fault = self._runner.take_fault(item.call_id) or earlier, None
        if error is not None:
            self.fault = self.fault or error
            fault = self._emitter.log_fault(f"the tool {item.name}", error)
        self._emit_finished(item, fault)
        return item

    def _with_approval(self, item: ToolResultItem) -> ToolResultItem:
        """The result with the user's decision, which compaction keeps; see context/compaction."""
        decision = self._session.state.decisions.get(item.call_id)
        if decision is None or decision.decision != "allow":
            return item
        if decision.raw is not None:
            text = EDITED_CALL.format(arguments=decision.raw)
            item = _add_note(item, ResultNote("edited", text))
        approval = {"by": decision.decided_by, "edited": decision.raw}
        return msgspec.structs.replace(item, data={**(item.data or {}), "approval": approval})

    def _save_output(self, call_id: str, text: str) -> str:
        """The path of the saved output; "" if it could not be saved."""
        save = self._config.save_output
        try:
            return save(call_id, text) if save is not None else ""
        except Exception as error:  # noqa: BLE001 - the truncated output is still a result
            problem = f"the full output could not be saved: {error_text(error)}"
            self._emitter.emit(WarningRaised, problem)
            return ""

    def _with_call_id(self, result: ToolResultItem, prepared: PreparedCall) -> ToolResultItem:
        """The result of an eager call, which may have the id of an earlier attempt."""
        if result.call_id == prepared.call.id:
            return result
        result = msgspec.structs.replace(result, call_id=prepared.call.id)
        call, tool = prepared.call, prepared.tool
        kind = tool.spec.kind if tool is not None else "other"
        self._emitter.emit(ToolStarted, call.id, call.name, prepared.summary, kind)
        self._emit_finished(result)
        return result

    def _emit_finished(self, result: ToolResultItem, fault: ToolFault | None = None) -> None:
        self._emitter.emit(
            ToolFinished,
            result.call_id,
            result.name,
            preview(result.text),
            result.display,
            result.is_error,
            result.is_truncated,
            result.outcome,
            fault,
        )


def _add_note(item: ToolResultItem, note: ResultNote) -> ToolResultItem:
    return msgspec.structs.replace(item, notes=(*item.notes, note))


def _note_correction(text: str) -> ResultNote:
    return ResultNote("corrected", REPAIRED_CALL.format(repaired=fix_surrogates(text)))


def _check_seconds(seconds: object) -> float | None:
    if seconds is None or (isinstance(seconds, (int, float)) and seconds == seconds):
        return seconds
    raise TypeError(f"foreground_seconds returned {seconds!r}, not a number or None")


def _is_concurrent(prepared: PreparedCall) -> bool:
    if prepared.refusal is not None or prepared.tool is None:
        return True
    return prepared.tool.spec.concurrent or prepared.tool.spec.effect == "pure"


def truncation_marker(total: int) -> str:
    return f"... [truncated, {total} chars total]"


def truncate(
    call: ToolCall,
    output: ToolOutput,
    limit: int,
    save_output: Callable[[str, str], str] | None = None,
    outcome: CallOutcome = "finished",
) -> ToolResultItem:
    """The result of a call, with at most `limit` characters of text."""
    parts: tuple[ResultContent, ...]
    if isinstance(output.content, str):
        text = fix_surrogates(output.content)
        parts, total = (Text(text),), len(text)
    else:
        parts = tuple(
            [Text(fix_surrogates(p.text)) if type(p) is Text else p for p in output.content]
        )
        total = sum([len(part.text) for part in parts if type(part) is Text])
    is_truncated, saved_at = total > limit, output.full_output
    notes: tuple[ResultNote, ...] = ()
    if is_truncated:
        if save_output is not None and not saved_at:
            saved_at = save_output(call.id, join_text(parts))
        marker = truncation_marker(total) + (f" The whole is in {saved_at}" if saved_at else "")
        parts, notes = _truncate_parts(parts, limit), (ResultNote("truncated", marker),)
    if output.notes:
        notes = (*notes, *map(_note_correction, output.notes))
    return ToolResultItem(
        call.id,
        call.name,
        parts,
        output.is_error,
        is_truncated,
        total,
        fix_surrogates(output.display) if output.display else "",
        saved_at,
        outcome,
        output.data,
        notes,
    )


def _truncate_parts(parts: tuple[ResultContent, ...], limit: int) -> tuple[ResultContent, ...]:
    cut: list[ResultContent] = []
    left = limit
    for part in parts:
        if type(part) is not Text:
            cut.append(part)
        elif left > 0:
            cut.append(part if len(part.text) <= left else Text(part.text[:left]))
            left -= len(part.text)
    return tuple(cut)

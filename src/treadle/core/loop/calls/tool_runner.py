"""Runs one tool: what it raises is its output, and one that does not stop is abandoned.

The tool runs in a task of its own. On interrupt or timeout it gets a short grace period; if it
keeps running it is abandoned, and its late result is reported but ignored. Used by execute.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from functools import partial

import msgspec

from treadle.core.contracts.tool import Tool, ToolContext, ToolOutput
from treadle.core.errors import AuthRequired, ToolError, TreadleError, error_message, error_text
from treadle.core.events import AuthenticationRequired, Notified, WarningRaised, preview
from treadle.core.loop.emitter import Emitter
from treadle.core.transcript.content import Arguments, check_parts
from treadle.core.transcript.items import CallOutcome
from treadle.lib.json.strict_json import to_json_object
from treadle.lib.tasks import Deadlines, cancel_all, mark_done

INTERRUPT_GRACE_SECONDS = 1.0  # on a busy machine a command takes long to end; the user waits
TIMEOUT_GRACE_SECONDS = 5.0
TIMED_OUT_BUT_RUNNING = (
    "error: timed out after {timeout:g} s, but it does not stop: outcome unknown, and it may still "
    "be running"
)
# Of an irreversible call that had begun.
MAY_BE_DONE = "outcome unknown: it may have had its effect"
FAULT_TEXT = "{name} failed: a fault in its code ({kind}), of which the user is told"


class RunResult(msgspec.Struct, frozen=True):
    """The output of a call, and what became of it."""

    output: ToolOutput
    outcome: CallOutcome = "finished"


class ToolRunner:
    """Runs tools, and watches those that were abandoned."""

    def __init__(self, emitter: Emitter, is_stopping: Callable[[], bool]) -> None:
        self._emitter = emitter
        self._is_stopping = is_stopping
        self.abandoned: dict[str, asyncio.Task[ToolOutput]] = {}  # by call id; they still run
        self._deadlines = Deadlines()
        self._faults: dict[str, BaseException] = {}  # of tools, by call id
        self._late_results: dict[str, RunResult] = {}  # of calls that ended while being stopped

    async def run(
        self,
        tool: Tool,
        arguments: Arguments,
        context: ToolContext,
        timeout: float | None,
        variables: Context | None = None,
    ) -> RunResult:
        """The tool's output, whatever it raises. Raises only when we are cancelled ourselves."""
        loop = asyncio.get_running_loop()
        # Awaiting the task directly would forward our cancellation to it.
        done: asyncio.Future[None] = loop.create_future()
        call = self._call_tool(tool, arguments, context, done)
        work = loop.create_task(call, context=variables)
        if timeout is not None:
            self._deadlines.add(done, timeout)
        try:
            await done
        except asyncio.CancelledError:
            await self._stop(work, tool, context, INTERRUPT_GRACE_SECONDS)
            if work.done() and not work.cancelled():
                output = work.result()
                outcome: CallOutcome = "interrupted" if output.is_error else "finished"
                self._late_results[context.call_id] = RunResult(output, outcome)
            raise
        finally:
            if timeout is not None:
                self._deadlines.remove(done)
        if work.done():
            if work.cancelled():
                return _failure("error: the tool was cancelled from inside", "interrupted")
            return RunResult(work.result())
        await self._stop(work, tool, context, TIMEOUT_GRACE_SECONDS)
        if not work.done():
            return _failure(TIMED_OUT_BUT_RUNNING.format(timeout=timeout), "unknown")
        if work.cancelled():
            text = f"error: timed out after {timeout:g} s"
            if tool.spec.effect == "irreversible":
                return _failure(f"{text}, {MAY_BE_DONE}", "unknown")
            return _failure(text, "interrupted")
        return RunResult(work.result())

    def take_late_result(self, call_id: str) -> RunResult | None:
        """The result of a call that ended while it was being interrupted."""
        return self._late_results.pop(call_id, None)

    def take_fault(self, call_id: str) -> BaseException | None:
        """What the tool of a call raised that is no error for the model."""
        return self._faults.pop(call_id, None)

    async def aclose(self) -> None:
        """Cancel the abandoned calls once more; bounded in time."""
        self._deadlines.close()
        await cancel_all(list(self.abandoned.values()))

    async def _call_tool(
        self, tool: Tool, arguments: Arguments, context: ToolContext, done: asyncio.Future[None]
    ) -> ToolOutput:
        if done.cancelled() or (self._is_stopping() and context.is_cancelled()):
            raise asyncio.CancelledError  # interrupted since ToolStarted: no effect begins
        try:
            output: object = await tool.call(arguments, context)
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - a tool may raise anything
            if isinstance(error, AuthRequired):
                needs = (error.server, error.url, error.challenge)
                self._emitter.emit(AuthenticationRequired, context.call_id, *needs)
            text, data = error_text(error), error.data if isinstance(error, ToolError) else None
            if not isinstance(error, TreadleError):
                self._faults[context.call_id] = error
                text = FAULT_TEXT.format(name=tool.spec.name, kind=type(error).__name__)
            output = ToolOutput(f"error: {text}", is_error=True, data=data)
        finally:
            mark_done(done)
        if not isinstance(output, ToolOutput):
            if asyncio.iscoroutine(output):
                output.close()  # or Python would warn that it was never awaited
            kind = type(output).__name__
            return ToolOutput(f"error: the tool returned {kind}, not a ToolOutput", is_error=True)
        try:
            return _to_storable(output)
        except Exception as error:  # noqa: BLE001 - a text of the output may be code of others
            reason = error_message(error)
            problem = f"error: the tool ran, but its output cannot be stored: {reason}"
            return ToolOutput(problem, is_error=True)

    async def _stop(
        self, work: asyncio.Task[ToolOutput], tool: Tool, context: ToolContext, grace: float
    ) -> None:
        work.cancel()
        try:
            await asyncio.wait([work], timeout=grace)
        finally:
            if not work.done():
                self._abandon(work, tool.spec.name, context.call_id)

    def _abandon(self, work: asyncio.Task[ToolOutput], name: str, call_id: str) -> None:
        self.abandoned[call_id] = work
        self._emitter.emit(WarningRaised, f"{name} does not stop; it was abandoned")
        work.add_done_callback(partial(self._on_abandoned_done, name, call_id))

    def _on_abandoned_done(self, name: str, call_id: str, work: asyncio.Task[ToolOutput]) -> None:
        self.abandoned.pop(call_id, None)
        if work.cancelled():
            end = "is cancelled"
        elif (problem := work.exception()) is not None:
            end = f"has failed: {error_text(problem)}"
        else:
            end = f"has finished; its late result is ignored: {preview(work.result().text)}"
        self._emitter.emit(Notified, f"{name}, which was abandoned, {end}")


def _to_storable(output: ToolOutput) -> ToolOutput:
    """The output as the log can hold it; a TypeError says what it cannot hold."""
    content = output.content
    if not isinstance(content, str):
        check_parts(content := tuple(content))
    elif output.data is None and not output.notes:
        kinds = type(output.display), type(output.is_error), type(output.full_output)
        if kinds == (str, bool, str):
            return output
    return ToolOutput(
        content,
        str(output.display),
        bool(output.is_error),
        str(output.full_output),
        None if output.data is None else to_json_object(output.data),
        tuple([str(note) for note in output.notes]),
    )


def _failure(text: str, outcome: CallOutcome) -> RunResult:
    return RunResult(ToolOutput(text, is_error=True), outcome)

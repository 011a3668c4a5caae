"""Running one tool: what it throws is its answer, and one that does not stop is left behind.

The tool's own code runs in a task of its own. Whoever interrupts it, and a time limit, waits a
moment for it to stop, and no longer; then it is watched until it ends, which is told and changes
nothing. Above stands tool_round.py; below the Tool contract.
"""

from __future__ import annotations

import asyncio
from functools import partial

from treadle.core.contracts.tool import Tool, ToolContext, ToolOutput
from treadle.core.errors import ToolError
from treadle.core.events import Notified, WarningRaised, preview
from treadle.core.loop.background import cancel_all
from treadle.core.loop.emitter import Emitter
from treadle.core.transcript.content import Arguments, Text

INTERRUPT_GRACE_SECONDS = 0.15  # seconds to stop in while a person waits
TIMEOUT_GRACE_SECONDS = 5.0


class ToolRunner:
    """Runs tools, and keeps an eye on those that were left behind."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._abandoned: dict[str, asyncio.Task[ToolOutput]] = {}  # by call id
        self._late_outputs: dict[
            str, ToolOutput
        ] = {}  # of calls that ended while they were stopped

    async def run(
        self, tool: Tool, arguments: Arguments, context: ToolContext, timeout: float | None
    ) -> ToolOutput:
        """The tool's output, whatever it throws. Only cancellation of us gets through."""
        loop = asyncio.get_running_loop()
        # Awaiting the task itself would bind us to it: our cancellation would be its own to heed.
        over: asyncio.Future[None] = loop.create_future()
        work = loop.create_task(_call_tool(tool, arguments, context, over))
        timer = loop.call_later(timeout, _mark_done, over) if timeout is not None else None
        try:
            await over
        except asyncio.CancelledError:
            await self._stop(work, tool, context, INTERRUPT_GRACE_SECONDS)
            if work.done() and not work.cancelled():
                self._late_outputs[context.call_id] = work.result()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if work.done():
            if work.cancelled():
                return ToolOutput("error: the tool was cancelled from inside", is_error=True)
            return work.result()
        await self._stop(work, tool, context, TIMEOUT_GRACE_SECONDS)
        if not work.done():
            problem = f"error: timed out after {timeout:g} s, but it does not stop: outcome unknown"
            return ToolOutput(problem, is_error=True)
        if work.cancelled():
            return ToolOutput(f"error: timed out after {timeout:g} s", is_error=True)
        return work.result()

    def take_late_output(self, call_id: str) -> ToolOutput | None:
        """What an interrupted call gave all the same; a true answer is better than none."""
        return self._late_outputs.pop(call_id, None)

    def is_abandoned(self, call_id: str) -> bool:
        """Whether the call was given up on, and still runs."""
        return call_id in self._abandoned

    async def aclose(self) -> None:
        """Ask once more those that were left behind to stop; bounded."""
        await cancel_all(list(self._abandoned.values()))

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
        self._abandoned[call_id] = work
        self._emitter.emit(WarningRaised, f"{name} does not stop; it is left to itself")
        work.add_done_callback(partial(self._on_abandoned_done, name, call_id))

    def _on_abandoned_done(self, name: str, call_id: str, work: asyncio.Task[ToolOutput]) -> None:
        self._abandoned.pop(call_id, None)
        if work.cancelled():
            how = "has stopped"
        elif (problem := work.exception()) is not None:
            how = f"has failed: {error_text(problem)}"
        else:
            how = f"has ended, too late for its answer to count: {preview(_output_text(work.result()))}"
        self._emitter.emit(Notified, f"{name}, which was left to itself, {how}")


async def _call_tool(
    tool: Tool, arguments: Arguments, context: ToolContext, done: asyncio.Future[None]
) -> ToolOutput:
    try:
        output: object = await tool.call(arguments, context)
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - a tool may throw anything
        return ToolOutput(f"error: {error_text(error)}", is_error=True)
    finally:
        _mark_done(done)  # it is done when whoever waits gets to look
    if not isinstance(output, ToolOutput):
        kind = type(output).__name__
        return ToolOutput(f"error: the tool returned {kind}, not an output", is_error=True)
    return output


def _mark_done(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _output_text(output: ToolOutput) -> str:
    if isinstance(output.content, str):
        return output.content
    return "".join(part.text for part in output.content if isinstance(part, Text))


def error_text(error: BaseException) -> str:
    if isinstance(error, ToolError):
        return str(error)
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

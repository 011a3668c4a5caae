"""Running one tool: what it throws is its answer, and one that does not stop is left behind.

The tool's own code runs in a task of its own. Whoever interrupts it, and a time limit, waits a
moment for it to stop, and no longer; then it is watched until it ends, which is told and changes
nothing. Above stands calling.py; below the Tool contract.
"""

from __future__ import annotations

import asyncio
from functools import partial

from treadle.core.contracts.tool import Tool, ToolContext, ToolOutput
from treadle.core.errors import ToolError
from treadle.core.events import Notified, Warning, preview
from treadle.core.loop.tasks import end_all
from treadle.core.loop.telling import Teller
from treadle.core.transcript.content import Arguments, Text

AFTER_INTERRUPTION = 0.15  # seconds to stop in while a person waits
AFTER_TIMEOUT = 5.0


class Containing:
    """Runs tools, and keeps an eye on those that were left behind."""

    def __init__(self, teller: Teller) -> None:
        self._teller = teller
        self._left: dict[str, asyncio.Task[ToolOutput]] = {}  # by call id
        self._answers: dict[str, ToolOutput] = {}  # of calls that ended while they were stopped

    async def run(
        self, tool: Tool, arguments: Arguments, context: ToolContext, limit: float | None
    ) -> ToolOutput:
        """The tool's output, whatever it throws. Only cancellation of us gets through."""
        loop = asyncio.get_running_loop()
        # Awaiting the task itself would bind us to it: our cancellation would be its own to heed.
        over: asyncio.Future[None] = loop.create_future()
        work = loop.create_task(_output(tool, arguments, context, over))
        timer = loop.call_later(limit, _tell, over) if limit is not None else None
        try:
            await over
        except asyncio.CancelledError:
            await self._stop(work, tool, context, AFTER_INTERRUPTION)
            if work.done() and not work.cancelled():
                self._answers[context.call_id] = work.result()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if work.done():
            if work.cancelled():
                return ToolOutput("error: the tool was cancelled from inside", is_error=True)
            return work.result()
        await self._stop(work, tool, context, AFTER_TIMEOUT)
        if not work.done():
            problem = f"error: timed out after {limit:g} s, but it does not stop: outcome unknown"
            return ToolOutput(problem, is_error=True)
        if work.cancelled():
            return ToolOutput(f"error: timed out after {limit:g} s", is_error=True)
        return work.result()

    def take_answer(self, call_id: str) -> ToolOutput | None:
        """What an interrupted call gave all the same; a true answer is better than none."""
        return self._answers.pop(call_id, None)

    def has_left(self, call_id: str) -> bool:
        """Whether the call was given up on, and still runs."""
        return call_id in self._left

    async def aclose(self) -> None:
        """Ask once more those that were left behind to stop; bounded."""
        await end_all(list(self._left.values()))

    async def _stop(
        self, work: asyncio.Task[ToolOutput], tool: Tool, context: ToolContext, grace: float
    ) -> None:
        work.cancel()
        try:
            await asyncio.wait([work], timeout=grace)
        finally:
            if not work.done():
                self._leave(work, tool.spec.name, context.call_id)

    def _leave(self, work: asyncio.Task[ToolOutput], name: str, call_id: str) -> None:
        self._left[call_id] = work
        self._teller.tell(Warning, f"{name} does not stop; it is left to itself")
        work.add_done_callback(partial(self._came_late, name, call_id))

    def _came_late(self, name: str, call_id: str, work: asyncio.Task[ToolOutput]) -> None:
        self._left.pop(call_id, None)
        if work.cancelled():
            how = "has stopped"
        elif (problem := work.exception()) is not None:
            how = f"has failed: {words(problem)}"
        else:
            how = f"has ended, too late for its answer to count: {preview(_text(work.result()))}"
        self._teller.tell(Notified, f"{name}, which was left to itself, {how}")


async def _output(
    tool: Tool, arguments: Arguments, context: ToolContext, over: asyncio.Future[None]
) -> ToolOutput:
    try:
        output: object = await tool.call(arguments, context)
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - a tool may throw anything
        return ToolOutput(f"error: {words(error)}", is_error=True)
    finally:
        _tell(over)  # it is done when whoever waits gets to look
    if not isinstance(output, ToolOutput):
        kind = type(output).__name__
        return ToolOutput(f"error: the tool returned {kind}, not an output", is_error=True)
    return output


def _tell(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


def _text(output: ToolOutput) -> str:
    if isinstance(output.content, str):
        return output.content
    return "".join(part.text for part in output.content if isinstance(part, Text))


def words(error: BaseException) -> str:
    if isinstance(error, ToolError):
        return str(error)
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

"""Eager calls: a pure call starts while the reply that contains it still streams.

A call is identified by its tool and arguments, so that a retried stream reuses what was started.
A result is reused only where the call could have started eagerly: a call with an effect before it
in the final reply may change what it reads. Calls that the reply does not contain in the end are
cancelled. Used by tool_round.py.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence

from treadle.core.loop.parts import DriverParts
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.items import ToolResultItem
from treadle.lib.tasks import cancel_all


class EagerCalls:
    """`run` carries out one call, or returns None if the call must wait for its turn."""

    def __init__(
        self, parts: DriverParts, run: Callable[[ToolCall], Awaitable[ToolResultItem | None]]
    ) -> None:
        self._toolbox, self._hooks = parts.toolbox, parts.hooks
        self._limit = asyncio.Semaphore(parts.config.max_parallel)
        self._run = run
        self._scheduled: list[ToolCall] = []
        self._start_handle: asyncio.Handle | None = None
        self.started: dict[tuple[str, str], list[asyncio.Task[ToolResultItem | None]]] = {}
        self._may_start = True

    def reset(self, *, may_start: bool) -> None:
        """A new reply begins: its first calls may start eagerly again, if its calls may run."""
        self.cancel_scheduled()
        self._may_start = may_start and not self._hooks.has("pre_tool_use")

    def schedule(self, call: ToolCall) -> None:
        """Start a complete call if it is pure and no call with an effect comes before it.

        It starts when the stream next waits: the calls of a reply that is already complete need
        no tasks.
        """
        if not self._is_eager(call):
            self._may_start = False
        if self._may_start and not self.started.get((call.name, call.raw)):
            self._scheduled.append(call)
            if self._start_handle is None:
                self._start_handle = asyncio.get_running_loop().call_soon(self._start_scheduled)

    def cancel_scheduled(self) -> None:
        if self._start_handle is not None:
            self._start_handle.cancel()
            self._start_handle = None
        self._scheduled.clear()

    def find_reusable(self, calls: Sequence[ToolCall]) -> frozenset[str]:
        """The ids of the calls of a whole reply that may use an eager result: those before the
        first call that may have an effect."""
        return frozenset([call.id for call in itertools.takewhile(self._is_eager, calls)])

    async def take_result(self, call: ToolCall) -> ToolResultItem | None:
        """The result of the call if it was started eagerly, perhaps under another id."""
        begun = self.started.get((call.name, call.raw))
        if not begun:
            return None
        work = begun.pop(0)
        try:
            return await work
        except asyncio.CancelledError:
            await cancel_all([work])
            raise

    async def cancel_started(self) -> None:
        """Cancel the started calls that are not needed any more."""
        self.cancel_scheduled()
        left = [work for begun in self.started.values() for work in begun]
        self.started.clear()
        if left:
            await cancel_all(left)

    def _start_scheduled(self) -> None:
        loop = asyncio.get_running_loop()
        for call in self._scheduled:
            work = loop.create_task(self._run_bounded(call))
            self.started.setdefault((call.name, call.raw), []).append(work)
        self._scheduled.clear()
        self._start_handle = None

    async def _run_bounded(self, call: ToolCall) -> ToolResultItem | None:
        async with self._limit:
            return await self._run(call)

    def _is_eager(self, call: ToolCall) -> bool:
        tool = self._toolbox.find(call.name)
        if tool is None:
            return False
        spec = tool.spec
        return spec.effect == "pure" and spec.eager and not spec.detachable

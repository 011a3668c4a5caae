"""A head start: calls that only look begin while the reply that calls for them still streams.

A call is known by its tool and arguments, so that what one attempt has begun serves the next.
What nobody asks for in the end is stopped. Above stands tool_round.py, which says how one is run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from treadle.core.contracts.tool import ToolSpec
from treadle.core.loop.background import cancel_all
from treadle.core.loop.hooks import Hooks
from treadle.core.loop.prepare import Toolbox
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.items import ToolResultItem


class EagerCalls:
    """`run` carries out one call, or gives None if it has to wait for its turn."""

    def __init__(
        self,
        toolbox: Toolbox,
        hooks: Hooks,
        max_parallel: int,
        run: Callable[[ToolCall], Awaitable[ToolResultItem | None]],
    ) -> None:
        self._toolbox = toolbox
        self._hooks = hooks
        self._limit = asyncio.Semaphore(max_parallel)
        self._run = run
        self._scheduled: list[ToolCall] = []
        self._start_handle: asyncio.Handle | None = None
        self._started: dict[tuple[str, str], list[asyncio.Task[ToolResultItem | None]]] = {}
        self._may_start = True

    def reset(self) -> None:
        """A new reply begins: its first calls may start early again."""
        self.cancel_scheduled()
        self._may_start = not self._hooks.has("pre_tool_use")

    def schedule(self, call: ToolCall) -> None:
        """The call is whole. Start it if it only looks, and nothing before it acts.

        It starts when the stream next waits: a reply that is already all there needs no head
        start, and its calls then cost no task.
        """
        tool = self._toolbox.find(call.name)
        if tool is None or not _is_eager(tool.spec):
            self._may_start = False
        if self._may_start and not self._started.get((call.name, call.raw)):
            self._scheduled.append(call)
            if self._start_handle is None:
                self._start_handle = asyncio.get_running_loop().call_soon(self._start_scheduled)

    def cancel_scheduled(self) -> None:
        if self._start_handle is not None:
            self._start_handle.cancel()
            self._start_handle = None
        self._scheduled.clear()

    async def take_result(self, call: ToolCall) -> ToolResultItem | None:
        """What the call gave if it was begun early, perhaps under another id."""
        begun = self._started.get((call.name, call.raw))
        if not begun:
            return None
        work = begun.pop(0)
        try:
            return await work
        except asyncio.CancelledError:
            await cancel_all([work])
            raise

    async def cancel_started(self) -> None:
        """Stop what was begun and is not wanted any more."""
        self.cancel_scheduled()
        if not self._started:
            return
        left = [work for begun in self._started.values() for work in begun]
        self._started.clear()
        if left:
            await cancel_all(left)

    def _start_scheduled(self) -> None:
        loop = asyncio.get_running_loop()
        for call in self._scheduled:
            work = loop.create_task(self._run_bounded(call))
            self._started.setdefault((call.name, call.raw), []).append(work)
        self._scheduled.clear()
        self._start_handle = None

    async def _run_bounded(self, call: ToolCall) -> ToolResultItem | None:
        async with self._limit:
            return await self._run(call)


def _is_eager(spec: ToolSpec) -> bool:
    return spec.effect == "pure" and spec.eager and not spec.detachable

"""A head start: calls that only look begin while the reply that calls for them still streams.

A call is known by its tool and arguments, so that what one attempt has begun serves the next.
What nobody asks for in the end is stopped. Above stands calling.py, which says how one is run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from treadle.core.contracts.tool import ToolSpec
from treadle.core.loop.consulting import Hooks
from treadle.core.loop.tasks import end_all
from treadle.core.loop.toolbox import Toolbox
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.items import ToolResultItem


class Early:
    """`run` carries out one call, or gives None if it has to wait for its turn."""

    def __init__(
        self,
        toolbox: Toolbox,
        hooks: Hooks,
        most: int,
        run: Callable[[ToolCall], Awaitable[ToolResultItem | None]],
    ) -> None:
        self._toolbox = toolbox
        self._hooks = hooks
        self._limit = asyncio.Semaphore(most)
        self._run = run
        self._offered: list[ToolCall] = []
        self._soon: asyncio.Handle | None = None
        self._begun: dict[tuple[str, str], list[asyncio.Task[ToolResultItem | None]]] = {}
        self._may_begin = True

    def renew(self) -> None:
        """A new reply begins: its first calls may start early again."""
        self.withdraw_offers()
        self._may_begin = not self._hooks.has("pre_tool_use")

    def offer(self, call: ToolCall) -> None:
        """The call is whole. Start it if it only looks, and nothing before it acts.

        It starts when the stream next waits: a reply that is already all there needs no head
        start, and its calls then cost no task.
        """
        tool = self._toolbox.find(call.name)
        if tool is None or not _only_looks(tool.spec):
            self._may_begin = False
        if self._may_begin and not self._begun.get((call.name, call.raw)):
            self._offered.append(call)
            if self._soon is None:
                self._soon = asyncio.get_running_loop().call_soon(self._begin_offered)

    def withdraw_offers(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        self._offered.clear()

    async def result_of(self, call: ToolCall) -> ToolResultItem | None:
        """What the call gave if it was begun early, perhaps under another id."""
        begun = self._begun.get((call.name, call.raw))
        if not begun:
            return None
        work = begun.pop(0)
        try:
            return await work
        except asyncio.CancelledError:
            await end_all([work])
            raise

    async def drop(self) -> None:
        """Stop what was begun and is not wanted any more."""
        self.withdraw_offers()
        if not self._begun:
            return
        left = [work for begun in self._begun.values() for work in begun]
        self._begun.clear()
        if left:
            await end_all(left)

    def _begin_offered(self) -> None:
        loop = asyncio.get_running_loop()
        for call in self._offered:
            work = loop.create_task(self._run_bounded(call))
            self._begun.setdefault((call.name, call.raw), []).append(work)
        self._offered.clear()
        self._soon = None

    async def _run_bounded(self, call: ToolCall) -> ToolResultItem | None:
        async with self._limit:
            return await self._run(call)


def _only_looks(spec: ToolSpec) -> bool:
    return spec.effect == "pure" and spec.eager and not spec.detachable

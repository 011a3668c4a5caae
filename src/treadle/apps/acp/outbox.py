"""The updates of a session on their way to the editor, in their order.

Observers must not wait, so updates are queued and sent by a task. While the editor reads slowly,
pieces of the same text, the updates of a call, and values of which the newest counts are joined:
what waits is bounded by what there is to show. Used by updates.py and session.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    SessionInfoUpdate,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
    UserMessageChunk,
)

from treadle.lib.logger import logger

SessionUpdate = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
)


MAX_SEARCHED = 200  # waiting updates


class Outbox:
    """`send` delivers one update; when it fails the editor is gone, and updates are dropped."""

    def __init__(self, send: Callable[[SessionUpdate], Awaitable[None]]) -> None:
        self._send = send
        self._waiting: deque[SessionUpdate] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def put(self, update: SessionUpdate) -> None:
        if self._is_closed:
            return
        at = self._find_joinable(update)
        joined = join_updates(self._waiting[at], update) if at is not None else None
        if at is not None and joined is not None:
            self._waiting[at] = joined
        else:
            self._waiting.append(update)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def _find_joinable(self, update: SessionUpdate) -> int | None:
        """The place of the waiting update that this one can be joined with. A text only with the
        last one; of a call, and of a value, the order among others does not matter."""
        if not self._waiting:
            return None
        last = len(self._waiting) - 1
        if isinstance(update, ToolCallProgress):
            for at in range(last, max(-1, last - MAX_SEARCHED), -1):
                one = self._waiting[at]
                is_call = isinstance(one, ToolCallStart | ToolCallProgress)
                if is_call and one.tool_call_id == update.tool_call_id:
                    return at
            return None
        if isinstance(update, UsageUpdate):
            places = range(last, max(-1, last - MAX_SEARCHED), -1)
            return next((at for at in places if isinstance(self._waiting[at], UsageUpdate)), None)
        return last

    async def flush(self) -> None:
        """Return when everything that was put is sent, or cannot be."""
        while self._task is not None:
            await asyncio.wait({self._task})

    async def aclose(self) -> None:
        self._is_closed = True
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._send_one(self._waiting.popleft())
        except (OSError, RuntimeError):  # the connection is closed
            self._is_closed = True
            self._waiting.clear()
        finally:
            self._task = None

    async def _send_one(self, update: SessionUpdate) -> None:
        try:
            await self._send(update)
        except (OSError, RuntimeError):
            raise
        except Exception as error:  # noqa: BLE001 - of one update: the others are sent
            logger.warning("an update for the editor was not sent: %s", error)


def join_updates(first: SessionUpdate, second: SessionUpdate) -> SessionUpdate | None:
    """Both as one update; None if they cannot be joined."""
    if isinstance(first, (AgentMessageChunk, AgentThoughtChunk)) and type(first) is type(second):
        one, two = first.content, second.content
        if isinstance(one, TextContentBlock) and isinstance(two, TextContentBlock):
            text = TextContentBlock(type="text", text=one.text + two.text)
            return first.model_copy(update={"content": text})
    if isinstance(second, UsageUpdate) and isinstance(first, UsageUpdate):
        return second
    if not isinstance(first, ToolCallProgress) or not isinstance(second, ToolCallProgress):
        return None
    if first.tool_call_id != second.tool_call_id:
        return None
    changed = {name: getattr(second, name) for name in second.model_fields_set}
    return first.model_copy(update=changed)

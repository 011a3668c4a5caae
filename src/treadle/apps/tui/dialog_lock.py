"""One dialog at a time, and the dialogs of one sequence without another between them.

A menu with two steps and an approval with "Edit first" are sequences: a dialog that opened between
their steps would take the key that was meant for the second step. Used by both frontends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar


class DialogSequence:
    """The dialogs that belong together. It holds the lock from its first dialog to its end."""

    def __init__(self) -> None:
        self.has_lock = False
        self.is_ended = False


_current: ContextVar[DialogSequence | None] = ContextVar("current_sequence", default=None)


class DialogLock:
    """`sequence` is around what the user does in one go, `dialog` around each dialog."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def sequence(self) -> AsyncIterator[None]:
        sequence = DialogSequence()
        token = _current.set(sequence)
        try:
            yield
        finally:
            _current.reset(token)
            sequence.is_ended = True  # tasks that began in it have a copy
            if sequence.has_lock:
                self._lock.release()

    @asynccontextmanager
    async def dialog(self) -> AsyncIterator[None]:
        sequence = _current.get()
        if sequence is None or sequence.is_ended:
            async with self._lock:
                yield
            return
        if not sequence.has_lock:
            await self._acquire_for(sequence)
        yield

    async def _acquire_for(self, sequence: DialogSequence) -> None:
        await self._lock.acquire()
        if sequence.is_ended:  # meanwhile: it does not release the lock any more
            self._lock.release()
            raise asyncio.CancelledError
        sequence.has_lock = True

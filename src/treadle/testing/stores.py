"""A store in memory for tests; it can crash and fail."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.core.errors import StoreError
from treadle.core.transcript.entries import Entry


class MemoryStore:
    """Entries are durable once flushed, as on a disk; `crash()` loses the rest.

    While `failure` is set, a flush raises it.
    """

    def __init__(self, session_id: str = "session", entries: Sequence[Entry] = ()) -> None:
        self._session_id = session_id
        self.durable: list[Entry] = list(entries)
        self.queued: list[Entry] = []
        self.flush_count = 0
        self.failure: StoreError | None = None
        self.is_closed = False

    @property
    def session_id(self) -> str:
        return self._session_id

    @property
    def is_empty(self) -> bool:
        return not self.durable and not self.queued

    @property
    def write_error(self) -> StoreError | None:
        return self.failure if self.queued else None

    def append(self, entry: Entry) -> None:
        self.queued.append(entry)

    async def flush(self) -> None:
        self.flush_count += 1
        if self.failure is not None:
            raise self.failure
        self.durable += self.queued
        self.queued.clear()

    async def load(self) -> Sequence[Entry]:
        return list(self.durable)

    async def aclose(self) -> None:
        await self.flush()
        self.is_closed = True

    def crash(self) -> None:
        """The process dies: unflushed entries are lost."""
        self.queued.clear()

    @property
    def entries(self) -> list[Entry]:
        """All entries, durable or not."""
        return [*self.durable, *self.queued]

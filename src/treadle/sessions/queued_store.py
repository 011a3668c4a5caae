"""The part of a Store that all databases share: entries wait in memory for the next flush.

Each flush writes one batch, whose entries are numbered: a batch that comes twice, after a cancelled
flush or a lost connection, is harmless. The base of sqlite_store.py and postgres_store.py.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from treadle.core.contracts.store import make_unwritten_error
from treadle.core.errors import StoreError
from treadle.core.transcript.entries import Entry
from treadle.core.transcript.entry_json import encode_entry
from treadle.sessions.log.entry_redaction import EntryRedactor

QueuedEntry = tuple[int, float, bytes]  # number, time, body


class QueuedStore(ABC):
    """One session, open for writing. A subclass has `_write_batch`; `_release` if it holds more."""

    _seq: int  # of the last entry; set by the subclass

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._queue: list[QueuedEntry] = []
        self._is_closed = False
        self._writes: set[asyncio.Task[None]] = set()
        self.write_error: StoreError | None = None
        self.redactor = EntryRedactor()  # of what is appended from now on

    @property
    def session_id(self) -> str:
        return self._session_id

    @property
    def is_empty(self) -> bool:
        return self._seq == 0

    def append(self, entry: Entry) -> None:
        if self._is_closed:
            raise StoreError(f"session {self.session_id} is closed; open it again")
        try:
            body = encode_entry(entry)
            if self.redactor.finds_secret(body):
                body = encode_entry(self.redactor.redact(entry))
        except (TypeError, ValueError, RecursionError) as error:
            name = type(entry).__name__
            raise StoreError(f"{name} cannot be written to the session: {error}") from error
        self._seq += 1
        self._queue.append((self._seq, time.time(), body))

    async def flush(self) -> None:
        batch = tuple(self._queue)
        if not batch:
            return
        # Shielded: the caller may be cancelled, the write must be completed.
        task = asyncio.get_running_loop().create_task(self._write_batch(batch))
        self._writes.add(task)
        task.add_done_callback(self._end_write)
        try:
            await asyncio.shield(task)
        except StoreError as error:
            self.write_error = error
            raise
        self.write_error = None
        written = batch[-1][0]
        self._queue = [queued for queued in self._queue if queued[0] > written]

    async def aclose(self) -> None:
        """Flush, then release the session, also if the flush fails."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self.flush()
        except StoreError as error:
            raise make_unwritten_error(self.session_id, len(self._queue), error) from error
        finally:
            if self._writes:  # of flushes that were cancelled
                await asyncio.wait(self._writes)
            await self._release()

    @abstractmethod
    async def _write_batch(self, batch: Sequence[QueuedEntry]) -> None:
        """One transaction; StoreError if it fails."""

    async def _release(self) -> None:
        """Give up connections and locks; nothing is written any more."""
        return

    def _end_write(self, task: asyncio.Task[None]) -> None:
        self._writes.discard(task)
        if not task.cancelled():
            task.exception()  # of a cancelled flush: the next one or the close raises it again

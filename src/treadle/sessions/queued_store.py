"""The part of a Store that all databases share: entries wait in memory for a flush, or a moment.

Each flush writes one batch, whose entries are numbered: a batch that comes twice, after a cancelled
flush or a lost connection, is harmless. The base of sqlite_store.py and postgres_store.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from treadle.core.contracts.store import make_unwritten_error
from treadle.core.errors import StoreError
from treadle.core.transcript.entries import Entry
from treadle.core.transcript.entry_json import decode_entries, encode_entry
from treadle.lib.shielded import complete
from treadle.sessions.log.entry_redaction import EntryRedactor
from treadle.sessions.log.records import warn_of_losses

WRITE_DELAY = 0.1  # seconds that entries may wait to be written together
QueuedEntry = tuple[int, float, bytes]  # number, time, body


class QueuedStore(ABC):
    """One session, open for writing. A subclass has `_write_batch`; `_release` if it holds more."""

    _seq: int  # of the last entry; set by the subclass

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._queue: list[QueuedEntry] = []
        self._is_closed = False
        self._writes: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.warnings: tuple[str, ...] = ()  # about what was loaded, for the user
        self.is_damaged = False  # entries could not be read
        self.unknown_kinds: dict[str, int] = {}  # of a newer version, with counts
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
        if self._timer is None:
            with contextlib.suppress(RuntimeError):  # without an event loop, a flush writes it
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(WRITE_DELAY, self._write_later)

    async def load(self) -> Sequence[Entry]:
        """The entries; `warnings` and `is_damaged` say what is wrong with them."""
        found = decode_entries(await self._read_bodies())
        self.warnings = tuple(warn_of_losses(found.problems, found.unknown_kinds))
        self.is_damaged, self.unknown_kinds = bool(found.problems), found.unknown_kinds
        return found.entries

    async def flush(self) -> None:
        self._stop_timer()
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
        await complete(self._close())

    async def _close(self) -> None:
        self._stop_timer()
        try:
            await self.flush()
        except StoreError as error:
            raise make_unwritten_error(self.session_id, len(self._queue), error) from error
        finally:
            if self._writes:  # of flushes that were cancelled
                await asyncio.wait(self._writes)
            await self._release()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write_later(self) -> None:
        self._timer = None
        task = asyncio.get_running_loop().create_task(self.flush())
        self._writes.add(task)
        task.add_done_callback(self._end_write)

    @abstractmethod
    async def _read_bodies(self) -> Sequence[bytes]:
        """The bodies of all entries, in order; StoreError if it fails."""

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

"""The part of a Store that all of ours share: entries wait in memory for a flush, or a moment.

Each write takes all that waits, in the order of its numbers, and one write runs at a time. A batch
that comes twice, after a write whose end is not known, is harmless: its entries have numbers. The
base of log/journal.py, sqlite_store.py and postgres_store.py.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import msgspec

from treadle.core.contracts.store import make_unwritten_error
from treadle.core.errors import SessionBusy, StoreError
from treadle.core.transcript.entries import Entry
from treadle.core.transcript.entry_json import decode_entries, encode_entry
from treadle.lib.shielded import complete
from treadle.lib.tasks import forget_result
from treadle.lib.text.text import plural
from treadle.sessions.log.entry_redaction import EntryRedactor
from treadle.sessions.log.hash_chain import ChainLink, seal
from treadle.sessions.log.records import WriterOpened, warn_of_losses

WRITE_DELAY = 0.1  # seconds that entries may wait to be written together
MAX_QUEUED_ENTRIES = 256  # then they are written without delay
RETRY_DELAY = 2.0  # seconds, after a failed write


class QueuedEntry(ChainLink, kw_only=True):
    """`content` is what is too long for a line."""

    entry: Entry | WriterOpened


class QueuedStore(ABC):
    """One session, open for writing. A subclass reads and writes, and releases what it holds."""

    def __init__(
        self, session_id: str, last_seq: int = 0, clock: Callable[[], float] = time.time
    ) -> None:
        self._session_id = session_id
        self._clock = clock
        self._queue: list[QueuedEntry] = []
        self._seq = self._durable_seq = last_seq
        self._write_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = self._is_released = False
        self.write_error: StoreError | None = None
        self.redactor = EntryRedactor()  # of what is appended from now on
        self._head = b""  # the hash of the last write
        self._sealed_seq = last_seq

    @property
    def session_id(self) -> str:
        return self._session_id

    @property
    def is_empty(self) -> bool:
        return self._seq == 0

    @property
    def unwritten_entries(self) -> tuple[Entry, ...]:
        """The entries that are only in memory, to export if the disk keeps failing."""
        entries = (queued.entry for queued in self._queue)
        return tuple(entry for entry in entries if not isinstance(entry, WriterOpened))

    def append(self, entry: Entry) -> None:
        if self._is_closed:
            raise StoreError(f"session {self.session_id} is closed; open it again")
        # Encoded here: one entry that cannot be must not stop the writing of all the others.
        try:
            body, content = self._encode(entry)
            if self.redactor.finds_secret(body, content):
                entry = self.redactor.redact(entry)
                body, content = self._encode(entry)
        except (TypeError, ValueError, RecursionError) as error:
            name = type(entry).__name__
            raise StoreError(f"{name} cannot be written to the session: {error}") from error
        self._seq += 1
        self._queue.append(QueuedEntry(self._seq, self._clock(), body, content, entry=entry))
        self._schedule_write()

    @abstractmethod
    async def load(self) -> Sequence[Entry]: ...

    async def flush(self) -> None:
        if self._is_released and self._durable_seq < self._seq:
            raise StoreError(
                f"session {self.session_id} is closed, and its last entries are not written; "
                "another process may write to it now"
            )
        wanted = self._seq
        while self._durable_seq < wanted:
            # Shielded: the caller may be cancelled, the write must be completed.
            await asyncio.shield(self._write_task or self._start_write())

    async def aclose(self) -> None:
        """Flush, then release the session, also if the flush fails; a cancellation takes effect
        when that is done."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        await complete(self._close())

    async def _close(self) -> None:
        try:
            await self.flush()
        except StoreError as error:
            count = len(self.unwritten_entries)
            raise make_unwritten_error(self.session_id, count, error) from error
        finally:
            self._is_released = True
            await self._release()

    # --- the writer ----------------------------------------------------------------------

    def _schedule_write(self) -> None:
        if self._write_task is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # no event loop to write in the background: a flush will
        if len(self._queue) >= MAX_QUEUED_ENTRIES and self.write_error is None:
            self._start_write()
        elif self._timer is None:
            delay = WRITE_DELAY if self.write_error is None else RETRY_DELAY
            self._timer = loop.call_later(delay, self._start_write)

    def _start_write(self) -> asyncio.Task[None]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._write_task is None:
            self._write_task = asyncio.get_running_loop().create_task(self._write_queue())
            self._write_task.add_done_callback(forget_result)  # it is in `write_error`
        return self._write_task

    async def _write_queue(self) -> None:
        batch = tuple(self._queue)
        try:
            if batch:
                await self._write_batch(batch)
        except StoreError as error:
            self.write_error = error
            raise
        finally:
            self._write_task = None
        self.write_error = None
        if batch:
            del self._queue[: len(batch)]
            self._durable_seq = batch[-1].seq

    # --- of a subclass -------------------------------------------------------------------

    def _encode(self, entry: Entry) -> tuple[bytes, bytes | None]:
        return encode_entry(entry), None

    @abstractmethod
    async def _write_batch(self, batch: Sequence[QueuedEntry]) -> None:
        """Seal it, and write it durably, all or none; StoreError if it fails."""

    def _seal(self, batch: Sequence[QueuedEntry]) -> None:
        """Hash what a failed write has not hashed before: that one may be durable as it was."""
        new = batch
        if batch[0].seq <= self._sealed_seq:
            new = [one for one in batch if one.seq > self._sealed_seq]
        if new:
            self._head, self._sealed_seq = seal(self._head, new), new[-1].seq

    async def _release(self) -> None:
        """Give up connections and locks; nothing is written any more."""
        return


class DatabaseStore(QueuedStore):
    """One that reads the bodies of the entries."""

    warnings: tuple[str, ...] = ()  # about what was loaded, for the user
    is_damaged = False  # entries could not be read
    unknown_kinds: Mapping[str, int] = {}  # of a newer version, with counts

    async def load(self) -> Sequence[Entry]:
        """The entries; `warnings` and `is_damaged` say what is wrong with them."""
        written, bodies = self._durable_seq, await self._read_bodies()
        found, missing = decode_entries(bodies), written - len(bodies)
        problems = list(found.problems)
        if missing > 0:
            problems.append(f"{plural(missing, 'entry is', 'entries are')} missing")
        self.warnings = tuple(warn_of_losses(problems, found.unknown_kinds))
        self.is_damaged, self.unknown_kinds = bool(problems), found.unknown_kinds
        return found.entries

    @abstractmethod
    async def _read_bodies(self) -> Sequence[bytes]:
        """The bodies of all entries, in order; StoreError if it fails."""


class SessionFence(msgspec.Struct, frozen=True):
    """Lets only the latest writer of a session append that several machines may continue.

    Each writer has a number, the epoch; the row with this `id` has that of the latest one. A store
    compares them in the transaction that writes the entries, so a writer that was only slow cannot
    append after another has taken over.
    """

    table: str
    row_id: str
    epoch: int

    def make_query(self, placeholder: str) -> str:
        """Selects a row while this writer is the latest one."""
        return f"SELECT 1 FROM {self.table} WHERE id = {placeholder} AND epoch = {placeholder}"

    def make_error(self, session_id: str) -> SessionBusy:
        return SessionBusy(
            f"session {session_id} was taken over by another worker, or cancelled; this one stops"
        )

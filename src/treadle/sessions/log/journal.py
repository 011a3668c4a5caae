"""The log of one session on disk: an implementation of the Store contract.

    SESSION/journal.jsonl     the log; journal-2.jsonl, … after a failed sync
    SESSION/blobs/ab/abcd…    content above 64 KiB
    SESSION/lock              which process has it open
    SESSION/*.corrupt         incomplete lines that a crash left

`append` only queues. A flush writes everything queued at once and syncs once, off the event loop;
without a flush the queue is written after a short delay. Uses segment.py to write, reader.py and
state_loader.py to read back.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from treadle._version import __version__
from treadle.core.contracts.store import make_unwritten_error
from treadle.core.errors import SessionTooNew, StoreError
from treadle.core.transcript.entries import Entry
from treadle.core.transcript.entry_json import decode_entry, to_json
from treadle.core.transcript.state import SessionState
from treadle.lib.shielded import complete
from treadle.lib.text.text import plural
from treadle.sessions.log.blobs import Blobs
from treadle.sessions.log.entry_redaction import EntryRedactor
from treadle.sessions.log.files import Files, LocalFiles, write_all
from treadle.sessions.log.lock import acquire_lock
from treadle.sessions.log.reader import (
    FIRST_SEGMENT,
    Damage,
    JournalReader,
    JournalTail,
    find_session_dir,
    read_header,
)
from treadle.sessions.log.records import (
    FORMAT_VERSION,
    ForkPoint,
    JournalHeader,
    Record,
    WriterOpened,
    encode_record,
    encode_with_content,
    format_blob_reference,
    format_record,
    warn_of_losses,
)
from treadle.sessions.log.segment import Segment, to_store_error
from treadle.sessions.log.state_loader import StateLoader, load_content, mark_lost_content

WRITE_DELAY = 0.1  # seconds that entries may wait to be written together
MAX_QUEUED_ENTRIES = 256  # then they are written without delay
RETRY_DELAY = 2.0  # seconds, after a failed write


class _QueuedEntry(msgspec.Struct, frozen=True):
    seq: int
    time: float
    entry: Entry | WriterOpened
    body: bytes
    content: bytes | None = None  # too long for a line


class Journal:
    """One session, open for writing. Made by `create` and `resume`."""

    def __init__(
        self,
        session_dir: Path,
        header: JournalHeader,
        *,
        lock: int,
        files: Files,
        clock: Callable[[], float],
        seq: int = 0,
        epoch: int = 1,
        tail: JournalTail | None = None,
        has_writer_record: bool = False,
        unsynced_folders: Sequence[Path] = (),
    ) -> None:
        self.session_dir = session_dir
        self.header = header
        self._files = files
        self._clock = clock
        self._lock = lock
        self._epoch = epoch
        self._segment = Segment(session_dir, header, files, tail, unsynced_folders)
        self._blobs = Blobs(session_dir / "blobs", files)
        self._queue: list[_QueuedEntry] = []
        self._seq = self._durable_seq = seq
        self._write_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_writer_record = has_writer_record
        self._write_lock = threading.Lock()
        self._is_closed = self._is_released = False
        self.write_error: StoreError | None = None
        self.redactor = EntryRedactor()  # of what is appended from now on

    @classmethod
    def create(
        cls,
        session_dir: Path,
        *,
        folder: str = "",
        parent: ForkPoint | None = None,
        files: Files | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Journal:
        """A new session; its file appears with the first entries that are flushed."""
        files = files or LocalFiles()
        unsynced = [folder.parent for folder in session_dir.parents if not folder.is_dir()]
        try:
            files.make_folder(session_dir)
            lock = acquire_lock(session_dir, files)
        except OSError as error:
            raise to_store_error(error, session_dir) from error
        name, seq = session_dir.name, parent.seq if parent is not None else 0
        header = JournalHeader(FORMAT_VERSION, name, clock(), folder, parent, writer=__version__)
        return cls(
            session_dir,
            header,
            lock=lock,
            files=files,
            clock=clock,
            seq=seq,
            unsynced_folders=unsynced,
        )

    # --- the contract --------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        return self.header.session

    @property
    def is_empty(self) -> bool:
        return self._seq == 0

    @property
    def seq(self) -> int:
        """The number of the last entry that was appended."""
        return self._seq

    @property
    def sync_count(self) -> int:
        """How many syncs were done."""
        return self._segment.sync_count

    def append(self, entry: Entry) -> None:
        if self._is_closed:
            raise StoreError(f"session {self.session_id} is closed; resume it first")
        # Encoded here: one entry that cannot be must not stop the writing of all the others.
        try:
            body, content = encode_with_content(entry)
            if self.redactor.finds_secret(body, content):
                entry = self.redactor.redact(entry)
                body, content = encode_with_content(entry)
        except (TypeError, ValueError, RecursionError) as error:
            name = type(entry).__name__
            raise StoreError(f"{name} cannot be written to the session: {error}") from error
        if not self._has_writer_record:
            self._has_writer_record = True
            opened = make_writer_record()
            self._queue.append(_QueuedEntry(self._seq, self._clock(), opened, to_json(opened)))
        self._seq += 1
        self._queue.append(_QueuedEntry(self._seq, self._clock(), entry, body, content))
        self._schedule_write()

    async def flush(self) -> None:
        if self._is_released and self._durable_seq < self._seq:
            raise StoreError(
                f"session {self.session_id} is closed, and its last entries are not written; "
                "another process may write to it now"
            )
        wanted = self._seq
        while self._durable_seq < wanted:
            writing = self._write_task
            if writing is None:
                writing = self._start_write()
            # Shielded: the caller may be cancelled, the write must be completed.
            await asyncio.shield(writing)

    async def load(self) -> Sequence[Entry]:
        if self.session_dir.joinpath(FIRST_SEGMENT).exists():
            return read_entries(self.session_dir)
        parent = self.header.parent
        if parent is None:
            return []
        parent_dir = find_session_dir(self.session_dir, parent.session)
        return read_entries(parent_dir, last_seq=parent.seq)

    async def aclose(self) -> None:
        """Flush and release the session; a cancellation takes effect when that is done."""
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
            with self._write_lock:  # a write of a cancelled task continues in its thread
                self._segment.close()
                self._files.close(self._lock)

    @property
    def unwritten_entries(self) -> tuple[Entry, ...]:
        """The entries that are only in memory, to export if the disk keeps failing."""
        entries = (queued.entry for queued in self._queue)
        return tuple(entry for entry in entries if not isinstance(entry, WriterOpened))

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
            self._write_task.add_done_callback(_retrieve_exception)
        return self._write_task

    async def _write_queue(self) -> None:
        batch = tuple(self._queue)
        try:
            if batch:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(None, self._write_batch, batch)
        except StoreError as error:
            self.write_error = error
            raise
        finally:
            self._write_task = None
        self.write_error = None
        if batch:
            del self._queue[: len(batch)]
            self._durable_seq = batch[-1].seq

    def _write_batch(self, batch: tuple[_QueuedEntry, ...]) -> None:
        """Runs in a thread; must not touch state that the event loop's thread changes."""
        with self._write_lock:
            if self._is_released:
                raise StoreError(f"session {self.session_id} is closed; nothing more is written")
            self._segment.append(b"".join([self._format_queued(queued) for queued in batch]))

    def _format_queued(self, queued: _QueuedEntry) -> bytes:
        blob_reference, content = "", queued.content
        if content is not None:
            try:
                blob_reference = format_blob_reference(self._blobs.put(content), len(content))
            except OSError as error:
                raise to_store_error(error, self.session_dir / "blobs") from error
        return format_record(queued.body, queued.seq, self._epoch, queued.time, blob_reference)


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # is in `write_error`, and raised to the caller of flush


class ResumedSession(msgspec.Struct, frozen=True):
    """A resumed session. `damage` lists unreadable parts, `warnings` are lines for the user."""

    journal: Journal
    state: SessionState
    damage: tuple[Damage, ...] = ()
    warnings: tuple[str, ...] = ()


def resume(
    session_dir: Path,
    *,
    take_over: bool = False,
    files: Files | None = None,
    clock: Callable[[], float] = time.time,
) -> ResumedSession:
    """Open a session to continue it, also after a crash.

    `take_over` opens it although another process has it open; that process notices before its next
    write, and stops. Raises SessionNotFound, SessionBusy and SessionTooNew.
    """
    files = files or LocalFiles()
    header = read_header(session_dir)
    if header is not None and header.format > FORMAT_VERSION:
        raise SessionTooNew(
            f"session {session_dir.name} has format {header.format}, and this version writes "
            f"format {FORMAT_VERSION}: it can be shown and exported, but not continued. "
            "Update treadle."
        )
    lock = acquire_lock(session_dir, files, take_over=take_over)
    try:
        if take_over:
            _record_takeover(session_dir, files, clock)
        return _resume_locked(JournalReader(session_dir), lock, take_over, files, clock)
    except BaseException:
        files.close(lock)
        raise


def _record_takeover(session_dir: Path, files: Files, clock: Callable[[], float]) -> None:
    """Write the new epoch first, which stops the old writer; its last lines are read after that."""
    reader = JournalReader(session_dir)
    reader.read_to_end()
    line = encode_record(make_writer_record(), reader.seq, reader.epoch + 1, clock())
    try:
        fd = files.open(reader.tail.path, os.O_WRONLY | os.O_APPEND)
        try:
            write_all(files, fd, b"\n" + line if reader.tail.torn_bytes else line)
            files.sync(fd)
        finally:
            files.close(fd)
    except OSError as error:
        raise to_store_error(error, reader.tail.path) from error


def _resume_locked(
    reader: JournalReader, lock: int, take_over: bool, files: Files, clock: Callable[[], float]
) -> ResumedSession:
    loader = StateLoader(reader)
    view, recovery = loader.load_recovered()
    session_dir = reader.session_dir
    journal = Journal(
        session_dir,
        reader.header
        or JournalHeader(FORMAT_VERSION, session_dir.name, clock(), writer=__version__),
        seq=reader.seq,
        epoch=reader.epoch if take_over else reader.epoch + 1,
        tail=reader.tail,
        lock=lock,
        files=files,
        clock=clock,
        has_writer_record=take_over,
    )
    for entry in recovery:
        journal.append(entry)
    return ResumedSession(journal, view, tuple(reader.damage), _list_warnings(reader, loader))


def _list_warnings(reader: JournalReader, loader: StateLoader) -> tuple[str, ...]:
    """One line each, for the user."""
    warnings = warn_of_losses(reader.damage, loader.unknown_kinds)
    warnings += [f"a blob is missing or damaged: {name}" for name in loader.lost_blobs]
    if loader.truncated_count:
        items = plural(loader.truncated_count, "old item")
        warnings.append(f"truncated {items} in the view; the log keeps them whole")
    return tuple(warnings)


def make_writer_record() -> WriterOpened:
    return WriterOpened(os.getpid(), socket.gethostname(), __version__)


def read_entries(session_dir: Path, *, last_seq: int | None = None) -> list[Entry]:
    """Every entry of a session in order, those of its parents first. Opens nothing for writing."""
    return [entry for _, entry in read_records(session_dir, last_seq=last_seq)]


def read_records(
    session_dir: Path, *, last_seq: int | None = None, kinds: Collection[str] = ()
) -> list[tuple[Record, Entry]]:
    """The same, each with its record (number, time; without the raw line); with `kinds` only
    entries of these."""
    pairs: list[tuple[Record, Entry]] = []
    for record, blob_dir in JournalReader(session_dir, last_seq=last_seq).records():
        if kinds and record.kind not in kinds:
            continue
        try:
            entry = decode_entry(record.raw)
        except msgspec.DecodeError:
            continue  # a kind of a newer version
        entry = load_content(entry, record.blob, blob_dir) or mark_lost_content(entry, record.blob)
        pairs.append((msgspec.structs.replace(record, raw=b""), entry))
    return pairs

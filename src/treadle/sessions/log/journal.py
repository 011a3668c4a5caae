"""The log of one session on disk: an implementation of the Store contract.

    SESSION/journal.jsonl     the log; journal-2.jsonl, … after a failed sync
    SESSION/blobs/ab/abcd…    content above 64 KiB
    SESSION/lock              which process has it open
    SESSION/*.corrupt         incomplete lines that a crash left

A flush writes everything queued at once and syncs once, off the event loop. What waits, and how
long, is queued_store.py. Uses segment.py to write, reader.py and state_loader.py to read back.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle._version import __version__
from treadle.core.errors import SessionTooNew, StoreError
from treadle.core.transcript.entries import Entry
from treadle.core.transcript.entry_json import to_json
from treadle.core.transcript.state import SessionState
from treadle.lib.files.blobs import Blobs
from treadle.lib.files.file_system import Files, LocalFiles, write_all
from treadle.lib.text.text import plural
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
from treadle.sessions.queued_store import QueuedEntry, QueuedStore

if TYPE_CHECKING:
    from treadle.sessions.log.state_loader import StateLoader


class Journal(QueuedStore):
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
        head: bytes = b"",
        tail: JournalTail | None = None,
        has_writer_record: bool = False,
        unsynced_folders: Sequence[Path] = (),
    ) -> None:
        super().__init__(header.session, seq, clock)
        self.session_dir = session_dir
        self.header = header
        self._files = files
        self._lock = lock
        self._epoch = epoch
        self._head = head
        self._segment = Segment(session_dir, header, files, tail, unsynced_folders)
        self._blobs = Blobs(session_dir / "blobs", files)
        self._has_writer_record = has_writer_record
        self._write_lock = threading.Lock()

    @classmethod
    def create(
        cls,
        session_dir: Path,
        *,
        folder: str = "",
        parent: ForkPoint | None = None,
        origin: str = "",
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
        header = JournalHeader(
            FORMAT_VERSION, name, clock(), folder, parent, writer=__version__, origin=origin
        )
        return cls(
            session_dir,
            header,
            lock=lock,
            files=files,
            clock=clock,
            seq=seq,
            head=parent.head.encode() if parent is not None else b"",
            unsynced_folders=unsynced,
        )

    # --- the contract --------------------------------------------------------------------

    @property
    def seq(self) -> int:
        """The number of the last entry that was appended."""
        return self._seq

    @property
    def sync_count(self) -> int:
        """How many syncs were done."""
        return self._segment.sync_count

    def append(self, entry: Entry) -> None:
        if not self._has_writer_record and not self._is_closed:
            self._has_writer_record = True
            opened = make_writer_record()
            now, body = self._clock(), to_json(opened)
            self._queue.append(QueuedEntry(self._seq, now, body, entry=opened))
        super().append(entry)

    def _encode(self, entry: Entry) -> tuple[bytes, bytes | None]:
        return encode_with_content(entry)

    async def load(self) -> Sequence[Entry]:
        if self.session_dir.joinpath(FIRST_SEGMENT).exists():
            return read_entries(self.session_dir)
        parent = self.header.parent
        if parent is None:
            return []
        parent_dir = find_session_dir(self.session_dir, parent.session)
        return read_entries(parent_dir, last_seq=parent.seq)

    async def _release(self) -> None:
        with self._write_lock:  # a write of a cancelled task continues in its thread
            self._segment.close()
            self._files.close(self._lock)

    async def _write_batch(self, batch: Sequence[QueuedEntry]) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._write_lines, batch)

    def _write_lines(self, batch: Sequence[QueuedEntry]) -> None:
        """Runs in a thread; must not touch state that the event loop's thread changes."""
        with self._write_lock:
            if self._is_released:
                raise StoreError(f"session {self.session_id} is closed; nothing more is written")
            self._seal(batch)
            self._segment.append(b"".join([self._format_queued(queued) for queued in batch]))

    def _format_queued(self, queued: QueuedEntry) -> bytes:
        blob_reference, content = "", queued.content
        if content is not None:
            try:
                blob_reference = format_blob_reference(self._blobs.put(content), len(content))
            except OSError as error:
                raise to_store_error(error, self.session_dir / "blobs") from error
        return format_record(queued.body, queued.seq, self._epoch, queued.time, blob_reference)


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
    from treadle.sessions.log.state_loader import StateLoader

    loader = StateLoader(reader)
    view, recovery = loader.load_recovered()
    journal = _continue_journal(reader, lock, take_over, files, clock)
    for entry in recovery:
        journal.append(entry)
    return ResumedSession(journal, view, tuple(reader.damage), _list_warnings(reader, loader))


def _continue_journal(
    reader: JournalReader, lock: int, take_over: bool, files: Files, clock: Callable[[], float]
) -> Journal:
    """After the pass of the reader."""
    session_dir = reader.session_dir
    return Journal(
        session_dir,
        reader.header
        or JournalHeader(FORMAT_VERSION, session_dir.name, clock(), writer=__version__),
        seq=reader.seq,
        epoch=reader.epoch if take_over else reader.epoch + 1,
        head=reader.head,
        tail=reader.tail,
        lock=lock,
        files=files,
        clock=clock,
        has_writer_record=take_over,
    )


async def append_entries(session_dir: Path, entries: Sequence[Entry]) -> None:
    """Add what was written elsewhere to a session that is closed, as it is: what it left open stays
    open."""
    files = LocalFiles()
    lock = acquire_lock(session_dir, files)
    reader = JournalReader(session_dir)
    reader.read_to_end()
    journal = _continue_journal(reader, lock, False, files, time.time)
    try:
        for entry in entries:
            journal.append(entry)
    finally:
        await journal.aclose()


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
    from treadle.sessions.log.state_loader import read_entry

    pairs: list[tuple[Record, Entry]] = []
    for record, blob_dir in JournalReader(session_dir, last_seq=last_seq).records():
        if kinds and record.kind not in kinds:
            continue
        entry = read_entry(record, blob_dir)
        if entry is not None:
            pairs.append((msgspec.structs.replace(record, raw=b""), entry))
    return pairs

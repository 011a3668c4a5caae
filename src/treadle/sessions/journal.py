"""The log of one session on disk: an implementation of the Store contract.

    place/journal.jsonl     the log; journal-2.jsonl, … if the disk refused to take more of it
    place/blobs/ab/abcd…    content above 64 KiB
    place/lock              who has it open
    place/*.corrupt         what was torn off by a crash

`append` only queues. A flush writes all that is queued at once and syncs once, off the event
loop; what nobody flushes is written a moment later by itself. Below: segment.py, which knows
what may go wrong with a file; reading.py and folding.py, which read it back.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from treadle._version import __version__
from treadle.core.errors import SessionTooNew, StoreError
from treadle.core.transcript.content import Text
from treadle.core.transcript.entries import Entry, TurnEnded, View
from treadle.core.transcript.integrity import repaired
from treadle.core.transcript.pending import Rest, pending
from treadle.sessions.blobs import Blobs
from treadle.sessions.files import Files, LocalFiles, write_all
from treadle.sessions.folding import Folding, with_blob
from treadle.sessions.holding import hold
from treadle.sessions.lines import (
    FORMAT,
    Header,
    Line,
    Opened,
    Parent,
    blob_mark,
    decode,
    encode,
    heavy_content,
    with_content,
    without_content,
)
from treadle.sessions.reading import FIRST, Damage, Reading, Tail, beside
from treadle.sessions.segment import Segment, translated

WRITE_AFTER = 0.1  # seconds that entries may wait for company
WRITE_AT = 256  # entries that are not kept waiting
TRY_AGAIN_AFTER = 2.0  # seconds, when the disk would not take them


class _Queued(msgspec.Struct, frozen=True):
    seq: int
    time: float
    entry: Entry | Opened


class Journal:
    """One session, open for writing. Made by `create` and `resume`."""

    def __init__(
        self,
        place: Path,
        header: Header,
        *,
        seq: int,
        epoch: int,
        tail: Tail | None,
        lock: int,
        files: Files,
        clock: Callable[[], float],
        is_announced: bool = False,
    ) -> None:
        self.place = place
        self.header = header
        self._files = files
        self._clock = clock
        self._lock = lock
        self._epoch = epoch
        self._segment = Segment(place, header, files, tail)
        self._blobs = Blobs(place / "blobs", files)
        self._queue: list[_Queued] = []
        self._seq = self._durable = seq
        self._writing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_announced = is_announced
        self._is_closed = False
        self.trouble: StoreError | None = None

    @classmethod
    def create(
        cls,
        place: Path,
        *,
        folder: str = "",
        parent: Parent | None = None,
        files: Files | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Journal:
        """A new session; its file appears with the first entries that are flushed."""
        files = files or LocalFiles()
        try:
            files.make_folder(place)
            lock = hold(place, files)
        except OSError as error:
            raise translated(error, place) from error
        header = Header(FORMAT, place.name, clock(), folder, parent, writer=__version__)
        seq = parent.seq if parent is not None else 0
        return cls(
            place,
            header,
            seq=seq,
            epoch=1,
            tail=None,
            lock=lock,
            files=files,
            clock=clock,
        )

    # --- the contract --------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        return self.header.session

    @property
    def seq(self) -> int:
        """The number of the last entry that was appended."""
        return self._seq

    @property
    def syncs(self) -> int:
        """How often the disk was waited for."""
        return self._segment.syncs

    def append(self, entry: Entry) -> None:
        if self._is_closed:
            raise StoreError(f"session {self.session_id} is closed; resume it first")
        if not self._is_announced:
            self._is_announced = True
            self._queue.append(_Queued(self._seq, self._clock(), me()))
        self._seq += 1
        self._queue.append(_Queued(self._seq, self._clock(), entry))
        self._write_soon()

    async def flush(self) -> None:
        wanted = self._seq
        while self._durable < wanted:
            writing = self._writing
            if writing is None:
                writing = self._begin_writing()
            # Shielded: who waits may be cancelled, what is half written must become whole.
            await asyncio.shield(writing)

    async def load(self) -> Sequence[Entry]:
        if self.place.joinpath(FIRST).exists():
            return read(self.place)
        parent = self.header.parent
        return read(beside(self.place, parent.session), upto=parent.seq) if parent else []

    async def aclose(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        try:
            await self.flush()
        finally:
            if self._writing is not None:
                await asyncio.wait([self._writing])
            self._segment.close()
            self._files.close(self._lock)

    @property
    def unwritten(self) -> tuple[Entry, ...]:
        """What is only in memory: to be exported if the disk stays away."""
        return tuple(kept.entry for kept in self._queue if not isinstance(kept.entry, Opened))

    # --- the writer ----------------------------------------------------------------------

    def _write_soon(self) -> None:
        if self._writing is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # nobody to write in the background: a flush will
        if len(self._queue) >= WRITE_AT and self.trouble is None:
            self._begin_writing()
        elif self._timer is None:
            delay = WRITE_AFTER if self.trouble is None else TRY_AGAIN_AFTER
            self._timer = loop.call_later(delay, self._begin_writing)

    def _begin_writing(self) -> asyncio.Task[None]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_out())
            self._writing.add_done_callback(_seen)
        return self._writing

    async def _write_out(self) -> None:
        batch = tuple(self._queue)
        try:
            if batch:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(None, self._write, batch)
        except StoreError as error:
            self.trouble = error
            raise
        finally:
            self._writing = None
        self.trouble = None
        if batch:
            del self._queue[: len(batch)]
            self._durable = batch[-1].seq

    def _write(self, batch: tuple[_Queued, ...]) -> None:
        """Runs in a thread: nothing here touches what the loop's thread changes."""
        self._segment.append(b"".join([self._line(queued) for queued in batch]))

    def _line(self, queued: _Queued) -> bytes:
        entry, mark = queued.entry, ""
        content = heavy_content(entry)
        if content is not None:
            try:
                mark = blob_mark(self._blobs.put(content), len(content))
            except OSError as error:
                raise translated(error, self.place / "blobs") from error
            entry = without_content(entry)
        return encode(entry, queued.seq, self._epoch, queued.time, mark)


def _seen(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # kept in `trouble`, and raised to whoever flushes


class Resumed(msgspec.Struct, frozen=True):
    """A session taken up again. `damages` is what could not be read, `notes` are for the person."""

    journal: Journal
    view: View
    damages: tuple[Damage, ...] = ()
    notes: tuple[str, ...] = ()


def resume(
    place: Path,
    *,
    take_over: bool = False,
    files: Files | None = None,
    clock: Callable[[], float] = time.time,
) -> Resumed:
    """Open a session where it stopped, whatever stopped it.

    `take_over` opens it although another process has it: that one finds out before it writes
    again, and stops. SessionUnknown, SessionBusy and SessionTooNew say what they mean.
    """
    files = files or LocalFiles()
    reading = Reading(place)
    if reading.is_newer:
        assert reading.header is not None
        raise SessionTooNew(
            f"session {place.name} is of format {reading.header.format}, and this version writes "
            f"format {FORMAT}: it can be shown and exported, but not gone on with. Update treadle."
        )
    lock = hold(place, files, take_over=take_over)
    try:
        if take_over:
            _announce(place, files, clock)
        return _resumed(Reading(place), lock, take_over, files, clock)
    except BaseException:
        files.close(lock)
        raise


def _announce(place: Path, files: Files, clock: Callable[[], float]) -> None:
    """Tell the old writer first; what it wrote before that is read with the rest."""
    reading = Reading(place)
    for _ in reading.lines():
        pass
    line = encode(me(), reading.seq, reading.epoch + 1, clock())
    try:
        fd = files.open(reading.tail.path, os.O_WRONLY | os.O_APPEND)
        try:
            write_all(files, fd, b"\n" + line if reading.tail.torn else line)
            files.sync(fd)
        finally:
            files.close(fd)
    except OSError as error:
        raise translated(error, reading.tail.path) from error


def _resumed(
    reading: Reading, lock: int, take_over: bool, files: Files, clock: Callable[[], float]
) -> Resumed:
    folding = Folding(reading)
    view = folding.view()
    place = reading.place
    journal = Journal(
        place,
        reading.header or Header(FORMAT, place.name, clock(), writer=__version__),
        seq=reading.seq,
        epoch=reading.epoch if take_over else reading.epoch + 1,
        tail=reading.tail,
        lock=lock,
        files=files,
        clock=clock,
        is_announced=take_over,
    )
    if reading.damages or folding.lost_blobs:
        view = msgspec.structs.replace(view, transcript=repaired(view.transcript))
    if view.open_turn is not None and isinstance(pending(view.transcript), Rest):
        # It had answered, and died before it could say that the turn was over.
        journal.append(TurnEnded(view.open_turn, "end_turn", "the process ended before it"))
        view = msgspec.structs.replace(view, open_turn=None)
    return Resumed(journal, view, tuple(reading.damages), _notes(reading, folding))


def _notes(reading: Reading, folding: Folding) -> tuple[str, ...]:
    """One line each, for the person."""
    notes = [f"the journal is damaged: {damage}" for damage in reading.damages]
    notes += [f"a blob is lost: {name}" for name in folding.lost_blobs]
    for kind, count in folding.unknown.items():
        notes.append(f"{count} entries of the unknown kind {kind!r} are ignored")
    if folding.shortened:
        notes.append(f"{folding.shortened} old items are too long to be shown to a model whole")
    return tuple(notes)


def me() -> Opened:
    return Opened(os.getpid(), socket.gethostname(), __version__)


def read(place: Path, *, upto: int | None = None) -> list[Entry]:
    """Every entry of a session, in order, its parents' first. Opens nothing for writing."""
    return [entry for _, entry in read_numbered(place, upto=upto)]


def read_numbered(place: Path, *, upto: int | None = None) -> list[tuple[Line, Entry]]:
    """The same, each with what its line says: number, time."""
    found: list[tuple[Line, Entry]] = []
    for line, where in Reading(place, upto=upto).lines():
        try:
            entry = decode(line.raw)
        except msgspec.DecodeError:
            continue  # a kind of a newer version
        lost = Text(f"[This content is lost: blob {line.blob}.]")
        whole = with_blob(entry, line.blob, where) or with_content(entry, (lost,))
        found.append((msgspec.structs.replace(line, raw=b""), whole))
    return found

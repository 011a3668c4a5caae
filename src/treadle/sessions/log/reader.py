"""Reads a journal, also a damaged one.

Valid lines are returned by their number, once each; everything else is reported with its position
and size and left in place. A journal may have several files (segments): a new one begins after a
failed sync. A fork begins with the lines of its parent, which are not copied. Nothing is written
here; segment.py removes a torn tail.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from pathlib import Path
from typing import BinaryIO

import msgspec

from treadle.core.errors import SessionNotFound, StoreError
from treadle.lib.text.text import plural
from treadle.sessions.log.hash_chain import find_hash
from treadle.sessions.log.records import JournalHeader, Record, decode_header, parse_record

FIRST_SEGMENT = "journal.jsonl"
MAX_HELD_LINES = 16  # that wait for a missing one
_BUFFER = 1 << 20
_RECORD_START = b'{"c":"'


class Damage(msgspec.Struct, frozen=True):
    """A part of a journal that could not be read."""

    path: str
    line: int
    bytes: int
    problem: str

    def __str__(self) -> str:
        place = f"{self.path}, line {self.line}" if self.line else self.path
        size = f" ({plural(self.bytes, 'byte')})" if self.bytes else ""
        return f"{place}: {self.problem}{size}"


class JournalTail(msgspec.Struct, frozen=True):
    """The last file of a journal: where its last complete line ends, and what follows it."""

    path: Path
    segment: int = 1
    end: int = 0
    torn_bytes: int = 0
    lacks_newline: bool = False


class JournalReader:
    """One pass over the lines of a session. Its attributes are complete after the pass."""

    def __init__(self, session_dir: Path, *, last_seq: int | None = None) -> None:
        self.session_dir = session_dir
        self.header = read_header(session_dir)
        self.damage: list[Damage] = []
        self.damaged_after = -1  # the number of the entry before the last damage
        self.seq = 0
        self.epoch = 0
        self.tail = JournalTail(session_dir / FIRST_SEGMENT)
        self._last_seq = last_seq
        self.head = b""  # the last hash
        self._opened_seq = 0  # the last entry when the current writer opened the session
        self._highest_held_seq = 0

    def records(self) -> Iterator[tuple[Record, Path]]:
        """Every valid line, with the folder of its session, which has its blobs."""
        for session_dir, last_seq in list_lineage(self.session_dir):
            limits = [seq for seq in (self._last_seq, last_seq) if seq is not None]
            limit = min(limits) if limits else None
            yield from self._session_records(session_dir, limit)

    def own_records(self) -> Iterator[Record]:
        """Every valid line of this session alone."""
        parent = self.header.parent if self.header is not None else None
        self.seq = parent.seq if parent is not None else 0
        return (line for line, _ in self._session_records(self.session_dir, self._last_seq))

    def read_to_end(self) -> None:
        """Complete the attributes; the lines are not needed."""
        for _ in self.records():
            pass

    def _session_records(
        self, session_dir: Path, limit: int | None
    ) -> Iterator[tuple[Record, Path]]:
        self.epoch = self._opened_seq = self._highest_held_seq = 0
        for line, path in self._records_in_order(session_dir):
            if limit is not None and line.seq > limit:
                return
            if self._accept(line, path):
                yield line, session_dir

    def _records_in_order(self, session_dir: Path) -> Iterator[tuple[Record, Path]]:
        """The lines by their number: one that comes too early is held back for a few lines."""
        held: list[tuple[int, int, Record, Path]] = []
        count = 0
        for number, path in enumerate(list_segments(session_dir), start=1):
            for line in self._file_records(path, number):
                if not held and line.seq <= self.seq + 1:
                    yield line, path
                    continue
                if line.kind == "opened":
                    while held:
                        yield heappop(held)[2:]
                    yield line, path
                    continue
                count += 1
                self._highest_held_seq = max(self._highest_held_seq, line.seq)
                heappush(held, (line.seq, count, line, path))
                while held and (held[0][0] <= self.seq + 1 or len(held) > MAX_HELD_LINES):
                    yield heappop(held)[2:]
        while held:
            yield heappop(held)[2:]

    def _accept(self, line: Record, path: Path) -> bool:
        if line.seq == self.seq + 1 and line.epoch == self.epoch and line.kind != "opened":
            self.seq += 1
            self.head = find_hash(line.raw) or self.head
            return True
        is_early_opening = self.seq < line.seq <= self._opened_seq  # its line came too early
        if line.epoch < self.epoch and not is_early_opening:
            problem = f"entry {line.seq} is from a writer that was replaced"
            self.add_damage(path, 0, len(line.raw), problem)
            return False
        if line.kind == "opened":
            self.epoch, self._opened_seq = line.epoch, line.seq
            return False
        if line.seq <= self.seq:
            return False
        if line.seq > self.seq + 1:
            self.add_damage(path, 0, 0, _describe_missing(self.seq + 1, line.seq - 1))
        self.seq, self.epoch = line.seq, max(self.epoch, line.epoch)
        self.head = find_hash(line.raw) or self.head
        return True

    def _file_records(self, path: Path, segment: int) -> Iterator[Record]:
        end, start, number, torn, raw = 0, 0, 0, 0, b"\n"
        has_header = False
        first_torn = 0
        with open_segment(path) as file:
            for number, raw in enumerate(file, start=1):
                size = len(raw)
                start += size
                line = parse_record(raw)
                if line is None and decode_header(raw) is not None:
                    has_header, end = True, start
                    continue
                if line is None:
                    if not torn:
                        first_torn = number
                    line = _find_record(raw)
                    torn += size if line is None else raw.rindex(line.raw)
                    if line is None:
                        continue
                if torn:
                    self.add_damage(path, first_torn, torn, "skipped: not a line of a journal")
                    torn = 0
                end = start
                yield line
        lacks_newline = raw[-1:] != b"\n"
        self.tail = JournalTail(path, segment, end, torn, lacks_newline and not torn)
        if torn:
            self.add_damage(path, first_torn, torn, "skipped: the last line is incomplete")
        if not has_header and not any(one.path == str(path) for one in self.damage):
            problem = "the header is missing" if number else "the file is empty"
            self.damage.append(Damage(str(path), 0, 0, problem))  # no entry after it is lost

    def add_damage(self, path: Path, line: int, size: int, problem: str) -> None:
        """Report a part that could not be read; line 0 if its line is not known."""
        self.damage.append(Damage(str(path), line, size, problem))
        self.damaged_after = max(self.seq, self._highest_held_seq)


def _describe_missing(first: int, last: int) -> str:
    return (
        f"entry {first} is missing" if first == last else f"entries {first} to {last} are missing"
    )


def find_damage(session_dir: Path) -> list[Damage]:
    """The unreadable parts of a session and its parents. Opens nothing for writing."""
    reader = JournalReader(session_dir)
    reader.read_to_end()
    return reader.damage


def _find_record(raw: bytes) -> Record | None:
    """The complete line after a torn one, or after a block of zeros."""
    start = raw.rfind(_RECORD_START)
    while start > 0:
        record = parse_record(raw[start:])
        if record is not None:
            return record
        start = raw.rfind(_RECORD_START, 0, start)
    return None


def list_segments(session_dir: Path) -> list[Path]:
    """The files of a journal, in order."""
    files = [session_dir / FIRST_SEGMENT]
    while (path := session_dir / f"journal-{len(files) + 1}.jsonl").exists():
        files.append(path)
    if not files[0].exists():
        raise SessionNotFound(f"there is no session in {session_dir}")
    return files


def open_segment(path: Path, buffering: int = _BUFFER) -> BinaryIO:
    """A file of a journal, open for reading; a StoreError if it cannot be read."""
    advice = f"Move {path.parent} away, or use another session"
    try:
        if not path.is_file():  # a folder, or a pipe, which would block
            raise StoreError(f"{path} cannot be read: it is not a file. {advice}.")
        return path.open("rb", buffering=buffering)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}. {advice}.") from error


def read_header(session_dir: Path) -> JournalHeader | None:
    """The header of a session; None if it is damaged."""
    for path in list_segments(session_dir):
        with open_segment(path, buffering=4096) as file:
            header = decode_header(file.readline(1 << 20).rstrip(b"\n"))
            if header is not None:
                return header
    return None


def measure_log(session_dir: Path) -> int:
    """The bytes of the files of a session and of those that it was forked from."""
    folders = [folder for folder, _ in list_lineage(session_dir)]
    return sum(path.stat().st_size for folder in folders for path in list_segments(folder))


def list_lineage(session_dir: Path) -> list[tuple[Path, int | None]]:
    """The session and the parents it was forked from, oldest first, each with its last entry."""
    lineage: list[tuple[Path, int | None]] = [(session_dir, None)]
    header = read_header(session_dir)
    while header is not None and header.parent is not None:
        parent = header.parent
        child_last = lineage[0][1]
        last_seq = parent.seq if child_last is None else min(parent.seq, child_last)
        session_dir = find_session_dir(session_dir, parent.session)
        if any(session_dir == known for known, _ in lineage):
            raise StoreError(f"session {parent.session} is its own ancestor; its header is wrong")
        lineage.insert(0, (session_dir, last_seq))
        header = read_header(session_dir)
    return lineage


def find_session_dir(session_dir: Path, session_id: str) -> Path:
    """The folder of another session: in the same project, or in any other."""
    root = session_dir.parent.parent
    for path in (session_dir.parent / session_id, *root.glob(f"*/{session_id}")):
        if (path / FIRST_SEGMENT).exists():
            return path
    name = session_dir.name
    raise SessionNotFound(f"session {name} is a fork of {session_id}, which no longer exists")

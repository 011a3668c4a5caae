"""A journal read back, whatever happened to its files.

Lines that vouch for themselves are given in order, once each; everything else is reported with
its place and size and left where it is. A journal may be several files (segments): a new one
begins where the disk would not take more of the old one. A fork begins with its parent's lines,
which are not copied. Nothing is written here; journal.py cuts off a torn tail.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from treadle.core.errors import SessionNotFound, StoreError
from treadle.sessions.log.records import (
    FORMAT_VERSION,
    JournalHeader,
    Record,
    decode_header,
    parse_record,
)

FIRST_SEGMENT = "journal.jsonl"
_BUFFER = 1 << 20
_RECORD_START = b'{"c":"'


class Damage(msgspec.Struct, frozen=True):
    """Something in a journal that could not be used."""

    path: str
    line: int
    bytes: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.problem} ({self.bytes} bytes)"


class JournalTail(msgspec.Struct, frozen=True):
    """The last file of a journal: where its last whole line ends, and what stands behind it."""

    path: Path
    segment: int = 1
    end: int = 0
    torn_bytes: int = 0
    lacks_newline: bool = False
    has_header: bool = False


class JournalReader:
    """One pass over a session's lines. What was found out is known when the pass is over."""

    def __init__(self, session_dir: Path, *, last_seq: int | None = None) -> None:
        self.session_dir = session_dir
        self.header = read_header(session_dir)
        self.damage: list[Damage] = []
        self.duplicate_count = 0
        self.seq = 0
        self.epoch = 0
        self.tail = JournalTail(session_dir / FIRST_SEGMENT)
        self._last_seq = last_seq

    @property
    def is_newer_format(self) -> bool:
        return self.header is not None and self.header.format > FORMAT_VERSION

    def records(self) -> Iterator[tuple[Record, Path]]:
        """Every line that counts, with the folder in which its blobs stand."""
        for place, upto in list_lineage(self.session_dir):
            limit = self._last_seq if upto is None else upto
            for line in self._session_records(place, limit):
                yield line, place

    def _session_records(self, session_dir: Path, limit: int | None) -> Iterator[Record]:
        self.epoch = 0
        for number, path in enumerate(list_segments(session_dir), start=1):
            for line in self._file_records(path, number):
                if limit is not None and line.seq > limit:
                    return
                if self._accept(line, path):
                    yield line

    def _accept(self, line: Record, path: Path) -> bool:
        if line.epoch < self.epoch:
            self._add_damage(
                path, 0, len(line.raw), f"entry {line.seq} is of a writer that was replaced"
            )
            return False
        if line.kind == "opened":
            self.epoch = line.epoch
            return False
        if line.seq <= self.seq:
            self.duplicate_count += 1
            return False
        if line.seq > self.seq + 1:
            lost = f"{self.seq + 1} to {line.seq - 1}"
            self._add_damage(path, 0, 0, f"the entries {lost} are missing before this place")
        self.seq, self.epoch = line.seq, line.epoch
        return True

    def _file_records(self, path: Path, segment: int) -> Iterator[Record]:
        end, start, number, torn = 0, 0, 0, 0
        lacks_newline = has_header = False
        first_torn = 0
        with path.open("rb", buffering=_BUFFER) as file:
            for raw in file:
                number += 1
                size = len(raw)
                start += size
                lacks_newline = raw[-1:] != b"\n"
                line = parse_record(raw)
                if line is None and decode_header(raw) is not None:
                    has_header, end = True, start
                    continue
                if line is None:
                    if not torn:
                        first_torn = number
                    line = _find_record(raw)
                    lost = size if line is None else raw.rindex(line.raw)
                    torn += lost
                    if line is None:
                        continue
                if torn:
                    problem = "not a line of a journal, skipped"
                    self._add_damage(path, first_torn, torn, problem)
                    torn = 0
                end = start
                yield line
        self.tail = JournalTail(path, segment, end, torn, lacks_newline and not torn, has_header)
        if torn:
            self._add_damage(
                path, first_torn, torn, "the last line was not written whole, left out"
            )

    def _add_damage(self, path: Path, line: int, size: int, problem: str) -> None:
        self.damage.append(Damage(str(path), line, size, problem))


def _find_record(raw: bytes) -> Record | None:
    """The whole line behind a torn one, or behind a block of zeros."""
    at = raw.rfind(_RECORD_START)
    while at > 0:
        line = parse_record(raw[at:])
        if line is not None:
            return line
        at = raw.rfind(_RECORD_START, 0, at)
    return None


def list_segments(session_dir: Path) -> list[Path]:
    """The files of a journal, in order."""
    found = [session_dir / FIRST_SEGMENT]
    while (path := session_dir / f"journal-{len(found) + 1}.jsonl").exists():
        found.append(path)
    if not found[0].exists():
        raise SessionNotFound(f"there is no session in {session_dir}")
    return found


def read_header(session_dir: Path) -> JournalHeader | None:
    """What a session says of itself; None if its first line is lost."""
    for path in list_segments(session_dir):
        with path.open("rb", buffering=4096) as file:
            header = decode_header(file.readline(1 << 20).rstrip(b"\n"))
            if header is not None:
                return header
    return None


def list_lineage(session_dir: Path) -> list[tuple[Path, int | None]]:
    """The sessions whose lines make up this one, oldest first, each with its last entry."""
    found: list[tuple[Path, int | None]] = [(session_dir, None)]
    header = read_header(session_dir)
    while header is not None and header.parent is not None:
        parent = header.parent
        upto = min(parent.seq, found[0][1]) if found[0][1] is not None else parent.seq
        session_dir = find_session_dir(session_dir, parent.session)
        if any(session_dir == known for known, _ in found):
            raise StoreError(f"session {parent.session} is its own ancestor; its header is wrong")
        found.insert(0, (session_dir, upto))
        header = read_header(session_dir)
    return found


def find_session_dir(session_dir: Path, session_id: str) -> Path:
    """Where another session is: with this one's project, or with any other."""
    near = session_dir.parent / session_id
    if (near / FIRST_SEGMENT).exists():
        return near
    for far in session_dir.parent.parent.glob(f"*/{session_id}"):
        if (far / FIRST_SEGMENT).exists():
            return far
    raise SessionNotFound(
        f"session {session_dir.name} is a fork of {session_id}, which is not there any more"
    )

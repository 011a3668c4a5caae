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

from treadle.core.errors import SessionUnknown, StoreError
from treadle.sessions.lines import FORMAT, Header, Line, decode_header, parse

FIRST = "journal.jsonl"
_BUFFER = 1 << 20
_MARK = b'{"c":"'


class Damage(msgspec.Struct, frozen=True):
    """Something in a journal that could not be used."""

    path: str
    line: int
    bytes: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.problem} ({self.bytes} bytes)"


class Tail(msgspec.Struct, frozen=True):
    """The last file of a journal: where its last whole line ends, and what stands behind it."""

    path: Path
    segment: int = 1
    end: int = 0
    torn: int = 0
    lacks_newline: bool = False
    has_header: bool = False


class Reading:
    """One pass over a session's lines. What was found out is known when the pass is over."""

    def __init__(self, place: Path, *, upto: int | None = None) -> None:
        self.place = place
        self.header = read_header(place)
        self.damages: list[Damage] = []
        self.duplicates = 0
        self.seq = 0
        self.epoch = 0
        self.tail = Tail(place / FIRST)
        self._upto = upto

    @property
    def is_newer(self) -> bool:
        return self.header is not None and self.header.format > FORMAT

    def lines(self) -> Iterator[tuple[Line, Path]]:
        """Every line that counts, with the folder in which its blobs stand."""
        for place, upto in lineage(self.place):
            limit = self._upto if upto is None else upto
            for line in self._of_session(place, limit):
                yield line, place

    def _of_session(self, place: Path, limit: int | None) -> Iterator[Line]:
        self.epoch = 0
        for number, path in enumerate(segments(place), start=1):
            for line in self._of_file(path, number):
                if limit is not None and line.seq > limit:
                    return
                if self._counts(line, path):
                    yield line

    def _counts(self, line: Line, path: Path) -> bool:
        if line.epoch < self.epoch:
            self._note(path, 0, len(line.raw), f"entry {line.seq} is of a writer that was replaced")
            return False
        if line.kind == "opened":
            self.epoch = line.epoch
            return False
        if line.seq <= self.seq:
            self.duplicates += 1
            return False
        if line.seq > self.seq + 1:
            lost = f"{self.seq + 1} to {line.seq - 1}"
            self._note(path, 0, 0, f"the entries {lost} are missing before this place")
        self.seq, self.epoch = line.seq, line.epoch
        return True

    def _of_file(self, path: Path, segment: int) -> Iterator[Line]:
        end, start, number, torn = 0, 0, 0, 0
        lacks_newline = has_header = False
        first_torn = 0
        with path.open("rb", buffering=_BUFFER) as file:
            for raw in file:
                number += 1
                size = len(raw)
                start += size
                lacks_newline = raw[-1:] != b"\n"
                line = parse(raw)
                if line is None and decode_header(raw) is not None:
                    has_header, end = True, start
                    continue
                if line is None:
                    if not torn:
                        first_torn = number
                    line = _line_inside(raw)
                    lost = size if line is None else raw.rindex(line.raw)
                    torn += lost
                    if line is None:
                        continue
                if torn:
                    problem = "not a line of a journal, skipped"
                    self._note(path, first_torn, torn, problem)
                    torn = 0
                end = start
                yield line
        self.tail = Tail(path, segment, end, torn, lacks_newline and not torn, has_header)
        if torn:
            self._note(path, first_torn, torn, "the last line was not written whole, left out")

    def _note(self, path: Path, line: int, size: int, problem: str) -> None:
        self.damages.append(Damage(str(path), line, size, problem))


def _line_inside(raw: bytes) -> Line | None:
    """The whole line behind a torn one, or behind a block of zeros."""
    at = raw.rfind(_MARK)
    while at > 0:
        line = parse(raw[at:])
        if line is not None:
            return line
        at = raw.rfind(_MARK, 0, at)
    return None


def segments(place: Path) -> list[Path]:
    """The files of a journal, in order."""
    found = [place / FIRST]
    while (path := place / f"journal-{len(found) + 1}.jsonl").exists():
        found.append(path)
    if not found[0].exists():
        raise SessionUnknown(f"there is no session in {place}")
    return found


def read_header(place: Path) -> Header | None:
    """What a session says of itself; None if its first line is lost."""
    for path in segments(place):
        with path.open("rb", buffering=4096) as file:
            header = decode_header(file.readline(1 << 20).rstrip(b"\n"))
            if header is not None:
                return header
    return None


def lineage(place: Path) -> list[tuple[Path, int | None]]:
    """The sessions whose lines make up this one, oldest first, each with its last entry."""
    found: list[tuple[Path, int | None]] = [(place, None)]
    header = read_header(place)
    while header is not None and header.parent is not None:
        parent = header.parent
        upto = min(parent.seq, found[0][1]) if found[0][1] is not None else parent.seq
        place = beside(place, parent.session)
        if any(place == known for known, _ in found):
            raise StoreError(f"session {parent.session} is its own ancestor; its header is wrong")
        found.insert(0, (place, upto))
        header = read_header(place)
    return found


def beside(place: Path, session_id: str) -> Path:
    """Where another session is: with this one's project, or with any other."""
    near = place.parent / session_id
    if (near / FIRST).exists():
        return near
    for far in place.parent.parent.glob(f"*/{session_id}"):
        if (far / FIRST).exists():
            return far
    raise SessionUnknown(
        f"session {place.name} is a fork of {session_id}, which is not there any more"
    )

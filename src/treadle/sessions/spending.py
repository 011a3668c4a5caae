"""What sessions spent: their model calls, read off the journals and summed up.

    expenses   calls by quarter of an hour, model, session and folder; child agents count as theirs
    totals     the same by model, session, day or folder

Only the lines that say what a call used are decoded. What was found is remembered in one file
beside the index, which is believed while a journal has the length and the time that it had, and
may be deleted at any moment. What a session spent is forgotten with the session.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from treadle.core.errors import SessionUnknown
from treadle.core.transcript.usage import Usage
from treadle.sessions.family import descendants
from treadle.sessions.files import LocalFiles
from treadle.sessions.library import Library
from treadle.sessions.lines import is_whole
from treadle.sessions.reading import FIRST, read_header, segments

MEMORY = "spending.jsonl"
QUARTER = 900  # seconds; every zone's day begins with one
_CHUNK = 4 << 20
_KIND = b'"kind":"usage"'

By = Literal["model", "session", "day", "project"]


class Expense(msgspec.Struct, frozen=True):
    """Calls of one model in one quarter of an hour. Either all have a price, or none."""

    at: int
    model: str
    session: str
    folder: str
    calls: int
    usage: Usage


class Total(msgspec.Struct, frozen=True):
    """A sum. `usage.cost` is what is known of it; `unpriced` calls come on top."""

    key: str
    calls: int = 0
    unpriced: int = 0
    usage: Usage = Usage()

    @property
    def cost(self) -> float | None:
        """USD; None if nothing here has a known price."""
        return None if self.unpriced and self.unpriced == self.calls else self.usage.cost

    def plus(self, expense: Expense) -> Total:
        used, unknown = expense.usage, expense.usage.cost is None
        known = msgspec.structs.replace(used, cost=0.0) if unknown else used
        return Total(
            self.key,
            self.calls + expense.calls,
            self.unpriced + expense.calls * unknown,
            self.usage + known,
        )


def expenses(
    library: Library, *, since: float | None = None, folder: Path | None = None
) -> list[Expense]:
    """What was spent from `since` (seconds since 1970) on, in all projects or in one."""
    memory = _Memory(library.root)
    found: list[Expense] = []
    home = str(folder.resolve()) if folder is not None else None
    for session in library.places():
        for place in (session, *descendants(session)):
            kept = memory.look(place, since)
            if kept is None or home not in (None, kept.folder):
                continue
            found += [
                Expense(row.at, row.model, session.name, kept.folder, row.calls, row.usage)
                for row in kept.rows
                if since is None or row.at + QUARTER > since
            ]
    memory.save()
    return found


def totals(spent: Iterable[Expense], by: By) -> list[Total]:
    """Sums under each key: days in order, the dearest first of everything else."""
    key = KEYS[by]
    sums: dict[str, Total] = {}
    for expense in spent:
        name = key(expense)
        sums[name] = sums.get(name, Total(name)).plus(expense)
    if by == "day":
        return sorted(sums.values(), key=lambda one: one.key)
    return sorted(sums.values(), key=lambda one: (one.cost or 0.0, one.usage.total), reverse=True)


def total(spent: Iterable[Expense], key: str = "all") -> Total:
    """All of it."""
    whole = Total(key)
    for expense in spent:
        whole = whole.plus(expense)
    return whole


@lru_cache(maxsize=10_000)
def day_of(seconds: float) -> str:
    """The day here, as 2026-10-31."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d")


KEYS: dict[By, Callable[[Expense], str]] = {
    "model": lambda expense: expense.model,
    "session": lambda expense: expense.session,
    "day": lambda expense: day_of(expense.at),
    "project": lambda expense: expense.folder,
}


# --- reading ---------------------------------------------------------------------------------


class _Row(msgspec.Struct, frozen=True, array_like=True):
    at: int
    model: str
    calls: int
    usage: Usage


class _Kept(msgspec.Struct, frozen=True):
    """What is known of one journal, and how far it was read."""

    place: str  # below the library's root
    folder: str
    segment: int
    offset: int
    bytes: int
    modified: int
    newest: dict[int, int]  # by epoch, the last entry counted: a line may stand there twice
    rows: list[_Row]


class _Memory:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._skipped = len(str(root)) + 1
        self._known = _load(root / MEMORY)
        self._used: dict[str, _Kept] = {}

    def look(self, place: Path, since: float | None) -> _Kept | None:
        """What a journal spent; None if there is none, or all of it is older."""
        name = str(place)[self._skipped :]
        known = self._known.get(name)
        try:
            files = segments(place) if (place / "journal-2.jsonl").exists() else [place / FIRST]
            status = files[-1].stat()
            if known is None and since is not None and status.st_mtime < since:
                return None
            is_same = known is not None and (len(files), status.st_size, status.st_mtime_ns) == (
                known.segment,
                known.bytes,
                known.modified,
            )
            kept = known if is_same else _read(place, name, files, status, known)
        except (OSError, SessionUnknown):
            return None  # removed while we looked, or not ours to read
        if kept is not None:
            self._used[name] = kept
        return kept

    def save(self) -> None:
        """What was looked at stays known; a disk that takes no more costs only the memory."""
        if self._used.items() <= self._known.items():
            return
        path = self._root / MEMORY
        draft = path.with_name(f".{MEMORY}.{os.getpid()}")
        try:
            fd = LocalFiles().open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with os.fdopen(fd, "wb") as file:
                for name, kept in {**self._known, **self._used}.items():
                    if name in self._used or (self._root / name / FIRST).exists():
                        file.write(msgspec.json.encode(kept) + b"\n")
            draft.replace(path)
        except OSError:
            return


def _read(
    place: Path, name: str, files: list[Path], status: os.stat_result, known: _Kept | None
) -> _Kept:
    if known is not None and (
        known.segment > len(files)
        or (known.segment == len(files) and known.offset > status.st_size)
    ):
        known = None  # cut since then
    header = read_header(place) if known is None else None
    folder = known.folder if known is not None else header.folder if header is not None else ""
    newest = dict(known.newest) if known is not None else {}
    rows = {(r.at, r.model, r.usage.cost is None): r for r in known.rows} if known else {}
    segment, offset = (known.segment, known.offset) if known is not None else (1, 0)
    for number in range(segment, len(files) + 1):
        scan = _Scan(files[number - 1], offset if number == segment else 0)
        for raw in scan.lines():
            _count(raw, newest, rows)
        offset = scan.offset
    return _Kept(
        name,
        folder,
        len(files),
        offset,
        status.st_size,
        status.st_mtime_ns,
        newest,
        list(rows.values()),
    )


class _Line(msgspec.Struct, frozen=True, gc=False):
    """A line of kind `usage`, without what else the journal says of it."""

    n: int
    e: int
    t: float
    kind: Literal["usage"]
    model: str
    usage: Usage


_decoder = msgspec.json.Decoder(_Line)


def _count(raw: bytes, newest: dict[int, int], rows: dict[tuple[int, str, bool], _Row]) -> None:
    try:
        line = _decoder.decode(raw)
    except msgspec.DecodeError:
        return
    if line.n <= newest.get(line.e, -1) or not is_whole(raw):
        return
    newest[line.e] = line.n
    at, is_unknown = int(line.t) // QUARTER * QUARTER, line.usage.cost is None
    key = (at, line.model, is_unknown)
    before = rows.get(key, _Row(at, line.model, 0, _NOTHING[is_unknown]))
    rows[key] = _Row(at, line.model, before.calls + 1, before.usage + line.usage)


_NOTHING = {True: Usage(cost=None), False: Usage()}


class _Scan:
    """The lines of a file that may say what a call used; `offset` is where the whole ones end."""

    def __init__(self, path: Path, offset: int) -> None:
        self._path = path
        self.offset = offset

    def lines(self) -> Iterator[bytes]:
        with self._path.open("rb", buffering=0) as file:
            file.seek(self.offset)
            rest = b""
            while chunk := file.read(_CHUNK):
                data = rest + chunk
                end = data.rfind(b"\n") + 1
                yield from _hits(data, end)
                rest = data[end:]
                self.offset += end


def _hits(data: bytes, end: int) -> Iterator[bytes]:
    place = 0
    while (hit := data.find(_KIND, place, end)) >= 0:
        place = data.find(b"\n", hit) + 1
        yield data[data.rfind(b"\n", 0, hit) + 1 : place]


def _load(path: Path) -> dict[str, _Kept]:
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    decoder = msgspec.json.Decoder(_Kept)
    found: dict[str, _Kept] = {}
    for line in data.splitlines():
        try:
            kept = decoder.decode(line)
        except msgspec.DecodeError:
            continue
        found[kept.place] = kept
    return found

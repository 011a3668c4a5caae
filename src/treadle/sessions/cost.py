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

from treadle.core.errors import SessionNotFound
from treadle.core.transcript.usage import Usage
from treadle.sessions.children import list_descendants
from treadle.sessions.library import Library
from treadle.sessions.log.files import LocalFiles
from treadle.sessions.log.reader import FIRST_SEGMENT, list_segments, read_header
from treadle.sessions.log.records import has_valid_checksum

CACHE_NAME = "spending.jsonl"
BUCKET_SECONDS = 900  # seconds; every zone's day begins with one
_CHUNK = 4 << 20
_KIND = b'"kind":"usage"'

GroupBy = Literal["model", "session", "day", "project"]


class CostBucket(msgspec.Struct, frozen=True):
    """Calls of one model in one quarter of an hour. Either all have a price, or none."""

    start: int
    model: str
    session: str
    folder: str
    calls: int
    usage: Usage


class CostTotal(msgspec.Struct, frozen=True):
    """A sum. `usage.cost` is what is known of it; `unpriced` calls come on top."""

    key: str
    calls: int = 0
    unpriced_calls: int = 0
    usage: Usage = Usage()

    @property
    def cost(self) -> float | None:
        """USD; None if nothing here has a known price."""
        return (
            None if self.unpriced_calls and self.unpriced_calls == self.calls else self.usage.cost
        )

    def add(self, bucket: CostBucket) -> CostTotal:
        used, unknown = bucket.usage, bucket.usage.cost is None
        known = msgspec.structs.replace(used, cost=0.0) if unknown else used
        return CostTotal(
            self.key,
            self.calls + bucket.calls,
            self.unpriced_calls + bucket.calls * unknown,
            self.usage + known,
        )


def read_costs(
    library: Library, *, since: float | None = None, folder: Path | None = None
) -> list[CostBucket]:
    """What was spent from `since` (seconds since 1970) on, in all projects or in one."""
    memory = _CostCache(library.root)
    found: list[CostBucket] = []
    home = str(folder.resolve()) if folder is not None else None
    for session in library.list_session_dirs():
        for place in (session, *list_descendants(session)):
            kept = memory.get(place, since)
            if kept is None or home not in (None, kept.folder):
                continue
            found += [
                CostBucket(row.start, row.model, session.name, kept.folder, row.calls, row.usage)
                for row in kept.rows
                if since is None or row.start + BUCKET_SECONDS > since
            ]
    memory.save()
    return found


def group_costs(costs: Iterable[CostBucket], by: GroupBy) -> list[CostTotal]:
    """Sums under each key: days in order, the dearest first of everything else."""
    key = GROUP_KEYS[by]
    sums: dict[str, CostTotal] = {}
    for expense in costs:
        name = key(expense)
        sums[name] = sums.get(name, CostTotal(name)).add(expense)
    if by == "day":
        return sorted(sums.values(), key=lambda one: one.key)
    return sorted(sums.values(), key=lambda one: (one.cost or 0.0, one.usage.total), reverse=True)


def sum_costs(costs: Iterable[CostBucket], key: str = "all") -> CostTotal:
    """All of it."""
    whole = CostTotal(key)
    for expense in costs:
        whole = whole.add(expense)
    return whole


@lru_cache(maxsize=10_000)
def format_local_day(seconds: float) -> str:
    """The day here, as 2026-10-31."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d")


GROUP_KEYS: dict[GroupBy, Callable[[CostBucket], str]] = {
    "model": lambda expense: expense.model,
    "session": lambda expense: expense.session,
    "day": lambda expense: format_local_day(expense.start),
    "project": lambda expense: expense.folder,
}


# --- reading ---------------------------------------------------------------------------------


class _CacheRow(msgspec.Struct, frozen=True, array_like=True):
    start: int
    model: str
    calls: int
    usage: Usage


class _CachedJournal(msgspec.Struct, frozen=True):
    """What is known of one journal, and how far it was read."""

    key: str = msgspec.field(name="place")  # below the library's root
    folder: str
    segment: int
    offset: int
    bytes: int
    modified: int
    last_seqs: dict[int, int] = msgspec.field(
        name="newest"
    )  # by epoch, the last entry counted: a line may stand there twice
    rows: list[_CacheRow]


class _CostCache:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._prefix_length = len(str(root)) + 1
        self._saved = _load_cache(root / CACHE_NAME)
        self._current: dict[str, _CachedJournal] = {}

    def get(self, session_dir: Path, since: float | None) -> _CachedJournal | None:
        """What a journal spent; None if there is none, or all of it is older."""
        name = str(session_dir)[self._prefix_length :]
        known = self._saved.get(name)
        try:
            files = (
                list_segments(session_dir)
                if (session_dir / "journal-2.jsonl").exists()
                else [session_dir / FIRST_SEGMENT]
            )
            status = files[-1].stat()
            if known is None and since is not None and status.st_mtime < since:
                return None
            is_same = known is not None and (len(files), status.st_size, status.st_mtime_ns) == (
                known.segment,
                known.bytes,
                known.modified,
            )
            kept = known if is_same else _read_journal(session_dir, name, files, status, known)
        except (OSError, SessionNotFound):
            return None  # removed while we looked, or not ours to read
        if kept is not None:
            self._current[name] = kept
        return kept

    def save(self) -> None:
        """What was looked at stays known; a disk that takes no more costs only the memory."""
        if self._current.items() <= self._saved.items():
            return
        path = self._root / CACHE_NAME
        draft = path.with_name(f".{CACHE_NAME}.{os.getpid()}")
        try:
            fd = LocalFiles().open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with os.fdopen(fd, "wb") as file:
                for name, kept in {**self._saved, **self._current}.items():
                    if name in self._current or (self._root / name / FIRST_SEGMENT).exists():
                        file.write(msgspec.json.encode(kept) + b"\n")
            draft.replace(path)
        except OSError:
            return


def _read_journal(
    session_dir: Path,
    name: str,
    files: list[Path],
    status: os.stat_result,
    previous: _CachedJournal | None,
) -> _CachedJournal:
    if previous is not None and (
        previous.segment > len(files)
        or (previous.segment == len(files) and previous.offset > status.st_size)
    ):
        previous = None  # cut since then
    header = read_header(session_dir) if previous is None else None
    folder = (
        previous.folder if previous is not None else header.folder if header is not None else ""
    )
    newest = dict(previous.last_seqs) if previous is not None else {}
    rows = {(r.start, r.model, r.usage.cost is None): r for r in previous.rows} if previous else {}
    segment, offset = (previous.segment, previous.offset) if previous is not None else (1, 0)
    for number in range(segment, len(files) + 1):
        scan = _UsageScanner(files[number - 1], offset if number == segment else 0)
        for raw in scan.lines():
            _add_record(raw, newest, rows)
        offset = scan.offset
    return _CachedJournal(
        name,
        folder,
        len(files),
        offset,
        status.st_size,
        status.st_mtime_ns,
        newest,
        list(rows.values()),
    )


class _UsageRecord(msgspec.Struct, frozen=True, gc=False):
    """A line of kind `usage`, without what else the journal says of it."""

    n: int
    e: int
    t: float
    kind: Literal["usage"]
    model: str
    usage: Usage


_decoder = msgspec.json.Decoder(_UsageRecord)


def _add_record(
    raw: bytes, last_seqs: dict[int, int], rows: dict[tuple[int, str, bool], _CacheRow]
) -> None:
    try:
        line = _decoder.decode(raw)
    except msgspec.DecodeError:
        return
    if line.n <= last_seqs.get(line.e, -1) or not has_valid_checksum(raw):
        return
    last_seqs[line.e] = line.n
    at, is_unknown = int(line.t) // BUCKET_SECONDS * BUCKET_SECONDS, line.usage.cost is None
    key = (at, line.model, is_unknown)
    before = rows.get(key, _CacheRow(at, line.model, 0, _ZERO_USAGE[is_unknown]))
    rows[key] = _CacheRow(at, line.model, before.calls + 1, before.usage + line.usage)


_ZERO_USAGE = {True: Usage(cost=None), False: Usage()}


class _UsageScanner:
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
                yield from _find_usage_lines(data, end)
                rest = data[end:]
                self.offset += end


def _find_usage_lines(data: bytes, end: int) -> Iterator[bytes]:
    place = 0
    while (hit := data.find(_KIND, place, end)) >= 0:
        place = data.find(b"\n", hit) + 1
        yield data[data.rfind(b"\n", 0, hit) + 1 : place]


def _load_cache(path: Path) -> dict[str, _CachedJournal]:
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    decoder = msgspec.json.Decoder(_CachedJournal)
    found: dict[str, _CachedJournal] = {}
    for line in data.splitlines():
        try:
            kept = decoder.decode(line)
        except msgspec.DecodeError:
            continue
        found[kept.key] = kept
    return found

"""The costs of past sessions, read from their logs.

    read_costs    calls by quarter of an hour, model, purpose, session and folder; those of child
                  agents count for their session, also of those that have no log of their own
    group_costs   the same by model, session, day, folder or purpose

Only the lines about usage are decoded. log_cache.py keeps the results; the costs of a session are
lost when the session is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from treadle.core.errors import StoreError
from treadle.core.transcript.usage import NO_USAGE, Usage
from treadle.sessions.children import list_descendants
from treadle.sessions.library import Library
from treadle.sessions.log.reader import list_segments, open_segment, read_header
from treadle.sessions.log.records import has_valid_checksum
from treadle.sessions.log_cache import LogCache, ReadPosition

CACHE_NAME = "spending.jsonl"
BUCKET_SECONDS = 900  # a day begins with a new bucket in every time zone
_CHUNK = 4 << 20
_KINDS = (b'"kind":"usage"', b'"kind":"child_usage"')

GroupBy = Literal["model", "session", "day", "project", "purpose"]


class CostBucket(msgspec.Struct, frozen=True):
    """Calls of one model in one quarter of an hour; either all have a price, or none."""

    start: int
    model: str
    session: str
    folder: str
    calls: int
    usage: Usage
    purpose: str = ""  # "": not recorded, as in logs of earlier versions


class CostTotal(msgspec.Struct, frozen=True):
    """A sum. `usage.cost` is the known part; `unpriced_calls` have no known price."""

    key: str
    calls: int = 0
    unpriced_calls: int = 0
    usage: Usage = Usage()

    @property
    def cost(self) -> float | None:
        """USD; None if nothing here has a known price."""
        return None if self.unpriced_calls == self.calls > 0 else self.usage.cost

    def add(self, bucket: CostBucket) -> CostTotal:
        used, unknown = bucket.usage, bucket.usage.cost is None
        known = msgspec.structs.replace(used, cost=0.0) if unknown else used
        unpriced = self.unpriced_calls + bucket.calls * unknown
        return CostTotal(self.key, self.calls + bucket.calls, unpriced, self.usage + known)


def read_costs(
    library: Library,
    *,
    since: float | None = None,
    folder: Path | None = None,
    sessions: Collection[str] | None = None,
) -> list[CostBucket]:
    """The costs from `since` (seconds since 1970) on, in all projects or in one folder; of these
    sessions only, if they are given."""
    cache = _CostCache(library.root)
    current: list[_CachedCosts] = []
    buckets: list[CostBucket] = []
    wanted_folder = str(folder.resolve()) if folder is not None else None
    for session in library.list_session_dirs():
        if sessions is not None and session.name not in sessions:
            continue
        session_dirs = (session, *list_descendants(session))
        counted = {session_dir.name for session_dir in session_dirs}
        for session_dir in session_dirs:
            costs = cache.get(session_dir, since)
            if costs is None:
                continue
            current.append(costs)
            # Of a child with a log, that log counts; without one, the topmost log that names it.
            children = costs.children or {}
            new = [row for name, rows in children.items() if name not in counted for row in rows]
            counted.update(children)
            if wanted_folder in (None, costs.folder):
                name, at = session.name, costs.folder
                buckets += [
                    CostBucket(row.start, row.model, name, at, row.calls, row.usage, row.purpose)
                    for row in (*costs.rows, *new)
                    if since is None or row.start + BUCKET_SECONDS > since
                ]
    cache.save(current)
    return buckets


def group_costs(costs: Iterable[CostBucket], by: GroupBy) -> list[CostTotal]:
    """Sums by key: days in order, everything else by cost, highest first."""
    get_key = GROUP_KEYS[by]
    totals: dict[str, CostTotal] = {}
    for bucket in costs:
        key = get_key(bucket)
        totals[key] = totals.get(key, CostTotal(key)).add(bucket)
    if by == "day":
        return sorted(totals.values(), key=lambda total: total.key)
    return sorted(totals.values(), key=lambda total: (-(total.cost or 0.0), -total.usage.total))


def sum_costs(costs: Iterable[CostBucket]) -> CostTotal:
    """The sum of all."""
    total = CostTotal("all")
    for bucket in costs:
        total = total.add(bucket)
    return total


@lru_cache(maxsize=10_000)
def format_local_day(seconds: float) -> str:
    """The day in the local time zone, as 2026-10-31."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d")


GROUP_KEYS: dict[GroupBy, Callable[[CostBucket], str]] = {
    "model": lambda bucket: bucket.model,
    "session": lambda bucket: bucket.session,
    "day": lambda bucket: format_local_day(bucket.start),
    "project": lambda bucket: bucket.folder,
    "purpose": lambda bucket: bucket.purpose.replace("_", " ") or "not recorded",
}


# --- reading ---------------------------------------------------------------------------------


class _CacheRow(msgspec.Struct, frozen=True, array_like=True):
    start: int
    model: str
    calls: int
    usage: Usage
    purpose: str = ""


class _CachedCosts(msgspec.Struct, frozen=True):
    """The costs of one log, and how far it was read."""

    key: str = msgspec.field(name="place")
    folder: str
    segment: int
    offset: int
    bytes: int
    modified: int
    # By epoch, the last entry counted: a line may exist twice.
    last_seqs: dict[int, int] = msgspec.field(name="newest")
    rows: list[_CacheRow]
    # What child agents used, by their session ids; None: written by a version that left it out.
    children: dict[str, list[_CacheRow]] | None = None

    @property
    def read_position(self) -> ReadPosition:
        return ReadPosition(self.segment, self.offset, self.bytes, self.modified)


class _CostCache(LogCache[_CachedCosts]):
    def __init__(self, root: Path) -> None:
        super().__init__(root, CACHE_NAME, _CachedCosts)

    def get(self, session_dir: Path, since: float | None) -> _CachedCosts | None:
        """The costs of a log; None if there is none, or all of it is older than `since`."""
        key = self.key(session_dir)
        known = self.records.get(key)
        known = known if known is not None and known.children is not None else None
        try:
            files = list_segments(session_dir)
            status = files[-1].stat()
            if known is not None and known.read_position.is_current(len(files), status):
                return known
            if known is None and since is not None and status.st_mtime < since:
                return None
            return _read_log(session_dir, key, files, known)
        except (OSError, StoreError):
            return None  # removed in the meantime, or not readable


def _read_log(
    session_dir: Path, key: str, files: list[Path], previous: _CachedCosts | None
) -> _CachedCosts:
    status = files[-1].stat()
    if previous is None or not previous.read_position.is_valid(len(files), status):
        header = read_header(session_dir)
        previous = _CachedCosts(key, header.folder if header else "", 1, 0, 0, 0, {}, [], {})
    last_seqs = dict(previous.last_seqs)
    rows: _Rows = {}
    for child, known in {"": previous.rows, **(previous.children or {})}.items():
        for row in known:
            rows[child, row.start, row.model, row.purpose, row.usage.cost is None] = row
    offset = previous.offset
    for path, offset in previous.read_position.unread_files(files):
        for chunk in _read_chunks(path, offset):
            offset += len(chunk)
            for raw in _find_usage_lines(chunk):
                _add_record(raw, last_seqs, rows)
    read = (len(files), offset, status.st_size, status.st_mtime_ns)
    own = [row for (child, *_), row in rows.items() if not child]
    children: dict[str, list[_CacheRow]] = {}
    for (child, *_), row in rows.items():
        if child:
            children.setdefault(child, []).append(row)
    return _CachedCosts(key, previous.folder, *read, last_seqs, own, children)


class _UsageRecord(msgspec.Struct, frozen=True, gc=False):
    """The fields of a `usage` or `child_usage` line that count here."""

    n: int
    e: int
    t: float
    kind: Literal["usage", "child_usage"]
    model: str
    usage: Usage
    session_id: str = ""
    purpose: str = ""


_decoder = msgspec.json.Decoder(_UsageRecord)
# By the session id of a child or "", the quarter of an hour, the model, the purpose, and whether
# unpriced.
_Rows = dict[tuple[str, int, str, str, bool], _CacheRow]


def _add_record(raw: bytes, last_seqs: dict[int, int], rows: _Rows) -> None:
    try:
        line = _decoder.decode(raw)
    except msgspec.DecodeError:
        return
    if line.n <= last_seqs.get(line.e, -1) or not has_valid_checksum(raw):
        return
    last_seqs[line.e] = line.n
    if line.kind == "child_usage" and not line.session_id:
        return  # a sum, in a copy of a session: the original has the calls
    if line.usage == NO_USAGE:
        return  # calls that a dry run recorded are carried out without a model
    start, is_unpriced = int(line.t) // BUCKET_SECONDS * BUCKET_SECONDS, line.usage.cost is None
    key = (line.session_id, start, line.model, line.purpose, is_unpriced)
    before = rows.get(key, _CacheRow(start, line.model, 0, Usage()))
    used = before.usage + line.usage
    rows[key] = _CacheRow(start, line.model, before.calls + 1, used, line.purpose)


def _read_chunks(path: Path, offset: int) -> Iterator[bytes]:
    """The complete lines of a file from this offset on, many at once."""
    with open_segment(path, buffering=0) as file:
        file.seek(offset)
        rest = b""
        while chunk := file.read(_CHUNK):
            data = rest + chunk
            end = data.rfind(b"\n") + 1
            yield data[:end]
            rest = data[end:]


def _find_usage_lines(data: bytes) -> Iterator[bytes]:
    hits = []
    for kind in _KINDS:
        position = 0
        while (hit := data.find(kind, position)) >= 0:
            position = data.find(b"\n", hit) + 1
            hits.append(hit)
    for hit in sorted(hits):
        yield data[data.rfind(b"\n", 0, hit) + 1 : data.find(b"\n", hit) + 1]

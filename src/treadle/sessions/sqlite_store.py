"""The log of one session in a SQLite database, an implementation of the Store contract; and all
sessions of one (session_place.py).

One file holds any number of sessions. Each flush is one transaction that is synced to the disk.
A session has one writer: a lock on a byte of the file DATABASE-lock, which the kernel releases
when its process ends. Used through `agent.session("id", store="sessions.db")`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import sqlite3
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from treadle.core.argument_checks import PATH, TEXT, check
from treadle.core.errors import SessionBusy, SessionTooNew, StoreError, StoreFull, StoreRefused
from treadle.core.transcript.entries import Entry
from treadle.core.transcript.entry_json import decode_entries
from treadle.lib.files.locks import is_file_locked
from treadle.lib.files.sqlite import SqliteFile, open_sqlite
from treadle.sessions.log.hash_chain import (
    MAX_SEAL_BYTES,
    ChainLink,
    ChainReport,
    find_hash,
    verify_chain,
)
from treadle.sessions.queued_store import DatabaseStore, QueuedEntry, SessionFence
from treadle.sessions.session_place import (
    FIRST_ENTRIES,
    SUMMARY_KINDS,
    SessionPlace,
    SessionQuery,
)
from treadle.sessions.summaries import SessionSummary, summarize_entries

BUSY_SECONDS = 30.0  # to wait for the transaction of another process
FORMAT_VERSION = 1

_HOLDER = struct.Struct("<qd")  # pid and time, in the file DATABASE-lock
_LOCK = struct.Struct("hhqqi4x")  # `struct flock` of Linux

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, created REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS entries (
    session INTEGER NOT NULL, seq INTEGER NOT NULL, time REAL NOT NULL, entry BLOB NOT NULL,
    PRIMARY KEY (session, seq)
);
"""
# No `WITHOUT ROWID`: there an insert beside a very long entry reads that entry to compare keys.

# For the ids that a query gives. A session keeps its number: it is that of a lock.
DELETE_SESSIONS = (
    "DELETE FROM entries WHERE session IN (SELECT number FROM sessions WHERE id IN ({}))",
)


class SqliteStore(DatabaseStore):
    """One session, open for writing."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        session_id: str,
        fence: SessionFence | None = None,
    ) -> None:
        """Raises SessionBusy if the session is open elsewhere, StoreError if the file is not a
        database of sessions. With a fence, the latest writer is the one that may write; otherwise
        a lock keeps out a second one."""
        check("path", path, PATH)
        check("session_id", session_id, TEXT)
        self._path = path = Path(path).expanduser()
        super().__init__(session_id)
        self._fence = fence
        self._thread_lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = open_database(path)
        except (OSError, sqlite3.Error) as error:
            raise to_store_error(error, path) from error
        try:
            self._number = self._find_number()
            self._lock = lock_session(path, self._number, session_id) if fence is None else None
            self._seq, self._head = self._read_last()
            self._durable_seq = self._sealed_seq = self._seq
        except sqlite3.Error as error:
            self._database.close()
            raise to_store_error(error, path) from error
        except BaseException:
            self._database.close()
            raise

    async def _write_batch(self, batch: Sequence[QueuedEntry]) -> None:
        try:
            await asyncio.to_thread(self._write, batch)
        except sqlite3.Error as error:
            raise to_store_error(error, self._path) from error

    async def _read_bodies(self) -> Sequence[bytes]:
        try:
            return await asyncio.to_thread(self._read)
        except sqlite3.Error as error:
            raise to_store_error(error, self._path) from error

    async def _release(self) -> None:
        with self._thread_lock:
            self._database.close()
            if self._lock is not None:
                os.close(self._lock)

    # --- in a thread -----------------------------------------------------------------------

    def _write(self, batch: Sequence[QueuedEntry]) -> None:
        self._seal(batch)
        rows = [(self._number, one.seq, one.time, one.body) for one in batch]
        with self._thread_lock, self._database as database:
            database.check_file()
            if self._fence is not None:
                self._check_fence(database, self._fence)
            database.executemany("INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?)", rows)

    def _check_fence(self, database: sqlite3.Connection, fence: SessionFence) -> None:
        """Raise SessionBusy if another writer took over; from here to the commit none can."""
        database.execute("BEGIN IMMEDIATE")
        query = fence.make_query("?")
        if database.execute(query, (fence.row_id, fence.epoch)).fetchone() is None:
            raise fence.make_error(self._session_id)

    def _read(self) -> list[bytes]:
        query = "SELECT CAST(entry AS BLOB) FROM entries WHERE session = ? ORDER BY seq"
        with self._thread_lock:
            return [row[0] for row in self._database.execute(query, (self._number,))]

    def _find_number(self) -> int:
        with self._database as database:
            database.execute(
                "INSERT OR IGNORE INTO sessions (id, created) VALUES (?, ?)",
                (self._session_id, time.time()),
            )
            query = "SELECT number FROM sessions WHERE id = ?"
            return int(database.execute(query, (self._session_id,)).fetchone()[0])

    def _read_last(self) -> tuple[int, bytes]:
        """The number of the last entry, and the last hash."""
        query = (
            f"SELECT seq, CAST(substr(entry, -{MAX_SEAL_BYTES}) AS BLOB) FROM entries"
            " WHERE session = ? ORDER BY seq DESC"
        )
        last_seq = 0
        for seq, end in self._database.execute(query, (self._number,)):
            last_seq = last_seq or int(seq)
            if found := find_hash(end):
                return last_seq, found
        return last_seq, b""


def read_entries(path: Path, session_id: str) -> list[Entry]:
    """The entries of a session that may be open elsewhere; [] if there is no such session."""
    query = (
        "SELECT CAST(entry AS BLOB) FROM entries JOIN sessions ON session = number"
        " WHERE id = ? ORDER BY seq"
    )
    with use_database(path) as database:
        bodies = [row[0] for row in database.execute(query, (session_id,))]
    return decode_entries(bodies).entries


@contextmanager
def use_database(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(open_database(path)) as database:
            yield database
    except (OSError, sqlite3.Error) as error:
        raise to_store_error(error, path) from error


def open_database(path: Path) -> SqliteFile:
    database = open_sqlite(path, BUSY_SECONDS)
    try:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > FORMAT_VERSION:
            found, known = version, FORMAT_VERSION
            raise SessionTooNew(f"{path} has format {found}; this version reads format {known}")
        if version < FORMAT_VERSION:
            # In one transaction: another program may do the same, and this one may be killed.
            version_set = f"PRAGMA user_version = {FORMAT_VERSION};"
            database.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}{version_set}COMMIT;")
    except BaseException:
        database.close()
        raise
    return database


def lock_session(path: Path, number: int, session_id: str) -> int:
    """The lock of one session, as a descriptor to close."""
    is_linux = sys.platform == "linux"  # elsewhere each session has a file of its own
    name = f"{path}-lock" if is_linux else f"{path}-lock-{number}"
    lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:  # also between two runs of one process
        if is_linux:
            fcntl.fcntl(lock, fcntl.F_OFD_SETLK, _pack_lock(number))
        else:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = _read_holder(lock, number)
        os.close(lock)
        raise SessionBusy(
            f"session {session_id} in {path} is open in {holder}; close it there"
        ) from error
    os.pwrite(lock, _HOLDER.pack(os.getpid(), time.time()), number * _HOLDER.size)
    return lock


def is_session_locked(path: Path, number: int) -> bool:
    """Whether a process has the session open. Nothing is locked by looking."""
    if sys.platform != "linux":
        return is_file_locked(Path(f"{path}-lock-{number}"))
    try:
        lock = os.open(f"{path}-lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        asked = _pack_lock(number)
        kind, *_ = _LOCK.unpack(fcntl.fcntl(lock, fcntl.F_OFD_GETLK, asked))
    finally:
        os.close(lock)
    return bool(kind != fcntl.F_UNLCK)


def _pack_lock(number: int) -> bytes:
    """One byte of the file, as `fcntl` wants it."""
    return _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)


def _read_holder(lock: int, number: int) -> str:
    """Who has the session open. The kernel does not tell it: its holder wrote it into the file."""
    record = os.pread(lock, _HOLDER.size, number * _HOLDER.size)
    pid, since = _HOLDER.unpack(record) if len(record) == _HOLDER.size else (0, 0.0)
    if not pid:
        return "another process or run"
    if pid == os.getpid():
        return f"another run of this process (pid {pid})"
    return f"another process (pid {pid} since {time.strftime('%H:%M:%S', time.localtime(since))})"


def _is_disk_full(path: Path) -> bool:
    """SQLite says "disk I/O error" if there is no room for its own files."""
    try:
        return shutil.disk_usage(path.parent).free < 1 << 20
    except OSError:
        return False


def to_store_error(error: OSError | sqlite3.Error, path: Path) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0)
    is_io_error = code & 0xFF == sqlite3.SQLITE_IOERR
    if code == sqlite3.SQLITE_FULL or (is_io_error and _is_disk_full(path)):
        return StoreFull(f"{path}: no space is left; free some, then the work goes on")
    if code == sqlite3.SQLITE_NOTADB:
        return StoreError(f"{path} is not a SQLite database; choose another file")
    if isinstance(error, (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError)):
        return StoreRefused(f"{path}: {error}")
    return StoreError(f"{path}: {error}")


_LIST_PAGE = """
SELECT number, id, created, updated FROM (
    SELECT number, id, created, (
        SELECT time FROM entries WHERE session = number ORDER BY seq DESC LIMIT 1
    ) AS updated FROM sessions
    WHERE substr(id, 1, length(:prefix)) = :prefix AND :name IN ('', id)
) WHERE updated >= :since AND (updated, id) < (:until, :before)
ORDER BY updated DESC, id DESC LIMIT :limit
"""
_READ_SUMMARY = f"""
SELECT CAST(entry AS BLOB) FROM entries WHERE session = ?
AND (seq <= {FIRST_ENTRIES} OR CAST(substr(entry, 10, 4) AS TEXT) IN {SUMMARY_KINDS}) ORDER BY seq
"""

_T = TypeVar("_T")


class SqlitePlace(SessionPlace):
    """All sessions of a database file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def list_page(self, query: SessionQuery) -> list[SessionSummary]:
        return await self._in_thread(lambda: self._list_page(query), [])

    async def is_open(self, session_id: str) -> bool:
        return await self._in_thread(lambda: self._is_open(session_id), False)

    async def read(self, session_id: str) -> Sequence[Entry]:
        return await self._in_thread(lambda: read_entries(self._path, session_id), [])

    async def verify(self, session_id: str) -> ChainReport:
        return verify_chain(await self._in_thread(lambda: self._read_chain(session_id), []))

    async def remove(self, session_id: str) -> None:
        await self._in_thread(lambda: self._remove(session_id), None)

    async def _in_thread(self, work: Callable[[], _T], without: _T) -> _T:
        return await asyncio.to_thread(work) if self._path.exists() else without

    def _list_page(self, query: SessionQuery) -> list[SessionSummary]:
        with use_database(self._path) as database:
            found = database.execute(_LIST_PAGE, msgspec.structs.asdict(query)).fetchall()
            return [
                summarize_entries(
                    SessionSummary(name, "", created=created, updated=updated),
                    (row[0] for row in database.execute(_READ_SUMMARY, (number,))),
                )
                for number, name, created, updated in found
            ]

    def _read_chain(self, session_id: str) -> list[ChainLink]:
        query = (
            "SELECT seq, time, CAST(entry AS BLOB) FROM entries JOIN sessions ON session = number"
            " WHERE id = ? ORDER BY seq"
        )
        with use_database(self._path) as database:
            return [ChainLink(*row) for row in database.execute(query, (session_id,))]

    def _is_open(self, session_id: str) -> bool:
        number = self._find_number(session_id)
        return number is not None and is_session_locked(self._path, number)

    def _remove(self, session_id: str) -> None:
        number = self._find_number(session_id)
        if number is None:
            return
        lock = lock_session(self._path, number, session_id)
        try:
            with use_database(self._path) as database, database:
                database.execute(DELETE_SESSIONS[0].format("?"), (session_id,))
        finally:
            os.close(lock)

    def _find_number(self, session_id: str) -> int | None:
        with use_database(self._path) as database:
            query = "SELECT number FROM sessions WHERE id = ?"
            row = database.execute(query, (session_id,)).fetchone()
        return None if row is None else int(row[0])

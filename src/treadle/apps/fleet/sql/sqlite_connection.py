"""The database of a fleet on one machine: a SQLite file. See sql_connection.py."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from treadle.apps.fleet.sql.sql_connection import (
    ADDED_COLUMNS,
    READ_VERSION,
    RUNS_TABLE,
    TABLES,
    Rows,
    Statement,
    check_version,
    clean_parameters,
    fill_in,
    list_upgrades,
)
from treadle.core.contracts.store import Store
from treadle.core.transcript.entries import Entry
from treadle.lib.files.private_files import make_private_folder
from treadle.lib.files.sqlite import SqliteFile
from treadle.sessions.queued_store import SessionFence
from treadle.sessions.sqlite_store import (
    DELETE_SESSIONS,
    SqliteStore,
    open_database,
    read_entries,
    to_store_error,
)

T = TypeVar("T")

_WORDS = {
    "now": "fleet_now()",
    "for_update": "",  # a transaction that writes is alone
    "skip_locked": "",
    "serial": "INTEGER PRIMARY KEY AUTOINCREMENT",
}


class SqliteConnection:
    """One connection, used by one thread at a time; other processes have their own."""

    session_deletes: Sequence[str] = DELETE_SESSIONS

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._database: SqliteFile | None = None

    async def open(self, *, create: bool) -> bool:
        return await self._in_thread(lambda: self._open(create=create))

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> Rows:
        return (await self.execute_all([(sql, parameters)]))[0]

    async def execute_all(self, statements: Sequence[Statement]) -> list[Rows]:
        return await self._in_thread(lambda: self._execute_all(statements))

    async def open_session(self, session_id: str, fence: SessionFence) -> Store:
        return await self._in_thread(lambda: SqliteStore(self._path, session_id, fence))

    async def load_session(self, session_id: str) -> Sequence[Entry]:
        return await self._in_thread(lambda: read_entries(self._path, session_id))

    async def aclose(self) -> None:
        await self._in_thread(self._close)

    # --- in a thread -----------------------------------------------------------------------

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            # Shielded: the caller may be cancelled, the transaction must be completed.
            return await asyncio.shield(asyncio.to_thread(work))
        except (OSError, sqlite3.Error) as error:
            raise to_store_error(error, self._path) from error

    def _open(self, *, create: bool) -> bool:
        if not create and not (self._path.exists() and _has_tables(self._path)):
            return False
        make_private_folder(self._path.parent)
        database = open_database(self._path)
        database.create_function("fleet_now", 0, time.time)
        try:
            self._make_tables(database, create=create)
        except BaseException:
            database.close()
            raise
        self._database = database
        return True

    def _make_tables(self, database: sqlite3.Connection, *, create: bool) -> None:
        with database:
            database.execute("BEGIN IMMEDIATE" if create else "BEGIN")
            for statement in fill_in(TABLES, _WORDS).split(";") if create else ():
                database.execute(statement)
            row = database.execute(READ_VERSION).fetchone()
            found = row[0] if row is not None else None
            if not create:
                check_version(found)
                return
            columns = {
                (table, name)
                for table in {table for table, *_ in ADDED_COLUMNS}
                for _, name, *_ in database.execute(f"PRAGMA table_info({table})")
            }
            for statement in list_upgrades(found, columns):
                database.execute(statement)

    def _execute_all(self, statements: Sequence[Statement]) -> list[Rows]:
        with self._lock, self._get_open() as database:
            database.check_file()
            reads_only = all(sql.lstrip().startswith("SELECT") for sql, _ in statements)
            database.execute("BEGIN" if reads_only else "BEGIN IMMEDIATE")
            return [
                database.execute(fill_in(sql, _WORDS), clean_parameters(parameters)).fetchall()
                for sql, parameters in statements
            ]

    def _get_open(self) -> SqliteFile:
        if self._database is None:
            raise sqlite3.ProgrammingError("the database of the fleet is closed")
        return self._database

    def _close(self) -> None:
        with self._lock:  # a caller that was cancelled has left a transaction in its thread
            database, self._database = self._database, None
            if database is not None:
                database.close()


def _has_tables(path: Path) -> bool:
    """Whether the file has a fleet. It is not written to."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        sql = "SELECT 1 FROM sqlite_master WHERE name = ?"
        return database.execute(sql, [RUNS_TABLE]).fetchone() is not None

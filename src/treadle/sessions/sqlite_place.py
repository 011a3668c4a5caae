"""The sessions of a SQLite database, which may be open elsewhere: see session_place.py."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from treadle.core.transcript.entries import Entry
from treadle.sessions.session_place import (
    FIRST_ENTRIES,
    SUMMARY_KINDS,
    SessionPlace,
    SessionQuery,
)
from treadle.sessions.sqlite_store import (
    DELETE_SESSIONS,
    is_session_locked,
    lock_session,
    read_entries,
    use_database,
)
from treadle.sessions.summaries import SessionSummary, summarize_entries

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

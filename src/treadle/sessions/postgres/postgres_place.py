"""The sessions of a PostgreSQL database, which may be open elsewhere: see session_place.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from treadle.core.transcript.entries import Entry
from treadle.sessions.log.hash_chain import ChainReport, verify_chain
from treadle.sessions.postgres.postgres_pool import ServerConnection
from treadle.sessions.postgres.postgres_server import SessionServer
from treadle.sessions.postgres.postgres_store import DELETE_SESSIONS, load_chain, load_entries
from treadle.sessions.session_place import (
    FIRST_ENTRIES,
    SUMMARY_KINDS,
    SessionPlace,
    SessionQuery,
)
from treadle.sessions.summaries import SessionSummary, summarize_entries

_LIST_PAGE = """
SELECT id, created, last.time FROM treadle_sessions, LATERAL (
    SELECT time FROM treadle_entries WHERE session = id ORDER BY seq DESC LIMIT 1
) AS last WHERE left(id, length(%(prefix)s)) = %(prefix)s AND %(name)s IN ('', id)
AND last.time >= %(since)s AND (last.time, id) < (%(until)s::float8, %(before)s)
ORDER BY last.time DESC, id DESC LIMIT %(limit)s
"""
_READ_SUMMARY = f"""
SELECT session, entry FROM treadle_entries WHERE session = ANY(%s)
AND (seq <= {FIRST_ENTRIES} OR convert_from(substring(entry from 10 for 4), 'SQL_ASCII')
    = ANY(%s)) ORDER BY session, seq
"""
_IS_OPEN = "SELECT 1 FROM treadle_sessions WHERE id = %s AND free_at > now()"


class PostgresPlace(SessionPlace):
    """All sessions of a database that agents opened; those of fleet runs are the fleet's."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def list_page(self, query: SessionQuery) -> list[SessionSummary]:
        async with self._use_server() as server:
            found = await server.pool.execute(_LIST_PAGE, msgspec.structs.asdict(query))
            names = [name for name, _, _ in found]
            rows = await server.pool.execute(_READ_SUMMARY, (names, list(SUMMARY_KINDS)))
        bodies: dict[str, list[bytes]] = {name: [] for name in names}
        for name, body in rows:
            bodies[name].append(bytes(body))
        return [
            summarize_entries(
                SessionSummary(name, "", created=created, updated=updated), bodies[name]
            )
            for name, created, updated in found
        ]

    async def is_open(self, session_id: str) -> bool:
        async with self._use_server() as server:
            return bool(await server.pool.execute(_IS_OPEN, (session_id,)))

    async def read(self, session_id: str) -> Sequence[Entry]:
        async with self._use_server() as server:
            return await load_entries(server.pool, session_id)

    async def verify(self, session_id: str) -> ChainReport:
        async with self._use_server() as server:
            return verify_chain(await load_chain(server.pool, session_id))

    async def remove(self, session_id: str) -> None:
        async def work(connection: ServerConnection) -> None:
            async with connection.transaction():
                for statement in DELETE_SESSIONS:
                    await connection.execute(statement.format("%s"), (session_id,))

        async with self._use_server() as server:
            fence, _ = await server.take(session_id)
            try:
                await server.pool.run(work)
            finally:
                await server.free(fence)

    @asynccontextmanager
    async def _use_server(self) -> AsyncIterator[SessionServer]:
        server = await SessionServer.acquire(self._url)
        try:
            yield server
        finally:
            server.release()

"""The log of one session in a PostgreSQL database: an implementation of the Store contract.

One database holds any number of sessions, for many machines. Each flush is one transaction, which
also checks that no other writer has taken the session over (queued_store.py). It waits for a
server that restarts. Used by fleets, and through `agent.session("id", store="postgresql://...")`.
Needs the extra `fleet`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

import psycopg

from treadle.core.errors import SessionBusy
from treadle.core.transcript.entries import Entry
from treadle.core.transcript.entry_json import decode_entries
from treadle.lib.shielded import complete
from treadle.sessions.postgres_pool import CONNECT_SECONDS, PostgresPool, ServerConnection
from treadle.sessions.queued_store import QueuedEntry, QueuedStore, SessionFence

SCHEMA = """
CREATE TABLE IF NOT EXISTS treadle_sessions (
    id text PRIMARY KEY, epoch bigint NOT NULL DEFAULT 0, created float8 NOT NULL
);
CREATE TABLE IF NOT EXISTS treadle_entries (
    session text NOT NULL, seq bigint NOT NULL, time float8 NOT NULL, entry bytea NOT NULL,
    PRIMARY KEY (session, seq)
);
"""
DELETE_SESSIONS = (  # for the ids that a query gives
    "DELETE FROM treadle_entries WHERE session IN ({})",
    "DELETE FROM treadle_sessions WHERE id IN ({})",
)
SCHEMA_LOCK = 8_317_224_901  # one process at a time makes the tables
# The lock of a session that is open outside of a fleet: this number, and the hash of its id.
SESSION_LOCK = 831_722


class PostgresStore(QueuedStore):
    """One session, open for writing. A fleet opens it, with its own fence."""

    def __init__(
        self, pool: PostgresPool, session_id: str, fence: SessionFence, last_seq: int
    ) -> None:
        super().__init__(session_id, last_seq)
        self._pool = pool
        self._fence = fence
        query = fence.make_query("%s")
        self._insert = (
            f"WITH fence AS ({query} FOR SHARE), added AS ("
            " INSERT INTO treadle_entries SELECT %s, new.seq, new.time, new.entry"
            " FROM fence, unnest(%s::bigint[], %s::float8[], %s::bytea[]) AS new(seq, time, entry)"
            " ON CONFLICT DO NOTHING) SELECT 1 FROM fence"
        )

    @classmethod
    async def open(cls, pool: PostgresPool, session_id: str, fence: SessionFence) -> PostgresStore:
        """A session behind a fence that the caller has raised. SessionBusy if it fell since."""
        query = (
            f"SELECT (SELECT max(seq) FROM treadle_entries WHERE session = %s) "
            f"WHERE EXISTS ({fence.make_query('%s')})"
        )
        rows = await pool.execute(query, (session_id, fence.row_id, fence.epoch))
        if not rows:
            raise fence.make_error(session_id)
        return cls(pool, session_id, fence, int(rows[0][0] or 0))

    async def _read_bodies(self) -> Sequence[bytes]:
        return await _read_bodies(self._pool, self._session_id)

    async def _write_batch(self, batch: Sequence[QueuedEntry]) -> None:
        rows = [(one.seq, one.time, one.body) for one in batch]
        seqs, times, bodies = (list(column) for column in zip(*rows, strict=True))
        fence = self._fence
        parameters = (fence.row_id, fence.epoch, self._session_id, seqs, times, bodies)
        if not await self._pool.execute(self._insert, parameters):
            raise fence.make_error(self._session_id)


class LockedPostgresStore(PostgresStore):
    """A session with connections of its own, and a lock that lasts as long as its process."""

    _lock: ServerConnection

    @classmethod
    async def open_session(cls, url: str, session_id: str) -> LockedPostgresStore:
        """SessionBusy if the session is open elsewhere."""
        pool = PostgresPool(url, size=2)
        await pool.open()
        lock: ServerConnection | None = None

        async def take_lock(_: ServerConnection) -> None:
            nonlocal lock  # not a result: a cancellation would lose it
            lock = await _lock_session(url, session_id)

        try:
            await make_tables(pool)
            await pool.run(take_lock)
            assert lock is not None, "taken above"
            (epoch, last) = (await pool.execute(_TAKE_SESSION, (session_id, time.time())))[0]
            store = cls(
                pool,
                session_id,
                SessionFence("treadle_sessions", session_id, epoch),
                int(last or 0),
            )
        except BaseException:
            await complete(_close_all(lock, pool))
            raise
        store._lock = lock
        return store

    async def _release(self) -> None:
        await _close_all(self._lock, self._pool)


_TAKE_SESSION = """
INSERT INTO treadle_sessions AS old VALUES (%s, 1, %s)
ON CONFLICT (id) DO UPDATE SET epoch = old.epoch + 1
RETURNING epoch, (SELECT max(seq) FROM treadle_entries WHERE session = old.id)
"""


async def _lock_session(url: str, session_id: str) -> ServerConnection:
    """A connection that holds the lock. If it breaks, the fence still keeps out a second writer."""
    connection: ServerConnection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    query = "SELECT pg_try_advisory_lock(%s, hashtext(%s))"
    try:
        row = await (await connection.execute(query, (SESSION_LOCK, session_id))).fetchone()
        if row is None or not row[0]:
            raise SessionBusy(
                f"session {session_id} is open in another process or run; close it there"
            )
    except BaseException:
        await complete(_unlock_session(connection))
        raise
    return connection


async def _unlock_session(connection: ServerConnection) -> None:
    """Release the lock now: the server sees the end of a connection a little later."""
    with contextlib.suppress(psycopg.Error, TimeoutError):  # a broken connection holds no lock
        async with asyncio.timeout(CONNECT_SECONDS):
            await connection.execute("SELECT pg_advisory_unlock_all()")
    await connection.close()


async def _close_all(lock: ServerConnection | None, pool: PostgresPool) -> None:
    if lock is not None:
        await _unlock_session(lock)
    await pool.aclose()


async def make_tables(pool: PostgresPool, schema: str = SCHEMA) -> None:
    async def work(connection: ServerConnection) -> None:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
            await connection.execute(schema)

    await pool.run(work)


async def load_entries(pool: PostgresPool, session_id: str) -> list[Entry]:
    return decode_entries(await _read_bodies(pool, session_id)).entries


async def _read_bodies(pool: PostgresPool, session_id: str) -> list[bytes]:
    query = "SELECT entry FROM treadle_entries WHERE session = %s ORDER BY seq"
    return [bytes(body) for (body,) in await pool.execute(query, (session_id,))]

"""The log of one session in a PostgreSQL database: an implementation of the Store contract.

One database holds any number of sessions, for many machines. Each flush is one transaction, which
also checks that no other writer has taken the session over (queued_store.py). It waits for a
server that restarts. Used by fleets, and through `agent.session("id", store="postgresql://...")`.
Needs the extra `fleet`.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.core.transcript.entries import Entry
from treadle.core.transcript.entry_json import decode_entries
from treadle.sessions.log.hash_chain import MAX_SEAL_BYTES, ChainLink, find_hash
from treadle.sessions.postgres.postgres_pool import PostgresPool, ServerConnection
from treadle.sessions.queued_store import DatabaseStore, QueuedEntry, SessionFence

SCHEMA = """
CREATE TABLE IF NOT EXISTS treadle_sessions (
    id text PRIMARY KEY, epoch bigint NOT NULL DEFAULT 0, created float8 NOT NULL
);
ALTER TABLE treadle_sessions ADD COLUMN IF NOT EXISTS holder text NOT NULL DEFAULT '';
ALTER TABLE treadle_sessions ADD COLUMN IF NOT EXISTS free_at timestamptz;
CREATE TABLE IF NOT EXISTS treadle_entries (
    session text NOT NULL, seq bigint NOT NULL, time float8 NOT NULL, entry bytea NOT NULL,
    PRIMARY KEY (session, seq)
);
"""
DELETE_SESSIONS = (  # for the ids that a query gives
    "DELETE FROM treadle_entries WHERE session IN ({})",
    "DELETE FROM treadle_sessions WHERE id IN ({})",
)
_LAST_SEALED = f"""
SELECT substring(entry from greatest(length(entry) - {MAX_SEAL_BYTES - 1}, 1)) FROM treadle_entries
WHERE session = %s AND position('"of":'::bytea in
    substring(entry from greatest(length(entry) - 20, 1))) > 0 ORDER BY seq DESC LIMIT 1
"""
SCHEMA_LOCK = 8_317_224_901  # one process at a time makes the tables


class PostgresStore(DatabaseStore):
    """One session, open for writing. A fleet opens it, with its own fence."""

    def __init__(
        self,
        pool: PostgresPool,
        session_id: str,
        fence: SessionFence,
        last_seq: int,
        head: bytes = b"",
    ) -> None:
        super().__init__(session_id, last_seq)
        self._head = head
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
        last = int(rows[0][0] or 0)
        return cls(pool, session_id, fence, last, await load_head(pool, session_id, last))

    async def _read_bodies(self) -> Sequence[bytes]:
        return await _read_bodies(self._pool, self._session_id)

    async def _write_batch(self, batch: Sequence[QueuedEntry]) -> None:
        self._seal(batch)
        rows = [(one.seq, one.time, one.body) for one in batch]
        seqs, times, bodies = (list(column) for column in zip(*rows, strict=True))
        fence = self._fence
        parameters = (fence.row_id, fence.epoch, self._session_id, seqs, times, bodies)
        if not await self._pool.execute(self._insert, parameters):
            raise fence.make_error(self._session_id)


async def make_tables(pool: PostgresPool, schema: str = SCHEMA) -> None:
    async def work(connection: ServerConnection) -> None:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
            await connection.execute(schema)

    await pool.run(work)


async def load_entries(pool: PostgresPool, session_id: str) -> list[Entry]:
    return decode_entries(await _read_bodies(pool, session_id)).entries


async def load_head(pool: PostgresPool, session_id: str, last_seq: int) -> bytes:
    """The last hash of a session that has so many entries."""
    rows = await pool.execute(_LAST_SEALED, (session_id,)) if last_seq else []
    return find_hash(bytes(rows[0][0])) if rows else b""


async def load_chain(pool: PostgresPool, session_id: str) -> list[ChainLink]:
    query = "SELECT seq, time, entry FROM treadle_entries WHERE session = %s ORDER BY seq"
    rows = await pool.execute(query, (session_id,))
    return [ChainLink(int(seq), float(time), bytes(body)) for seq, time, body in rows]


async def _read_bodies(pool: PostgresPool, session_id: str) -> list[bytes]:
    query = "SELECT entry FROM treadle_entries WHERE session = %s ORDER BY seq"
    return [bytes(body) for (body,) in await pool.execute(query, (session_id,))]

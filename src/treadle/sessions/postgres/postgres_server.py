"""A PostgreSQL database as the sessions of one event loop share it: pool, tables and leases.

An open session is leased to its process, and one task renews all leases of the loop. A lease that
is not renewed is over, at once if its process ended on this machine. The fence of a store keeps out
a process that lost its lease without knowing. Used by open_store.py. Needs the extra `fleet`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from weakref import WeakKeyDictionary

from treadle.core.errors import SessionBusy, StoreError
from treadle.lib.shielded import complete
from treadle.sessions.postgres.postgres_pool import PostgresPool
from treadle.sessions.postgres.postgres_store import PostgresStore, load_head, make_tables
from treadle.sessions.queued_store import SessionFence

POOL_SIZE = 20
LEASE_SECONDS, RENEW_SECONDS = 30, 8.0
LINGER_SECONDS = 5.0  # for the next run, which then needs no new connection

_TAKE = f"""
INSERT INTO treadle_sessions AS old (id, epoch, created, holder, free_at)
VALUES (%s, 1, %s, %s, now() + interval '{LEASE_SECONDS} s')
ON CONFLICT (id) DO UPDATE SET epoch = old.epoch + 1, holder = excluded.holder,
    free_at = excluded.free_at
WHERE old.free_at IS NULL OR old.free_at <= now() OR old.holder = %s
RETURNING epoch, (SELECT max(seq) FROM treadle_entries WHERE session = old.id)
"""
_FIND = """SELECT holder, ceil(extract(epoch FROM free_at - now()))::int
FROM treadle_sessions WHERE id = %s"""
_RENEW = f"""UPDATE treadle_sessions SET free_at = now() + interval '{LEASE_SECONDS} s'
WHERE id = ANY(%s) AND holder = %s AND free_at IS NOT NULL"""
_FREE = "UPDATE treadle_sessions SET free_at = NULL WHERE id = %s AND epoch = %s"

_servers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, SessionServer]]
_servers = WeakKeyDictionary()
_open_here: set[tuple[str, str, str]] = set()  # holder, address, id: in all loops of the process


class LeasedPostgresStore(PostgresStore):
    """A session outside of a fleet; it has no connection of its own."""

    _server: SessionServer

    @classmethod
    async def open_session(cls, url: str, session_id: str) -> LeasedPostgresStore:
        """SessionBusy if the session is open elsewhere."""
        server = await SessionServer.acquire(url)
        leasing = asyncio.get_running_loop().create_task(server.take(session_id))
        try:
            fence, last = await asyncio.shield(leasing)
            head = await load_head(server.pool, session_id, last)
        except BaseException:
            await complete(_give_up(server, leasing))
            raise
        store = cls(server.pool, session_id, fence, last, head)
        store._server = server
        return store

    async def _release(self) -> None:
        await self._server.free(self._fence)
        self._server.release()


async def _give_up(server: SessionServer, leasing: asyncio.Task[tuple[SessionFence, int]]) -> None:
    await asyncio.wait([leasing])
    if leasing.exception() is None:
        await server.free(leasing.result()[0])
    server.release()


class SessionServer:
    """One database in one event loop. It is kept open for a moment after its last user."""

    def __init__(self, url: str) -> None:
        self.pool = PostgresPool(url, size=POOL_SIZE)
        self._users = 0
        self._is_unused = asyncio.Event()
        self._close_at = 0.0
        self._leased: set[str] = set()
        loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = loop.create_future()
        self._service = loop.create_task(self._serve(_servers.setdefault(loop, {}), url))

    @classmethod
    async def acquire(cls, url: str) -> SessionServer:
        """To be released. StoreError if the database cannot be used."""
        known = _servers.setdefault(asyncio.get_running_loop(), {})
        server = known.get(url)
        if server is None:
            server = known[url] = cls(url)
        server._users += 1
        server._is_unused.clear()
        try:
            await asyncio.shield(server._opened)
        except BaseException:
            server.release()
            raise
        return server

    def release(self) -> None:
        self._users -= 1
        if not self._users:
            self._is_unused.set()
            self._close_at = time.monotonic() + LINGER_SECONDS

    async def _serve(self, known: dict[str, SessionServer], url: str) -> None:
        """Open, renew the leases, and close: after the last user, or with the event loop, whose end
        cancels this task."""
        try:
            await self.pool.open()
            await make_tables(self.pool)
        except BaseException as error:
            del known[url]
            await self.pool.aclose()
            if not isinstance(error, StoreError):
                self._opened.cancel()
                raise
            self._opened.set_exception(error)
            return
        self._opened.set_result(None)
        try:
            while not self._is_unused.is_set() or time.monotonic() < self._close_at:
                await asyncio.sleep(RENEW_SECONDS)
                if self._leased:
                    with suppress(StoreError):  # the next time
                        await self.pool.execute(_RENEW, (list(self._leased), _find_holder()))
        finally:
            del known[url]
            with suppress(TimeoutError):
                async with asyncio.timeout(LEASE_SECONDS):  # users write their last entries
                    await self._is_unused.wait()
            await self.pool.aclose()

    # --- leases ----------------------------------------------------------------------------

    async def take(self, session_id: str) -> tuple[SessionFence, int]:
        """Lease a session: its fence, and the number of its last entry. SessionBusy if another
        process or run has it."""
        holder = _find_holder()
        key, ended = (holder, self.pool.address, session_id), ""
        if key in _open_here:
            raise _make_error(session_id, "another run of this process")
        _open_here.add(key)
        self._leased.add(session_id)
        try:
            while True:
                given = (session_id, time.time(), holder, ended)
                rows = await self.pool.execute(_TAKE, given)
                if rows:
                    epoch, last = rows[0]
                    return SessionFence("treadle_sessions", session_id, epoch), int(last or 0)
                [(other, seconds)] = await self.pool.execute(_FIND, (session_id,))
                if other == ended or not (other == holder or _has_ended(other)):
                    pid, _, machine = other.partition("@")
                    where = f"process {pid} on {machine.partition('/')[0]}"
                    raise _make_error(session_id, where, f", or wait {seconds} s if it has ended")
                ended = other
        except BaseException:
            self._forget(session_id)
            raise

    async def free(self, fence: SessionFence) -> None:
        """End the lease; if the server cannot be told, it ends by itself."""
        self._forget(fence.row_id)
        with suppress(StoreError):
            await self.pool.execute(_FREE, (fence.row_id, fence.epoch))

    def _forget(self, session_id: str) -> None:
        self._leased.discard(session_id)
        _open_here.discard((_find_holder(), self.pool.address, session_id))


def _make_error(session_id: str, where: str, or_wait: str = "") -> SessionBusy:
    return SessionBusy(f"session {session_id} is open in {where}; close it there{or_wait}")


def _find_holder() -> str:
    return f"{os.getpid()}@{_find_machine()}"


def _find_machine() -> str:
    """The machine, and on Linux the container: process ids mean the same in it."""
    try:
        return f"{socket.gethostname()}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def _has_ended(holder: str) -> bool:
    """Whether its process is known to be gone; that of another machine is not."""
    pid, _, machine = holder.partition("@")
    if machine != _find_machine() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False

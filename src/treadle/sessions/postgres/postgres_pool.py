"""Connections to a PostgreSQL server that may restart: work is repeated until it is back.

Work is given as a function of a connection, and has to be harmless when it runs twice: whether a
transaction was committed is not known if the connection breaks at its end. Errors of the server
become StoreErrors here. Used by postgres_store.py and by apps/fleet. Needs the extra `fleet`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from treadle.core.errors import StoreError, StoreFull, StoreRefused

# What it would print is in our errors; a program that wants it sets a level.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

T = TypeVar("T")
ServerConnection = psycopg.AsyncConnection[Any]

RETRY_SECONDS = 30.0  # to wait for a server that restarts
FIRST_DELAY, MAX_DELAY = 0.05, 1.0
CONNECT_SECONDS = 10.0
IDLE_SECONDS = 15.0  # in a transaction, after which a client has lost its rows to others

# The server is there but cannot work for the moment, or the two of us were in each other's way.
_PASSING = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    PoolTimeout,
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.IdleInTransactionSessionTimeout,
)
# Of those, what stays wrong however often it is tried.
_LASTING = (
    errors.DiskFull,
    errors.InsufficientResources,
    errors.InvalidPassword,
    errors.InvalidAuthorizationSpecification,
)


class PostgresPool:
    """A few connections to one server, opened when they are needed."""

    def __init__(self, url: str, *, size: int = 4, retry_seconds: float = RETRY_SECONDS) -> None:
        self.address = describe_address(url)
        self.retry_seconds = retry_seconds
        self._url = url
        self._pool: AsyncConnectionPool[ServerConnection] = AsyncConnectionPool(
            url,
            min_size=0,
            max_size=size,
            open=False,
            configure=_limit_idle_time,
            timeout=CONNECT_SECONDS,
            reconnect_timeout=CONNECT_SECONDS,
            kwargs={"autocommit": True, "connect_timeout": int(CONNECT_SECONDS)},
        )

    async def open(self) -> None:
        """StoreError if the server cannot be reached or does not let us in."""
        await self._connect_once()  # the pool itself would not say why it cannot
        await self._pool.open()

    async def run(self, work: Callable[[ServerConnection], Awaitable[T]]) -> T:
        """Run `work` with a connection; again, for a while, if the server is gone or restarts. It
        may wait for ever for a server that is there while other work has all connections."""
        deadline = time.monotonic() + self.retry_seconds
        delay = FIRST_DELAY
        while True:
            try:
                async with self._pool.connection() as connection:
                    return await work(connection)
            except psycopg.Error as error:
                is_passing = isinstance(error, _PASSING) and not isinstance(error, _LASTING)
                is_late = time.monotonic() + delay > deadline
                if not is_passing or (is_late and not isinstance(error, PoolTimeout)):
                    raise to_store_error(error, self.address) from error
                if is_late:
                    await self._connect_once()  # StoreError if it is gone
                    deadline = time.monotonic() + self.retry_seconds
                await asyncio.sleep(delay)
                delay = min(delay * 2, MAX_DELAY)

    async def execute(self, query: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        """One statement, which is one transaction; its rows."""

        async def work(connection: ServerConnection) -> list[tuple[Any, ...]]:
            cursor = await connection.execute(query, parameters)
            return await cursor.fetchall() if cursor.description else []

        return await self.run(work)

    async def aclose(self) -> None:
        await self._pool.close(timeout=1.0)

    async def _connect_once(self) -> None:
        try:
            connection = await psycopg.AsyncConnection.connect(
                self._url, connect_timeout=int(CONNECT_SECONDS)
            )
            await connection.close()
        except psycopg.Error as error:
            raise to_store_error(error, self.address) from error


async def _limit_idle_time(connection: ServerConnection) -> None:
    milliseconds = int(IDLE_SECONDS * 1000)
    await connection.execute(f"SET idle_in_transaction_session_timeout = {milliseconds}")


def describe_address(url: str) -> str:
    """Where the database is, without the password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error as error:
        raise StoreError(f"this is not the address of a PostgreSQL database: {error}") from error
    host, port = parts.get("host", "localhost"), parts.get("port", 5432)
    return f"the database {parts.get('dbname') or 'postgres'} at {host}:{port}"


def to_store_error(error: psycopg.Error, address: str) -> StoreError:
    told = (error.diag.message_primary or str(error)).splitlines()
    text = " ".join([line.strip() for line in told if not line.startswith("\t")])  # no hints
    if isinstance(error, (errors.DiskFull, errors.InsufficientResources)):
        return StoreFull(f"{address} is full ({text}); free some space, then the runs go on")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return StoreError(f"{address} is read-only; use the primary server, or end the recovery")
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreError(f"{address} does not allow this: {text}; grant the rights to the user")
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return StoreError(
            f"{address} cannot be reached: {text}; check that it runs, "
            "and the user and the password (PGPASSWORD or ~/.pgpass)"
        )
    return StoreRefused(f"{address}: {text}")

"""Idle connections of one event loop, kept for the next request to the same host.

It opens nothing and knows no HTTP. client.py takes connections and puts them back; the pool closes
old ones, those above its limit, and all of them when its event loop shuts down.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import Final

from .connection import Connection
from .urls import Proxy

PoolKey = tuple[str, str, int, Proxy | None]

_RECEIVE_BUFFER_BYTES: Final = 256 * 1024


class Pool:
    """Idle connections of one event loop, closed when they are old or the loop shuts down."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_idle: int, idle_seconds: float) -> None:
        self._loop = loop
        self._max_idle = max_idle
        self._idle_seconds = idle_seconds
        self._idle: dict[PoolKey, deque[Connection]] = {}  # the oldest first
        self._count = 0
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = memoryview(bytearray(_RECEIVE_BUFFER_BYTES))
        self._shutdown_hook = self._until_shutdown()

    def make_connection(self) -> Connection:
        return Connection(self._loop, self._buffer)

    async def open(self) -> None:
        await anext(self._shutdown_hook)

    async def aclose(self) -> None:
        await self._shutdown_hook.aclose()

    def take(self, key: PoolKey) -> Connection | None:
        connections = self._idle.get(key)
        oldest = self._loop.time() - self._idle_seconds
        while connections:
            connection = connections.pop()
            self._count -= 1
            if not connections:
                del self._idle[key]
            if connection.idle_since >= oldest and connection.is_idle:
                return connection
            connection.abort()
        return None

    def put(self, key: PoolKey, connection: Connection) -> None:
        if self._closed or self._max_idle == 0:
            connection.abort()
            return
        if self._count >= self._max_idle:
            self._close_first(min(self._idle, key=lambda other: self._idle[other][0].idle_since))
        connection.idle_since = self._loop.time()
        self._idle.setdefault(key, deque()).append(connection)
        self._count += 1
        if self._timer is None:
            self._timer = self._loop.call_later(self._idle_seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._close_old()
        if self._count:
            self._timer = self._loop.call_later(self._idle_seconds, self._on_timer)

    def _close_old(self) -> None:
        oldest = self._loop.time() - self._idle_seconds
        for key, connections in list(self._idle.items()):
            while connections and (connections[0].is_lost or connections[0].idle_since <= oldest):
                self._close_first(key)

    def _close_first(self, key: PoolKey) -> None:
        connections = self._idle[key]
        connections.popleft().abort()
        self._count -= 1
        if not connections:
            del self._idle[key]

    async def _until_shutdown(self) -> AsyncGenerator[None, None]:
        # An event loop closes its open async generators before it ends: the only hook with which
        # a pool can close its sockets without a task of its own.
        try:
            yield
        finally:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            for connections in self._idle.values():
                for connection in connections:
                    connection.abort()
            self._idle.clear()
            self._count = 0
            await asyncio.sleep(0)

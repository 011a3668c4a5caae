"""A server for a browser on this machine: HTTP/1.1, one request a connection.

It is no web server: no keep-alive, no bodies, no files, no streams. The login of MCP servers
answers with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from .local_hosts import LOOPBACK

MAX_HEAD_BYTES = 16 << 10
REQUEST_SECONDS = 10.0


class PageRequest(msgspec.Struct, frozen=True):
    """What is needed of an HTTP request."""

    method: str
    path: str


class PageAnswer(msgspec.Struct, frozen=True):
    """`status` is the number and its words."""

    status: str
    body: str = ""


class LoopbackServer:
    """Asks `answer` for every request; `port` is known after `start`."""

    def __init__(self, answer: Callable[[PageRequest], Awaitable[PageAnswer]]) -> None:
        self._respond = answer
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None] | None] = set()
        self.port = 0

    async def start(self, port: int = 0) -> None:
        """Listen; port 0 is any free one. OSError if it is not free."""
        self._server = await asyncio.start_server(self._serve, LOOPBACK, port, limit=MAX_HEAD_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        if self._server is not None:
            self._server.close()
        left = [task for task in self._tasks if task is not None]
        for task in left:  # a browser may keep a connection open that it does not use
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                request = await _read_request(reader)
            answer = await self._respond(request) if request else PageAnswer("400 Bad Request")
            writer.write(_encode(answer))
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the browser is gone, or sends no request
        finally:
            writer.close()
            self._tasks.discard(task)


async def _read_request(reader: asyncio.StreamReader) -> PageRequest | None:
    """None if it is not HTTP."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    words = head.partition("\r\n")[0].split(" ")
    if len(words) != 3 or not words[1].startswith("/"):
        return None
    return PageRequest(words[0], words[1])


def _encode(answer: PageAnswer) -> bytes:
    body = answer.body.encode(errors="backslashreplace")
    lines = [
        f"HTTP/1.1 {answer.status}",
        "Content-Type: text/html; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Referrer-Policy: no-referrer",
        "X-Content-Type-Options: nosniff",
        "X-Frame-Options: DENY",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body

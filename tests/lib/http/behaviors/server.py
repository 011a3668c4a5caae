"""A loopback server that plays one behavior for the first request, and answers all later ones.

It sends bytes as they are and knows nothing of clients. `behaviors` has what it plays.
"""

import asyncio
import socket
import ssl
import struct
from typing import Literal, Self

from .script import NEXT_BODY, HTTPBehavior, format_response

Delivery = Literal["as_listed", "one_packet", "single_bytes"]


class BehaviorServer:
    """`url` is where to send a request; `connections` and `heads` are what arrived.

    `delivery` changes how the bytes are sent, which must not change any outcome. `tls` is the
    context of the server behind a tunnel.
    """

    def __init__(
        self,
        behavior: HTTPBehavior,
        *,
        delivery: Delivery = "as_listed",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.behavior = behavior
        self.connections = 0
        self.heads: list[str] = []
        self.port = 0
        self._delivery = delivery
        self._tls = tls
        self._is_played = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """With the role of a proxy it is the URL of the proxy."""
        return f"http://127.0.0.1:{self.port}"

    def answer_all(self) -> None:
        """Plays nothing any more: a client with a short limit may go before its request arrives."""
        self._is_played = True

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            await self._answer_requests(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # the client has gone, or the test is over
        finally:
            writer.transport.abort()

    async def _answer_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        behavior = self.behavior
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.heads.append(head)
            is_first, self._is_played = not self._is_played, True
            if behavior.reads_body or not is_first:
                await reader.readexactly(_find_length(head))
            if is_first:
                await self._play(writer)
            if head.startswith("CONNECT "):
                await self._open_tunnel(writer, is_first)
            elif not is_first:
                writer.write(format_response(NEXT_BODY))
                await writer.drain()

    async def _play(self, writer: asyncio.StreamWriter) -> None:
        for part in self._split(self.behavior.parts):
            await _send(writer, part)
        match self.behavior.ending:
            case "close":
                writer.close()
                await writer.wait_closed()
                raise EOFError
            case "reset":
                # A linger of zero seconds makes the kernel send RST instead of FIN.
                option = struct.pack("ii", 1, 0)
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
                raise EOFError
            case "silence":
                await asyncio.Event().wait()
            case "repeat":
                while True:
                    await _send(writer, self.behavior.parts[-1])
            case "keep":
                pass

    def _split(self, parts: tuple[bytes, ...]) -> list[bytes]:
        match self._delivery:
            case "one_packet":
                return [b"".join(parts)]
            case "single_bytes":
                return [bytes([byte]) for part in parts for byte in part]
            case "as_listed":
                return list(parts)

    async def _open_tunnel(self, writer: asyncio.StreamWriter, is_first: bool) -> None:
        if not is_first:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        assert self._tls is not None, "a tunnel needs the context of the server behind it"
        await writer.start_tls(self._tls)


async def _send(writer: asyncio.StreamWriter, part: bytes) -> None:
    writer.write(part)
    await writer.drain()
    await asyncio.sleep(0)  # on one event loop, a client reads each part by itself


def _find_length(head: str) -> int:
    for line in head.lower().split("\r\n"):
        name, _, value = line.partition(":")
        if name == "content-length":
            return int(value)
    return 0

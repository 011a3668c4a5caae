"""A server that sends exactly the bytes that a test gives it, a proxy, frames as AWS makes them."""

import asyncio
import base64
import json
import ssl
import struct
import zlib
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

CERTIFICATES = Path(__file__).parent / "certificates"
CA = CERTIFICATES / "ca.pem"

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    return context


async def read_request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Head and body of one request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    lines = [line.lower().partition(":") for line in head.split("\r\n")]
    length = next((value for name, _, value in lines if name == "content-length"), "0")
    return head, await reader.readexactly(int(length))


class Serving:
    """What a raw server has seen. `port` is where; `heads` and `bodies` are the requests."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.closed = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@asynccontextmanager
async def serving(talk: Talk, *, tls: bool = False):
    """Runs `talk` for each connection; `closed` is set when a client has gone."""
    seen = Serving()
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        seen.connections += 1
        try:
            await talk(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            seen.closed.set()

    context = server_tls() if tls else None
    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    seen.port = server.sockets[0].getsockname()[1]
    try:
        yield seen
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def answering(*answers: bytes, tls: bool = False, close: bool = False):
    """Answers request after request with the given bytes, over all connections in order."""
    left = list(answers)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while left:
            head, body = await read_request(reader)
            seen.heads.append(head)
            seen.bodies.append(body)
            writer.write(left.pop(0))
            await writer.drain()
            if close:
                return
        await reader.read()

    async with serving(talk, tls=tls) as seen:
        yield seen


def plain(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def chunked(*pieces: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (*pieces, b""))


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def proxying(port: int, refuse: bytes = b""):
    """A proxy that leads every host to one local port."""
    pipes: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen.heads.append(head.decode("latin-1"))
        if refuse:
            writer.write(refuse)
            await writer.drain()
            return
        inner_reader, inner = await asyncio.open_connection("127.0.0.1", port)
        if head.startswith(b"CONNECT "):
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            inner.write(head)
        back = asyncio.create_task(pump(inner_reader, writer))
        pipes.add(back)
        try:
            await pump(reader, inner)
        finally:
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)
            inner.transport.abort()

    async with serving(talk) as seen:
        yield seen


def frame(payload: bytes, **headers: str) -> bytes:
    """One AWS event-stream frame; header names come without their colon."""
    block = b""
    for name, value in {"message-type": "event", "event-type": "chunk", **headers}.items():
        name = ":" + name.replace("_", "-")
        block += bytes([len(name)]) + name.encode() + b"\x07"
        block += struct.pack(">H", len(value)) + value.encode()
    prelude = struct.pack(">II", 16 + len(block) + len(payload), len(block))
    prelude += struct.pack(">I", zlib.crc32(prelude))
    message = prelude + block + payload
    return message + struct.pack(">I", zlib.crc32(message))


def chunk_frame(event: dict[str, object]) -> bytes:
    data = base64.b64encode(json.dumps(event).encode()).decode()
    return frame(json.dumps({"bytes": data, "p": "abcd"}).encode())

"""HTTP/1.1 by hand for the loopback provider: reads a request, carries out a plan.

By hand, because it has to cut, stall and split where a proper server never would. It decides
nothing: `server` above made the plan.
"""

import asyncio
import socket
import struct
import time
import zlib
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from .dialects import Event
from .plans import Plan

_COMMENT: Final = b": ping\n\n"


class Request(msgspec.Struct, frozen=True):
    """One request as it arrived. `number` counts generation requests; -1 for all others."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    time: float
    connection: int
    number: int

    @property
    def json(self) -> dict[str, object]:
        decoded = msgspec.json.decode(self.body)
        return decoded if isinstance(decoded, dict) else {}


async def read_request(reader: asyncio.StreamReader, connection: int) -> Request | None:
    """The next request, or None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").rstrip().split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    path = path.split("?", 1)[0]
    return Request(method, path, headers, body, time.time(), connection, -1)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(parts)


def plain(status: int, body: bytes, headers: Mapping[str, str]) -> bytes:
    """A whole response with a length."""
    named = {"content-type": "application/json", **headers, "content-length": str(len(body))}
    return _head(status, named) + body


async def perform(plan: Plan, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Send the planned answer; true if the connection may carry another request."""
    if not plan.silent:
        if plan.body is not None:
            body, headers = plan.body, plan.headers
            if plan.gzip:
                body, headers = _packed(body), {**headers, "content-encoding": "gzip"}
            writer.write(plain(plan.status, body, headers))
            await writer.drain()
            return True
        coding = {"content-encoding": "gzip"} if plan.gzip else {}
        chunked = {**plan.headers, **coding, "transfer-encoding": "chunked"}
        writer.write(_head(plan.status, chunked))
        await _stream(plan, writer)
        if plan.ending == "clean":
            writer.write(b"0\r\n\r\n")
    await writer.drain()
    if plan.ending == "hang":
        await reader.read(1)  # until the client gives up
    elif plan.ending == "reset":
        _reset(writer)
    elif plan.ending == "close":
        writer.close()
        await writer.wait_closed()
    return plan.ending == "clean"


async def _stream(plan: Plan, writer: asyncio.StreamWriter) -> None:
    for _ in range(plan.pings_first):
        _chunk(writer, _keep_alive(plan, plan.dialect.ping()))
        await writer.drain()
        await asyncio.sleep(plan.pause_first)
    if plan.pause == 0 and plan.chunk == 0 and not plan.gzip and plan.endless is None:
        writer.write(b"".join(_as_chunk(piece) for piece in _pieces(plan)))
        return
    packer = zlib.compressobj(wbits=31) if plan.gzip else None
    for piece in _pieces(plan):
        if packer is not None:
            piece = packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH)
        _chunk(writer, piece)
        await writer.drain()
        await asyncio.sleep(plan.pause)
    while plan.endless is not None:
        _chunk(writer, _keep_alive(plan, plan.endless))
        await writer.drain()
        await asyncio.sleep(plan.pause)
    if packer is not None:
        _chunk(writer, packer.flush())


def _pieces(plan: Plan) -> Iterator[bytes]:
    encoded = [plan.prefix, *map(plan.encode, plan.events)]
    if plan.drop_last_blank:
        encoded[-1] = encoded[-1].removesuffix(b"\n")
    if plan.cut is None and not plan.chunk:
        yield from filter(None, encoded)
        return
    stream = b"".join(encoded)[: plan.cut]
    step = plan.chunk or 4096
    for start in range(0, len(stream), step):
        yield stream[start : start + step]


def _keep_alive(plan: Plan, event: Event | None) -> bytes:
    return _COMMENT if event is None or event.kind == "comment" else plan.encode(event)


def _packed(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(body) + packer.flush()


def _as_chunk(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece)


def _chunk(writer: asyncio.StreamWriter, piece: bytes) -> None:
    if piece:
        writer.write(_as_chunk(piece))


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()

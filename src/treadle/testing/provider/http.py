"""HTTP/1.1 for the loopback provider: reads a request, sends a planned answer.

Without a library, because it must cut, stall and split where a normal server never does. `server`
makes the plan.
"""

import asyncio
import gzip
import socket
import struct
import time
import zlib
from collections.abc import Iterator, Mapping

import msgspec

from .answers import PlannedAnswer
from .dialects import SseEvent


class ReceivedRequest(msgspec.Struct, frozen=True):
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


async def read_request(reader: asyncio.StreamReader, connection: int) -> ReceivedRequest | None:
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
    return ReceivedRequest(method, path, headers, body, time.time(), connection, -1)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(parts)


def format_response(status: int, body: bytes, headers: Mapping[str, str]) -> bytes:
    """A whole response with a length."""
    all_headers = {"content-type": "application/json", **headers, "content-length": str(len(body))}
    return _format_head(status, all_headers) + body


async def send_answer(
    plan: PlannedAnswer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Send the planned answer; True if the connection can be used again."""
    if not plan.is_silent:
        if plan.body is not None:
            body, headers = plan.body, plan.headers
            if plan.is_gzipped:
                body, headers = gzip.compress(body), {**headers, "content-encoding": "gzip"}
            writer.write(format_response(plan.status, body, headers))
            await writer.drain()
            return True
        encoding = {"content-encoding": "gzip"} if plan.is_gzipped else {}
        headers = {**plan.headers, **encoding, "transfer-encoding": "chunked"}
        writer.write(_format_head(plan.status, headers))
        await _send_stream(plan, writer)
        if plan.ending == "clean":
            writer.write(b"0\r\n\r\n")
    await writer.drain()
    if plan.ending == "hang":
        await reader.read(1)  # until the client gives up
    elif plan.ending == "reset":
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
    elif plan.ending == "close":
        writer.close()
        await writer.wait_closed()
    return plan.ending == "clean"


async def _send_stream(plan: PlannedAnswer, writer: asyncio.StreamWriter) -> None:
    for _ in range(plan.ping_count):
        _write_chunk(writer, _encode_keep_alive(plan, plan.dialect.render_ping()))
        await writer.drain()
        await asyncio.sleep(plan.ping_seconds)
    is_paced = plan.pause_seconds or plan.chunk_bytes
    if not is_paced and not plan.is_gzipped and plan.repeated_event is None:
        writer.write(b"".join(_encode_chunk(piece) for piece in _stream_pieces(plan)))
        return
    packer = zlib.compressobj(wbits=31) if plan.is_gzipped else None
    for piece in _stream_pieces(plan):
        if packer is not None:
            piece = packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH)
        _write_chunk(writer, piece)
        await writer.drain()
        await asyncio.sleep(plan.pause_seconds)
    while plan.repeated_event is not None:
        _write_chunk(writer, _encode_keep_alive(plan, plan.repeated_event))
        await writer.drain()
        await asyncio.sleep(plan.pause_seconds)
    if packer is not None:
        _write_chunk(writer, packer.flush())


def _stream_pieces(plan: PlannedAnswer) -> Iterator[bytes]:
    encoded = [plan.prefix, *map(plan.encode, plan.events)]
    if plan.drops_last_blank_line:
        encoded[-1] = encoded[-1].removesuffix(b"\n")
    if plan.cut_at is None and not plan.chunk_bytes:
        yield from filter(None, encoded)
        return
    stream = b"".join(encoded)[: plan.cut_at]
    step = plan.chunk_bytes or 4096
    for start in range(0, len(stream), step):
        yield stream[start : start + step]


def _encode_keep_alive(plan: PlannedAnswer, event: SseEvent | None) -> bytes:
    return b": ping\n\n" if event is None or event.kind == "comment" else plan.encode(event)


def _encode_chunk(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece)


def _write_chunk(writer: asyncio.StreamWriter, piece: bytes) -> None:
    if piece:
        writer.write(_encode_chunk(piece))


def _format_head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

"""A server process on three pipes, as a transport of the SDK: lines out, lines in, bounded.

Output of the server that is not a message is kept for error messages. A response that is invalid
or too long fails its call at once. The process is tools/piped_process.py, the protocol itself is
the SDK. Used by connection.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from treadle.tools.mcp.lenient import LenientReader
from treadle.tools.piped_process import (
    EDGE_BYTES,
    PipedProcess,
    StartProcess,
)

MAX_MESSAGE_BYTES = 16 << 20
MAX_NON_MESSAGE_LINES = 100_000  # lines without a message between them

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]

_REQUEST_ID = re.compile(rb'"id"\s*:\s*(?:(\d{1,18})|"([^"]{1,64})")')
_BODY = re.compile(rb'"(?:result|error|method)"\s*:')


class TruncatedLine(NamedTuple):
    """The two ends of a line that was too long."""

    head: bytes
    tail: bytes


class LineSplitter:
    """Splits bytes into lines; of a line beyond the limit only the ends are kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head: bytes | None = None
        self._tail = b""

    def feed(self, data: bytes) -> Iterator[bytes | TruncatedLine]:
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._append(data[start:end])
            yield self._take_line()
            start = end + 1
        self._append(data[start:])

    def _append(self, data: bytes) -> None:
        if self._head is None and self._size + len(data) <= self._limit:
            self._parts.append(data)
            self._size += len(data)
            return
        if self._head is None:
            start = b"".join(self._parts)
            self._head, self._tail = (start + data)[:EDGE_BYTES], start[-EDGE_BYTES:]
            self._parts, self._size = [], 0
        self._tail = (self._tail + data[-EDGE_BYTES:])[-EDGE_BYTES:]

    def _take_line(self) -> bytes | TruncatedLine:
        head, tail, line = self._head, self._tail, b"".join(self._parts)
        self._parts, self._size, self._head, self._tail = [], 0, None, b""
        return line if head is None else TruncatedLine(head, tail)


def guess_request_id(head: bytes, tail: bytes) -> int | str | None:
    """The request of an unreadable response: the id before the body, or the last one."""
    first, body = _REQUEST_ID.search(head), _BODY.search(head)
    match = first if first and (not body or first.start() < body.start()) else None
    for last in _REQUEST_ID.finditer(tail) if match is None else ():
        match = last
    if match is None:
        return None
    return int(match.group(1)) if match.group(1) else match.group(2).decode(errors="replace")


class StdioTransport:
    """The transport: enter it for the SDK's two streams; `on_lost` is called when it ends."""

    def __init__(
        self,
        start: StartProcess,
        argv: Sequence[str],
        *,
        cwd: str | None,
        env: Mapping[str, str],
        on_lost: Callable[[str], None],
        reader: LenientReader,
        limit: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self._process = PipedProcess(start, argv, cwd=cwd, env=env)
        self._on_lost = on_lost
        self._reader = reader
        self._splitter = LineSplitter(limit)
        self._limit = limit
        self._pending_ids: set[int | str] = set()
        self._non_message_lines = 0  # lines since the last message
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def log_tail(self) -> str:
        """The last lines of its output that are not messages."""
        return self._process.log_tail

    async def __aenter__(self) -> tuple[Incoming, Outgoing]:
        to_us, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](16)
        # A large buffer: a cancelled call must not wait for a server that does not read.
        outgoing, from_us = anyio.create_memory_object_stream[SessionMessage](10_000)
        self._streams = (to_us, incoming, outgoing, from_us)
        try:
            await self._process.open()
        except BaseException:
            self._close_streams()
            raise
        self._tasks = [
            asyncio.create_task(self._read_stdout(self._process.stdout, to_us)),
            asyncio.create_task(self._write_stdin(from_us, to_us)),
        ]
        return incoming, outgoing

    async def __aexit__(self, *error: object) -> None:
        try:
            await self._process.end()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._close_streams()
            await self._process.aclose()

    # --- from the server -----------------------------------------------------------------

    async def _read_stdout(
        self,
        reader: asyncio.StreamReader,
        inbound: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        problem = ""
        try:
            while data := await reader.read(1 << 16):
                for line in self._splitter.feed(data):
                    message = self._parse_line(line)
                    if message is not None:
                        await inbound.send(SessionMessage(message))
        except _ProtocolError as error:
            problem = str(error)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            # Keep reading: a server that is blocked on a write does not notice its closed input.
            while await reader.read(1 << 16):
                pass
        await self._process.drain_log()
        self._on_lost(problem or await self._process.describe_end())
        inbound.close()  # fails the calls that wait for a response

    def _parse_line(self, line: bytes | TruncatedLine) -> types.JSONRPCMessage | None:
        """The message on a line; None if there is none."""
        if isinstance(line, TruncatedLine):
            megabytes = self._limit / (1 << 20)
            problem = f"the server sent a message of more than {megabytes:g} MiB, which is dropped"
            response = self._make_error_response(guess_request_id(line.head, line.tail), problem)
            if response is None:
                raise _ProtocolError(problem)
            return response
        text = line.strip()
        if not text.startswith(b"{"):
            self._on_non_message(text)
            return None
        if self._reader.is_excess_log(text):
            return None
        try:
            message = self._reader.parse(text)
        except ValueError:
            request_id = guess_request_id(text[:EDGE_BYTES], text[-EDGE_BYTES:])
            problem = "the server's response was not a valid message"
            response = self._make_error_response(request_id, problem)
            if response is None:
                self._on_non_message(text)
            return response
        self._non_message_lines = 0
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError) and message.id:
            self._pending_ids.discard(message.id)
        return message

    def _make_error_response(
        self, request_id: int | str | None, problem: str
    ) -> types.JSONRPCError | None:
        """The error response for a request whose real response cannot be read."""
        if request_id is None or request_id not in self._pending_ids:
            return None
        self._pending_ids.discard(request_id)
        error = types.ErrorData(code=types.PARSE_ERROR, message=problem)
        return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error)

    def _on_non_message(self, line: bytes) -> None:
        """Record a line of its output that is not a message."""
        self._process.append_log(line)
        self._non_message_lines += 1
        if self._non_message_lines > MAX_NON_MESSAGE_LINES:
            raise _ProtocolError("it prints too many lines that are not messages")

    # --- to the server -------------------------------------------------------------------

    async def _write_stdin(
        self,
        outbound: MemoryObjectReceiveStream[SessionMessage],
        inbound: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        async for wrapped in outbound:
            message = wrapped.message
            self._track_request(message)
            try:
                line = message.model_dump_json(by_alias=True, exclude_unset=True)
            except ValueError as error:  # half a surrogate pair, which no UTF-8 can hold
                request_id = message.id if isinstance(message, types.JSONRPCRequest) else None
                problem = f"the arguments cannot be sent: {error}"
                response = self._make_error_response(request_id, problem)
                if response is not None:
                    with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                        await inbound.send(SessionMessage(response))
                continue
            if not self._process.write(line.encode() + b"\n"):
                self._on_lost(await self._process.describe_failed_write())
                inbound.close()
                return

    def _track_request(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCRequest):
            self._pending_ids.add(message.id)
        elif getattr(message, "method", "") == "notifications/cancelled":
            assert isinstance(message, types.JSONRPCNotification)
            self._pending_ids.discard((message.params or {}).get("requestId", ""))

    def _close_streams(self) -> None:
        for stream in self._streams:
            stream.close()


class _ProtocolError(Exception):
    """The server violates the protocol in a way that ends the connection."""

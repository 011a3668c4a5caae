"""A server process on three pipes, as a transport of the SDK: lines out, lines in, bounded.

What the server prints that is no message is kept as noise, for an error to quote. An answer that
cannot be read, because it is broken or too long, fails the call that waits for it, at once. The
process is the workspace's: its whole tree ends when this is left, or when we die. Not a protocol:
who asks what is the SDK's. Above: connection.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from treadle.core.sanitize import strip_escapes
from treadle.tools.mcp.process import StartProcess

MAX_MESSAGE_BYTES = 16 << 20
MAX_UNREAD_BYTES = 64 << 20  # what a server may leave unread before it is taken to be stuck
EDGE_BYTES = 4096
LOG_TAIL_LINES, LOG_LINE_CHARS = 20, 300
MAX_NON_MESSAGE_LINES = 100_000  # lines without a message between them
STDERR_DRAIN_SECONDS = 0.05  # for what it wrote on stderr to arrive when it has died
SHUTDOWN_GRACE = (
    0.5  # for a server to end by itself once its input is closed, and again after a TERM
)

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]

_REQUEST_ID = re.compile(rb'"id"\s*:\s*(?:(\d{1,18})|"([^"]{1,64})")')
_BODY = re.compile(rb'"(?:result|error|method)"\s*:')


class TruncatedLine:
    """A line that was longer than anybody wants: what is left of it."""

    def __init__(self, head: bytes, tail: bytes) -> None:
        self.head, self.tail = head, tail


class LineSplitter:
    """Cuts bytes into lines; of one beyond the limit only the ends are kept."""

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
            begun = b"".join(self._parts)
            self._head, self._tail = (begun + data)[:EDGE_BYTES], begun[-EDGE_BYTES:]
            self._parts, self._size = [], 0
        self._tail = (self._tail + data[-EDGE_BYTES:])[-EDGE_BYTES:]

    def _take_line(self) -> bytes | TruncatedLine:
        if self._head is not None:
            line: bytes | TruncatedLine = TruncatedLine(self._head, self._tail)
        else:
            line = b"".join(self._parts)
        self._parts, self._size, self._head, self._tail = [], 0, None, b""
        return line


def guess_request_id(head: bytes, tail: bytes) -> int | str | None:
    """Which request an unreadable answer was for: an id before the body, or the last one."""
    first, body = _REQUEST_ID.search(head), _BODY.search(head)
    found = first if first and (not body or first.start() < body.start()) else None
    for late in _REQUEST_ID.finditer(tail) if found is None else ():
        found = late
    if found is None:
        return None
    return int(found.group(1)) if found.group(1) else found.group(2).decode(errors="replace")


class StdioTransport:
    """The transport: enter it for the SDK's two streams; `lost` is called when it is over."""

    def __init__(
        self,
        start: StartProcess,
        argv: Sequence[str],
        *,
        cwd: str | None,
        env: Mapping[str, str],
        on_lost: Callable[[str], None],
        limit: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self._start = start
        self._argv = argv
        self._cwd = cwd
        self._env = env
        self._on_lost = on_lost
        self._splitter = LineSplitter(limit)
        self._limit = limit
        self._pending_ids: set[int | str] = set()
        self._log_tail: deque[bytes] = deque(maxlen=LOG_TAIL_LINES)
        self._non_message_lines = 0  # lines since the last message
        self._transports: list[asyncio.BaseTransport] = []
        self._open_fds: set[int] = set()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def log_tail(self) -> str:
        """What it printed last that was no message."""
        said = [text for line in self._log_tail if (text := _sanitize_line(line))]
        return " / ".join(said[-3:])

    async def __aenter__(self) -> tuple[Incoming, Outgoing]:
        to_us, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](16)
        # Room for many: a call that is given up must not wait for a server that reads nothing.
        outgoing, from_us = anyio.create_memory_object_stream[SessionMessage](10_000)
        self._streams = (to_us, incoming, outgoing, from_us)
        their_in, our_in = os.pipe()
        our_out, their_out = os.pipe()
        our_err, their_err = os.pipe()
        theirs, self._open_fds = (their_in, their_out, their_err), {our_in, our_out, our_err}
        try:
            numbered = dict(enumerate(theirs))
            self._process = await self._start(self._argv, numbered, cwd=self._cwd, env=self._env)
        except BaseException:
            self._close()
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        try:
            writer = await self._open_writer(our_in)
            out, err = await self._open_reader(our_out), await self._open_reader(our_err)
        except BaseException:
            self._close()
            await self._process.kill_and_wait()
            raise
        errors = asyncio.create_task(self._read_stderr(err))
        self._tasks = [
            errors,
            asyncio.create_task(self._read_stdout(out, to_us, errors)),
            asyncio.create_task(self._write_stdin(from_us, writer, to_us)),
        ]
        return incoming, outgoing

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close its input, then insist; every wait is bounded, and the tree is gone after it."""
        try:
            self._transports[0].close()
            if not await self._exits_within(SHUTDOWN_GRACE):
                self._process.terminate()
                await self._exits_within(SHUTDOWN_GRACE)
        finally:
            await self._process.kill_and_wait()
            await asyncio.wait(self._tasks[:1], timeout=STDERR_DRAIN_SECONDS)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._close()
            await asyncio.sleep(0)  # the transports close their pipes in the loop's next round

    async def _exits_within(self, seconds: float) -> bool:
        ended = asyncio.ensure_future(self._process.wait())
        try:
            done, _ = await asyncio.wait({ended}, timeout=seconds)
        finally:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)
        return bool(done)

    # --- from the server -----------------------------------------------------------------

    async def _read_stdout(
        self,
        reader: asyncio.StreamReader,
        inbound: MemoryObjectSendStream[SessionMessage | Exception],
        stderr_task: asyncio.Task[None],
    ) -> None:
        problem = "it ended"
        try:
            while data := await reader.read(1 << 16):
                for line in self._splitter.feed(data):
                    message = self._parse_line(line)
                    if message is not None:
                        await inbound.send(SessionMessage(message))
        except _ProtocolError as error:
            problem = str(error)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            # Nobody listens any more; a server that cannot write would not see its input end.
            while await reader.read(1 << 16):
                pass
        await asyncio.wait({stderr_task}, timeout=STDERR_DRAIN_SECONDS)
        self._on_lost(problem)
        inbound.close()  # whoever waits for an answer learns that none will come

    def _parse_line(self, line: bytes | TruncatedLine) -> types.JSONRPCMessage | None:
        """The message on a line; None for noise."""
        if isinstance(line, TruncatedLine):
            megabytes = self._limit / (1 << 20)
            problem = f"the server sent a message of more than {megabytes:g} MiB, which is dropped"
            answer = self._make_error_response(guess_request_id(line.head, line.tail), problem)
            if answer is None:
                raise _ProtocolError(problem)
            return answer
        text = line.strip()
        if not text.startswith(b"{"):
            self._on_non_message(text)
            return None
        try:
            message = types.jsonrpc_message_adapter.validate_json(text, by_name=False)
        except ValueError:
            asked = guess_request_id(text[:EDGE_BYTES], text[-EDGE_BYTES:])
            answer = self._make_error_response(
                asked, "the server's answer was not a message of the protocol"
            )
            if answer is None:
                self._on_non_message(text)
            return answer
        self._non_message_lines = 0
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError) and message.id:
            self._pending_ids.discard(message.id)
        return message

    def _make_error_response(
        self, request_id: int | str | None, problem: str
    ) -> types.JSONRPCError | None:
        """The answer for a request whose own answer cannot be read."""
        if request_id is None or request_id not in self._pending_ids:
            return None
        self._pending_ids.discard(request_id)
        error = types.ErrorData(code=types.PARSE_ERROR, message=problem)
        return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error)

    def _on_non_message(self, line: bytes) -> None:
        """A line of its output that is no message."""
        self._append_log(line)
        self._non_message_lines += 1
        if self._non_message_lines > MAX_NON_MESSAGE_LINES:
            raise _ProtocolError("it prints line after line that is no message")

    async def _read_stderr(self, reader: asyncio.StreamReader) -> None:
        rest = b""
        while data := await reader.read(1 << 16):
            # Only the last lines will be quoted, and a server may print faster than we read.
            *lines, rest = (rest + data).rsplit(b"\n", LOG_TAIL_LINES + 1)
            for line in lines[-LOG_TAIL_LINES:]:
                self._append_log(line)
            rest = rest[:EDGE_BYTES]
        self._append_log(rest)

    def _append_log(self, line: bytes) -> None:
        if line:
            self._log_tail.append(line[: LOG_LINE_CHARS * 4])

    # --- to the server -------------------------------------------------------------------

    async def _write_stdin(
        self,
        outbound: MemoryObjectReceiveStream[SessionMessage],
        writer: asyncio.WriteTransport,
        inbound: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        async for wrapped in outbound:
            message = wrapped.message
            self._track_request(message)
            try:
                line = message.model_dump_json(by_alias=True, exclude_unset=True)
            except ValueError as error:  # half a surrogate pair, which no UTF-8 can hold
                asked = message.id if isinstance(message, types.JSONRPCRequest) else None
                answer = self._make_error_response(asked, f"the arguments cannot be sent: {error}")
                if answer is not None:
                    with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                        await inbound.send(SessionMessage(answer))
                continue
            writer.write(line.encode() + b"\n")
            if writer.is_closing() or writer.get_write_buffer_size() > MAX_UNREAD_BYTES:
                ended = await self._exits_within(STDERR_DRAIN_SECONDS)
                await asyncio.wait(self._tasks[:1], timeout=STDERR_DRAIN_SECONDS)
                self._on_lost("it ended" if ended else "it does not read its input")
                inbound.close()
                return

    def _track_request(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCRequest):
            self._pending_ids.add(message.id)
        elif getattr(message, "method", "") == "notifications/cancelled":
            assert isinstance(message, types.JSONRPCNotification)
            self._pending_ids.discard((message.params or {}).get("requestId", ""))

    # --- pipes ---------------------------------------------------------------------------

    async def _open_reader(self, fd: int) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(limit=1 << 17)
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(fd, "rb", buffering=0)
        self._open_fds.discard(fd)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        self._transports.append(transport)
        return reader

    async def _open_writer(self, fd: int) -> asyncio.WriteTransport:
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(fd, "wb", buffering=0)
        self._open_fds.discard(fd)
        transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, pipe)
        self._transports.append(transport)
        return transport

    def _close(self) -> None:
        for transport in self._transports:
            transport.close()
        for fd in self._open_fds:
            os.close(fd)
        self._open_fds.clear()
        for stream in self._streams:
            stream.close()


def _sanitize_line(line: bytes) -> str:
    return strip_escapes(line.decode("utf-8", errors="replace"))[:LOG_LINE_CHARS].strip()


class _ProtocolError(Exception):
    """What the server sends cannot be followed any more."""

"""One HTTP/1.1 connection: writes a request, parses its response, applies the timeouts.

An asyncio protocol around the httptools parser; one response at a time, over a plain or TLS
socket. It knows no URL, pool, redirect or content coding: client.py does.
"""

import asyncio
import select
from collections.abc import Sequence
from typing import Final, cast

import httptools

from .timeouts import TimeoutKind, TimeoutTimer, TimeoutTracker
from .transport import Disconnected, MalformedResponse, TimedOut, TransportError, too_large_error

_MAX_QUEUED_BYTES: Final = 512 * 1024
_MAX_SINGLE_WRITE: Final = 4 * 1024 * 1024
_WRITE_BLOCK: Final = 256 * 1024
_MAX_HEAD_BYTES: Final = 512 * 1024
_MAX_UNREAD_BYTES: Final = 16 * 1024


class Connection(asyncio.BufferedProtocol):
    """Per exchange: `start_exchange`, `send`, `wait_for_headers`, `take_body`…, `finish`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, buffer: memoryview) -> None:
        self._loop = loop
        # Filled and consumed within one callback, so all connections of a loop share it.
        self._buffer = buffer
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._drain_waiter: asyncio.Future[None] | None = None
        self._timer = TimeoutTimer(lambda: bool(self._chunks), self._on_expired)
        self._tracker: TimeoutTracker | None = None
        self._max_bytes: int | None = None
        self._chunks: list[bytes] = []
        # The parser calls this directly from C, once for each chunk.
        self.on_body = self._chunks.append
        self._queued = 0
        self._reading_paused = False
        self._parser = httptools.HttpResponseParser(self)
        self._address = ""
        self._busy = False
        self._is_sent = False
        self._request_size = 0
        self._is_reusable = True
        self.is_lost = False
        self.idle_since = 0.0
        self.status = 0
        self.raw_headers: list[tuple[bytes, bytes]] = []
        self.done = False
        self.error: TransportError | None = None
        self.received = 0

    @property
    def is_idle(self) -> bool:
        """Whether the server neither closed the connection nor sent bytes since the last exchange,
        also none that the event loop has not read yet."""
        if self.is_lost or self._transport is None:
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket"), select.POLLIN)
        return not poll.poll(0)

    # -- one exchange

    def start_exchange(self, address: str, tracker: TimeoutTracker, max_bytes: int | None) -> None:
        """Prepare for a response; the timeouts start now."""
        self._address = address
        self._tracker = tracker
        self._max_bytes = max_bytes
        self._busy = True
        self.status = self.received = self._queued = 0
        self.raw_headers = []
        self.done = self._is_sent = False
        tracker.on_request_sent(self._loop.time())
        self._timer.start(self._loop, tracker)

    async def send(self, head: bytes, body: Sequence[bytes], size: int) -> None:
        """Write a request. Returns early if the server answers before all of it is sent."""
        transport = self._transport
        if transport is None or self.is_lost:
            self._handle_lost(None)
            return
        self._request_size = size
        if size <= _MAX_SINGLE_WRITE:
            transport.write(b"".join((head, *body)))
            self._is_sent = True
            return
        block = [head]
        block_bytes = 0
        for part in body:
            block.append(part)
            block_bytes += len(part)
            if block_bytes >= _WRITE_BLOCK:
                transport.write(b"".join(block))
                block.clear()
                block_bytes = 0
                if self._drain_waiter is not None and not await self._wait_drained():
                    return
        transport.write(b"".join(block))
        self._is_sent = True

    async def wait_for_headers(self) -> None:
        """Wait for the final status and the headers."""
        while not self.status:
            if self.error is not None:
                raise self.error
            await self.wait()

    def take_body(self) -> bytes:
        """Every body byte that has arrived; empty if there is none."""
        chunks = self._chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self._queued = 0
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()
        return data

    @property
    def has_data(self) -> bool:
        return bool(self._chunks)

    async def wait(self) -> None:
        """Wait until something changes: data, headers, the end, an error."""
        waiter = self._waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def finish(self) -> bool:
        """End the exchange; true if the connection can be reused: both directions are at rest."""
        self._busy = False
        self._tracker = None
        self._timer.stop()
        self._chunks.clear()
        reusable = self.done and self._is_reusable and not self.is_lost and self.error is None
        reusable = reusable and self._is_request_read()
        if not reusable:
            self.abort()
        return reusable

    def abort(self) -> None:
        """Close the socket now, whatever is in flight."""
        self.is_lost = True
        self._timer.close()
        if self._transport is not None:
            try:
                self._transport.abort()
            except RuntimeError:
                pass  # the event loop is closed, and the socket with it

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self._busy or self.done:
            # Bytes without a request would be taken for the next response.
            self._is_reusable = False
            self.abort()
            return
        self.received += nbytes
        self._queued += nbytes
        if self._tracker is not None:
            self._tracker.on_bytes(self._loop.time())
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except httptools.HttpParserUpgrade:
            message = f"{self._address} asks to switch protocols: check the URL"
            self._fail(MalformedResponse(message))
        except httptools.HttpParserError as error:
            self._is_reusable = False
            if not self.done:  # else: more bytes than this response has
                problem = error.__context__ or error  # the context: what a callback raised
                self._fail(_not_http_error(self._address, str(problem)))
        if not self.status and self.received > _MAX_HEAD_BYTES:
            self._fail(_not_http_error(self._address, f"{_MAX_HEAD_BYTES} bytes without a body"))
        if self._max_bytes is not None and self.received > self._max_bytes:
            self._fail(too_large_error(self._address, self._max_bytes))
        elif self._queued > _MAX_QUEUED_BYTES and not self._reading_paused and not self.done:
            self._reading_paused = True
            if self._transport is not None:
                self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._handle_lost(exc)

    def pause_writing(self) -> None:
        self._drain_waiter = self._loop.create_future()

    def resume_writing(self) -> None:
        drain, self._drain_waiter = self._drain_waiter, None
        if drain is not None and not drain.done():
            drain.set_result(None)

    # -- called by the parser

    def on_message_begin(self) -> None:
        if self.done:
            raise ValueError("a second response")  # stops the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # later ones are trailers
            self.raw_headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 100:
            raise ValueError(f"the status {status}")
        if status >= 200:
            self.status = status
            if self._tracker is not None:
                self._tracker.on_headers(self._loop.time())

    def on_message_complete(self) -> None:
        if not self.status:
            self.raw_headers = []  # an interim response (1xx): the final one follows
            return
        self.done = True
        self._is_reusable = self._is_reusable and self._parser.should_keep_alive()

    # -- inside

    def _is_request_read(self) -> bool:
        # A server may answer before it has read the request: the next one would be read as the
        # rest of its body, or not at all. An error in answer to a large body is often such a case.
        if self.status >= 400 and self._request_size > _MAX_UNREAD_BYTES:
            return False
        transport = self._transport
        return self._is_sent and transport is not None and not transport.get_write_buffer_size()

    def _on_expired(self, kind: TimeoutKind) -> None:
        if self._tracker is not None and not self.done:
            self._fail(TimedOut(kind, self._tracker.get_seconds(kind), self._address))

    def _fail(self, error: TransportError) -> None:
        if self.error is None:
            self.error = error
        self.abort()
        self._wake()

    def _handle_lost(self, cause: Exception | None) -> None:
        self.is_lost = True
        if self._busy and not self.done and self.error is None:
            if self.status and cause is None and self._is_ended_by_close():
                self.done = True
            else:
                self.error = self._disconnected_error(cause)
        self._wake()
        self.resume_writing()

    def _disconnected_error(self, cause: Exception | None) -> Disconnected:
        when = "in the middle of its response" if self.status else "without a response"
        why = f" ({cause})" if cause else ""
        message = f"{self._address} closed the connection {when}{why}: try again"
        error = Disconnected(message, self._address, self.received if self.status else -1)
        error.__cause__ = cause
        return error

    def _is_ended_by_close(self) -> bool:
        names = {name.lower() for name, _ in self.raw_headers}
        return b"content-length" not in names and b"transfer-encoding" not in names

    async def _wait_drained(self) -> bool:
        while self._drain_waiter is not None and not self.status and self.error is None:
            self._drain_waiter.add_done_callback(lambda _: self._wake())
            await self.wait()
        return not self.status and self.error is None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def _not_http_error(address: str, problem: str) -> MalformedResponse:
    message = (
        f"{address} did not answer in HTTP/1.1 ({problem}): check the URL and port; for a port "
        "with TLS the URL begins with https://"
    )
    return MalformedResponse(message, address)

"""One HTTP/1.1 connection: writes a request, parses its response, keeps time.

An asyncio protocol around the httptools parser; one response at a time. It knows no URL, pool,
redirect or content coding: `client` above does. The socket below it is plain or TLS.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, cast

import httptools

from .timeouts import TimeoutKind, TimeoutTracker
from .transport import Disconnected, MalformedResponse, ResponseTooLarge, TimedOut, TransportError

_MAX_QUEUED_BYTES: Final = 512 * 1024
_MAX_SINGLE_WRITE: Final = 4 * 1024 * 1024
_WRITE_BLOCK: Final = 256 * 1024


class Connection(asyncio.BufferedProtocol):
    """Born by a dial, lives through `begin` / `head` / `take`… / `finish`, may begin again."""

    def __init__(self, loop: asyncio.AbstractEventLoop, buffer: memoryview) -> None:
        self._loop = loop
        # Filled and consumed within one callback, so that all connections of a loop share one.
        self._buffer = buffer
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._drain_waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tracker: TimeoutTracker | None = None
        self._max_bytes: int | None = None
        self._chunks: list[bytes] = []
        # The parser calls this straight from C, once for each chunk.
        self.on_body = self._chunks.append
        self._queued = 0
        self._reading_paused = False
        self._parser = httptools.HttpResponseParser(self)
        self._address = ""
        self._busy = False
        self._is_reusable = True
        self.is_lost = False
        self.idle_since = 0.0
        self.status = 0
        self.raw_headers: list[tuple[bytes, bytes]] = []
        self.done = False
        self.error: TransportError | None = None
        self.received = 0

    # -- one exchange

    def start_exchange(self, address: str, tracker: TimeoutTracker, max_bytes: int | None) -> None:
        """Get ready for a response; the clock runs from here."""
        self._address = address
        self._tracker = tracker
        self._max_bytes = max_bytes
        self._busy = True
        self.status = self.received = self._queued = 0
        self.raw_headers = []
        self.done = False
        now = self._loop.time()
        tracker.on_request_sent(now)
        if self._timer is None:
            self._timer = self._loop.call_at(tracker.schedule_check(now), self._check_timeouts)

    async def send(self, head: bytes, body: Sequence[bytes], size: int) -> None:
        """Write a request. Returns early if the server answers before it is all sent."""
        transport = self._transport
        if transport is None or self.is_lost:
            self._handle_lost(None)
            return
        if size <= _MAX_SINGLE_WRITE:
            transport.write(b"".join((head, *body)))
            return
        block = [head]
        held = 0
        for part in body:
            block.append(part)
            held += len(part)
            if held >= _WRITE_BLOCK:
                transport.write(b"".join(block))
                block.clear()
                held = 0
                if self._drain_waiter is not None and not await self._wait_drained():
                    return
        transport.write(b"".join(block))

    async def wait_for_headers(self) -> None:
        """Wait for the final status and the headers."""
        while not self.status:
            if self.error is not None:
                raise self.error
            await self.wait()
        if self._drain_waiter is not None:
            self._is_reusable = False  # it answered without having read the whole request

    def take_body(self) -> bytes:
        """Every body byte that is here; empty if there is none."""
        pieces = self._chunks
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._queued = 0
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()
        return data

    @property
    def has_data(self) -> bool:
        return bool(self._chunks)

    async def wait(self) -> None:
        """Until something changed: data, headers, the end, an error."""
        waiter = self._waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def finish(self) -> bool:
        """The exchange is over; true if the connection can carry another one."""
        self._busy = False
        self._tracker = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._chunks.clear()
        reusable = self.done and self._is_reusable and not self.is_lost and self.error is None
        if not reusable:
            self.abort()
        return reusable

    def abort(self) -> None:
        """Close the socket now, whatever is in flight."""
        self.is_lost = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            try:
                self._transport.abort()
            except RuntimeError:
                pass  # its event loop is closed, and the socket with it

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self._busy or self.done:
            # Nobody asked: a late byte makes the next answer unreadable.
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
            self._fail(
                MalformedResponse(f"{self._address} wants to switch protocols: check the URL")
            )
        except httptools.HttpParserError as error:
            if not self.done:
                self._fail(
                    MalformedResponse(
                        f"{self._address} does not speak HTTP/1.1 ({error}): check the URL and port",
                        self._address,
                    )
                )
        if self._max_bytes is not None and self.received > self._max_bytes:
            self._fail(
                ResponseTooLarge(
                    f"the response from {self._address} is larger than {self._max_bytes} bytes: "
                    "raise the max_bytes limit if that is expected",
                    self._address,
                )
            )
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

    def on_header(self, name: bytes, value: bytes) -> None:
        self.raw_headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status
            if self._tracker is not None:
                self._tracker.on_headers(self._loop.time())

    def on_message_complete(self) -> None:
        if not self.status:
            self.raw_headers = []  # an interim answer (1xx): the real one follows
            return
        self.done = True
        self._is_reusable = self._is_reusable and self._parser.should_keep_alive()

    # -- inside

    def _check_timeouts(self) -> None:
        self._timer = None
        meter = self._tracker
        if meter is None or self.done:
            return
        now = self._loop.time()
        if self._chunks:
            meter.on_reader_behind(now)
        which: TimeoutKind | None = meter.find_expired(now)
        if which is None:
            self._timer = self._loop.call_at(meter.schedule_check(now), self._check_timeouts)
        else:
            self._fail(TimedOut(which, meter.get_seconds(which), self._address))

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
        when = "in the middle of its answer" if self.status else "without an answer"
        error = Disconnected(
            f"{self._address} closed the connection {when}"
            f"{f' ({cause})' if cause else ''}: try again",
            self._address,
            self.received if self.status else -1,
        )
        error.__cause__ = cause
        return error

    def _is_ended_by_close(self) -> bool:
        names = {name.lower() for name, _ in self.raw_headers}
        return b"content-length" not in names and b"transfer-encoding" not in names

    async def _wait_drained(self) -> bool:
        while self._drain_waiter is not None and not self.status and self.error is None:
            waiter = self._waiter = self._loop.create_future()
            self._drain_waiter.add_done_callback(lambda _: self._wake())
            try:
                await waiter
            finally:
                self._waiter = None
        return not self.status and self.error is None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

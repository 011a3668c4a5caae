"""One connection to a language server: JSON-RPC in frames with a Content-Length, over its pipes.

What a server sends is data: frames are limited in size and number, a malformed one ends the
connection with its reason. It knows no method but those that a server may ask of a client. Used by
server.py.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from treadle.core.errors import ToolError
from treadle.tools.piped_process import PipedProcess

MAX_MESSAGE_BYTES = 16 << 20
MAX_UNASKED_BYTES = 64 << 20  # of messages since the last request or notification of ours
_LENGTH = re.compile(rb"(?:^|\r\n)content-length: *(\d{1,12}) *\r\n", re.IGNORECASE)
_METHOD_NOT_FOUND = -32601


class LanguageServerError(ToolError):
    """A server that cannot be used, or a request that it cannot answer."""


class RefusedRequest(LanguageServerError):
    """The server answered with an error, and can be asked again."""


class LspConnection:
    """`answer` gives the result of a request of the server, or raises LookupError;
    `on_notification` gets its notifications, and `on_end` is called when it has ended.
    `end_reason` is "" while the connection is open."""

    def __init__(
        self,
        process: PipedProcess,
        answer: Callable[[str, Any], object],
        on_notification: Callable[[str, Any], None],
        on_end: Callable[[], None],
    ) -> None:
        self._process = process
        self._answer, self._on_notification, self._on_end = answer, on_notification, on_end
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._last_id = self._unasked_bytes = 0
        self.end_reason = ""

    async def open(self) -> None:
        await self._process.open()
        self._reader = asyncio.create_task(self._read())

    async def request(self, method: str, params: Mapping[str, Any], timeout: float) -> Any:
        """The result; LanguageServerError if there is none in time."""
        self._last_id += 1
        number, reply = self._last_id, asyncio.get_running_loop().create_future()
        self._pending[number] = reply
        try:
            self._send({"id": number, "method": method, "params": params})
            return await asyncio.wait_for(reply, timeout)
        except TimeoutError:
            raise LanguageServerError(f"it did not answer {method} in {timeout:g} s") from None
        finally:
            self._pending.pop(number, None)

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self._send({"method": method, "params": params})

    async def aclose(self) -> None:
        """End the process; requests that wait fail."""
        try:
            await self._process.end()
        finally:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
            self._end("it was closed")
            await self._process.aclose()

    def _send(self, message: Mapping[str, Any]) -> None:
        if self.end_reason:
            raise LanguageServerError(self.end_reason)
        self._unasked_bytes = 0
        body = msgspec.json.encode({"jsonrpc": "2.0", **message})
        self._process.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        # One that has ended reads nothing, either: `_read` says how it ended.
        if self._process.is_stuck:
            self._end("it does not read its input")
            raise LanguageServerError(self.end_reason)

    async def _read(self) -> None:
        reason = ""
        try:
            while True:
                self._handle(await self._read_message())
        except LanguageServerError as error:
            reason = str(error)
        except asyncio.LimitOverrunError:
            reason = "it sent a header that is too long"
        except (asyncio.IncompleteReadError, OSError):
            await self._process.drain_log()
            log = self._process.log_tail
            reason = await self._process.describe_end() + (f": {log}" if log else "")
        self._end(reason)

    async def _read_message(self) -> Any:
        header = await self._process.stdout.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(header)
        if length is None:
            raise LanguageServerError(f"it sent what is no message: {header[:80]!r}")
        size = int(length.group(1))
        self._unasked_bytes += size
        if size > MAX_MESSAGE_BYTES:
            raise LanguageServerError(f"it sent a message of {size:,} bytes, which is too long")
        if self._unasked_bytes > MAX_UNASKED_BYTES:
            raise LanguageServerError("it sends too much that was not asked for")
        body = await self._process.stdout.readexactly(size)
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError, ValueError):
            raise LanguageServerError(f"it sent what is no JSON: {body[:80]!r}") from None

    def _handle(self, message: Any) -> None:
        match message:
            case {"id": int() | str() as number, "method": str(method)}:
                try:
                    reply = {"result": self._answer(method, message.get("params"))}
                except LookupError:
                    error = {"code": _METHOD_NOT_FOUND, "message": "not supported"}
                    reply = {"error": error}
                unasked = self._unasked_bytes
                self._send({"id": number, **reply})
                self._unasked_bytes = unasked
            case {"method": str(method)}:
                self._on_notification(method, message.get("params"))
            case {"id": int(number)}:
                future = self._pending.get(number)
                if future is None or future.done():
                    return  # nothing waits for it any more
                match message.get("error"):
                    case None:
                        future.set_result(message.get("result"))
                    case {"message": str(text)}:
                        future.set_exception(RefusedRequest(text[:500]))
                    case _:
                        future.set_exception(RefusedRequest("it failed without a reason"))
            case _:
                raise LanguageServerError(f"it sent what is no message: {message!r:.80}")

    def _end(self, reason: str) -> None:
        self.end_reason = self.end_reason or reason
        for future in self._pending.values():
            if not future.done():
                future.set_exception(LanguageServerError(self.end_reason))
                future.exception()  # no warning if nothing waits for it
        self._on_end()

"""JSON-RPC messages as lines on stdin and stdout, for the connection of the SDK.

A line that is no message is answered with an error, and the connection continues. Only messages
reach stdout; whatever else is printed goes to stderr. Used by main.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import Any

MAX_LINE_BYTES = 64 << 20
END_SECONDS = 5.0
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
DELETE_METHOD = "treadle/session_delete"


class LineTransport:
    """Implements the SDK's Transport over a reader and a file descriptor."""

    def __init__(self, reader: asyncio.StreamReader, writer: PipeWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._open_requests: set[object] = set()  # short ones, which are answered before the end
        self._answered = asyncio.Event()

    async def send(self, message: dict[str, Any]) -> None:
        # `default`: the SDK puts exceptions into its answer to invalid parameters.
        line = json.dumps(message, separators=(",", ":"), default=str, ensure_ascii=False)
        # A lone surrogate, of a file name that is not UTF-8, is no JSON for most parsers.
        await self._writer.write(line.encode(errors="replace") + b"\n")
        if "method" not in message:
            self._open_requests.discard(message.get("id"))
            self._answered.set()

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end of the input."""
        while (line := await self._read_line()) is not None:
            if not line.strip():
                continue
            message = _parse(line)
            if isinstance(message, dict):
                if message.get("method") == "session/delete":
                    message["method"] = f"_{DELETE_METHOD}"  # the SDK does not know it yet
                if "id" in message and message.get("method") not in (None, "session/prompt"):
                    self._open_requests.add(message["id"])
                return message
            code, problem = message
            error = {"code": code, "message": problem}
            await self.send({"jsonrpc": "2.0", "id": None, "error": error})
        await self._answer_open_requests()
        return None

    async def _answer_open_requests(self) -> None:
        """The input is over: what was asked before is answered, unless it takes long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                while self._open_requests:
                    self._answered.clear()
                    await self._answered.wait()

    async def close(self) -> None:
        self._writer.close()

    async def _read_line(self) -> bytes | None:
        """A line; None at the end. Of a line that is too long only the beginning."""
        try:
            return await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            return error.partial or None
        except asyncio.LimitOverrunError as error:
            await self._skip_line(error.consumed)
            return b"\0too long"
        except OSError:  # the terminal or the pipe is gone
            return None

    async def _skip_line(self, consumed: int) -> None:
        while True:
            await self._reader.readexactly(consumed)
            try:
                await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                consumed = error.consumed
            except asyncio.IncompleteReadError:
                return
            else:
                return


def _parse(line: bytes) -> dict[str, Any] | tuple[int, str]:
    """The message of a line; or the code and the text of an error."""
    if line.startswith(b"\0"):
        return INVALID_REQUEST, f"the message is longer than {MAX_LINE_BYTES >> 20} MiB"
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        return PARSE_ERROR, f"this line is not JSON: {error}"
    if not isinstance(message, dict):
        return INVALID_REQUEST, "a message is one JSON object per line"
    if not isinstance(message.get("id"), (str, int, float, type(None))):
        return INVALID_REQUEST, "the id of a message is a number or a text"
    if "method" in message:
        is_valid = isinstance(message["method"], str)
        return message if is_valid else (INVALID_REQUEST, "the method of a message is a text")
    if "id" not in message:
        return INVALID_REQUEST, "a message has a method or an id"
    if "error" in message and not isinstance(message["error"], dict):
        message["error"] = {"code": -32603, "message": str(message["error"])}
    return message


class PipeWriter:
    """Writes to a descriptor; waits while a pipe is full, without blocking the program."""

    def __init__(self, fd: int, pipe: asyncio.StreamWriter | None) -> None:
        self._fd = fd
        self._pipe = pipe  # None: a regular file

    async def write(self, data: bytes) -> None:
        if self._pipe is None:
            os.write(self._fd, data)
            return
        self._pipe.write(data)
        await self._pipe.drain()

    def close(self) -> None:
        if self._pipe is not None:
            self._pipe.close()


async def open_stdio() -> LineTransport:
    """The transport on stdin and stdout. From now on `print` writes to stderr."""
    loop = asyncio.get_running_loop()
    out = os.dup(1)
    os.dup2(2, 1)
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    try:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    except (ValueError, PermissionError):  # a regular file, or /dev/null
        reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
        reader.feed_data(sys.stdin.buffer.read())
        reader.feed_eof()
    try:
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        transport, _ = await loop.connect_write_pipe(
            lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(out, "wb", buffering=0)
        )
    except ValueError:  # a regular file
        return LineTransport(reader, PipeWriter(out, None))
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    return LineTransport(reader, PipeWriter(out, writer))

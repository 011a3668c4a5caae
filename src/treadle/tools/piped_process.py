"""A server process on three pipes: its input, its output, and the end of its log.

The process belongs to the workspace: its whole tree ends when it is closed or the agent dies. Not
the protocol: mcp/stdio_transport.py and language_servers/connection.py have theirs. Tools do not
import the workspace: the assembly passes the function that starts processes.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from treadle.lib.text.sanitize import strip_escapes

MAX_UNREAD_BYTES = 64 << 20  # a server that leaves more unread is taken to be stuck
EDGE_BYTES = 4096
LOG_TAIL_LINES, LOG_LINE_CHARS = 20, 300
STDERR_DRAIN_SECONDS = 0.05  # for the rest of stderr to arrive after the process died
SHUTDOWN_GRACE = 0.5  # seconds to exit after one of its pipes is closed, and again after TERM


class SpawnedProcess(Protocol):
    """A running process. `kill_and_wait` returns when its whole tree is gone."""

    async def wait(self) -> object: ...

    def terminate(self) -> None: ...

    async def kill_and_wait(self) -> None: ...


class StartProcess(Protocol):
    """Starts a program on descriptors of the caller, who closes them; it ends with the agent."""

    async def __call__(
        self,
        argv: Sequence[str],
        descriptors: Mapping[int, int],
        *,
        cwd: str | None,
        env: Mapping[str, str] | None,
    ) -> SpawnedProcess: ...


class PipedProcess:
    """`open` starts it; `stdout` is read by the caller, stderr is kept as a short log."""

    stdout: asyncio.StreamReader

    def __init__(
        self,
        start: StartProcess,
        argv: Sequence[str],
        *,
        cwd: str | None,
        env: Mapping[str, str] | None,
    ) -> None:
        self._start, self._argv, self._cwd, self._env = start, argv, cwd, env
        self._log_tail: deque[bytes] = deque(maxlen=LOG_TAIL_LINES)
        self._transports: list[asyncio.BaseTransport] = []
        self._open_fds: set[int] = set()

    @property
    def log_tail(self) -> str:
        """The last lines of its log."""
        lines = [text for line in self._log_tail if (text := _sanitize_line(line))]
        return " / ".join(lines[-3:])

    def append_log(self, line: bytes) -> None:
        if line:
            self._log_tail.append(line[: LOG_LINE_CHARS * 4])

    async def open(self) -> None:
        their_in, our_in = os.pipe()
        our_out, their_out = os.pipe()
        our_err, their_err = os.pipe()
        theirs, self._open_fds = (their_in, their_out, their_err), {our_in, our_out, our_err}
        try:
            numbered = dict(enumerate(theirs))
            self._process = await self._start(self._argv, numbered, cwd=self._cwd, env=self._env)
        except BaseException:
            self._close_pipes()
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        try:
            self._stdin = await self._open_writer(our_in)
            self.stdout = await self._open_reader(our_out)
            stderr = await self._open_reader(our_err)
        except BaseException:
            self._close_pipes()
            await self._process.kill_and_wait()
            raise
        self._log_task = asyncio.create_task(self._read_stderr(stderr))

    def write(self, data: bytes) -> bool:
        """Send it; False if the process does not read its input, or has ended."""
        self._stdin.write(data)
        return not (self._stdin.is_closing() or self.is_stuck)

    @property
    def is_stuck(self) -> bool:
        """Whether it leaves too much unread."""
        return self._stdin.get_write_buffer_size() > MAX_UNREAD_BYTES

    async def drain_log(self) -> None:
        """Wait a moment for the rest of its log."""
        await asyncio.wait({self._log_task}, timeout=STDERR_DRAIN_SECONDS)

    async def describe_end(self) -> str:
        has_ended = await self.exits_within(SHUTDOWN_GRACE)
        code = getattr(await self._process.wait(), "exit_code", None) if has_ended else None
        return f"it ended with exit code {code}" if code else "it ended"

    async def describe_failed_write(self) -> str:
        """How it has ended, or that it does not read."""
        seconds = STDERR_DRAIN_SECONDS if self.is_stuck else SHUTDOWN_GRACE
        has_ended = await self.exits_within(seconds)
        await self.drain_log()
        return await self.describe_end() if has_ended else "it does not read its input"

    async def exits_within(self, seconds: float) -> bool:
        ended = asyncio.ensure_future(self._process.wait())
        try:
            done, _ = await asyncio.wait({ended}, timeout=seconds)
        finally:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)
        return bool(done)

    async def end(self) -> None:
        """Close its input, then TERM, then KILL; waits are bounded, and the tree is gone after."""
        try:
            self._stdin.close()
            if not await self.exits_within(SHUTDOWN_GRACE):
                self._process.terminate()
                await self.exits_within(SHUTDOWN_GRACE)
        finally:
            await self._process.kill_and_wait()
            await self.drain_log()

    async def aclose(self) -> None:
        """Close the pipes, after `end`."""
        self._log_task.cancel()
        await asyncio.gather(self._log_task, return_exceptions=True)
        self._close_pipes()
        await asyncio.sleep(0)  # the transports close their pipes in the next loop iteration

    async def _read_stderr(self, reader: asyncio.StreamReader) -> None:
        rest = b""
        while data := await reader.read(1 << 16):
            # Only the last lines are used, and a server may print faster than we read.
            *lines, rest = (rest + data).rsplit(b"\n", LOG_TAIL_LINES + 1)
            for line in lines[-LOG_TAIL_LINES:]:
                self.append_log(line)
            rest = rest[:EDGE_BYTES]
        self.append_log(rest)

    async def _open_reader(self, fd: int) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(limit=1 << 17)
        loop, protocol = asyncio.get_running_loop(), asyncio.StreamReaderProtocol(reader)
        pipe = os.fdopen(fd, "rb", buffering=0)
        self._open_fds.discard(fd)
        transport, _ = await loop.connect_read_pipe(lambda: protocol, pipe)
        self._transports.append(transport)
        return reader

    async def _open_writer(self, fd: int) -> asyncio.WriteTransport:
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(fd, "wb", buffering=0)
        self._open_fds.discard(fd)
        transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, pipe)
        self._transports.append(transport)
        return transport

    def _close_pipes(self) -> None:
        for transport in self._transports:
            transport.close()
        for fd in self._open_fds:
            os.close(fd)
        self._open_fds.clear()


def _sanitize_line(line: bytes) -> str:
    return strip_escapes(line.decode("utf-8", errors="replace"))[:LOG_LINE_CHARS].strip()

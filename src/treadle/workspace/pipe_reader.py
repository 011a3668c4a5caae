"""What a program prints, read by the event loop itself from a pipe that the program was given.

For programs whose output is wanted as it is, such as a search: nobody stands between. A command
whose output goes to a person or a model is spooled by the keeper. `local.py` stands above.
"""

from __future__ import annotations

import asyncio
import fcntl
import os

PIPE_BYTES = 1 << 20
READ_PAUSE = 0.005


class PipeReader:
    """One stream, kept up to a limit and counted beyond it. Always to be closed.

    A program that prints line by line would wake us for each. So after each look there is a pause,
    in which the pipe takes up what comes; the end needs no waking, for `taken` looks once more.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._kept_bytes = self.total_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._read_fd, self.write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        try:
            self._capacity = fcntl.fcntl(self._read_fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        except OSError:  # past the user's quota of pipes: a narrow one does as well
            self._capacity = fcntl.fcntl(self._read_fd, fcntl.F_GETPIPE_SZ)
        self._resume_reading()

    def close_write_end(self) -> None:
        """The program has the writing end: ours must not keep the pipe open."""
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1

    def read_rest(self) -> bytes:
        """The program has ended: what is still in the pipe, and then all that was kept."""
        left = self._capacity  # a stranger who holds the pipe may write for ever
        while left > 0 and (size := self._read_once()):
            left -= size
        return b"".join(self._parts)

    def close(self) -> None:
        self.close_write_end()
        if self._pause is not None:
            self._pause.cancel()
        if self._read_fd >= 0:
            self._loop.remove_reader(self._read_fd)
            os.close(self._read_fd)
            self._read_fd = -1

    @property
    def is_truncated(self) -> bool:
        return self.total_bytes > self._limit

    def _resume_reading(self) -> None:
        self._pause = None
        self._loop.add_reader(self._read_fd, self._on_readable)

    def _on_readable(self) -> None:
        size = self._read_once()
        if size is None or size >= self._capacity // 2:
            return  # it prints faster than we look
        self._loop.remove_reader(self._read_fd)
        if size:
            self._pause = self._loop.call_later(READ_PAUSE, self._resume_reading)

    def _read_once(self) -> int | None:
        """Read once: how much, 0 at the end, None if there is nothing now."""
        try:
            data = os.read(self._read_fd, PIPE_BYTES)
        except BlockingIOError:
            return None
        self.total_bytes += len(data)
        room = self._limit - self._kept_bytes
        if room > 0 and data:
            self._parts.append(data[:room])
            self._kept_bytes += len(self._parts[-1])
        return len(data)

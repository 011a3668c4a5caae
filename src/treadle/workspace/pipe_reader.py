"""The output of a program, read by the event loop directly from a pipe.

For programs whose output is used as it is, such as a search. The output of commands, which the
user or the model sees, is read by the supervisor. Used by `local.py`.
"""

from __future__ import annotations

import asyncio
import os

from treadle.workspace.supervisor.syscalls import enlarge_pipe

PIPE_BYTES = 1 << 20
READ_PAUSE = 0.005


class PipeReader:
    """One stream, kept up to a limit and counted beyond it. It must be closed.

    A program that prints line by line would wake the loop for each line. So after each read there
    is a pause in which the pipe buffers; `read_rest` reads what is left at the end.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._kept_bytes = self.total_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._read_fd, self.write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        self._capacity = enlarge_pipe(self._read_fd, PIPE_BYTES)
        self._resume_reading()

    def close_write_end(self) -> None:
        """Close our copy of the writing end, once the program has its own."""
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1

    def read_rest(self) -> bytes:
        """After the program has ended: read the rest of the pipe and return all that was kept."""
        left = self._capacity  # another process that holds the pipe may write for ever
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
            return  # it prints a lot: read on without a pause
        self._loop.remove_reader(self._read_fd)
        if size:
            self._pause = self._loop.call_later(READ_PAUSE, self._resume_reading)

    def _read_once(self) -> int | None:
        """Read once: the number of bytes, 0 at the end, None if there is nothing now."""
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

"""What a program prints, read by the event loop itself from a pipe that the program was given.

For programs whose output is wanted as it is, such as a search: nobody stands between. A command
whose output goes to a person or a model is spooled by the keeper. `local.py` stands above.
"""

from __future__ import annotations

import asyncio
import fcntl
import os

PIPE = 1 << 20
PAUSE = 0.005


class Intake:
    """One stream, kept up to a limit and counted beyond it. Always to be closed.

    A program that prints line by line would wake us for each. So after each look there is a pause,
    in which the pipe takes up what comes; the end needs no waking, for `taken` looks once more.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._kept = self.total = 0
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        try:
            self._room = fcntl.fcntl(self._reading, fcntl.F_SETPIPE_SZ, PIPE)
        except OSError:  # past the user's quota of pipes: a narrow one does as well
            self._room = fcntl.fcntl(self._reading, fcntl.F_GETPIPE_SZ)
        self._listen()

    def handed_over(self) -> None:
        """The program has the writing end: ours must not keep the pipe open."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def taken(self) -> bytes:
        """The program has ended: what is still in the pipe, and then all that was kept."""
        left = self._room  # a stranger who holds the pipe may write for ever
        while left > 0 and (size := self._take()):
            left -= size
        return b"".join(self._parts)

    def close(self) -> None:
        self.handed_over()
        if self._pause is not None:
            self._pause.cancel()
        if self._reading >= 0:
            self._loop.remove_reader(self._reading)
            os.close(self._reading)
            self._reading = -1

    @property
    def is_cut(self) -> bool:
        return self.total > self._limit

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._reading, self._look)

    def _look(self) -> None:
        size = self._take()
        if size is None or size >= self._room // 2:
            return  # it prints faster than we look
        self._loop.remove_reader(self._reading)
        if size:
            self._pause = self._loop.call_later(PAUSE, self._listen)

    def _take(self) -> int | None:
        """Read once: how much, 0 at the end, None if there is nothing now."""
        try:
            data = os.read(self._reading, PIPE)
        except BlockingIOError:
            return None
        self.total += len(data)
        room = self._limit - self._kept
        if room > 0 and data:
            self._parts.append(data[:room])
            self._kept += len(self._parts[-1])
        return len(data)

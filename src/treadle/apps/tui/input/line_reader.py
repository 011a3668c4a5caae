"""Reads lines from standard input, for the plain frontend (plain.py)."""

from __future__ import annotations

import asyncio
import os
import select
import termios
from collections.abc import Callable


class LineReader:
    """Reads lines from standard input without a thread. It stays blocking: the terminal shares
    the setting with standard output."""

    def __init__(self, on_line: Callable[[str | None], None]) -> None:
        self._on_line = on_line
        self._buffer = b""
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self.resume()

    def resume(self) -> None:
        """Read from now on; not after the end of the input."""
        try:
            if not self._is_closed:
                self._loop.add_reader(0, self.read_waiting)
        except PermissionError:  # a regular file: read to its end
            while not self._is_closed:
                self._read()

    def pause(self) -> None:
        """Leave the input to another program."""
        try:
            self._loop.remove_reader(0)
        except (OSError, ValueError):
            pass

    def read_available(self) -> str:
        """Read what was typed already; returns the beginning of a line that is not finished."""
        self.read_waiting()
        if not self._is_closed and not _is_in_background():
            self._read_unfinished_line()
        return self._buffer.decode(errors="replace")

    def read_waiting(self) -> None:
        """Read what is there. The loop may call this when `read_available` has read it already; a
        read would then block."""
        while not self._is_closed and select.select([0], [], [], 0)[0]:
            self._read()

    def _read_unfinished_line(self) -> None:
        """The terminal holds a line until it is finished, unless it is asked for single keys."""
        try:
            attributes = termios.tcgetattr(0)
            keys = [*attributes[:6], [*attributes[6]]]
            keys[3] &= ~termios.ICANON
            keys[6][termios.VMIN], keys[6][termios.VTIME] = 1, 0
            termios.tcsetattr(0, termios.TCSANOW, keys)
        except termios.error:
            return  # not a terminal any more
        try:
            self.read_waiting()
        finally:
            termios.tcsetattr(0, termios.TCSANOW, attributes)

    def _read(self) -> None:
        try:
            data = os.read(0, 65_536)
        except OSError:
            data = b""
        if not data:
            if self._buffer:
                self._on_line(self._buffer.decode(errors="replace"))
            self._buffer = b""
            self._on_line(None)
            self.close()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._on_line(line.decode(errors="replace"))

    def close(self) -> None:
        self._is_closed = True
        self.pause()


def _is_in_background() -> bool:
    """Whether the terminal would stop this process for a change of its settings."""
    try:
        return os.tcgetpgrp(0) != os.getpgrp()
    except OSError:
        return False  # a terminal of another session stops no process of this one

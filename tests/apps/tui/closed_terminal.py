"""Closes the terminal of the real program while a command runs, and waits for the end of both.

Used by test_closed_terminal.py and benchmarks/shut_down.py.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import termios
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.apps.tui.tmux import PROGRAM
from tests.patience import PATIENCE, until_in_thread
from treadle.testing.provider.script import FakeCall, FakeReply
from treadle.testing.provider.server import ProviderServer

# Only cells that differ are drawn: the last line begins like no other.
LAST = "QQZZXX"
LONG = "".join(f"Sentence {place} of a long reply.\n\n" for place in range(400)) + LAST


def make_replies(seconds: int) -> list[FakeReply]:
    """A long reply, then a command that runs for so many seconds, which also name it."""
    command = FakeCall("bash", {"command": f"sleep {seconds}"})
    return [FakeReply(LONG), FakeReply(calls=(command,))]


class ClosableTerminal:
    """The program on a pseudo-terminal. Without `has_signal` it is not the controlling terminal:
    nothing but the terminal itself tells that it is closed."""

    def __init__(
        self,
        server: ProviderServer,
        *given: str,
        has_signal: bool = True,
        size: tuple[int, int] = (120, 40),
    ) -> None:
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (size[1], size[0]))
        env = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        env["TERM"] = "xterm-256color"

        def take_terminal() -> None:
            os.setsid()
            if has_signal:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        command = [str(PROGRAM), "--model=claude-sonnet-4-5", "--sandbox=off", *given]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=env, preexec_fn=take_terminal
        )
        os.close(slave)
        self.shown = b""
        self._is_closed = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while not self._is_closed:  # a read that waits would keep the terminal open
            try:
                if select.select([self._master], [], [], 0.05)[0]:
                    self.shown += os.read(self._master, 65_536)
            except OSError:
                return

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait(self, holds: Callable[[], bool]) -> None:
        until_in_thread(holds, lambda: self.shown[-3000:].decode(errors="replace"))

    def _is_longer(self, size: int) -> bool:
        return len(self.shown) > size

    def sees(self, text: str) -> None:
        self.wait(lambda: text.encode() in self.shown)

    def trust(self) -> None:
        """Answer the trust question."""
        self.sees("Do you trust")
        self.sees("▸")  # it takes keys
        self.type("y")
        self.type("\r")
        self.sees("sandbox")

    def work(self, seconds: int) -> None:
        """The trust question, a long reply, the command of `make_replies` that runs."""
        self.trust()
        self.send("tell me")
        self.sees(LAST)
        self.send("run it")
        self.wait(partial(is_running, seconds))

    def send(self, text: str) -> None:
        """Each key when the one before is on the screen, as a person types."""
        for key in (*text, "\r"):
            size = len(self.shown)
            self.type(key)
            self.wait(partial(self._is_longer, size))

    def close(self) -> float:
        """Close the terminal; the seconds until the process has ended."""
        self._is_closed = True
        self._reader.join()
        began = time.monotonic()
        os.close(self._master)
        self.process.wait(PATIENCE)
        return time.monotonic() - began


def is_running(seconds: int) -> bool:
    """Whether the command of `make_replies` runs."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if place.read_bytes() == f"sleep\0{seconds}\0".encode():
                return True
        except OSError:
            continue  # it has just ended
    return False

"""A command that continues in the background: the contract's RunningCommand.

Its whole output is in a file, which is read on request. Used by `local.py`; uses `processes.py`.
"""

from __future__ import annotations

import asyncio
import os
import termios
from collections.abc import Callable
from pathlib import Path

from treadle.core.contracts.workspace import CommandInput, CommandResult
from treadle.core.errors import WorkspaceError
from treadle.workspace.output import ProcessExit, join_head_tail
from treadle.workspace.processes import HEAD_BYTES, TAIL_BYTES, Process

WRITE_TIMEOUT = 5.0  # seconds in which a command has to read what is written to it
NO_INPUT_MESSAGE = "this command was started without an input; start it again with `stdin` or `tty`"
TERMINAL_SIZE = 120, 40  # columns and rows
MakeResult = Callable[[ProcessExit], CommandResult]


class InputPipe:
    """The input of a command that can be written to while it runs."""

    def __init__(self) -> None:
        self.read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._write_fd, False)

    @property
    def terminal(self) -> int | None:
        """Our end of the terminal that it is, if it is one."""
        return None

    def close_read_end(self) -> None:
        if self.read_fd >= 0:
            os.close(self.read_fd)
            self.read_fd = -1

    def close(self) -> None:
        self.close_read_end()
        if self._write_fd >= 0:
            os.close(self._write_fd)
            self._write_fd = -1

    async def write(self, data: bytes) -> None:
        """Write all of it; WorkspaceError if the command has ended or does not read."""
        deadline = asyncio.get_running_loop().time() + WRITE_TIMEOUT
        while data:
            if self._write_fd < 0:
                raise WorkspaceError("the command has ended; it takes no input")
            try:
                data = data[os.write(self._write_fd, data) :]
            except BlockingIOError:
                if asyncio.get_running_loop().time() > deadline:
                    raise WorkspaceError("the command does not read its input") from None
                await asyncio.sleep(0.02)
            except OSError:  # a broken pipe, or a terminal that no process has open
                raise WorkspaceError("the command has closed its input") from None

    def resize(self, columns: int, rows: int) -> None:
        raise WorkspaceError("this command has no terminal; start it with `tty`")


class InputTerminal(InputPipe):
    """The input of a command that is a terminal, and its output, too. It does not repeat what is
    typed, unless the program does."""

    def __init__(self) -> None:
        self._write_fd, self.read_fd = os.openpty()
        os.set_blocking(self._write_fd, False)
        modes = termios.tcgetattr(self.read_fd)
        modes[1] &= ~termios.ONLCR
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(self.read_fd, termios.TCSANOW, modes)
        self.resize(*TERMINAL_SIZE)

    @property
    def terminal(self) -> int | None:
        return self._write_fd

    def resize(self, columns: int, rows: int) -> None:
        if self._write_fd < 0:
            raise WorkspaceError("the command has ended")
        termios.tcsetwinsize(self._write_fd, (rows, columns))


def open_input(kind: CommandInput) -> InputPipe | None:
    if kind == "terminal":
        return InputTerminal()
    return InputPipe() if kind else None


class BackgroundCommand:
    """`make_result` makes the contract's result when it has ended. `given`: its input."""

    def __init__(
        self,
        process: Process,
        output_file: Path,
        make_result: MakeResult,
        given: InputPipe | None = None,
    ) -> None:
        self._process, self._output_file, self._make_result = process, output_file, make_result
        self._input = given

    @property
    def pid(self) -> int:
        return self._process.pid

    def output(self) -> str:
        """Its output so far, the middle left out if it is long."""
        try:
            total = self._output_file.stat().st_size
            with self._output_file.open("rb") as file:
                head = file.read(HEAD_BYTES)
                file.seek(max(len(head), total - TAIL_BYTES))
                tail = file.read(TAIL_BYTES)
            return join_head_tail(head, tail, total, str(self._output_file), total)
        except FileNotFoundError:
            return ""

    async def write(self, text: str) -> None:
        if self._input is None:
            raise WorkspaceError(NO_INPUT_MESSAGE)
        await self._input.write(text.encode(errors="replace"))

    def resize(self, columns: int, rows: int) -> None:
        if self._input is None:
            raise WorkspaceError(NO_INPUT_MESSAGE)
        self._input.resize(columns, rows)

    async def wait(self) -> CommandResult:
        return self._make_result(await self._process.wait())

    async def kill(self) -> CommandResult:
        await self._process.kill_and_wait()
        return await self.wait()

"""A command that continues in the background: the contract's RunningCommand.

Its whole output is in a file, which is read on request. Used by `local.py`; uses `processes.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from treadle.core.contracts.workspace import CommandResult
from treadle.workspace.output import join_head_tail
from treadle.workspace.processes import HEAD_BYTES, TAIL_BYTES, Process, ProcessExit

MakeResult = Callable[[ProcessExit], CommandResult]


class BackgroundCommand:
    """`make_result` makes the contract's result when it has ended."""

    def __init__(self, process: Process, output_file: Path, make_result: MakeResult) -> None:
        self._process, self._output_file, self._make_result = process, output_file, make_result

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

    async def wait(self) -> CommandResult:
        return self._make_result(await self._process.wait())

    async def kill(self) -> CommandResult:
        await self._process.kill_and_wait()
        return await self.wait()

"""A command that goes on by itself: the contract's Running.

Its whole output is in a side file, which is read when somebody asks. `local.py` stands above, the
process that the keeper watches below.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from treadle.core.contracts.workspace import Completed
from treadle.workspace.output import joined
from treadle.workspace.processes import HEAD, TAIL, Ended, Process


class Background:
    """`told` makes the contract's account of how it ended."""

    def __init__(self, process: Process, side: Path, told: Callable[[Ended], Completed]) -> None:
        self._process, self._side, self._told = process, side, told

    @property
    def pid(self) -> int:
        return self._process.pid

    def output(self) -> str:
        """What it printed so far, the middle left out if it is long."""
        try:
            total = self._side.stat().st_size
            with self._side.open("rb") as file:
                head = file.read(HEAD)
                file.seek(max(len(head), total - TAIL))
                return joined(head, file.read(TAIL), total, str(self._side), total)
        except FileNotFoundError:
            return ""

    async def wait(self) -> Completed:
        return self._told(await self._process.wait())

    async def kill(self) -> Completed:
        await self._process.end()
        return await self.wait()

"""A workspace of your own, around another one: it notes what was changed and run."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from treadle.contracts import CommandResult, FileContent, Workspace, WrappedWorkspace
from treadle.workspace import LocalWorkspace, WorkspaceOptions


class Audited(WrappedWorkspace):
    def __init__(self, workspace: Workspace, note: Callable[[str], None]) -> None:
        super().__init__(workspace)
        self._note = note

    async def write(
        self, path: str, data: bytes, *, expected: str | None = None, mode: int | None = None
    ) -> FileContent:
        written = await super().write(path, data, expected=expected, mode=mode)
        self._note(f"wrote {path}: {written.size} bytes")
        return written

    async def remove(self, path: str, *, expected: str | None = None) -> None:
        await super().remove(path, expected=expected)
        self._note(f"removed {path}")

    async def run(self, command: str, **options: Any) -> CommandResult:
        self._note(f"runs {command}")
        return await super().run(command, **options)


async def main() -> None:
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        local = await LocalWorkspace.open(Path(folder), WorkspaceOptions(sandbox="off"))
        workspace = Audited(local, notes.append)  # Agent(…, workspace=workspace)
        await workspace.write("a.txt", b"one\n")
        print((await workspace.run("cat a.txt")).output, notes)
        await workspace.aclose()


if __name__ == "__main__":
    asyncio.run(main())

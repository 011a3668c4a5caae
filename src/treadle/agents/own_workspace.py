"""A workspace for the programs of a source of tools that has none, such as an MCP server.

It is opened when the first program starts, in the current folder, without a sandbox, and closed
with the source. Used by agent_settings.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.tools.mcp import McpServer
    from treadle.tools.piped_process import SpawnedProcess
    from treadle.workspace import LocalWorkspace


class OwnWorkspace:
    def __init__(self) -> None:
        self._workspace: LocalWorkspace | None = None

    async def start(
        self,
        argv: Sequence[str],
        descriptors: Mapping[int, int],
        *,
        cwd: str | None,
        env: Mapping[str, str] | None,
    ) -> SpawnedProcess:
        if self._workspace is None:
            from treadle.workspace import LocalWorkspace

            self._workspace = await LocalWorkspace.open(Path.cwd())
        return await self._workspace.spawn(argv, descriptors, cwd=cwd, env=env)

    async def aclose(self) -> None:
        workspace, self._workspace = self._workspace, None
        if workspace is not None:
            await workspace.aclose()


def give_workspace(server: McpServer) -> None:
    """Let its process start in a workspace of its own, if nothing else starts it."""
    if server.start is None:
        own = OwnWorkspace()
        server.start, server.close_start = own.start, own.aclose

"""The MCP servers that may run here, as one source.

They start in the background, and nobody waits for them longer than asked for. That what comes late
leaves the cache as it is, is tools/steady.py's business; who may run at all, extras.py's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from treadle.apps.wiring.late import LateWorkspace
from treadle.core.errors import ConfigError
from treadle.tools.federation import Federation
from treadle.tools.mcp.server import McpServer, McpStatus

_TROUBLE = ("failed", "login")


class Servers(Federation):
    """All of them; `open` starts each, and waits for them no longer than `patience`."""

    def __init__(self, servers: Sequence[McpServer], patience: float) -> None:
        super().__init__(servers)
        self.servers = tuple(servers)
        self._patience = patience

    async def open(self) -> None:
        await super().open()
        if self._patience:
            await asyncio.gather(*(server.ready(self._patience) for server in self.servers))


def servers_of(
    definitions: Mapping[str, Mapping[str, Any]],
    workspace: LateWorkspace,
    *,
    patience: float,
    notes: list[str],
    tell: Callable[[str], None] | None,
) -> Servers:
    """The servers as a source; a definition that is wrong is noted and left out."""

    def heard(status: McpStatus) -> None:
        if tell is not None and status.state in _TROUBLE:
            tell(f"server {status.line}")

    made: list[McpServer] = []
    for name, definition in definitions.items():
        try:
            made.append(
                McpServer(
                    name,
                    definition,
                    start=workspace.spawn,
                    root=workspace.root,
                    on_change=heard,
                )
            )
        except ConfigError as error:
            notes.append(str(error))
    return Servers(made, patience)

"""What the tests of MCP servers share: opening one, calling a tool of it."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from treadle.core.contracts.tool import ToolContext, ToolOutput
from treadle.tools.mcp import McpServer, McpStatus
from treadle.tools.mcp.status import McpState
from treadle.workspace.local import LocalWorkspace
from treadle.workspace.options import WorkspaceOptions


@pytest.fixture(scope="session")
def sdk() -> None:
    """The SDK, loaded: its objects live on, so that a look for leaks need not go over them."""
    import_module("treadle.tools.mcp.connection")
    gc.collect()
    gc.freeze()


RAW = str(Path(__file__).with_name("raw_server.py"))


def raw(*words: str, **more: Any) -> dict[str, Any]:
    """The definition of the badly behaved server."""
    return {"command": sys.executable, "args": ["-I", "-S", RAW, *words], **more}


@asynccontextmanager
async def workspace(folder: Path) -> AsyncIterator[LocalWorkspace]:
    opened = await LocalWorkspace.open(folder, WorkspaceOptions(sandbox="off", grace=0.2))
    try:
        yield opened
    finally:
        await opened.aclose()


class Log:
    """The statuses of a server, in order, and a way to wait for one."""

    def __init__(self) -> None:
        self.seen: list[McpStatus] = []
        self._news = asyncio.Event()

    def __call__(self, status: McpStatus) -> None:
        self.seen.append(status)
        self._news.set()

    async def until(self, state: McpState, after: int = 0) -> McpStatus:
        while True:
            for status in self.seen[after:]:
                if status.state == state:
                    return status
            self._news.clear()
            await self._news.wait()


@asynccontextmanager
async def served(
    folder: Path,
    *words: str,
    name: str = "raw",
    config: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[McpServer]:
    async with workspace(folder) as place:
        definition = config or raw(*words)
        start = {"required": False, "start_wait": 0.0}
        given = {"delays": (0.0,) * 3, **start, "root": folder, **options}
        server = McpServer(name, definition, start=place.spawn, **given)
        await server.open()
        try:
            yield server
        finally:
            await server.aclose()


def context(progress: Callable[[str], None] = lambda _: None) -> ToolContext:
    return ToolContext("s", "t", "c", "k", progress, lambda: None, lambda _: None)


async def call(
    server: McpServer, tool: str, progress: Callable[[str], None] = lambda _: None, **given: Any
) -> ToolOutput:
    """Call a tool of a server by the name that the server gave it."""
    found = next(one for one in server.tools() if one.spec.name.endswith(f"__{tool}"))
    return await found.call(given, context(progress))

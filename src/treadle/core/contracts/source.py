"""The contract of a tool source: provides tools.

Examples: a list of functions, an MCP server, a folder of skills. tools/federation.py joins several
sources into one. The loop reads the tools before each model call; a change is an event
(ToolsChanged).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from treadle.core.contracts.tool import Tool


class ToolSource(Protocol):
    """Provides tools.

    Promises: `tools` is fast and answers from memory; while nothing changed it returns the same
    object, so the loop can compare by identity. `open` may be slow and is called once, before the
    first use; `aclose` ends every process and connection. Both are called in the same event loop.
    `tools` must not fail when a server is unavailable: the source then returns the tools that it
    last knew, and the call itself fails with a ToolError.
    """

    @property
    def name(self) -> str: ...

    def tools(self) -> Sequence[Tool]: ...

    def instructions(self) -> str:
        """Text for the model about these tools as a whole; may be empty."""

    async def open(self) -> None: ...

    async def aclose(self) -> None: ...


class BaseSource:
    """A source without instructions that needs no opening. A subclass defines `name`, `tools`."""

    name: str = ""

    def tools(self) -> Sequence[Tool]:
        return ()

    def instructions(self) -> str:
        return ""

    async def open(self) -> None:
        return None

    async def aclose(self) -> None:
        return None

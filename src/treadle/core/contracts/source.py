"""The contract of a tool source: a place that tools come from.

A registry of functions, an MCP server, a folder of skills. Sources are federated by
tools/federation.py and read anew before each model call; a change is told by an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from treadle.core.contracts.tool import Tool


class ToolSource(Protocol):
    """Where tools come from.

    Promises: `tools` is cheap and answers from memory; while nothing changed it returns the
    same object, so that the loop can tell by identity. `open` may be slow, and is called once
    before the first use; `aclose` ends every process and connection.
    It must not fail `tools` because its server is away: then it offers what it last knew, and
    the call itself fails with a ToolError.
    """

    @property
    def name(self) -> str: ...

    def tools(self) -> Sequence[Tool]: ...

    def instructions(self) -> str:
        """What the model should know about these tools as a whole; may be empty."""

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

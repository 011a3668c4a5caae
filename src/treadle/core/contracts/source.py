"""The contract of a tool source: provides tools.

Examples: a list of functions, an MCP server, a folder of skills. tools/federation.py joins several
sources into one. The loop reads the tools before each model call; a change is an event
(ToolsChanged).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol

from treadle.core.contracts.tool import Tool
from treadle.core.type_variables import PartDepsT


class ToolSource(Protocol[PartDepsT]):
    """Provides tools.

    One source serves every session of an agent. One whose tools depend on the `deps` of a session
    returns another from `bind`, which serves that session alone: it is opened before its first
    request and closed with it.

    Promises: `tools` is fast and answers from memory; while nothing changed it returns the same
    object, so the loop can compare by identity. `open` may be slow and is called once, before the
    first use; `aclose` ends every process and connection. Both are called in the same event loop.
    `tools` must not fail when a server is unavailable: the source then returns the tools that it
    last knew, and the call itself fails with a ToolError.
    """

    @property
    def name(self) -> str: ...

    def tools(self) -> Sequence[Tool[PartDepsT]]: ...

    def bind(self, deps: PartDepsT) -> ToolSource[PartDepsT]:
        """The source for a session with these deps: itself if they do not matter. Fast: what takes
        time is for `open` of the one that it returns."""

    def instructions(self) -> str:
        """Text for the model about these tools as a whole; may be empty."""

    async def open(self) -> None: ...

    async def aclose(self) -> None: ...


def list_instructions(source: ToolSource) -> dict[str, str]:
    """The instructions of a source by its name, without empty ones. One that joins several has a
    method `list_instructions()`, which tells them apart."""
    list_own: Callable[[], dict[str, str]] | None = getattr(source, "list_instructions", None)
    if list_own is not None:
        return list_own()
    text = source.instructions()
    return {source.name: text} if text else {}


class BaseSource(Generic[PartDepsT]):
    """A source without instructions that needs no opening. A subclass defines `name`, `tools`, or
    `bind` if its tools depend on the deps."""

    name: str = ""

    def tools(self) -> Sequence[Tool[PartDepsT]]:
        return ()

    def bind(self, deps: PartDepsT) -> ToolSource[PartDepsT]:
        return self

    def instructions(self) -> str:
        return ""

    async def open(self) -> None:
        return None

    async def aclose(self) -> None:
        return None

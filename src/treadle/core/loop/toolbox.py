"""The tools of the moment: a snapshot of the source, taken at each model call.

A source that has not changed returns the same object, so looking costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.tool import Tool, ToolSpec
from treadle.core.events import ToolsChanged
from treadle.core.loop.telling import Emitter


class Toolbox:
    def __init__(self, source: ToolSource, emitter: Emitter) -> None:
        self._source = source
        self._emitter = emitter
        self._source_tools: Sequence[Tool] | None = None
        self._by_name: dict[str, Tool] = {}
        self.specs: tuple[ToolSpec, ...] = ()
        self.spec_chars = 0

    def refresh(self) -> None:
        """Look at the source again; tell if something came or went."""
        tools = self._source.tools()
        if tools is self._source_tools:
            return
        before, is_first = self._by_name, self._source_tools is None
        self._source_tools = tools
        self._by_name = {tool.spec.name: tool for tool in tools}
        self.specs = tuple([tool.spec for tool in self._by_name.values()])
        self.spec_chars = sum(
            len(spec.name) + len(spec.description) + len(msgspec.json.encode(spec.schema))
            for spec in self.specs
        )
        added = tuple(name for name in self._by_name if name not in before)
        removed = tuple(name for name in before if name not in self._by_name)
        if not is_first and (added or removed):
            self._emitter.emit(ToolsChanged, added, removed)

    def find(self, name: str) -> Tool | None:
        return self._by_name.get(name)

    def unknown_tool_error(self, name: str) -> str:
        """What to tell a model that called for a tool which is not there."""
        from difflib import get_close_matches  # rarely needed

        close = get_close_matches(name.lower(), list(self._by_name), n=1, cutoff=0.6)
        hint = f"; did you mean `{close[0]}`?" if close else ""
        return f"error: unknown tool `{name}`{hint}"

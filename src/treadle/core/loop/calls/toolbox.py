"""The tools of a driver, by their names: a snapshot of the source before each model call.

It runs no tool. Calls of names that it does not know are refused (prepare.py) or repaired before
(call_repair.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.tool import Tool, ToolSpec, find_target
from treadle.core.errors import ConfigError
from treadle.core.events import ToolsChanged
from treadle.core.loop.emitter import Emitter
from treadle.core.transcript.size_estimate import estimate_text_chars
from treadle.lib.text.text import suggest

MAX_LISTED_TOOLS = 40


class Toolbox:
    """The tools of a source by their names, as they were before the last model call."""

    def __init__(self, source: ToolSource, emitter: Emitter) -> None:
        self._source = source
        self._emitter = emitter
        self._source_tools: Sequence[Tool] | None = None
        self._added: tuple[Tool, ...] = ()
        self._by_name: dict[str, Tool] = {}
        self.all_specs: tuple[ToolSpec, ...] = ()
        self.specs: tuple[ToolSpec, ...] = ()  # those that the model is told about
        self.spec_chars = 0

    def add_tools(self, tools: tuple[Tool, ...]) -> None:
        """Add these to those of the source, for the turns that come; no event tells of them."""
        if tools != self._added:
            self._added, self._source_tools = tools, None

    @property
    def has_been_read(self) -> bool:
        return self._source_tools is not None

    def refresh(self) -> None:
        """Read the source again; emit an event if tools came or went."""
        tools = self._source.tools()
        if tools is self._source_tools:
            return
        by_name = {tool.spec.name: tool for tool in tools}
        for tool in self._added:
            if by_name.setdefault(tool.spec.name, tool) is not tool:
                raise ConfigError(f"two tools are named {tool.spec.name!r}; rename your own")
        specs = tuple([tool.spec for tool in by_name.values()])
        for spec in specs:
            schema: object = spec.schema
            if not isinstance(schema, dict):
                problem = f"its schema is {schema!r:.80}; it must be a dict"
                raise ConfigError(f"tool {spec.name!r}: {problem}")
        before, is_first = self._by_name, self._source_tools is None
        self._source_tools, self._by_name, self.all_specs = tools, by_name, specs
        self.specs = tuple([spec for spec in specs if not spec.unlisted])
        self.spec_chars = estimate_spec_chars(self.specs)
        added = tuple(name for name in by_name if name not in before)
        removed = tuple(name for name in before if name not in by_name)
        if not is_first and (added or removed):
            self._emitter.emit(ToolsChanged, added, removed)

    def find(self, name: str) -> Tool | None:
        """The tool of this name, also one that a tool of the list forwards to."""
        tool = self._by_name.get(name)
        if tool is not None:
            return tool
        targets = (find_target(other, name) for other in self._by_name.values())
        return next(filter(None, targets), None)

    def unknown_tool_error(self, name: str) -> str:
        names = [spec.name for spec in self.specs]
        near = suggest(name, names)
        hint = f"; did you mean `{near}`?" if near else "."
        more = f" and {len(names) - MAX_LISTED_TOOLS} more" if len(names) > MAX_LISTED_TOOLS else ""
        listed = f" The tools are {', '.join(names[:MAX_LISTED_TOOLS])}{more}." if names else ""
        return f"error: unknown tool `{name}`{hint}{listed}"


def estimate_spec_chars(specs: Sequence[ToolSpec]) -> int:
    """What the definitions of these tools add to a request."""
    return sum(
        len(spec.name)
        + estimate_text_chars(spec.description)
        + len(msgspec.json.encode(spec.schema))
        for spec in specs
        if not spec.deferred
    )

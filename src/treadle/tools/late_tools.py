"""Tools that come late, without touching those that are there.

The list of tools stands at the very beginning of a request; changing it makes the provider read
everything anew. So the first list stays: a tool that appears later is described in a notice, and
called through `use_tool`; one that goes away stays listed and answers that it is gone. What their
source says of them as a whole is a notice as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.tool import (
    Access,
    BaseTool,
    Preview,
    ProbeResult,
    Tool,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.errors import ToolError
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.items import NoticeItem
from treadle.core.transcript.transcript import Transcript

USE_TOOL_NAME = "use_tool"
USE_TOOL_DESCRIPTION = (
    "Calls a tool that was announced after this conversation began. "
    "Use it only for tools that a notice told you of."
)


def unwrap_call(name: str, arguments: Arguments) -> tuple[str, Arguments]:
    """Which tool a call is of, and with what, as the call alone tells: what a log can be asked."""
    inner, given = arguments.get("name"), arguments.get("arguments")
    if name != USE_TOOL_NAME or not isinstance(inner, str) or not isinstance(given, dict):
        return name, arguments
    return inner, given


class StableToolList:
    """A source whose list never changes, and the mutator that announces what came late.

    Give the same object to an agent as its source and among its mutators.
    """

    def __init__(self, source: ToolSource) -> None:
        self._source = source
        self._initial_tools: tuple[Tool, ...] | None = None
        self._announced_names: dict[str, frozenset[str]] = {}  # by session
        self._sent_instructions: dict[str, str] = {}

    @property
    def name(self) -> str:
        return self._source.name

    def tools(self) -> Sequence[Tool]:
        if self._initial_tools is None:
            self._initial_tools = (
                *(_StableTool(self, tool) for tool in self._source.tools()),
                _UseTool(self),
            )
        return self._initial_tools

    def instructions(self) -> str:
        return ""  # what a source says may come late, too: it is in a notice

    async def open(self) -> None:
        await self._source.open()

    async def aclose(self) -> None:
        await self._source.aclose()

    # --- as a mutator --------------------------------------------------------------------

    @property
    def points(self) -> frozenset[MutationPoint]:
        return frozenset({"before_model"})

    async def mutate(self, context: MutationContext) -> Transcript | None:
        told = self._announced_names.get(context.session_id, frozenset())
        new = [tool for name, tool in self.late_tools().items() if name not in told]
        parts = [part for part in (self._new_instructions(context), _describe_tools(new)) if part]
        if not parts:
            return None
        self._announced_names[context.session_id] = told | {tool.spec.name for tool in new}
        return context.transcript.append(NoticeItem("\n\n".join(parts), kind="tools"))

    def _new_instructions(self, context: MutationContext) -> str:
        """What the source says of its tools as a whole, unless the session knows it."""
        said = self._source.instructions()
        if not said or self._sent_instructions.get(context.session_id) == said:
            return ""
        self._sent_instructions[context.session_id] = said
        notices = (item for item in context.transcript if isinstance(item, NoticeItem))
        return "" if any(said in notice.text for notice in notices) else said

    # --- what is behind ------------------------------------------------------------------

    def late_tools(self) -> dict[str, Tool]:
        """Tools that were not there at the beginning."""
        known = {tool.spec.name for tool in self.tools()}
        return {
            tool.spec.name: tool for tool in self._source.tools() if tool.spec.name not in known
        }

    def find_tool(self, name: str) -> Tool | None:
        return next((tool for tool in self._source.tools() if tool.spec.name == name), None)


def _describe_tools(tools: Sequence[Tool]) -> str:
    lines = [
        f"- {tool.spec.name}: {tool.spec.description} Arguments: "
        f"{msgspec.json.encode(tool.spec.schema).decode()}"
        for tool in tools
    ]
    return "\n".join([f"New tools; call them by `{USE_TOOL_NAME}`:", *lines]) if lines else ""


class _StableTool(BaseTool):
    """A tool of the first list: as it was described, as it is now."""

    def __init__(self, source: StableToolList, tool: Tool) -> None:
        self._source = source
        self._spec = tool.spec

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def check(self, arguments: Arguments) -> str | None:
        tool = self._source.find_tool(self._spec.name)
        return tool.check(arguments) if tool else f"{self._spec.name} is not available any more"

    def summary(self, arguments: Arguments) -> str:
        tool = self._source.find_tool(self._spec.name)
        return tool.summary(arguments) if tool else f"[{self._spec.name}]"

    def access(self, arguments: Arguments, session_id: str) -> Access:
        return self._current_tool().access(arguments, session_id)

    async def preview(self, arguments: Arguments, context: ToolContext) -> Preview | None:
        return await self._current_tool().preview(arguments, context)

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        return await self._current_tool().call(arguments, context)

    async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        return await self._current_tool().evidence(arguments, context)

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        return await self._current_tool().probe(arguments, evidence, context)

    def _current_tool(self) -> Tool:
        tool = self._source.find_tool(self._spec.name)
        if tool is None:
            raise ToolError(f"{self._spec.name} is not available any more")
        return tool


class _UseTool(BaseTool):
    """The one tool through which late ones are called. It leads to them and does nothing itself."""

    def __init__(self, source: StableToolList) -> None:
        self._source = source
        self._spec = ToolSpec(
            USE_TOOL_NAME,
            USE_TOOL_DESCRIPTION,
            {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "arguments": {"type": "object"},
                },
                "required": ["name", "arguments"],
                "additionalProperties": False,
            },
        )

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def target(self, arguments: Arguments) -> tuple[Tool, Arguments] | str:
        """The tool that is meant: rules, hooks and the person see that one."""
        name, given = unwrap_call(USE_TOOL_NAME, arguments)
        if name == USE_TOOL_NAME:
            return "give the tool's name as a text and its arguments as an object"
        tool = self._source.find_tool(name)
        if tool is None:
            names = ", ".join(self._source.late_tools()) or "none"
            return f"no tool {name!r} was announced (there are: {names})"
        return tool, given

    def check(self, arguments: Arguments) -> str | None:
        found = self.target(arguments)
        return found if isinstance(found, str) else None

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        # Only behind a wrapper that hides `target`: rules would be asked about the wrong tool.
        raise ToolError(
            f"{USE_TOOL_NAME} does nothing by itself, and whoever called it did not look behind"
        )

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        return ProbeResult("not_done", f"{USE_TOOL_NAME} does nothing by itself")

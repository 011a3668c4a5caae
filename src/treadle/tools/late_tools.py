"""Tools that are not in the tool list: those that appear after the first request, and too many.

The tool list is at the start of a request; changing it invalidates the provider's prompt cache.
So the first list stays, also when the session is resumed: a late tool is described in a notice and
called through `use_tool`; one that disappears stays listed and its calls fail. Of a late tool that
disappears a notice says so. The sources' instructions are notices as well. What the model was told
is read off the notices of the view, in a resumed session too.

Tools whose descriptions would be longer than `defer_above` tokens are deferred: the notice has
their names (tool_directory.py), `tool_search` finds their arguments, and they are called like late
ones. Where the provider has a tool search of its own (`provider_searches`), they are in the list,
marked as deferred, and the model calls them by their own names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.contracts.source import ToolSource, list_instructions
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
from treadle.core.contracts.wrapped import WrappedSource
from treadle.core.errors import ToolError
from treadle.core.transcript import Arguments, NoticeItem, Transcript
from treadle.tools.tool_directory import (
    describe_directory,
    describe_tool,
    estimate_tokens,
    search_tools,
)

DEFER_ABOVE_TOKENS = 10_000
USE_TOOL_NAME = "use_tool"
USE_TOOL_DESCRIPTION = "Calls a tool that a notice announced or tool_search found."
TOOL_SEARCH_NAME = "tool_search"
TOOL_SEARCH_DESCRIPTION = (
    "Finds tools that a notice only names, by words or an exact name; call them by use_tool."
)


def unwrap_call(name: str, arguments: Arguments) -> tuple[str, Arguments]:
    """The tool and arguments that a call of `use_tool` forwards to; other calls unchanged."""
    inner_name, inner = arguments.get("name"), arguments.get("arguments")
    if name != USE_TOOL_NAME or not isinstance(inner_name, str) or not isinstance(inner, dict):
        return name, arguments
    return inner_name, inner


def _is_never_awaited(name: str) -> bool:
    return False


class StableToolList(WrappedSource):
    """A source whose list never changes, and the mutator that announces late tools.

    Pass the same object to an agent as a source and as a mutator. An agent has one: it takes the
    notices of the view for its own. A Federation joins several sources for it.
    """

    def __init__(
        self,
        source: ToolSource,
        defer_above: int = DEFER_ABOVE_TOKENS,
        *,
        provider_searches: bool = False,
        listed: frozenset[str] | None = None,
        is_awaited: Callable[[str], bool] = _is_never_awaited,
    ) -> None:
        """`listed`: the names in the list of earlier requests, if there were any. `is_awaited`:
        whether a tool or a source of this name may still come, because its server starts."""
        super().__init__(source)
        self._listed = listed
        self._is_awaited = is_awaited
        self._defer_above = defer_above
        self._provider_searches = provider_searches
        self._initial_tools: tuple[Tool, ...] | None = None

    def tools(self) -> Sequence[Tool]:
        if self._initial_tools is None:
            first, known = self._source.tools(), self._listed
            if known is not None:
                first = [tool for tool in first if tool.spec.name in known]
            deferred = self._is_too_long(first)
            listed = () if deferred and not self._provider_searches else first
            stable = [_StableTool(self, tool, deferred=deferred) for tool in listed]
            self._initial_tools = (*stable, _UseTool(self), _ToolSearch(self))
        return self._initial_tools

    def bind(self, deps: object) -> StableToolList:
        return self  # the list and its announcements are those of one session already

    def _is_too_long(self, tools: Sequence[Tool]) -> bool:
        return estimate_tokens(tools) > self._defer_above

    def instructions(self) -> str:
        return ""  # they may come late, too, so they are in a notice

    def narrow_tools(self, narrow: Callable[[ToolSource], ToolSource]) -> StableToolList | None:
        """The same for a child agent that has only some of the tools; None if it has none."""
        source = narrow(self._source)
        if not source.tools():
            return None
        return StableToolList(
            source,
            self._defer_above,
            provider_searches=self._provider_searches,
            is_awaited=self._is_awaited,
        )

    # --- as a mutator --------------------------------------------------------------------

    @property
    def points(self) -> frozenset[MutationPoint]:
        return frozenset({"before_model"})

    async def mutate(self, context: MutationContext) -> Transcript | None:
        hidden, texts = self.list_hidden(), list_instructions(self._source)
        notices = _find_notices(context.transcript)
        if not hidden and not texts and not notices:
            return None
        present = {tool.spec.name for tool in self._source.tools()}
        told = _find_told_tools(notices, hidden)
        new = [tool for name, tool in hidden.items() if name in present and not told.get(name)]
        gone = sorted(name for name, is_there in told.items() if is_there and name not in present)
        gone = [name for name in gone if not self._is_awaited(name)]
        digests = _find_told_instructions(notices, texts)
        changed = [name for name, text in texts.items() if digests.get(name) != _digest(text)]
        ended = [name for name, digest in digests.items() if digest and name not in texts]
        ended = [name for name in ended if not self._is_awaited(name)]
        late = self.late_tools()
        found = [tool for tool in new if tool.spec.name not in late]
        others = [tool for tool in new if tool.spec.name in late]
        is_long = self._is_too_long(tuple(late.values()))
        parts = [
            *(texts[name] for name in changed),
            f"The instructions of {', '.join(ended)} no longer hold." if ended else "",
            f"Not available any more: {', '.join(gone)}." if gone else "",
            _describe_found(found),
            _describe_late(others, is_long),
        ]
        parts = [part for part in parts if part]
        if not parts:
            return None
        data: dict[str, Any] = {"tools": [tool.spec.name for tool in new]}
        if gone:
            data["gone"] = gone
        if changed or ended:
            data["instructions"] = {name: _digest(texts[name]) for name in changed}
            data["instructions"] |= dict.fromkeys(ended, "")
        return context.transcript.append(NoticeItem("\n\n".join(parts), kind="tools", data=data))

    # --- the source behind it ------------------------------------------------------------

    def late_tools(self) -> dict[str, Tool]:
        """Tools that are not in the first list."""
        known = {tool.spec.name for tool in self.tools()}
        current = {tool.spec.name: tool for tool in self._source.tools()}
        return {name: tool for name, tool in current.items() if name not in known}

    def list_hidden(self) -> dict[str, Tool]:
        """Late tools, and those that the provider finds."""
        found = {tool.spec.name: tool for tool in self.tools() if tool.spec.deferred}
        return {**found, **self.late_tools()}

    def find_tool(self, name: str) -> Tool | None:
        return next((tool for tool in self._source.tools() if tool.spec.name == name), None)


def _find_notices(transcript: Transcript) -> list[NoticeItem]:
    """The announcements in the view. Only items added since the last time are looked at."""
    found: list[tuple[int, NoticeItem]]
    scanned, found = transcript.cache.setdefault("tools.late", (0, []))
    for position in range(scanned, len(transcript)):
        item = transcript[position]
        if isinstance(item, NoticeItem) and item.kind == "tools":
            found.append((position, item))
    transcript.cache["tools.late"] = (max(scanned, len(transcript)), found)
    return [notice for position, notice in found if position < len(transcript)]


def _find_told_tools(notices: Sequence[NoticeItem], hidden: Iterable[str]) -> dict[str, bool]:
    """The tools that were announced, and whether the newest notice says that they are there."""
    told: dict[str, bool] = {}
    for notice in notices:
        data = notice.data or {}
        told |= dict.fromkeys(data.get("tools", ()), True)
        told |= dict.fromkeys(data.get("gone", ()), False)
        if not data:  # of version 0.1
            told |= {name: True for name in hidden if f"\n- {name}: " in notice.text}
    return told


def _find_told_instructions(
    notices: Sequence[NoticeItem], texts: Mapping[str, str]
) -> dict[str, str]:
    """The digests of the instructions that hold, by source; "" for those that were withdrawn."""
    told: dict[str, str] = {}
    for notice in notices:
        data = notice.data or {}
        match data.get("instructions"):
            case dict() as digests:
                told |= digests
            case str() as digest:  # of version 0.2: all as one text
                is_same = digest == _digest("\n\n".join(texts.values()))
                told = {name: _digest(text) for name, text in texts.items()} if is_same else {}
            case None if not data:  # of version 0.1
                told |= {name: _digest(one) for name, one in texts.items() if one in notice.text}
    return told


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def _describe_found(tools: Sequence[Tool]) -> str:
    head = "More tools; search for them before you use them:"
    return f"{head}\n{describe_directory(tools)}" if tools else ""


def _describe_late(tools: Sequence[Tool], is_long: bool) -> str:
    if not tools:
        return ""
    if is_long:
        head = f"More tools; find their arguments with `{TOOL_SEARCH_NAME}`"
        return f"{head}, then call them by `{USE_TOOL_NAME}`:\n{describe_directory(tools)}"
    lines = [describe_tool(tool) for tool in tools]
    return "\n".join([f"New tools; call them by `{USE_TOOL_NAME}`:", *lines])


class _StableTool(BaseTool):
    """A tool of the first list: its first description, its current behaviour."""

    def __init__(self, source: StableToolList, tool: Tool, *, deferred: bool = False) -> None:
        self._source = source
        self._spec = msgspec.structs.replace(tool.spec, deferred=deferred)

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
    """The tool through which late tools are called. The loop calls its target instead of it."""

    def __init__(self, source: StableToolList) -> None:
        self._source = source
        self._spec = ToolSpec(
            USE_TOOL_NAME,
            USE_TOOL_DESCRIPTION,
            {
                "type": "object",
                "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
                "required": ["name", "arguments"],
            },
        )

    def target(self, arguments: Arguments) -> tuple[Tool, Arguments] | str:
        """The late tool and its arguments: rules, hooks and the user see that one."""
        name, inner = unwrap_call(USE_TOOL_NAME, arguments)
        if name == USE_TOOL_NAME:
            return "give the tool's name as a string and its arguments as an object"
        tool = self._source.find_tool(name)
        if tool is None:
            found = search_tools(name, self._source.list_hidden())
            names = ", ".join(tool.spec.name for tool in found)
            hint = f"did you mean {names}?" if names else f"find it with {TOOL_SEARCH_NAME}"
            return f"there is no tool {name!r}; {hint}"
        return tool, inner

    def find_target(self, name: str) -> Tool | None:
        """A late tool that the model calls by its own name, as if it were in the list."""
        return self._source.late_tools().get(name)

    def check(self, arguments: Arguments) -> str | None:
        target = self.target(arguments)
        return target if isinstance(target, str) else None

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        # Happens only with a wrapper that hides `target`: the policy judged the wrong tool.
        raise ToolError(f"internal error: {USE_TOOL_NAME} was called directly")

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        return ProbeResult("not_done", f"{USE_TOOL_NAME} does nothing by itself")


class _ToolSearch(BaseTool):
    """The tool that finds deferred tools, with all that is needed to call them."""

    def __init__(self, source: StableToolList) -> None:
        self._source = source
        self._spec = ToolSpec(
            TOOL_SEARCH_NAME,
            TOOL_SEARCH_DESCRIPTION,
            {
                "type": "object",
                "properties": {"query": {"type": "string"}},
                "required": ["query"],
            },
            effect="pure",
            concurrent=True,
        )

    def check(self, arguments: Arguments) -> str | None:
        query = arguments.get("query")
        if not isinstance(query, str) or not query.strip():
            return "give the query as a text: words of what the tool does, or its name"
        return None

    def summary(self, arguments: Arguments) -> str:
        return f"[{TOOL_SEARCH_NAME}: {arguments.get('query', '')}]"

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        hidden = self._source.list_hidden()
        found = search_tools(arguments["query"], hidden)
        if not found:
            return ToolOutput(
                f"no tool fits; there are:\n{describe_directory(tuple(hidden.values()))}"
            )
        lines = [describe_tool(tool) for tool in found]
        return ToolOutput("\n".join([f"Call them by `{USE_TOOL_NAME}`:", *lines]))

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        return ProbeResult("not_done", "a search changes nothing")

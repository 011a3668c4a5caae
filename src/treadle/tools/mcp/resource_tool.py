"""`mcp__SERVER__read_resource`: lets the model read the resources that a server lists or links to.

And the notice that tells it which of those that were read have changed. Only for servers with
resources. Used by server.py and the assembly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.contracts.tool import BaseTool, ProbeResult, ToolContext, ToolOutput, ToolSpec
from treadle.core.transcript import Arguments, NoticeItem, Transcript
from treadle.tools.call_summary import summarize_call
from treadle.tools.mcp.catalog import McpCatalog
from treadle.tools.mcp.tool import check_arguments, make_tool_prefix

MAX_LISTED = 200


class ResourceServer(Protocol):
    """What is used of a server."""

    @property
    def name(self) -> str: ...

    @property
    def catalog(self) -> McpCatalog: ...

    async def read_resource(self, uri: str) -> ToolOutput: ...

    def take_updated_resources(self) -> frozenset[str]: ...


class ResourceTool(BaseTool):
    def __init__(self, server: ResourceServer) -> None:
        self._server = server
        self._spec = ToolSpec(
            f"{make_tool_prefix(server.name)}read_resource",
            f"Reads a resource of {server.name} by its URI. Without a URI it lists the resources.",
            {"type": "object", "properties": {"uri": {"type": "string"}}},
            effect="pure",
            concurrent=True,
        )

    def check(self, arguments: Arguments) -> str | None:
        return check_arguments(arguments, self._spec)

    def summary(self, arguments: Arguments) -> str:
        return summarize_call(self._spec.name, {"path": arguments.get("uri", "")})

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        if uri := arguments.get("uri"):
            return await self._server.read_resource(uri)
        resources = self._server.catalog.resources
        lines = [
            f"- {one.uri}{' (a pattern)' if one.is_template else ''}: {one.name}"
            + (f" - {one.description}" if one.description else "")
            for one in resources[:MAX_LISTED]
        ]
        if len(resources) > MAX_LISTED:
            lines.append(f"... and {len(resources) - MAX_LISTED} more")
        return ToolOutput("\n".join(lines) or "it lists no resources")

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        return ProbeResult("not_done", "reading changes nothing")


class ResourceUpdates:
    """A mutator that tells the model which resources have changed since they were read."""

    name = "resource_updates"

    def __init__(self, servers: Sequence[ResourceServer]) -> None:
        self._servers = servers

    @property
    def points(self) -> frozenset[MutationPoint]:
        return frozenset({"before_model"})

    async def mutate(self, context: MutationContext) -> Transcript | None:
        lines = [
            f"- {server.name}: {uri}"
            for server in self._servers
            for uri in sorted(server.take_updated_resources())
        ]
        if not lines:
            return None
        text = "\n".join(["These resources have changed since they were read:", *lines])
        return context.transcript.append(NoticeItem(text, kind="resources"))

"""One tool of an MCP server as a Tool: `mcp__server__tool`.

The schema is the server's own. A tool that the server declares read-only may run concurrently and
again after a crash; the declaration is never a permission. server.py makes the call.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from treadle.core.contracts.tool import (
    BaseTool,
    ProbeResult,
    Tool,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.transcript.content import Arguments
from treadle.lib.json.schema import find_mismatch
from treadle.tools.call_summary import describe_call

MAX_NAME_CHARS = 64  # the limit of the providers
MAX_DESCRIPTION_CHARS = 4_000
MAX_CALL_SECONDS = 7 * 24 * 3600.0  # people sleep

McpCall = Callable[[str, Arguments, ToolContext], Awaitable[ToolOutput]]


class McpTool(BaseTool):
    """A tool of a server. `remote_name` is its name on the server."""

    def __init__(self, remote_name: str, spec: ToolSpec, call: McpCall) -> None:
        self.remote_name = remote_name
        self._spec = spec
        self._call = call

    def check(self, arguments: Arguments) -> str | None:
        return check_arguments(arguments, self._spec)

    def summary(self, arguments: Arguments) -> str:
        return describe_call(self._spec.name, arguments)

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        return await self._call(self.remote_name, arguments, context)

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        name = self._spec.name
        return ProbeResult("unknown", f"{name} is a tool of a server: no check is possible")


def check_arguments(arguments: Arguments, spec: ToolSpec) -> str | None:
    """Obvious mistakes in the arguments; the server itself checks the rest."""
    properties, required = spec.schema.get("properties"), spec.schema.get("required")
    properties = properties if isinstance(properties, dict) else {}
    shallow = {
        "properties": {name: _keep_type(part) for name, part in properties.items()},
        "required": required if isinstance(required, list) else [],
        "additionalProperties": spec.schema.get("additionalProperties") is not False,
    }
    problem = find_mismatch(arguments, shallow)
    return None if problem is None else f"invalid arguments for {spec.name}: {problem}"


def _keep_type(part: Any) -> dict[str, str]:
    kind = part.get("type") if isinstance(part, dict) else None
    return {"type": kind} if isinstance(kind, str) else {}


def sanitize_server_name(name: str) -> str:
    """A server's name as part of its tools' names and of rules: no double underscore."""
    word = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]", "_", name)).strip("_")
    return word[:24] or "server"


def make_tool_prefix(server: str) -> str:
    """What the names of all tools of this server begin with."""
    return f"mcp__{sanitize_server_name(server)}__"


def make_tool_names(server: str, remote_names: Iterable[str]) -> dict[str, str]:
    """For each tool of a server a name that every provider accepts and no other of them has.

    It does not depend on the order of the tools, so that a rule always means the same tool.
    """
    prefix = make_tool_prefix(server)
    names = {remote: prefix + _sanitize_tool_name(remote) for remote in remote_names}
    uses = Counter(names.values())
    for remote, name in names.items():
        is_own = uses[name] == 1 or name == prefix + remote
        if not is_own or len(name) > MAX_NAME_CHARS:
            mark = hashlib.sha256(remote.encode("utf-8", "replace")).hexdigest()[:8]
            names[remote] = f"{name[: MAX_NAME_CHARS - 9]}_{mark}"
    return names


def _sanitize_tool_name(remote_name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", remote_name) or "tool"


class ListedTool(Protocol):
    """A tool as the SDK lists it."""

    name: str
    title: str | None
    description: str | None
    input_schema: dict[str, Any]
    annotations: Any
    execution: Any


def make_tools(
    server: str, listed: Sequence[ListedTool], call: McpCall, background_after: float
) -> dict[str, Tool]:
    """The tools of a server by their names here."""
    tools: dict[str, Tool] = {}
    names = make_tool_names(server, (tool.name for tool in listed))
    for tool in listed:
        hints, tasks = tool.annotations, tool.execution
        spec = make_tool_spec(
            names[tool.name],
            tool.description or tool.title or "",
            tool.input_schema,
            is_read_only=bool(hints and hints.read_only_hint),
            runs_as_task=bool(tasks and tasks.task_support in ("optional", "required")),
            background_after=background_after,
        )
        tools.setdefault(spec.name, McpTool(tool.name, spec, call))
    return tools


def make_tool_spec(
    name: str,
    description: str,
    schema: Mapping[str, Any],
    *,
    is_read_only: bool,
    runs_as_task: bool,
    background_after: float,
) -> ToolSpec:
    """What the model and the loop know of a server's tool. The connection has the time limit of a
    call, which rests while the user is asked."""
    whole = {**schema, "type": "object", "properties": schema.get("properties", {})}
    may_run_long = runs_as_task or not is_read_only
    return ToolSpec(
        name,
        description[:MAX_DESCRIPTION_CHARS],
        whole,
        effect="pure" if is_read_only else "irreversible",
        concurrent=is_read_only,
        timeout=MAX_CALL_SECONDS,
        detachable=may_run_long,
        detach_after=background_after if may_run_long else None,
        asks_host=True,
        kind="read" if is_read_only else "other",
    )

"""Treadle as an MCP server: the built-in tools of a folder, and `run`, which does a whole task.

Calls are turns of the coding agent (tool_server.py): rules, hooks, the sandbox and redaction apply
as in a session. The user cannot be asked: a call that needs approval is denied with the reason.
`treadle mcp serve` runs it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext

from treadle.agents.child_settings import FilteredSource
from treadle.apps.assembly.assemble import build_agent
from treadle.apps.assembly.coding_agent import coding_agent
from treadle.apps.assembly.parts import SessionOptions
from treadle.apps.console.tool_server import ForwardedCalls, ToolServer, make_error
from treadle.apps.settings.settings import Settings
from treadle.core.contracts.observer import BaseObserver
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.tool import Tool
from treadle.core.errors import TreadleError
from treadle.core.events import Event, ToolStarted

SERVED_TOOLS = ("read", "write", "edit", "glob", "grep", "ls", "bash", "web_fetch")
RUN_TOOL = types.Tool(
    name="run",
    description=(
        "Gives a whole task in this folder to the coding agent and returns its answer. `session` "
        "continues an earlier task by the id that it returned."
    ),
    input_schema={
        "type": "object",
        "properties": {"prompt": {"type": "string"}, "session": {"type": "string"}},
        "required": ["prompt"],
        "additionalProperties": False,
    },
)


class _ServedTools(FilteredSource):
    """The built-in tools. MCP servers are not started for them: this may be one of them."""

    def __init__(self, source: ToolSource) -> None:
        super().__init__(source, SERVED_TOOLS)

    async def open(self) -> None:
        return None


class McpService(ToolServer):
    """The handlers of the server. Close it after serving."""

    def __init__(self, settings: Settings, folder: Path, options: SessionOptions) -> None:
        self._settings, self._folder, self._options = settings, folder, options
        self._owner = coding_agent(
            folder,
            model=ForwardedCalls(),
            settings=settings,
            allow=options.allow,
            deny=options.deny,
        )
        agent = self._owner.replace(tools=[_ServedTools(self._owner.config.source)])
        about = f"Tools of the folder {folder}; `run` does a whole task."
        super().__init__(agent, "treadle", about, None)

    async def aclose(self) -> None:
        await self._owner.aclose()

    def find_tools(self) -> dict[str, Tool]:
        return {name: one for name, one in super().find_tools().items() if name in SERVED_TOOLS}

    async def _list_tools(
        self, context: ServerRequestContext[Any], params: object
    ) -> types.ListToolsResult:
        listed = await super()._list_tools(context, params)
        return types.ListToolsResult(tools=[*listed.tools, RUN_TOOL])

    async def _call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        if params.name != RUN_TOOL.name:
            return await super()._call_tool(context, params)
        try:
            return await self._run_task(params.arguments or {}, context)
        except TreadleError as error:
            return make_error(str(error))

    async def _run_task(
        self, arguments: dict[str, Any], context: ServerRequestContext[Any]
    ) -> types.CallToolResult:
        prompt, resume = arguments.get("prompt"), arguments.get("session")
        if not isinstance(prompt, str) or not prompt.strip():
            return make_error("prompt has to be a text that describes the task")
        options = msgspec.structs.replace(self._options, resume=resume or None)
        session = await build_agent(self._settings, self._folder, options)
        async with session.open_driver(prompt) as driver:
            driver.watch(_ProgressReporter(context))
            turn = await session.agent.finish_turn(driver)
        if turn.error is not None:
            return make_error(f"{turn.error} (session {driver.session_id})")
        outcome = {"session": driver.session_id, "reason": turn.reason, "answer": turn.text}
        return types.CallToolResult(
            content=[types.TextContent(text=turn.text or f"ended: {turn.reason}")],
            structured_content=outcome,
            is_error=turn.reason != "end_turn",
        )


class _ProgressReporter(BaseObserver):
    """Tells the client which tools the agent calls."""

    def __init__(self, context: ServerRequestContext[Any]) -> None:
        self._context = context
        self._count = 0
        self._tasks: set[Any] = set()

    def on_event(self, event: Event) -> None:
        if isinstance(event, ToolStarted):
            import asyncio

            self._count += 1
            report = self._context.session.report_progress(self._count, message=event.summary)
            task = asyncio.ensure_future(report)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

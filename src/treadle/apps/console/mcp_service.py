"""Treadle as an MCP server: the built-in tools of a folder, and `run`, which does a whole task.

A tool call of a client is one turn of the coding agent whose model is the client: so rules, hooks,
the sandbox and redaction apply as in a session, and there is no second loop. The user cannot be
asked: a call that needs approval is denied with the reason. `treadle mcp serve` runs it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server

from treadle._version import __version__
from treadle.agents.child_settings import FilteredSource
from treadle.apps.assembly.assemble import build_agent
from treadle.apps.assembly.coding_agent import coding_agent
from treadle.apps.assembly.parts import SessionOptions
from treadle.apps.settings.settings import Settings
from treadle.core.contracts.model import ModelCard, ModelEvent, ModelRequest, Reply
from treadle.core.contracts.observer import BaseObserver
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.tool import Tool
from treadle.core.errors import TreadleError
from treadle.core.events import Event, ToolStarted
from treadle.core.transcript import (
    AssistantItem,
    Document,
    Image,
    NoticeItem,
    Text,
    ToolCall,
    ToolResultItem,
    UserItem,
)

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


class ForwardedCalls:
    """A model whose reply is the call that a client makes: the message has it as JSON."""

    name = "mcp-client"
    card = ModelCard("mcp-client")
    fallback = None

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        # Notices may follow the message.
        last = next(item for item in reversed(request.transcript) if type(item) is not NoticeItem)
        content: tuple[Any, ...] = (Text("done"),)
        if isinstance(last, UserItem):
            call = json.loads(last.text)
            content = (ToolCall(call["id"], call["name"], json.dumps(call["arguments"])),)
        stop = "tool_use" if isinstance(content[0], ToolCall) else "end_turn"
        yield Reply(AssistantItem(content, stop, self.name))  # type: ignore[arg-type]

    async def aclose(self) -> None:
        return None


class _ServedTools(FilteredSource):
    """The built-in tools. MCP servers are not started for them: this may be one of them."""

    def __init__(self, source: ToolSource) -> None:
        super().__init__(source, SERVED_TOOLS)

    async def open(self) -> None:
        return None


class McpService:
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
        self._agent = self._owner.replace(tools=[_ServedTools(self._owner.config.source)])
        self._session_id = f"mcp-{id(self):x}"  # one for all calls: `edit` wants to know reads
        self._count = 0

    def make_server(self) -> Server[Any]:
        return Server(
            "treadle",
            version=__version__,
            instructions=f"Tools of the folder {self._folder}; `run` does a whole task.",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    async def aclose(self) -> None:
        await self._owner.aclose()

    def _find_tools(self) -> dict[str, Tool]:
        return {
            tool.spec.name: tool
            for tool in self._agent.config.source.tools()
            if tool.spec.name in SERVED_TOOLS and not tool.spec.unlisted
        }

    async def _list_tools(
        self, context: ServerRequestContext[Any], params: object
    ) -> types.ListToolsResult:
        tools = [
            types.Tool(
                name=name,
                description=tool.spec.description,
                input_schema=tool.spec.schema,
                annotations=types.ToolAnnotations(read_only_hint=tool.spec.effect == "pure"),
            )
            for name, tool in self._find_tools().items()
        ]
        return types.ListToolsResult(tools=[*tools, RUN_TOOL])

    async def _call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        arguments = params.arguments or {}
        try:
            if params.name == RUN_TOOL.name:
                return await self._run_task(arguments, context)
            if params.name not in self._find_tools():
                return _make_error(f"there is no tool {params.name!r}")
            return await self._forward(params.name, arguments)
        except TreadleError as error:
            return _make_error(str(error))

    async def _forward(self, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        self._count += 1
        call = {"id": f"c{self._count}", "name": name, "arguments": arguments}
        driver = self._agent.start(json.dumps(call), session_id=self._session_id)
        try:
            turn = await self._agent.finish_turn(driver)
            results = [item for item in driver.transcript if isinstance(item, ToolResultItem)]
        finally:
            await driver.aclose()
        if not results:
            return _make_error(f"the call was not made: {turn.error or turn.reason}")
        return types.CallToolResult(
            content=[_convert(part) for _, part in results[0].model_parts],
            is_error=results[0].is_error,
        )

    async def _run_task(
        self, arguments: dict[str, Any], context: ServerRequestContext[Any]
    ) -> types.CallToolResult:
        prompt, resume = arguments.get("prompt"), arguments.get("session")
        if not isinstance(prompt, str) or not prompt.strip():
            return _make_error("prompt has to be a text that describes the task")
        options = msgspec.structs.replace(self._options, resume=resume or None)
        session = await build_agent(self._settings, self._folder, options)
        try:
            driver = session.start(prompt)
            driver.watch(_ProgressReporter(context))
            try:
                turn = await session.agent.finish_turn(driver)
            finally:
                await driver.aclose()
        finally:
            await session.aclose()
        if turn.error is not None:
            return _make_error(f"{turn.error} (session {driver.session_id})")
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


def _make_error(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def _convert(part: Text | Image | Document) -> Any:
    import base64

    if isinstance(part, Text):
        return types.TextContent(text=part.text)
    data = base64.b64encode(part.data).decode()
    if isinstance(part, Image):
        return types.ImageContent(data=data, mime_type=part.media_type)
    uri = f"file:///{part.title or 'document'}"
    blob = types.BlobResourceContents(uri=uri, blob=data, mime_type=part.media_type)
    return types.EmbeddedResource(resource=blob)

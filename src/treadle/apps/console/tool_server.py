"""An MCP server of the tools of an agent: `asyncio.run(treadle.serve_mcp(agent))`.

A tool call of a client is one turn of the agent whose model is the client: so policy, approver,
hooks and observers apply as in a session, and there is no second loop. mcp_service.py is that of a
folder.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

from treadle._version import __version__
from treadle.agents.agent import Agent
from treadle.core.contracts.model import ModelCard, ModelEvent, ModelRequest, Reply
from treadle.core.contracts.tool import Tool
from treadle.core.errors import TreadleError
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


class ToolServer:
    """The handlers of a server of an agent's tools, as the client sees them."""

    def __init__(self, agent: Agent[Any, Any], name: str, instructions: str, deps: Any) -> None:
        self._agent = agent.replace(
            model=ForwardedCalls(), output_type=str, check_output=None, structured_output=None
        )
        self._name, self._instructions, self._deps = name, instructions, deps
        self._source = self._agent.config.source.bind(deps)
        self._session_id = f"mcp-{id(self):x}"  # one for all calls: `edit` wants to know reads
        self._count = 0

    async def serve_stdio(self) -> None:
        """Serve over stdin and stdout, until the client closes them."""
        await self._source.open()
        server = self.make_server()
        try:
            async with stdio_server() as (reader, writer):
                await server.run(reader, writer, server.create_initialization_options())
        finally:
            if self._source is not self._agent.config.source:
                await self._source.aclose()

    def make_server(self) -> Server[Any]:
        return Server(
            self._name,
            version=__version__,
            instructions=self._instructions,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    def find_tools(self) -> dict[str, Tool]:
        tools = self._source.tools()
        return {tool.spec.name: tool for tool in tools if not tool.spec.unlisted}

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
            for name, tool in self.find_tools().items()
        ]
        return types.ListToolsResult(tools=tools)

    async def _call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            if params.name not in self.find_tools():
                return make_error(f"there is no tool {params.name!r}")
            return await self._forward(params.name, params.arguments or {})
        except TreadleError as error:
            return make_error(str(error))

    async def _forward(self, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        self._count += 1
        call = {"id": f"c{self._count}", "name": name, "arguments": arguments}
        driver = self._agent.start(json.dumps(call), deps=self._deps, session_id=self._session_id)
        try:
            turn = await self._agent.finish_turn(driver)
            results = [item for item in driver.transcript if isinstance(item, ToolResultItem)]
        finally:
            await driver.aclose()
        if not results:
            return make_error(f"the call was not made: {turn.error or turn.reason}")
        return types.CallToolResult(
            content=[_convert(part) for _, part in results[0].model_parts],
            is_error=results[0].is_error,
        )


def make_error(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def _convert(part: Text | Image | Document) -> Any:
    if isinstance(part, Text):
        return types.TextContent(text=part.text)
    data = base64.b64encode(part.data).decode()
    if isinstance(part, Image):
        return types.ImageContent(data=data, mime_type=part.media_type)
    uri = f"file:///{part.title or 'document'}"
    blob = types.BlobResourceContents(uri=uri, blob=data, mime_type=part.media_type)
    return types.EmbeddedResource(resource=blob)

"""`treadle.serve_mcp`: the tools of an agent for any MCP client."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

PROGRAM = """
import asyncio
from treadle import Agent, ToolContext, ToolError, serve_mcp, tool
from treadle.models import Scripted

@tool(effect="pure")
def price(context: ToolContext[str], item: str) -> str:
    "The price of an item."
    if item != "lamp":
        raise ToolError("there is no such item")
    return f"24 {context.deps}"

@tool(approval=True)
def pay(amount: int) -> str:
    "Pay."
    return "paid"

agent = Agent(Scripted([]), [price, pay], deps_type=str, output_type=int, name="shop")
asyncio.run(serve_mcp(agent, deps="EUR", instructions="A shop."))
"""


async def test_a_client_lists_and_calls_the_tools_of_an_agent(tmp_path: Path):
    server = StdioServerParameters(command=sys.executable, args=["-c", PROGRAM], cwd=str(tmp_path))
    async with stdio_client(server) as (reader, writer), ClientSession(reader, writer) as client:
        about = await client.initialize()
        assert (about.server_info.name, about.instructions) == ("shop", "A shop.")
        listed = {one.name: one for one in (await client.list_tools()).tools}
        assert list(listed) == ["price", "pay"]
        assert listed["price"].input_schema["required"] == ["item"]
        told: dict[tuple[Any, ...], tuple[bool, str]] = {}
        calls: list[tuple[str, dict[str, Any]]] = [
            ("price", {"item": "lamp"}),
            ("price", {"item": "x"}),
            ("pay", {"amount": 1}),
            ("other", {}),
        ]
        for name, arguments in calls:
            result = await client.call_tool(name, arguments)
            [content] = result.content
            assert content.type == "text"
            told[name, *arguments.values()] = result.is_error, content.text
    assert told["price", "lamp"] == (False, "24 EUR")
    assert told["price", "x"] == (True, "error: there is no such item")
    assert told["pay", 1][0]
    assert "approval" in told["pay", 1][1]
    assert told["other",] == (True, "there is no tool 'other'")

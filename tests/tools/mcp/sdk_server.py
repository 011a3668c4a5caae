"""A server made with the official SDK, of the newer protocol. Run by tests.

sdk_server.py stdio | sdk_server.py http PORT
"""

from __future__ import annotations

import sys

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("sdk", instructions="Add before you multiply.")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def grow(context: Context) -> str:
    """Offer one more tool."""
    server.add_tool(lambda: "new", name="grown", description="It was not here before.")
    await context.notify_tools_changed()
    return "grown"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))

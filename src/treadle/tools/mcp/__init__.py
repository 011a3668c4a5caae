"""MCP servers as tool sources.

    config           the configured servers, from `.mcp.json` and settings
    server           one server as a ToolSource: started in the background, restarted if it dies
    tool, results    its tools as `mcp__server__tool`, and their results
    connection       one connection to it, by the official SDK
    stdio_transport  the SDK's messages over a process      http_transport  the same over HTTP

The official SDK is used for the protocol (two generations, streamable HTTP, negotiation) but not
for processes: its stdio client buffers lines of any length, fails on a byte that is not UTF-8, and
kills a process group, which a daemon can leave and which outlives a killed agent. So
`stdio_transport` uses a process of the workspace, whose whole tree ends with the agent.
Importing the SDK takes more than a second: only `connection` and what it uses import it, in a
thread, when the first server starts.
"""

from treadle.tools.mcp.config import (
    McpServerConfig,
    find_secret_variables,
    load_servers,
    parse_server_config,
    parse_servers,
)
from treadle.tools.mcp.process import StartProcess
from treadle.tools.mcp.server import McpServer, McpStatus

__all__ = [
    "McpServer", "McpStatus", "McpServerConfig", "StartProcess", "parse_server_config",
    "load_servers", "parse_servers", "find_secret_variables",
]  # fmt: skip

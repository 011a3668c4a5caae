"""MCP servers as tool sources.

    config   which servers there are, from `.mcp.json` and settings
    server   one server as a ToolSource: started in the background, restarted when it dies
    tool     its tools under names of their own, and what their results become
    link     one connection to it, by the official SDK
    pipes    the SDK's messages over a process      remote   the same over HTTP

We use the official SDK for the protocol (two generations of it, streamable HTTP, negotiation) and
not for processes: its stdio client keeps a line of any length, dies of a byte that is not UTF-8,
and kills a process group, which a daemon leaves and which outlives us when we are killed. So
`pipes` carries the SDK's messages over a process of the workspace, whose whole tree ends with us.
The SDK takes more than a second to import: only `link` and what is below it do so, in a thread,
when the first server starts.
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
    "McpServer",
    "McpStatus",
    "McpServerConfig",
    "StartProcess",
    "parse_server_config",
    "load_servers",
    "parse_servers",
    "find_secret_variables",
]

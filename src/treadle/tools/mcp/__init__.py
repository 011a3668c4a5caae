"""MCP servers as tool sources.

    config           the configured servers, from `.mcp.json` and settings
    server           one server as a ToolSource: started in the background, restarted if it dies
    tool, results    its tools as `mcp__server__tool`, and their results
    catalog, resource_tool   its resources and prompts
    client_options, client_callbacks, elicitation   what it may ask of us
    connection       one connection to it, by the official SDK; catalog_reader, task_call
    stdio_transport  the SDK's messages over a process      http_transport  the same over HTTP
    auth             logins to servers at a URL               status          up, slow, down …

The official SDK is used for the protocol (two generations, streamable HTTP, negotiation) but not
for processes: its stdio client buffers lines of any length, fails on a byte that is not UTF-8, and
kills a process group, which a daemon can leave and which outlives a killed agent. So
`stdio_transport` uses a process of the workspace, whose whole tree ends with the agent.
Importing the SDK takes more than a second: only `connection` and what it uses import it, in a
thread, when the first server starts.
"""

from treadle.tools.mcp.auth.token_store import TokenStore
from treadle.tools.mcp.client_options import McpClientOptions, SamplingReply, SamplingRequest
from treadle.tools.mcp.server import McpServer
from treadle.tools.mcp.server_config import (
    McpServerConfig,
    find_secret_variables,
    load_servers,
    parse_server_config,
    parse_servers,
)
from treadle.tools.mcp.status import McpStatus
from treadle.tools.piped_process import StartProcess

__all__ = [
    "McpServer", "McpStatus", "McpServerConfig", "StartProcess", "parse_server_config",
    "load_servers", "parse_servers", "find_secret_variables",
    "McpClientOptions", "SamplingRequest", "SamplingReply", "TokenStore",
]  # fmt: skip

"""MCP servers that the editor brings, as definitions of the user's own servers.

The user configured them in the editor, so they need no approval and get the secrets that they name.
One that is invalid is reported and left out. Used by agent.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from acp.schema import AcpMcpServer, HttpMcpServer, McpServerStdio, SseMcpServer

from treadle.core.errors import ConfigError

EditorServer = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio


def define_servers(
    servers: Iterable[EditorServer],
) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    """The definitions by name, and a line for each server that cannot be used."""
    definitions: dict[str, Mapping[str, Any]] = {}
    problems: list[str] = []
    for server in servers:
        if isinstance(server, AcpMcpServer):
            problems.append(
                f"MCP server {server.name} is not started: Treadle does not support MCP over ACP; "
                "configure it as a command or with a URL"
            )
            continue
        definition = _define(server)
        try:
            _check(server.name, definition)
        except ConfigError as error:
            problems.append(str(error))
            continue
        if server.name in definitions:
            problems.append(
                f"the editor has two MCP servers with the name {server.name}; only the first is "
                "started: rename the other in its settings"
            )
        definitions.setdefault(server.name, definition)
    return definitions, problems


def _define(server: HttpMcpServer | SseMcpServer | McpServerStdio) -> dict[str, Any]:
    if isinstance(server, McpServerStdio):
        variables = {variable.name: variable.value for variable in server.env}
        return {"command": server.command, "args": list(server.args), "env": variables}
    headers = {header.name: header.value for header in server.headers}
    return {"type": server.type, "url": server.url, "headers": headers}


def _check(name: str, definition: Mapping[str, Any]) -> None:
    from treadle.tools.mcp.config import parse_server_config

    if not name:
        raise ConfigError("an MCP server of the editor has no name and is not started")
    parse_server_config(name, definition)

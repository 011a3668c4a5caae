"""MCP servers of a project as Cursor and Codex write them.

    .cursor/mcp.json       "mcpServers", with ${env:NAME} and ${workspaceFolder}
    .codex/config.toml     [mcp_servers.NAME], with names of variables for headers

The definitions are returned in the form of `.mcp.json` and need the same approval. Reads only; used
by extensions.py. The user's own files of these programs are not read: their servers start there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from treadle.apps.settings.settings import parse_toml
from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_json, read_text

CURSOR_FILE = ".cursor/mcp.json"
CODEX_FILE = ".codex/config.toml"
_CURSOR_VARIABLE = re.compile(r"\$\{env:([A-Za-z_]\w*)\}")
_SAME_KEYS = ("command", "args", "env", "cwd", "url")
# The times of Codex, in seconds, and those of .mcp.json, in milliseconds.
_CODEX_TIMES = {"startup_timeout_sec": "startupTimeout", "tool_timeout_sec": "timeout"}


def read_foreign_servers(
    folder: Path, within: Path | None, problems: list[str]
) -> dict[str, dict[str, Any]]:
    """The definitions by name. A file that cannot be read starts no server, with a line in
    `problems`; so does a definition that is wrong."""
    from treadle.tools.mcp.server_config import parse_servers

    found: dict[str, dict[str, Any]] = {}
    readers: tuple[tuple[str, Callable[[Path, Path | None], object]], ...] = (
        (CURSOR_FILE, _read_cursor_file),
        (CODEX_FILE, _read_codex_file),
    )
    for name, read in readers:
        file = folder / name
        try:
            servers = parse_servers(read(file, within), str(file), problems)
        except FileNotFoundError:
            continue
        except ConfigError as error:
            problems.append(f"no MCP server of {name} is started: {error}")
        else:
            found = {**servers, **found}
    return found


def _read_cursor_file(file: Path, within: Path | None) -> object:
    settings, _ = read_json(file, within=within)
    return _fill_in(settings, str(file.parent.parent))


def _fill_in(value: Any, folder: str) -> Any:
    """The value with Cursor's variables as .mcp.json has them."""
    if isinstance(value, dict):
        return {name: _fill_in(one, folder) for name, one in value.items()}
    if isinstance(value, list):
        return [_fill_in(one, folder) for one in value]
    if not isinstance(value, str):
        return value
    text = value.replace("${workspaceFolder}", folder).replace("${userHome}", "${HOME}")
    return _CURSOR_VARIABLE.sub(r"${\1}", text)


def _read_codex_file(file: Path, within: Path | None) -> object:
    table = parse_toml(file, read_text(file, within=within)).get("mcp_servers", {})
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: mcp_servers has to be a table of servers by name")
    return {"mcpServers": {name: _translate_codex(server) for name, server in table.items()}}


def _translate_codex(server: Any) -> Any:
    """A definition of Codex in the form of .mcp.json; what is no table is left as it is."""
    if not isinstance(server, dict):
        return server
    raw = {key: server[key] for key in _SAME_KEYS if key in server}
    for key, name in _CODEX_TIMES.items():
        if isinstance(seconds := server.get(key), int | float):
            raw[name] = seconds * 1_000
    headers = dict(_get_table(server, "http_headers"))
    for header, variable in _get_table(server, "env_http_headers").items():
        headers[header] = f"${{{variable}}}"
    if token := server.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{token}}}"
    if headers:
        raw["headers"] = headers
    if server.get("enabled") is False:
        raw["disabled"] = True
    return raw


def _get_table(server: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = server.get(name)
    return value if isinstance(value, dict) else {}

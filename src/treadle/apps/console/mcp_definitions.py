"""Adds and removes definitions of MCP servers: the user's in ~/.treadle/settings.json, those of a
project in its .mcp.json. All other content of the files stays. Used by `treadle mcp`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from treadle.apps.settings.load import symlink_boundary
from treadle.apps.settings.settings import treadle_home
from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import update_settings_file
from treadle.tools.mcp.server_config import check_definition

KEY = "mcpServers"
# Servers that many people use, by the name that they get. npx needs Node.js.
KNOWN_SERVERS: Mapping[str, Mapping[str, Any]] = {
    "playwright": {"command": "npx", "args": ["-y", "@playwright/mcp@latest"]},
    "chrome-devtools": {"command": "npx", "args": ["-y", "chrome-devtools-mcp@latest"]},
    "github": {"url": "https://api.githubcopilot.com/mcp/"},
}


def get_definitions_file(folder: Path, *, for_project: bool) -> Path:
    return folder / ".mcp.json" if for_project else treadle_home() / "settings.json"


def add_definition(
    name: str, definition: Mapping[str, Any], folder: Path, *, for_project: bool
) -> Path:
    """Write a new definition; ConfigError if it is wrong, or the name is taken. The file."""
    check_definition(name, definition)
    if for_project and symlink_boundary(folder) is None:
        raise ConfigError("the home folder is no project: leave out --project")
    file = get_definitions_file(folder, for_project=for_project)

    def add(servers: dict[str, Any]) -> bool:
        if name in servers:
            option = " --project" if for_project else ""
            raise ConfigError(
                f"{file} has a server {name!r} already: remove it first, "
                f"with `treadle mcp remove {name}{option}`"
            )
        servers[name] = dict(definition)
        return True

    _change(file, folder, for_project, add)
    return file


def remove_definition(name: str, folder: Path, *, for_project: bool) -> Path | None:
    """Remove a definition; the file, or None if it has none of this name."""
    file = get_definitions_file(folder, for_project=for_project)
    removed: list[object] = []

    def remove(servers: dict[str, Any]) -> bool:
        if name in servers:
            removed.append(servers.pop(name))
        return bool(removed)

    _change(file, folder, for_project, remove)
    return file if removed else None


def _change(
    file: Path, folder: Path, for_project: bool, change: Callable[[dict[str, Any]], bool]
) -> None:
    def change_servers(settings: dict[str, Any]) -> bool:
        servers = settings.setdefault(KEY, {})
        if not isinstance(servers, dict):
            problem = f"not changed: {KEY} has to be an object of servers by name"
            raise ConfigError(f"{file}:1: {problem}")
        return change(servers)

    within = symlink_boundary(folder) if for_project else None
    update_settings_file(file, change_servers, within, 0o644 if for_project else 0o600)

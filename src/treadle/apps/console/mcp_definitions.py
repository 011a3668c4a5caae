"""Adds and removes definitions of MCP servers: the user's in ~/.treadle/settings.json, those of a
project in its .mcp.json. All other content of the files stays. Used by `treadle mcp`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treadle.apps.settings.load import symlink_boundary
from treadle.apps.settings.settings import treadle_home
from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_settings_file
from treadle.lib.files.private_files import write_private_file
from treadle.tools.mcp.server_config import check_definition

KEY = "mcpServers"


def get_definitions_file(folder: Path, *, for_project: bool) -> Path:
    return folder / ".mcp.json" if for_project else treadle_home() / "settings.json"


def add_definition(
    name: str, definition: Mapping[str, Any], folder: Path, *, for_project: bool
) -> Path:
    """Write a new definition; ConfigError if it is wrong, or the name is taken. The file."""
    check_definition(name, definition)
    file = get_definitions_file(folder, for_project=for_project)
    settings, servers = _read(file, folder, for_project)
    if name in servers:
        option = " --project" if for_project else ""
        raise ConfigError(
            f"{file} has a server {name!r} already: remove it first, "
            f"with `treadle mcp remove {name}{option}`"
        )
    _write(file, {**settings, KEY: {**servers, name: dict(definition)}}, for_project)
    return file


def remove_definition(name: str, folder: Path, *, for_project: bool) -> Path | None:
    """Remove a definition; the file, or None if it has none of this name."""
    file = get_definitions_file(folder, for_project=for_project)
    settings, servers = _read(file, folder, for_project)
    if name not in servers:
        return None
    left = {other: definition for other, definition in servers.items() if other != name}
    _write(file, {**settings, KEY: left}, for_project)
    return file


def _read(file: Path, folder: Path, for_project: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    settings, _ = read_settings_file(file, symlink_boundary(folder) if for_project else None)
    servers = settings.get(KEY, {})
    if not isinstance(servers, dict):
        raise ConfigError(f"{file}:1: not changed: {KEY} has to be an object of servers by name")
    return settings, servers


def _write(file: Path, settings: Mapping[str, Any], for_project: bool) -> None:
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o644 if for_project else 0o600
    target = file.resolve() if not for_project else file  # a symlink of the user stays one
    write_private_file(target, (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode())
    target.chmod(mode)

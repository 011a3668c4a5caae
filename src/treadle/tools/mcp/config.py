"""The configured MCP servers: `.mcp.json` and the same key of settings.

    {"mcpServers": {
        "db":  {"command": "db-server", "args": ["--ro"], "env": {"TOKEN": "${TOKEN}"}},
        "far": {"url": "https://example.org/mcp", "headers": {"X-Key": "${KEY:-none}"}}}}

The user approves raw definitions; `parse_server_config` expands variables and checks one. Keys by
which other programs allow calls without approval are ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle.core.errors import ConfigError
from treadle.core.redaction import is_secret
from treadle.core.untrusted_files import read_json

CALL_TIMEOUT = 120.0
STARTUP_TIMEOUT = 30.0
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")
_FIELD_TYPES: Mapping[str, type] = {
    "type": str, "command": str, "args": list, "env": dict, "cwd": str, "url": str, "headers": dict
}  # fmt: skip


class McpServerConfig(msgspec.Struct, frozen=True):
    """How to reach one server. Times are in seconds."""

    transport: Literal["stdio", "http", "sse"]
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    timeout: float = CALL_TIMEOUT
    startup_timeout: float = STARTUP_TIMEOUT


def load_servers(file: Path, within: Path | None = None) -> dict[str, dict[str, Any]]:
    """The raw definitions of a file by name; none if it is missing, ConfigError if it is invalid.

    `within`: the folder that a symlink to the file must not escape.
    """
    try:
        settings, _ = read_json(file, within=within)
    except FileNotFoundError:
        return {}
    return parse_servers(settings, str(file))


def parse_servers(settings: object, origin: str) -> dict[str, dict[str, Any]]:
    """The raw definitions in parsed settings; disabled servers are left out."""
    servers = settings.get("mcpServers", {}) if isinstance(settings, dict) else None
    if not isinstance(servers, dict):
        raise ConfigError(f"{origin}:1: mcpServers has to be an object of servers by name")
    for name, raw in servers.items():
        if not isinstance(raw, dict):
            raise ConfigError(f"{origin}:1: the server {name!r} has to be an object")
    return {name: raw for name, raw in servers.items() if raw.get("disabled") is not True}


def find_secret_variables(
    raw: Mapping[str, Any], environ: Mapping[str, str] | None = None
) -> list[str]:
    """The secret variables that a definition refers to."""
    environ = os.environ if environ is None else environ
    found = (match for text in _iter_strings(raw) for match in _VARIABLE.finditer(text))
    names = dict.fromkeys(match[1] for match in found)
    return [name for name in names if is_secret(name, environ.get(name, ""))]


def parse_server_config(
    name: str,
    raw: Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
    *,
    trusted: bool = True,
) -> McpServerConfig:
    """One definition, checked, with `${VAR}` and `${VAR:-default}` expanded.

    With `trusted=False` (not the user's own definition) secret variables expand to "".
    """
    for key, wanted in _FIELD_TYPES.items():
        if key in raw and not isinstance(raw[key], wanted):
            raise ConfigError(f"server {name!r}: {key} has to be a {wanted.__name__}")
    expand = _make_expander(name, os.environ if environ is None else environ, trusted)
    command, url = expand(raw.get("command", "")), expand(raw.get("url", ""))
    if bool(command) == bool(url):
        raise ConfigError(f"server {name!r}: it needs a command or a url, and not both")
    kind = _parse_transport(name, raw.get("type"), url)
    if url and not url.startswith(("http://", "https://")):
        raise ConfigError(f"server {name!r}: the url has to begin with http:// or https://")
    return McpServerConfig(
        kind,
        command,
        tuple(expand(word) for word in raw.get("args", ())),
        {str(key): expand(value) for key, value in raw.get("env", {}).items()},
        expand(raw.get("cwd", "")),
        url,
        {str(key): expand(value) for key, value in raw.get("headers", {}).items()},
        _parse_timeout(name, raw, "timeout", CALL_TIMEOUT),
        _parse_timeout(name, raw, "startupTimeout", STARTUP_TIMEOUT),
    )


def _iter_strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _iter_strings(inner)


def _parse_transport(name: str, declared: str | None, url: str) -> Literal["stdio", "http", "sse"]:
    if not url:
        if declared not in (None, "stdio"):
            raise ConfigError(f"server {name!r}: type {declared!r} needs a url")
        return "stdio"
    if declared in (None, "http", "streamable-http", "streamableHttp"):
        return "http"
    if declared == "sse":
        return "sse"
    raise ConfigError(f"server {name!r}: unknown type {declared!r} for a url; use http or sse")


def _parse_timeout(name: str, raw: Mapping[str, Any], key: str, default: float) -> float:
    """Seconds; the file has milliseconds."""
    value = raw.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ConfigError(f"server {name!r}: {key} has to be a number of milliseconds above 0")
    return value / 1000


def _make_expander(name: str, environ: Mapping[str, str], trusted: bool) -> Callable[[object], str]:
    """A function that expands environment variables; one that is not set is an error."""

    def expand_variable(found: re.Match[str]) -> str:
        variable, default = found.group(1), found.group(2)
        value = environ.get(variable)
        if not trusted and is_secret(variable, value or ""):
            return default or ""
        value = value or default
        if value is None:
            raise ConfigError(f"server {name!r}: the variable {variable} is not set")
        return value

    def expand(text: object) -> str:
        if not isinstance(text, str | int | float) or isinstance(text, bool):
            raise ConfigError(f"server {name!r}: {text!r} has to be a string")
        return _VARIABLE.sub(expand_variable, str(text))

    return expand

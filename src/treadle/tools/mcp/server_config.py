"""The configured MCP servers: `.mcp.json` and the same key of settings.

    {"mcpServers": {
        "db":  {"command": "db-server", "args": ["--ro"], "env": {"TOKEN": "${TOKEN}"}},
        "far": {"url": "https://example.org/mcp", "headers": {"X-Key": "${KEY:-none}"}},
        "own": {"url": "https://example.net/mcp", "oauth": {"clientId": "${ID}"}}}}

The user approves raw definitions; `parse_server_config` expands variables and checks one. Keys by
which other programs allow calls without approval are ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_json
from treadle.lib.text.redaction import is_secret
from treadle.lib.text.text import suggest

CALL_TIMEOUT = 120.0
STARTUP_TIMEOUT = 30.0
BACKGROUND_AFTER = 60.0  # a call that takes longer continues in the background
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")
_TIMES = ("timeout", "startupTimeout", "backgroundAfter")
# What other programs, or people, call a key. Other keys that are unknown here are theirs.
_OTHER_KEYS: Mapping[str, str] = {
    "cmd": "command", "arguments": "args", "environment": "env", "working_directory": "cwd",
    "workingDirectory": "cwd", "uri": "url", "endpoint": "url", "transport": "type",
    "http_headers": "headers",
}  # fmt: skip
_FIELD_TYPES: Mapping[str, type] = {
    "type": str, "command": str, "args": list, "env": dict, "cwd": str, "url": str, "headers": dict,
    "oauth": dict, "disabled": bool,
}  # fmt: skip
_TYPE_WORDS = {str: "a text", list: "a list", dict: "an object", bool: "true or false"}


class McpOAuthConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What is known of the authorization of a server before a login; most servers need nothing.

    grant               authorization_code: a person logs in · client_credentials: the client's own
                        secret or private key · identity_assertion: a token of the company's own
                        identity provider is exchanged for one of the server
    client_id, client_secret  of a client that was registered by hand
    client_metadata_url a client metadata document, used where the server takes one
    scope               the scopes to ask for, if the server names none
    callback_port       the port of the redirect; any free one by default
    private_key, algorithm  of a client that signs its requests
    issuer, idp_token_endpoint, idp_client_id, idp_token   for an identity assertion
    """

    grant: Literal["authorization_code", "client_credentials", "identity_assertion"] = (
        "authorization_code"
    )
    client_id: str = ""
    client_secret: str = ""
    client_metadata_url: str = ""
    scope: str = ""
    callback_port: int = 0
    private_key: str = ""
    algorithm: str = "ES256"
    issuer: str = ""
    idp_token_endpoint: str = ""
    idp_client_id: str = ""
    idp_token: str = ""


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
    background_after: float = BACKGROUND_AFTER
    oauth: McpOAuthConfig = McpOAuthConfig()


def load_servers(
    file: Path, within: Path | None = None, problems: list[str] | None = None
) -> dict[str, dict[str, Any]]:
    """The raw definitions of a file by name; none if it is missing, ConfigError if it is invalid.

    `within`: the folder that a symlink to the file must not escape. `problems`: see
    `parse_servers`.
    """
    try:
        settings, _ = read_json(file, within=within)
    except FileNotFoundError:
        return {}
    return parse_servers(settings, str(file), problems)


def parse_servers(
    settings: object, origin: str, problems: list[str] | None = None
) -> dict[str, dict[str, Any]]:
    """The raw definitions in parsed settings; disabled servers are left out. With `problems`, a
    definition that is no object, or can never start, is left out and described there, instead of
    an error."""
    servers = settings.get("mcpServers", {}) if isinstance(settings, dict) else None
    if not isinstance(servers, dict):
        raise ConfigError(f"{origin}:1: mcpServers has to be an object of servers by name")
    wrong = [name for name, raw in servers.items() if not isinstance(raw, dict)]
    for name in wrong:
        problem = f"{origin}:1: the server {name!r} has to be an object"
        if problems is None:
            raise ConfigError(problem)
        problems.append(f"{problem}; it is not started")
    valid = {name: raw for name, raw in servers.items() if name not in wrong}
    enabled = {name: raw for name, raw in valid.items() if raw.get("disabled") is not True}
    if problems is None:
        return enabled
    mistakes = {name: _find_mistake(name, raw) for name, raw in enabled.items()}
    problems += [f"{origin}: {one}; it is not started" for one in mistakes.values() if one]
    return {name: raw for name, raw in enabled.items() if not mistakes[name]}


def check_definition(name: str, raw: Mapping[str, Any]) -> None:
    """ConfigError if a server of this definition cannot start, whatever its variables are."""
    unknown = [
        key for key in ("url", "oauth") if any(map(_VARIABLE.search, _iter_strings(raw.get(key))))
    ]
    checked = {key: value for key, value in raw.items() if key not in unknown}
    if "url" in unknown:
        checked["url"] = "https://known-when-it-starts"
    parse_server_config(name, checked, _AnyVariable())


def _find_mistake(name: str, raw: Mapping[str, Any]) -> str:
    try:
        check_definition(name, raw)
    except ConfigError as error:
        return str(error)
    return ""


class _AnyVariable(dict[str, str]):
    """Every variable is set: a definition is checked here and expanded when it is used."""

    def get(self, key: str, default: Any = None) -> Any:
        return "x"


def find_secret_variables(raw: Mapping[str, Any]) -> list[str]:
    """The secret variables that a definition refers to."""
    found = (match for text in _iter_strings(raw) for match in _VARIABLE.finditer(text))
    names = dict.fromkeys(match[1] for match in found)
    return [name for name in names if is_secret(name, os.environ.get(name, ""))]


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
    if not isinstance(raw, Mapping):
        raise ConfigError(
            f"server {name!r}: the definition is {raw!r:.80}; expected a dict, such as "
            '{"command": "my-server", "args": []} or {"url": "https://..."}'
        )
    for key in raw.keys() - _FIELD_TYPES.keys() - {*_TIMES}:
        meant = _OTHER_KEYS.get(key) or suggest(key, (*_FIELD_TYPES, *_TIMES), cutoff=0.8)
        if meant is not None:
            raise ConfigError(f"server {name!r}: unknown key {key!r}; did you mean {meant!r}?")
    for key, wanted in _FIELD_TYPES.items():
        if key in raw and not isinstance(raw[key], wanted):
            raise ConfigError(f"server {name!r}: {key} has to be {_TYPE_WORDS[wanted]}")
    expand = _make_expander(name, os.environ if environ is None else environ, trusted)
    command, url = expand(raw.get("command", ""), "command"), expand(raw.get("url", ""), "url")
    if bool(command) == bool(url):
        given = ", ".join(key for key in raw if raw[key]) or "nothing"
        raise ConfigError(
            f"server {name!r}: it needs a command or a url, and not both (it has: {given})"
        )
    kind = _parse_transport(name, raw.get("type"), url)
    if url:
        _check_url(name, url)
    return McpServerConfig(
        kind,
        command,
        tuple(expand(word, "args") for word in raw.get("args", ())),
        {str(key): expand(value, f"env.{key}") for key, value in raw.get("env", {}).items()},
        expand(raw.get("cwd", ""), "cwd"),
        url,
        {str(key): expand(one, f"headers.{key}") for key, one in raw.get("headers", {}).items()},
        _parse_timeout(name, raw, "timeout", CALL_TIMEOUT),
        _parse_timeout(name, raw, "startupTimeout", STARTUP_TIMEOUT),
        _parse_timeout(name, raw, "backgroundAfter", BACKGROUND_AFTER),
        _parse_oauth(name, raw.get("oauth", {}), expand),
    )


def _check_url(name: str, url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"server {name!r}: the url has to begin with http:// or https://")
    try:
        parts = urlsplit(url)
        is_valid = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ConfigError(f"server {name!r}: the url needs a host, and a port from 1 to 65535")


def _parse_oauth(
    name: str, raw: Mapping[str, Any], expand: Callable[[object, str], str]
) -> McpOAuthConfig:
    texts = {key: expand(one, f"oauth.{key}") for key, one in raw.items() if key != "callbackPort"}
    known = {**raw, **texts}
    try:
        oauth = msgspec.convert(known, McpOAuthConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"server {name!r}: oauth: {error}") from error
    needed = _OAUTH_NEEDS[oauth.grant]
    missing = [key for key in needed if not known.get(key)]
    if missing or (oauth.grant == "client_credentials" and not _has_client_key(oauth)):
        which = ", ".join(missing) or "clientSecret or privateKey"
        raise ConfigError(f"server {name!r}: oauth: the grant {oauth.grant} needs {which}")
    return oauth


def _has_client_key(oauth: McpOAuthConfig) -> bool:
    return bool(oauth.client_secret or oauth.private_key)


_OAUTH_NEEDS: Mapping[str, tuple[str, ...]] = {
    "authorization_code": (),
    "client_credentials": ("clientId",),
    "identity_assertion": (
        *("clientId", "clientSecret", "issuer"),
        *("idpTokenEndpoint", "idpClientId", "idpToken"),
    ),
}


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


def _make_expander(
    name: str, environ: Mapping[str, str], trusted: bool
) -> Callable[[object, str], str]:
    """A function that expands the environment variables in the value of a key; one that is not set
    is an error."""

    def expand_variable(found: re.Match[str]) -> str:
        variable, default = found.group(1), found.group(2)
        value = environ.get(variable)
        if not trusted and is_secret(variable, value or ""):
            return default or ""
        value = value or default
        if value is None:
            raise ConfigError(f"server {name!r}: the variable {variable} is not set")
        return value

    def expand(text: object, key: str) -> str:
        if not isinstance(text, str | int | float) or isinstance(text, bool):
            raise ConfigError(f"server {name!r}: {text!r} in {key} has to be a text")
        return _VARIABLE.sub(expand_variable, str(text))

    return expand

"""`treadle mcp serve`: an MCP server of this folder, over stdin and stdout or over HTTP.

HTTP is on the loopback address and wants a token: every program of this machine can reach the port.
The server itself is apps/console/mcp_service.py.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.apps.cli.options import CommandLine, parse_command_line
from treadle.apps.console import exit_codes
from treadle.apps.console.console import UsageError, get_current_folder, print_error, report_errors
from treadle.apps.console.help_option import wants_help
from treadle.apps.console.loopback import listen_on_loopback
from treadle.lib.http.local_hosts import LOOPBACK

if TYPE_CHECKING:
    from treadle.apps.console.mcp_service import McpService

USAGE = """\
usage: treadle mcp serve [--http PORT [--token-file PATH]] [OPTIONS]

Offers the tools of this folder (read, write, edit, glob, grep, ls, bash, web_fetch) and `run`,
which gives a whole task to the agent, to another program. Without --http it uses stdin and stdout:

    {"command": "treadle", "args": ["mcp", "serve", "--permission-mode", "accept-edits"]}

  --http PORT        http://127.0.0.1:PORT/mcp instead; 0 is any free port
  --token-file PATH  the token that a client has to send as `Authorization: Bearer TOKEN`; the file
                     is made if there is none. Without it a new token is printed at each start
  OPTIONS            as for `treadle -p`: --model, --permission-mode, --allow, --sandbox, ...

The user cannot be asked here: calls that need approval are denied. Allow what you need."""

Asgi = Callable[[Any, Any, Any], Awaitable[None]]


def run(arguments: list[str]) -> int:
    if wants_help(arguments):
        print(USAGE)
        return exit_codes.SUCCESS
    return report_errors("treadle mcp serve", lambda: _serve(arguments))


def _serve(arguments: list[str]) -> int:
    from treadle.apps.assembly.parts import SessionOptions
    from treadle.apps.settings.folder_rules import is_trusted
    from treadle.apps.settings.load import load_settings
    from treadle.core.extras import require_extra

    require_extra("mcp")
    own, rest = _take_own_options(arguments)
    line: CommandLine = parse_command_line(rest)
    if line.prompt is not None:
        raise UsageError(f"unknown argument {line.prompt!r}; see `treadle mcp serve --help`")
    port = _parse_port(own.get("--http"))
    token = _read_token(own.get("--token-file")) if port is not None else ""
    folder = get_current_folder().resolve()
    settings = load_settings(folder, line.settings(), is_trusted=lambda: is_trusted(folder))
    from treadle.apps.console.mcp_service import McpService

    allow, deny = tuple(line.texts("allow")), tuple(line.texts("deny"))
    options = SessionOptions(allow=allow, deny=deny)
    service = McpService(settings, folder, options)
    if port is None:
        asyncio.run(_serve_stdio(service))
    else:
        asyncio.run(_serve_http(service, port, token))
    return exit_codes.SUCCESS


def _take_own_options(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    own: dict[str, str] = {}
    rest: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name not in ("--http", "--token-file"):
            rest.append(word)
            continue
        if not equals:
            value = words.pop(0) if words else ""
        if not value.strip():
            raise UsageError(f"{name} needs a value")
        own[name] = value
    if "--token-file" in own and "--http" not in own:
        raise UsageError("--token-file is for --http")
    return own, rest


def _parse_port(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) > 65535:
        raise UsageError(f"--http needs a port from 0 to 65535, not {text!r}")
    return int(text)


def _read_token(path: str | None) -> str:
    if path is None:
        return secrets.token_urlsafe(32)
    file = Path(path).expanduser()
    if not file.exists():
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as out:
            out.write(f"{secrets.token_urlsafe(32)}\n")
    token = file.read_text().strip()
    if len(token) < 16:
        raise UsageError(f"{path} holds no token of at least 16 characters; remove it to make one")
    return token


async def _serve_stdio(service: McpService) -> None:
    try:
        await service.serve_stdio()
    finally:
        await service.aclose()


async def _serve_http(service: McpService, port: int, token: str) -> None:
    import uvicorn

    listener = listen_on_loopback(port)
    url = f"http://{LOOPBACK}:{listener.getsockname()[1]}/mcp"
    app = require_token(service.make_server().streamable_http_app(), token)
    print_error(f"serving at {url}\nAuthorization: Bearer {token}")
    config = uvicorn.Config(app, log_level="warning")
    try:
        await uvicorn.Server(config).serve(sockets=[listener])
    finally:
        await service.aclose()


def require_token(app: Asgi, token: str) -> Asgi:
    """The application for requests with the token; others get 401."""
    wanted = f"Bearer {token}".encode()

    async def guard(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        given = headers.get(b"authorization", b"")
        if scope["type"] == "lifespan" or hmac.compare_digest(given, wanted):
            await app(scope, receive, send)
            return
        head = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 401, "headers": head})
        await send({"type": "http.response.body", "body": b""})

    return guard

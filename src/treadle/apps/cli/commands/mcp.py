"""`treadle mcp`: the MCP servers of the user and of this folder: add, list, test, log in, remove.

Listing starts nothing. Definitions are written by console/mcp_definitions.py; servers are made as
for a session (assembly/servers.py), so a project's server needs its approval here, too. `serve` is
mcp_serve.py.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from treadle.apps.console import exit_codes
from treadle.apps.console.console import (
    UsageError,
    get_current_folder,
    print_error,
    print_line,
    report_errors,
)
from treadle.apps.console.help_option import wants_help
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import plural, shorten_home

if TYPE_CHECKING:
    from treadle.apps.assembly.servers import McpServers
    from treadle.tools.mcp.server import McpServer

USAGE = """\
usage: treadle mcp list                        the servers of you and this folder; starts none
       treadle mcp add NAME [OPTIONS] COMMAND [ARGUMENT ...]     a program
       treadle mcp add NAME [OPTIONS] URL                        a server at a URL
           --env NAME=VALUE, --header 'NAME: VALUE'   (${VAR} is filled in at the start)
           --sse                the older transport       --project    in this folder's .mcp.json
       treadle mcp add --known NAME            playwright (a browser), chrome-devtools or github
       treadle mcp test [NAME ...] [--log]     start servers, show what they offer
       treadle mcp login NAME                  log in to a server at a URL, in a browser
       treadle mcp logout NAME                 forget the login
       treadle mcp remove NAME [--project]     remove a definition, and the login
       treadle mcp serve [OPTIONS]             be a server: see treadle mcp serve --help"""

TEST_SECONDS = 60.0
OPTIONS = ("--project", "--sse", "--env", "--header")
_NAME = re.compile(r"[\w.-]+")
MCP_SERVER_KIND = "server"


def run(arguments: list[str]) -> int:
    match arguments:
        case ["serve", *rest]:
            from treadle.apps.cli.commands import mcp_serve

            return mcp_serve.run(rest)
        case ["add", *_]:
            is_help = wants_help(arguments[:3])  # later ones may be of the server's command
        case _:
            is_help = not arguments or wants_help(arguments)
    if is_help:
        print(USAGE)
        return exit_codes.SUCCESS
    return report_errors("treadle mcp", lambda: _run_command(arguments))


def _run_command(arguments: list[str]) -> int:
    match arguments:
        case ["list"]:
            return _list_servers()
        case ["add", *rest]:
            return _add(rest)
        case ["remove", *rest] if len(names := [one for one in rest if one != "--project"]) == 1:
            return _remove(names[0], for_project="--project" in rest)
        case ["test", *rest]:
            names = [word for word in rest if word != "--log"]
            return asyncio.run(_test(names, show_log="--log" in rest))
        case ["login", name]:
            return asyncio.run(_log_in(name))
        case ["logout", name]:
            return _log_out(name)
    raise UsageError(f"{shlex.join(arguments)!r} is no command; see `treadle mcp --help`")


# ------------------------------------------------------------------ definitions


def _list_servers() -> int:
    from treadle.apps.assembly.servers import open_token_store
    from treadle.apps.settings.extensions import discover_extensions

    folder = get_current_folder()
    found = discover_extensions(folder)
    tokens = open_token_store()
    rows: list[tuple[str, str, str]] = []
    for name, definition in found.servers.items():
        url = str(definition.get("url", ""))
        words = [str(definition.get("command", "")), *map(str, definition.get("args", ()))]
        origin = "of a plugin" if name in found.plugin_servers else "of this folder"
        origin = "yours" if name in found.user_servers else origin
        login = ", logged in" if tokens.has_login(name, _get_url(name, definition)) else ""
        rows.append((name, url or " ".join(words), origin + login))
    waiting = [program for program in found.unapproved if program.kind == MCP_SERVER_KIND]
    width = max([len(name) for name, _, _ in rows] or [0])
    for name, target, state in rows:
        shown = escape_invisible(f"{name:{width}}  {target}")
        print_line(f"{shown}  ({state})")
    for program in waiting:
        print_line(escape_invisible(program.summary))
    for note in found.notes:
        print_line(f"note: {escape_invisible(note)}")
    if not rows and not waiting:
        print_line("no MCP servers; add one with `treadle mcp add NAME COMMAND`")
    return exit_codes.SUCCESS


def _add(words: list[str]) -> int:
    from treadle.apps.console.mcp_definitions import add_definition

    name, definition, for_project = _parse_definition(words)
    file = add_definition(name, definition, get_current_folder(), for_project=for_project)
    print_line(f"{name} is added to {escape_invisible(shorten_home(file))}")
    if for_project:
        print_line("it starts after your approval: `treadle trust --approve`")
    print_line(f"try it: treadle mcp test {name}")
    return exit_codes.SUCCESS


def _find_known(words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The name and the definition of `--known NAME`."""
    from treadle.apps.console.mcp_definitions import KNOWN_SERVERS

    names = [word for word in words if word not in ("--known", "--project")]
    if len(names) != 1 or names[0] not in KNOWN_SERVERS:
        listed = ", ".join(KNOWN_SERVERS)
        raise UsageError(f"treadle mcp add --known NAME, where NAME is one of {listed}")
    return names[0], dict(KNOWN_SERVERS[names[0]])


def _parse_definition(words: Sequence[str]) -> tuple[str, dict[str, Any], bool]:
    """The name, the definition that the words describe, and whether it is for the project."""
    definition: dict[str, Any] = {}
    names: list[str] = []
    left, for_project, is_separated = list(words), False, False
    if "--known" in words[:2]:
        return *_find_known(words), "--project" in words
    while left and (left[0].startswith("-") or not names):
        word = left.pop(0)
        match word:
            case "--project":
                for_project = True
            case "--sse":
                definition["type"] = "sse"
            case "--env" | "--header" if left:
                key, separator = ("env", "=") if word == "--env" else ("headers", ":")
                field, found, value = left.pop(0).partition(separator)
                if not found or not field.strip():
                    raise UsageError(f"{word} needs NAME{separator}VALUE")
                definition.setdefault(key, {})[field.strip()] = value.strip()
            case "--" if names:
                is_separated = True
                break
            case _ if not word.startswith("-"):
                names.append(_check_name(word))
            case _:
                raise UsageError(f"unknown option {word!r}; see `treadle mcp --help`")
    if not names:
        raise UsageError("give the server a name: treadle mcp add NAME COMMAND, or NAME URL")
    if not left:
        raise UsageError("give the command of the server, or its URL")
    target, *rest = left
    is_url = target.startswith(("http://", "https://"))
    if "://" in target and not is_url:
        raise UsageError(f"{target!r}: the URL of a server begins with http:// or https://")
    _check_position(rest, is_url=is_url, is_separated=is_separated)
    if is_url and "env" in definition:
        raise UsageError("--env is for a program; a server at a URL gets --header 'NAME: VALUE'")
    if not is_url and "headers" in definition:
        raise UsageError("--header is for a server at a URL; a program gets --env NAME=VALUE")
    if is_url:
        return names[0], {**definition, "url": target}, for_project
    program = {"command": target, "args": rest} if rest else {"command": target}
    return names[0], {**program, **definition}, for_project


def _check_name(name: str) -> str:
    """Names are part of commands, of `@NAME:uri` and of `/NAME:prompt`."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a server: use letters, digits, '-', '_' and '.'"
        )
    return name


def _check_position(rest: Sequence[str], *, is_url: bool, is_separated: bool) -> None:
    """Our options behind the command would go to the program."""
    if is_url and rest:
        raise UsageError(f"{rest[0]!r} stands after the URL; options come before it")
    misplaced = [] if is_separated else [word for word in rest if word in OPTIONS]
    if misplaced:
        raise UsageError(
            f"{misplaced[0]} stands after the command: put it before the command, or put `--` "
            "before the command if the program is to get it"
        )


def _remove(name: str, *, for_project: bool) -> int:
    from treadle.apps.console.mcp_definitions import remove_definition
    from treadle.apps.settings.extensions import discover_extensions

    folder = get_current_folder()
    definition = discover_extensions(folder).servers.get(name, {})
    file = remove_definition(name, folder, for_project=for_project)
    if file is None:
        where = "the .mcp.json of this folder" if for_project else "your settings"
        other = "" if for_project else "; one of this folder needs --project"
        raise UsageError(f"there is no server {name!r} in {where}{other}")
    _forget_login(name, definition)
    print_line(f"{escape_invisible(name)} is removed from {escape_invisible(shorten_home(file))}")
    return exit_codes.SUCCESS


def _log_out(name: str) -> int:
    definition = _find_definition(name)
    if not _forget_login(name, definition):
        raise UsageError(f"there is no login of {name!r}")
    print_line(f"the login of {escape_invisible(name)} is forgotten")
    return exit_codes.SUCCESS


def _forget_login(name: str, definition: Mapping[str, Any]) -> bool:
    from treadle.apps.assembly.servers import open_token_store

    return open_token_store().remove(name, _get_url(name, definition))


def _get_url(name: str, definition: Mapping[str, Any]) -> str:
    """The URL of a server, with its variables filled in; "" if it has none."""
    from treadle.core.errors import ConfigError
    from treadle.tools.mcp.server_config import parse_server_config

    try:
        return parse_server_config(name, definition).url if definition.get("url") else ""
    except ConfigError:  # a variable is not set
        return ""


def _find_definition(name: str) -> Mapping[str, Any]:
    from treadle.apps.settings.extensions import discover_extensions

    found = discover_extensions(get_current_folder())
    if name in found.servers:
        return found.servers[name]
    if any(program.name == name for program in found.unapproved):
        raise UsageError(f"the server {name!r} needs your approval: `treadle trust --approve`")
    known = ", ".join(found.servers) or "none"
    raise UsageError(f"there is no server {name!r} (there are: {known})")


# ------------------------------------------------------------------ running servers


def _make_servers(names: Sequence[str]) -> McpServers:
    from treadle.apps.assembly.lazy import LazyWorkspace
    from treadle.apps.assembly.servers import make_servers, open_token_store
    from treadle.apps.settings.extensions import discover_extensions, start_objections
    from treadle.apps.settings.folder_rules import is_trusted
    from treadle.core.extras import require_extra
    from treadle.tools.mcp.client_options import McpClientOptions
    from treadle.workspace.options import WorkspaceOptions

    require_extra("mcp")
    folder = get_current_folder().resolve()
    found = discover_extensions(folder)
    for name in names:
        _find_definition(name)
    chosen = {name: one for name, one in found.servers.items() if not names or name in names}
    if not names:
        for program in found.unapproved:
            print_error(f"not started: {escape_invisible(program.summary)}")
    notes: list[str] = []
    servers = make_servers(
        chosen,
        LazyWorkspace(folder, lambda: WorkspaceOptions(sandbox="off"), print_error),
        user_servers=found.user_servers,
        plugin_servers=found.plugin_servers,
        trusted=is_trusted(folder),
        startup_wait=TEST_SECONDS,
        notes=notes,
        notify=None,
        options=McpClientOptions(can_ask=False, tokens=open_token_store()),
        objection=start_objections(folder),
    )
    for note in notes:
        print_error(note)
    return servers


async def _test(names: Sequence[str], *, show_log: bool) -> int:
    from treadle.tools.mcp.status import RUNNING_STATES

    servers = _make_servers(names)
    try:
        await servers.open()
        for server in servers.servers:
            _print_server(server, show_log=show_log)
        states = [server.status.state for server in servers.servers]
    finally:
        await servers.aclose()
    if not states:
        print_line("no server was started")
    are_running = states and set(states).issubset(RUNNING_STATES)
    return exit_codes.SUCCESS if are_running else exit_codes.ERROR


def _print_server(server: McpServer, *, show_log: bool) -> None:
    from treadle.apps.conversation.commands.mcp_prompts import format_arguments

    print_line(escape_invisible(server.status.summary))
    for tool in server.tools():
        line = " ".join(tool.spec.description.split())[:80]
        print_line(escape_invisible(f"  {tool.spec.name}  {line}"))
    for prompt in server.catalog.prompts:
        words = format_arguments(prompt)
        print_line(
            escape_invisible(f"  /{server.name}:{prompt.name} {words}  {prompt.description}")
        )
    if resources := server.catalog.resources:
        print_line(
            f"  {plural(len(resources), 'resource')}, as @{escape_invisible(server.name)}:URI"
        )
    for message in server.logs if show_log else ():
        print_line(escape_invisible(f"  {message.level} {message.logger} {message.text}"))


async def _log_in(name: str) -> int:
    url = _find_definition(name).get("url")
    if not url:
        raise UsageError(f"{name} is a program: set its key in its environment (--env)")
    servers = _make_servers([name])
    [server] = servers.servers
    try:
        await server.log_in(_show_link, _read_paste if _is_terminal() else None)
    finally:
        await servers.aclose()
    print_line(f"logged in to {escape_invisible(name)}; running sessions use it at their next call")
    return exit_codes.SUCCESS


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


async def _show_link(url: str) -> None:
    import os
    import webbrowser

    print_error(f"Open this page to log in:\n\n  {url}\n")
    is_remote = bool(os.environ.get("SSH_CONNECTION"))
    if not is_remote and os.environ.get("DISPLAY", os.environ.get("WAYLAND_DISPLAY")):
        await asyncio.to_thread(webbrowser.open, url)
    if _is_terminal():
        print_error("If the browser is on another machine, paste the address that it ends at:")


async def _read_paste() -> str:
    """A line from the terminal."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def on_input() -> None:
        text = sys.stdin.readline()
        if text.strip() and not line.done():
            line.set_result(text)
        elif not text:
            loop.remove_reader(sys.stdin)

    loop.add_reader(sys.stdin, on_input)
    try:
        return await line
    finally:
        loop.remove_reader(sys.stdin)

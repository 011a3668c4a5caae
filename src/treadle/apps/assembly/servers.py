"""The MCP servers of a session as one tool source.

They start in the background. Without a terminal `open` waits for them, for a limited time, and
before the calls of a resumed turn: a run could end before its tools are there. At a terminal
nothing waits: late tools join the session by tools/late_tools.py. extensions.py decides which
servers may run, and is asked at every start. `add_server_tools` is a stage of stages.py, which
loads this module only if there are servers.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from treadle.apps.assembly.hooks import make_hook_environment
from treadle.apps.assembly.lazy import LazyWorkspace
from treadle.apps.assembly.model_choice import has_tool_search
from treadle.apps.assembly.parts import AgentParts
from treadle.apps.assembly.redaction import redact_source
from treadle.apps.assembly.sampler import PolicySampler
from treadle.apps.settings.extensions import start_objections
from treadle.apps.settings.managed_policy import read_policy
from treadle.apps.settings.settings import treadle_home
from treadle.core.contracts.hook import AddContext, HookInput, HookPoint
from treadle.core.contracts.hook_data import UserPromptSubmitData
from treadle.core.contracts.tool import ToolOutput
from treadle.core.errors import ConfigError, TreadleError
from treadle.core.secret_store import find_keyring
from treadle.core.transcript.content import Text
from treadle.core.transcript.pending import RunTools, pending
from treadle.lib.files.private_files import make_private_folder
from treadle.lib.text.text import suggest
from treadle.tools.federation import Federation
from treadle.tools.late_tools import StableToolList
from treadle.tools.mcp.auth.token_store import TokenStore
from treadle.tools.mcp.client_options import McpClientOptions
from treadle.tools.mcp.resource_tool import ResourceUpdates
from treadle.tools.mcp.server import McpServer
from treadle.tools.mcp.server_config import (
    McpServerConfig,
    find_secret_variables,
    parse_server_config,
)
from treadle.tools.mcp.status import AWAITED_STATES, McpState, McpStatus
from treadle.tools.mcp.tool import make_tool_prefix, sanitize_server_name

Notify = Callable[[str], None]
MAX_RESOURCE_CHARS = 100_000
SILENT_WAIT_SECONDS = 1.0  # then the user is told what is waited for


def add_server_tools(parts: AgentParts) -> None:
    """The servers of the settings and those that are given, and what they add to the agent."""
    own, given = parts.extensions.servers, parts.given.servers
    parts.warnings += [
        f"there are two MCP servers with the name {name}: the one that this session was given is "
        "started, not the one of your settings; rename one of them"
        for name in given
        if name in own and own[name] != given[name]
    ]
    # At a terminal nothing waits, but for calls that were interrupted: they need their tools.
    has_calls = parts.state is not None and isinstance(pending(parts.state.transcript), RunTools)
    startup_wait = parts.settings.server_wait if has_calls or not parts.is_interactive else 0.0
    tell = parts.notify if parts.is_interactive else parts.warn
    mcp = make_servers(
        {**own, **given},
        parts.workspace,
        user_servers={*parts.extensions.user_servers, *given},
        plugin_servers=parts.extensions.plugin_servers,
        trusted=parts.trust.is_trusted,
        startup_wait=startup_wait,
        notes=parts.warnings,
        notify=tell,
        options=_make_client_options(parts),
        objection=start_objections(parts.folder, parts.trust.open_store, given),
        required=given,
        on_wait=parts.notify,
    )
    parts.servers = mcp.servers
    # Outermost, so that the loop sees which tool a forwarded call runs.
    head = parts.state.request_head if parts.state is not None else None
    stable_tools = StableToolList(
        redact_source(mcp, parts.secrets),
        provider_searches=has_tool_search(parts.model),
        listed=frozenset(head.tools) if head is not None else None,
        is_awaited=mcp.is_awaited,
    )
    parts.tools.append(stable_tools)
    parts.mutators += [ResourceUpdates(mcp.servers), stable_tools]
    parts.hooks.append(ResourceMentions(mcp.servers, tell))


def _make_client_options(parts: AgentParts) -> McpClientOptions:
    """What the servers of a session get of it."""
    return McpClientOptions(
        roots=parts.list_added_folders(),
        sampler=PolicySampler(parts.model, parts.policy, parts.gates),
        can_ask=parts.is_interactive,
        open_url=_open_in_browser if parts.is_interactive else None,
        save_file=partial(_save_file, parts.outputs_dir),
        tokens=open_token_store(),
    )


class McpServers(Federation):
    """All servers; `open` starts them and waits at most `startup_wait` seconds."""

    def __init__(
        self,
        servers: Sequence[McpServer],
        startup_wait: float,
        problems: ServerProblems,
        on_wait: Notify | None = None,
    ) -> None:
        super().__init__(servers)
        self.servers = tuple(servers)
        self._wait = startup_wait
        self._problems = problems
        self._on_wait = on_wait or (lambda text: None)

    async def open(self) -> None:
        await super().open()
        if self._wait:
            await self.wait_for_start(self._wait, self._on_wait)

    def is_awaited(self, name: str) -> bool:
        """Whether this server, or the one of this tool, may still bring its tools."""
        return any(
            server.status.state in AWAITED_STATES
            and (name == server.name or name.startswith(make_tool_prefix(server.name)))
            for server in self.servers
        )

    async def wait_for_start(self, seconds: float, tell: Notify) -> None:
        """Wait for all servers; after a moment the user is told for which, at the end which are
        late."""
        told = asyncio.get_running_loop().call_later(SILENT_WAIT_SECONDS, self._tell, seconds, tell)
        try:
            await asyncio.gather(*(server.wait_ready(seconds) for server in self.servers))
        finally:
            told.cancel()
        for server in self.servers:
            self._problems.on_timeout(server.status, seconds)

    def _tell(self, seconds: float, tell: Notify) -> None:
        names = [one.name for one in self.servers if one.status.state == "starting"]
        if names:
            tell(f"waiting for MCP servers to start, up to {seconds:g} s: {', '.join(names)}")


class ServerProblems:
    """Notifies the user of a server that is not available: once, until it was up again."""

    def __init__(self, notify: Notify | None) -> None:
        self._notify = notify or (lambda text: None)
        self._reported: dict[str, McpState] = {}

    def on_status(self, status: McpStatus) -> None:
        name, state = status.name, status.state
        if state == "up":
            self._reported.pop(name, None)
        elif state in _PROBLEM_TEXTS and self._reported.get(name) != state:
            self._reported[name] = state
            self._notify(_PROBLEM_TEXTS[state].format(name=name, problem=status.problem))

    def on_timeout(self, status: McpStatus, waited: float) -> None:
        """The wait for the servers is over."""
        if status.state == "starting":
            self._notify(
                f"MCP server {status.name} is still starting after {waited:g} s; "
                "its tools are added when it is up"
            )


_PROBLEM_TEXTS: Mapping[McpState, str] = {
    "down": "MCP server {name} is down and will be restarted: {problem}",
    "failed": "MCP server {name} does not start: {problem}",
    "login": "{problem}",
}


def make_servers(
    definitions: Mapping[str, Mapping[str, Any]],
    workspace: LazyWorkspace,
    *,
    user_servers: Collection[str],
    trusted: bool,
    startup_wait: float,
    notes: list[str],
    notify: Notify | None,
    plugin_servers: Collection[str] = (),
    options: McpClientOptions | None = None,
    objection: Callable[[str, Mapping[str, Any], bool], str] | None = None,
    required: Collection[str] = (),
    on_wait: Notify | None = None,
) -> McpServers:
    """The servers as a source; an invalid definition is noted and skipped, unless it is required.

    So is a server whose tools would have the names of another server's tools. `user_servers` are
    the names from the user's own settings, `plugin_servers` those from plugins; `trusted` is about
    the folder. `notify` gets lines
    about servers that are not available, `on_wait` what a wait for them is about.
    """
    problems, root, policy = ServerProblems(notify), workspace.root, read_policy()
    objection = objection or start_objections(root)
    servers: list[McpServer] = []
    owners: dict[str, str] = {}  # the servers by the name that their tools have
    # The user's own first: a server of the folder must not take the place of one of them.
    ranks = {**dict.fromkeys(plugin_servers, 1), **dict.fromkeys(user_servers, 0)}
    for name in sorted(definitions, key=lambda name: ranks.get(name, 2)):
        definition = definitions[name]
        try:
            owner = owners.setdefault(sanitize_server_name(name), name)
            if owner != name:
                raise ConfigError(
                    f"MCP server {name!r} is not started: its tools would have the same names as "
                    f"those of {owner!r} (mcp__{sanitize_server_name(name)}__*); rename one of them"
                )
            is_users = name in user_servers
            config = parse_server_config(name, definition, trusted=is_users)
            if name in ranks:
                config = _isolate_user_server(config, root, trusted)
            if not is_users:
                origin = "a plugin" if name in plugin_servers else "this folder"
                notes.extend(_format_withheld(name, origin, find_secret_variables(definition)))
            words = (config.command, *config.args) if config.command else ()
            if refusal := policy.find_server_objection(name, words, config.url):
                raise ConfigError(refusal)
            servers.append(
                McpServer(
                    name,
                    config,
                    start=workspace.spawn,
                    root=root,
                    options=options,
                    on_change=problems.on_status,
                    start_objection=partial(objection, name, definition),
                    required=False,
                    start_wait=0.0,  # `startup_wait` is for all of them
                )
            )
        except ConfigError as error:
            if name in required:
                raise
            notes.append(str(error))
    return McpServers(servers, startup_wait, problems, on_wait)


def open_token_store() -> TokenStore:
    """The logins of the user."""
    return TokenStore(treadle_home() / "mcp-logins.json", find_keyring)


def _open_in_browser(url: str) -> None:
    import webbrowser

    webbrowser.open(url)


def _save_file(outputs_dir: Path, name: str, data: bytes) -> str:
    """Keep a file of a server beside the outputs of the session; its path."""
    make_private_folder(outputs_dir)
    stem, dot, suffix = name.partition(".")
    for number in count(1):
        path = outputs_dir / (name if number == 1 else f"{stem}-{number}{dot}{suffix}")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        return str(path)
    raise AssertionError("count does not end")


def _isolate_user_server(config: McpServerConfig, root: Path, trusted: bool) -> McpServerConfig:
    """Keep files of the folder out of a server of the user or of a plugin.

    In an untrusted folder the server does not even start there: `npx` and the like run what they
    find in the current directory.
    """
    if config.transport != "stdio":
        return config
    env = make_hook_environment(" ".join((config.command, *config.args)), root)
    cwd = config.cwd if trusted else str(Path.home() / config.cwd)
    return msgspec.structs.replace(config, cwd=cwd, env={**env, **config.env})


def _format_withheld(name: str, origin: str, variables: Sequence[str]) -> list[str]:
    if not variables:
        return []
    return [
        f"MCP server {name} of {origin} gets no secrets: {', '.join(variables)} stays empty; "
        "define the server in ~/.treadle/settings.json to pass them"
    ]


# ------------------------------------------------------------------ resources in messages


class ResourceMentions:
    """A Hook: `@server:uri` in a message shows the model the text of that resource.

    The user named the resource, so no approval is needed; its text is data of the server. Content
    that is no text is left to the tool `read_resource`.
    """

    points: frozenset[HookPoint] = frozenset({"user_prompt_submit"})

    def __init__(self, servers: Sequence[McpServer], notify: Notify) -> None:
        self._servers = {server.name: server for server in servers}
        self._notify = notify
        names = "|".join(re.escape(name) for name in self._servers)
        # A name that no server has: only before a whole URI, because `@name:` has other uses.
        self._mention = re.compile(rf"(?<![\w@])@(?:({names}):(\S+)|([\w.-]+):([\w+.-]+://\S*))")

    async def run(self, hook_input: HookInput[UserPromptSubmitData]) -> AddContext | None:
        prompt = hook_input.data["prompt"]
        if "@" not in prompt:
            return None
        found = dict.fromkeys(
            (match[1] or match[3], (match[2] or match[4]).rstrip(".,;!?)\"'"))
            for match in self._mention.finditer(prompt)
        )
        parts = [await self._read(name, uri) for name, uri in found]
        return AddContext("\n\n".join(parts)) if parts else None

    async def _read(self, name: str, uri: str) -> str:
        try:
            if name not in self._servers:
                nearest = suggest(name, self._servers)
                hint = f"; did you mean {nearest!r}?" if nearest else ""
                raise ConfigError(f"there is no MCP server {name!r}{hint}")
            output = await self._servers[name].read_resource(uri)
        except TreadleError as error:
            problem = f"@{name}:{uri} is not attached: {error}"
            self._notify(problem)
            return f"[{problem}]"
        text = _format_text(output)
        if len(text) > MAX_RESOURCE_CHARS:
            text = f"{text[:MAX_RESOURCE_CHARS]}... [truncated, {len(text)} chars total]"
        return f'<resource server="{name}" uri="{uri}">\n{text}\n</resource>'


def _format_text(output: ToolOutput) -> str:
    if isinstance(output.content, str):
        return output.content
    texts = [
        part.text if isinstance(part, Text) else f"[{part.media_type}: read it with read_resource]"
        for part in output.content
    ]
    return "\n".join(texts)

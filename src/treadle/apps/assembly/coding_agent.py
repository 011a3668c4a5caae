"""`treadle.coding_agent`: the agent that the command line runs, for a program.

    async with treadle.coding_agent("path/to/folder", permission_mode="auto") as agent:
        result = await agent.run("Why does the test fail?")

This module checks the arguments and makes the settings and rules of them; a wrong argument is a
ConfigError that names it. stages.py assembles the agent. The hosts use the same function
(assemble.py), with a HostSession.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from treadle.agents.agent_settings import Approver
from treadle.apps.assembly.parts import (
    AgentParts,
    CodingAgent,
    GivenParts,
    HostSession,
    McpDefinitions,
)
from treadle.apps.assembly.stages import assemble
from treadle.apps.settings.extensions import approve_extensions
from treadle.apps.settings.folder_rules import FolderTrust, choose_trust, load_rules
from treadle.apps.settings.load import load_settings
from treadle.apps.settings.managed_policy import apply_policy
from treadle.apps.settings.settings import SETTINGS_BY_NAME, Settings, format_unknown_setting
from treadle.core.contracts.hook import Hook
from treadle.core.contracts.model import Model
from treadle.core.contracts.observer import Observer
from treadle.core.errors import ConfigError
from treadle.core.extras import require_extra
from treadle.core.retry import Retry

if TYPE_CHECKING:
    from typing import Never

    from treadle.agents.agent_settings import ToolLike
    from treadle.permissions.modes import PermissionMode
    from treadle.sessions.open_store import StoreLocation
    from treadle.workspace.container import ContainerOptions


def coding_agent(
    folder: str | os.PathLike[str] = ".",
    *,
    model: str | Model | None = None,
    permission_mode: PermissionMode | None = None,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    ask: Sequence[str] = (),
    approve: Approver | None = None,
    tools: Sequence[ToolLike[Any]] = (),
    mcp: McpDefinitions | str | os.PathLike[str] | None = None,
    instructions: str = "",
    sandbox: Literal["required", "auto", "off"] | None = None,
    container: str | ContainerOptions | None = None,
    network: bool | Sequence[str] | None = None,
    add_dir: Sequence[str | os.PathLike[str]] = (),
    max_turns: int | None = None,
    max_cost: float | None = None,
    max_tokens: int | None = None,
    max_time: float | None = None,
    thinking: str | int | None = None,
    small_model: str | None = None,
    retry: Retry | None = None,
    hooks: Sequence[Hook] = (),
    observers: Sequence[Observer] = (),
    trust: bool | None = None,
    settings: Mapping[str, object] | Settings | None = None,
    store: StoreLocation | None = None,
    name: str = "",
    host: HostSession | None = None,
    **unknown: Never,
) -> CodingAgent:
    """The agent of a folder, as the command line `treadle` runs it.

    model            a name, or a model; by default that of the settings, or of this machine
    permission_mode  plan, ask (the default), accept-edits, auto or bypass: which calls run without
                     approval
    allow, deny, ask rules, such as `Bash(npm test)`; deny wins over ask, ask over allow
    approve          decides on calls that need approval; without it they are denied, and the model
                     reads why
    tools            own tools, besides the built-in ones; functions need no approval; for those of
                     a source the rules decide
    mcp              MCP servers by name, as under "mcpServers" in .mcp.json, or such a file
    instructions     text added to the system prompt
    sandbox, network, add_dir, max_turns, thinking, small_model
                     as the settings of the same names; None: as the user's settings say
    container        an image: commands run in containers of podman or docker, where the folder is
                     all that they see of this machine; MCP servers and hooks run here
    max_cost, max_tokens, max_time
                     limits: of all that this agent does, in USD and in tokens; of a turn, in
                     seconds
    trust            True: use the AGENTS.md, rules, hooks, servers, agents and skills of the
                     folder; False: do not; None: as the user decided with `treadle trust`
    settings         more settings by their names, see `treadle config`
    store            where `agent.session` keeps its sessions

    Settings of the user, ~/.treadle/config.toml and TREADLE_*, apply where no argument is given.
    No session, rule or trust is written to the user's home, except for an Approval(always=True);
    ~/.local/state/treadle has a record for the case of a crash while a command or a write runs. A
    wrong argument raises ConfigError, an unknown model UnknownModel. Close the agent with `async
    with` or `aclose`. `host` is for the programs of this package.
    """
    arguments = dict(locals())  # there is no other local name yet
    return assemble(read_arguments(arguments))


def read_arguments(arguments: dict[str, Any]) -> AgentParts:
    """The parts that the arguments of `coding_agent` give; ConfigError if one of them is wrong."""
    for name in arguments.pop("unknown"):
        from treadle.agents.foreign_names import unknown_argument

        known = set(inspect.signature(coding_agent).parameters) - {"host", "unknown"}
        raise unknown_argument("coding_agent", name, known)
    folder, host = _check_folder(arguments["folder"]), arguments["host"]
    _check_type(arguments, "trust", (bool, type(None)), "a bool")
    trust = choose_trust(folder, arguments["trust"])
    if arguments["trust"]:
        with contextlib.suppress(ConfigError):  # a note reports the file that cannot be read
            approve_extensions(folder, trust.open_store)
    _check_lists(arguments)
    settings = arguments["settings"]
    if not isinstance(settings, Settings):
        settings = _load_settings(folder, arguments, trust)
    settings = apply_policy(settings)  # also to those that a program made
    given = _read_given_parts(arguments, settings)
    rules = load_rules(
        folder,
        (*arguments["allow"], *_list_own_tools(given.tools)),
        arguments["deny"],
        arguments["ask"],
        format_origin="--{}".format if host is not None else format_argument,
        open_store=trust.open_store,
    )
    return AgentParts(folder, settings, given, rules, trust, host)


def format_argument(name: str) -> str:
    return f"coding_agent({name}=...)"


def _check_folder(folder: object) -> Path:
    if not isinstance(folder, (str, os.PathLike)):
        raise ConfigError(f"coding_agent(folder={folder!r}): it must be a path")
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise ConfigError(f"coding_agent(folder={str(folder)!r}): there is no such folder")
    return place.resolve()


def _check_type(
    arguments: Mapping[str, Any], name: str, kinds: type | tuple[type, ...], expected: str
) -> None:
    if not isinstance(arguments[name], kinds):
        raise ConfigError(f"coding_agent({name}={arguments[name]!r}): it must be {expected}")


def _check_lists(arguments: Mapping[str, Any]) -> None:
    """The model, and the arguments that are lists: rules, tools, hooks, observers, folders."""
    model = arguments["model"]
    is_model = hasattr(model, "stream") and hasattr(model, "card") and not isinstance(model, type)
    if model is not None and not isinstance(model, str) and not is_model:
        example = "a name such as 'anthropic/claude-sonnet-5-5', or a Model"
        raise ConfigError(f"coding_agent(model={model!r}): it must be {example}")
    for name in ("allow", "deny", "ask", "tools", "hooks", "observers", "add_dir"):
        values, is_rules = arguments[name], name in ("allow", "deny", "ask")
        is_list = isinstance(values, Sequence) and not isinstance(values, str)
        if not is_list or (is_rules and not all(isinstance(one, str) for one in values)):
            expected = f'a list of rules: {name}=["Bash(npm test)"]' if is_rules else "a list"
            raise ConfigError(f"coding_agent({name}={values!r}): it must be {expected}")


def _load_settings(folder: Path, arguments: Mapping[str, Any], trust: FolderTrust) -> Settings:
    """The settings in force. An argument wins over `settings=`, which wins over files."""
    more = arguments["settings"] or {}
    if not isinstance(more, Mapping):
        raise ConfigError(f"coding_agent(settings={more!r}): it must be settings by their names")
    for name in more:
        if name not in SETTINGS_BY_NAME:
            raise ConfigError(f"coding_agent(settings=...): {format_unknown_setting(str(name))}")
    own = {name: arguments[name] for name in SETTINGS_BY_NAME if name in arguments}
    own["model"] = own["model"] if isinstance(own["model"], str) else None
    own["add_dir"] = [os.fspath(path) for path in own["add_dir"]] or None
    flags = {**more, **{name: value for name, value in own.items() if value is not None}}
    return load_settings(
        folder, flags, is_trusted=lambda: trust.is_trusted, format_flag=format_argument
    )


def _read_given_parts(arguments: Mapping[str, Any], settings: Settings) -> GivenParts:
    model, container = arguments["model"], arguments["container"]
    servers = _read_given_servers(arguments["mcp"])
    _check_type(arguments, "instructions", str, "a text")
    if container is not None:
        from treadle.workspace.container import ContainerOptions

        expected = "the name of an image, or ContainerOptions"
        _check_type(arguments, "container", (str, ContainerOptions), expected)
        if isinstance(container, str):
            container = ContainerOptions(image=container, network=settings.network is True)
    return GivenParts(
        model=None if isinstance(model, str) else model,
        approve=arguments["approve"],
        tools=tuple(arguments["tools"]),
        servers=servers,
        instructions=arguments["instructions"],
        hooks=tuple(arguments["hooks"]),
        observers=tuple(arguments["observers"]),
        retry=arguments["retry"] or _make_retry(settings),
        store=arguments["store"],
        name=arguments["name"],
        container=container,
    )


def _make_retry(settings: Settings) -> Retry | None:
    if settings.retry_attempts is None and settings.retry_max_wait is None:
        return None
    retry = Retry(attempts=settings.retry_attempts)
    if settings.retry_max_wait is not None:
        retry = msgspec.structs.replace(retry, max_wait=settings.retry_max_wait)
    return retry


def _list_own_tools(tools: Sequence[ToolLike[Any]]) -> list[str]:
    """The names of the program's own tools, which are rules that allow them. A name of a built-in
    tool would be a rule for that tool."""
    if not tools:
        return []
    from treadle.tools.builtin import ALL_TOOLS

    names: list[str] = []
    for tool in tools:
        if hasattr(tool, "tools") and hasattr(tool, "open"):  # a source, open or not yet
            offered = [one.spec.name for one in tool.tools()]
        else:
            spec = getattr(tool, "spec", None)
            offered = [spec.name if spec is not None else getattr(tool, "__name__", "")]
            names += [name for name in offered if name]
        if taken := [name for name in offered if name in ALL_TOOLS]:
            problem = f"{taken[0]!r} is the name of a built-in tool"
            raise ConfigError(f"coding_agent(tools=...): {problem}; use another")
    return names


def _read_given_servers(mcp: object) -> McpDefinitions:
    """The servers of the argument `mcp`; ConfigError if one of them is wrong."""
    if mcp is None:
        return {}
    from treadle.tools.mcp.server_config import load_servers, parse_server_config, parse_servers

    if isinstance(mcp, (str, os.PathLike)):
        file = Path(mcp).expanduser()
        if not file.is_file():
            raise ConfigError(f"coding_agent(mcp={str(mcp)!r}): there is no such file")
        servers = load_servers(file)
    elif isinstance(mcp, Mapping):
        plain = {name: dict(raw) if isinstance(raw, Mapping) else raw for name, raw in mcp.items()}
        servers = parse_servers({"mcpServers": plain}, "coding_agent(mcp=...)")
    else:
        raise ConfigError(
            f"coding_agent(mcp={mcp!r}): it must be servers by their names, or a file with them"
        )
    for name, definition in servers.items():
        parse_server_config(name, definition)
    if servers:
        require_extra("mcp", f"coding_agent(mcp=...) needs it for {', '.join(sorted(servers))}")
    return servers

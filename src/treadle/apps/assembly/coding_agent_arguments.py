"""The arguments of `coding_agent`: their checks, and the settings that they make.

A wrong argument is a ConfigError that names it, what was given and what is expected. Used by
coding_agent.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.agents.agent_settings import Approver, ToolLike
from treadle.apps.assembly.rules import FolderTrust
from treadle.apps.settings.settings import (
    SETTINGS_BY_NAME,
    Settings,
    find_missing_folders,
    format_unknown_setting,
    load_settings,
)
from treadle.core.contracts.hook import Hook
from treadle.core.contracts.model import Model
from treadle.core.contracts.observer import Observer
from treadle.core.errors import ConfigError
from treadle.core.extras import require_extra
from treadle.core.loop.retry import Retry

if TYPE_CHECKING:
    from treadle.sessions.open_store import StoreLocation
    from treadle.workspace.container import ContainerOptions

McpDefinitions = Mapping[str, Mapping[str, Any]]


class GivenParts(msgspec.Struct, frozen=True):
    """The arguments of `coding_agent` that are no settings."""

    model: Model | None
    approve: Approver | None
    tools: tuple[ToolLike, ...]
    servers: McpDefinitions
    instructions: str
    hooks: tuple[Hook, ...]
    observers: tuple[Observer, ...]
    retry: Retry | None
    store: StoreLocation | None
    name: str
    container: ContainerOptions | None = None


def format_argument(name: str) -> str:
    return f"coding_agent({name}=...)"


def reject_unknown_arguments(names: Iterable[str], function: Callable[..., object]) -> None:
    """TypeError for an argument that does not exist, with the one that may be meant."""
    for name in names:
        import inspect

        from treadle.agents.foreign_names import unknown_argument

        known = set(inspect.signature(function).parameters) - {"host", "unknown"}
        raise unknown_argument("coding_agent", name, known)


def check_folder(folder: object) -> Path:
    if not isinstance(folder, (str, os.PathLike)):
        raise ConfigError(f"coding_agent(folder={folder!r}): it must be a path")
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise ConfigError(f"coding_agent(folder={str(folder)!r}): there is no such folder")
    return place.resolve()


def check_type(name: str, value: Any, kinds: type | tuple[type, ...], expected: str) -> Any:
    if not isinstance(value, kinds):
        raise ConfigError(f"coding_agent({name}={value!r}): it must be {expected}")
    return value


def check_list(name: str, values: object) -> None:
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise ConfigError(f"coding_agent({name}={values!r}): it must be a list")


def check_model(model: object) -> None:
    is_model = hasattr(model, "stream") and hasattr(model, "card") and not isinstance(model, type)
    if model is not None and not isinstance(model, str) and not is_model:
        example = "a name such as 'anthropic/claude-sonnet-5-5', or a Model"
        raise ConfigError(f"coding_agent(model={model!r}): it must be {example}")


def check_rules(name: str, texts: object) -> None:
    is_list = isinstance(texts, Sequence) and not isinstance(texts, str)
    if not is_list or not all(isinstance(text, str) for text in texts):  # type: ignore[attr-defined]
        example = f'{name}=["Bash(npm test)"]'
        raise ConfigError(f"coding_agent({name}={texts!r}): it must be a list of rules: {example}")


def load_given_settings(
    folder: Path,
    arguments: Mapping[str, object | None],
    more: Mapping[str, object] | None,
    trust: FolderTrust,
) -> Settings:
    """The settings in force. An argument wins over `settings=`, which wins over files."""
    more = more or {}
    if not isinstance(more, Mapping):
        raise ConfigError(f"coding_agent(settings={more!r}): it must be settings by their names")
    for name in more:
        if name not in SETTINGS_BY_NAME:
            raise ConfigError(f"coding_agent(settings=...): {format_unknown_setting(str(name))}")
    flags = {**more, **{name: one for name, one in arguments.items() if one is not None}}
    return load_settings(
        folder, flags, is_trusted=lambda: trust.is_trusted, format_flag=format_argument
    )


def make_retry(settings: Settings) -> Retry | None:
    if settings.retry_attempts is None and settings.retry_max_wait is None:
        return None
    retry = Retry(attempts=settings.retry_attempts)
    if settings.retry_max_wait is not None:
        retry = msgspec.structs.replace(retry, max_wait=settings.retry_max_wait)
    return retry


def make_container_options(
    container: str | ContainerOptions | None, settings: Settings
) -> ContainerOptions | None:
    """The options of an image; ConfigError if it is none."""
    if container is None:
        return None
    from treadle.workspace.container import ContainerOptions

    if isinstance(container, ContainerOptions):
        return container
    image = check_type("container", container, str, "the name of an image, or ContainerOptions")
    return ContainerOptions(image=image, network=settings.network)


def list_own_tools(tools: Sequence[ToolLike]) -> list[str]:
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


def check_added_folders(settings: Settings, folder: Path) -> list[str]:
    """Notes on folders that do not exist; one that the caller names is an error."""
    origin = settings.origin("add_dir")
    missing = find_missing_folders(settings, folder)
    if missing and origin in ("--add-dir", format_argument("add_dir")):
        raise ConfigError(f"{origin}: there is no folder {missing[0]}")
    return [f"{origin}: there is no folder {one}" for one in missing]


def read_given_servers(mcp: object) -> McpDefinitions:
    """The servers of the argument `mcp`; ConfigError if one of them is wrong."""
    if mcp is None:
        return {}
    from treadle.tools.mcp.config import load_servers, parse_server_config, parse_servers

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

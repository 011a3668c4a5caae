"""What the user and a trusted folder plug in: hooks, MCP servers, skills.

    ~/.treadle/settings.json, .treadle/settings.json, .treadle/settings.local.json
        "hooks" and "mcpServers"                .mcp.json    "mcpServers"
    ~/.treadle/skills, .treadle/skills, .claude/skills

The user's own count always. A folder's hooks and servers count where it is trusted, each as it was
approved; its skills where it is trusted. A folder without any of these costs a look at a few names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.apps.assembly.rules import list_rules_files, trust_file
from treadle.apps.settings import symlink_boundary, treadle_home
from treadle.core.contracts.hook import Hook
from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_text

if TYPE_CHECKING:
    from treadle.apps.assembly.lazy import LazyWorkspace
    from treadle.policy.hooks import HookConfig, UnapprovedExtension
    from treadle.tools.skills import Skill

# What of a folder counts once it is trusted.
EXTENSION_FILES = (
    *("AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", ".mcp.json"),
    *(".treadle/config.toml", ".treadle/settings.json", ".treadle/commands", ".claude/commands"),
    *(".treadle/agents", ".claude/agents", ".treadle/skills", ".claude/skills"),
)
SKILL_FOLDERS = (".treadle/skills", ".claude/skills")
CHANGED_SINCE_APPROVAL = (
    "it is not what you approved any more: look at what changed in the folder, and "
    "`treadle trust --approve` lets it be started again"
)
CHANGE_UNKNOWN = (
    "it ran before, and it cannot be seen whether what it runs has changed since then: look at the "
    "folder, and begin a new session to start it again"
)
HOOKS_SANDBOXED = (
    "this folder is not trusted: your own hooks run in the sandbox here, where one can be built, "
    "and see of your home only ~/.treadle/hooks and your tools"
)


class Extensions(msgspec.Struct, frozen=True):
    """The programs that settings name: those that may run, and those that wait for the user.

    `waiting` holds hooks and servers of the folder that are new, changed, or not trusted; they
    are approved by `approve`. `notes` say what the person may have meant otherwise. `own` names
    the servers that are the user's.
    """

    hooks: tuple[HookConfig, ...] = ()
    servers: dict[str, Mapping[str, Any]] = {}
    unapproved: tuple[UnapprovedExtension, ...] = ()
    notes: tuple[str, ...] = ()
    user_servers: frozenset[str] = frozenset()


def list_extension_files(folder: Path) -> list[str]:
    """The names of what a folder has that counts with trust."""
    return [name for name in EXTENSION_FILES if (folder / name).exists()]


def discover_extensions(folder: Path) -> Extensions:
    """What settings and the folder bring, looked at as it is now."""
    own, theirs = (
        _read_hook_commands(folder, from_user=True),
        _read_hook_commands(folder, from_user=False),
    )
    servers, notes = _read_servers(folder, from_user=True), _check_mcp_file(folder)
    try:
        foreign = _read_servers(folder, from_user=False)
    except ConfigError as error:  # nobody has to mend a folder's file before it can be worked in
        foreign, notes = {}, (f"no server of this folder is started: {error}",)
    if not theirs and not foreign:
        return Extensions(tuple(own), servers, notes=notes, user_servers=frozenset(servers))
    from treadle.policy.hooks import filter_approved_hooks, filter_approved_servers
    from treadle.policy.trust import TrustStore

    trust = TrustStore(trust_file())
    hooks, waiting = filter_approved_hooks(trust, folder, theirs)
    allowed, more = filter_approved_servers(trust, folder, foreign)
    # Of two servers with one name the user's own counts.
    both = {**allowed, **servers}
    return Extensions((*own, *hooks), both, (*waiting, *more), notes, frozenset(servers))


def approve_extensions(folder: Path) -> list[str]:
    """The user was shown the hooks and servers of the folder and approves them; their names."""
    commands, servers = (
        _read_hook_commands(folder, from_user=False),
        _read_servers(folder, from_user=False),
    )
    if not commands and not servers:
        return []
    from treadle.policy.hooks import approve_hooks, approve_server
    from treadle.policy.trust import TrustStore

    trust = TrustStore(trust_file())
    approve_hooks(trust, folder, commands)
    for name, server in servers.items():
        approve_server(trust, folder, name, server)
    return [*(command.name for command in commands), *servers]


def make_approval_check(folder: Path) -> Callable[[HookConfig], bool]:
    """Asked before each run of a hook: a script that changed since then is not the approved one."""

    def ask(command: HookConfig) -> bool:
        if not command.is_project:
            return True
        from treadle.policy.hooks import filter_approved_hooks
        from treadle.policy.trust import TrustStore

        return bool(filter_approved_hooks(TrustStore(trust_file()), folder, [command])[0])

    return ask


def start_objections(folder: Path) -> Callable[[str, Mapping[str, Any], bool], str]:
    """Asked before each start of a server, with whether it ran before: why not, or "".

    Servers run outside of the sandbox, so one that a command may have rewritten is not started.
    """
    own = _read_servers(folder, from_user=True)

    def ask(name: str, definition: Mapping[str, Any], again: bool) -> str:
        if own.get(name) == definition:
            return ""
        from treadle.policy.hooks import add_file_hashes, filter_approved_servers
        from treadle.policy.trust import TrustStore

        if not filter_approved_servers(TrustStore(trust_file()), folder, {name: definition})[0]:
            return CHANGED_SINCE_APPROVAL
        return CHANGE_UNKNOWN if again and "unseen" in add_file_hashes(definition, folder) else ""

    return ask


def _read_hook_commands(folder: Path, *, from_user: bool) -> list[HookConfig]:
    found: list[HookConfig] = []
    for file in _find_files_with_key(folder, '"hooks"', from_user=from_user):
        from treadle.policy.hooks import read_hooks_file

        found += read_hooks_file(file, None if from_user else symlink_boundary(folder))
    return found


def _read_servers(folder: Path, *, from_user: bool) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    more = () if from_user else (folder / ".mcp.json",)
    for file in _find_files_with_key(folder, '"mcpServers"', *more, from_user=from_user):
        from treadle.tools.mcp.config import load_servers

        found = {**load_servers(file, None if from_user else symlink_boundary(folder)), **found}
    return found


def _check_mcp_file(folder: Path) -> tuple[str, ...]:
    """A file for servers that names none where we look: others use other keys."""
    file = folder / ".mcp.json"
    try:
        text = read_text(file, within=symlink_boundary(folder))
    except (ConfigError, FileNotFoundError):  # said by those who look for servers in it
        return ()
    if '"mcpServers"' in text or text.strip() in ("", "{}"):
        return ()
    return (f'{file} names no servers: they stand under "mcpServers"',)


def _find_files_with_key(folder: Path, key: str, *more: Path, from_user: bool) -> Iterator[Path]:
    """Files that may say something about it; most say nothing, and need no parser."""
    named = [
        file for scope, file in list_rules_files(folder) if (scope == "everywhere") is from_user
    ]
    within = None if from_user else symlink_boundary(folder)
    if not from_user and within is None:
        return  # at home the folder's files are the user's own
    for file in [*named, *more]:
        try:
            if key in read_text(file, within=within):
                yield file
        except FileNotFoundError:
            continue


# ------------------------------------------------------------------ hooks


def make_hooks(
    commands: Sequence[HookConfig],
    workspace: LazyWorkspace,
    folder: Path,
    *,
    transcript_path: Path,
    mode: Callable[[], str],
    notify: Callable[[str], None] | None,
    end_turn: Callable[[str], None],
    sandboxed: bool | None,
) -> list[Hook]:
    """The commands as hooks of an agent. `sandboxed` is about the user's own: what the folder
    brings runs in the sandbox wherever there is one."""
    if not commands:
        return []
    from treadle.apps.assembly.hook_environment import make_hook_environment
    from treadle.policy.hooks import make_command_hooks

    def surround(command: HookConfig) -> Mapping[str, str]:
        return {} if command.is_project else make_hook_environment(command.command, folder)

    return make_command_hooks(
        commands,
        workspace.execute,
        folder,
        transcript_path=str(transcript_path),
        get_mode=mode,
        notify=notify,
        end_turn=end_turn,
        is_approved=make_approval_check(folder),
        get_extra_env=surround,
        sandboxed=sandboxed,
    )


# ------------------------------------------------------------------ skills


def load_skills(folder: Path, *, trusted: bool) -> tuple[list[Skill], list[str]]:
    """The skills that count here, and notes on those that do not."""
    places = [treadle_home() / "skills", *(folder / place for place in SKILL_FOLDERS)]
    if not any(place.is_dir() for place in places):
        return [], []
    from treadle.tools.skills import find_skills

    return find_skills(folder, Path.home(), trusted=trusted)

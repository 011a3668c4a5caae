"""Hooks, MCP servers and skills of the user and of a trusted folder.

    ~/.treadle/settings.json, .treadle/settings.json, .treadle/settings.local.json
        "hooks" and "mcpServers"        .mcp.json, .cursor/mcp.json, .codex/config.toml    servers
    .treadle/config.toml    hosts in "network"
    ~/.claude/settings.json, .claude/settings.json, .claude/settings.local.json
        "hooks"; of a project also "env", "additionalDirectories" and "statusLine"
    ~/.treadle/skills, ~/.claude/skills, and `skills` in .treadle, .claude, .agents, .codex, .cursor
    ~/.treadle/plugins              what plugins bring (plugins.py)

Those of the user and of plugins are always used. Hooks, servers, environment and folders of a
project are used if its folder is trusted and they are unchanged since their approval; its skills if
it is trusted. Used by the stages of the assembly and by the hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.apps.settings.claude_settings import project_settings_files, read_claude_settings
from treadle.apps.settings.folder_rules import list_rules_files, open_trust_store
from treadle.apps.settings.foreign_servers import CODEX_FILE, CURSOR_FILE, read_foreign_servers
from treadle.apps.settings.load import (
    load_settings,
    project_config_file,
    read_config_file,
    symlink_boundary,
)
from treadle.apps.settings.managed_policy import apply_policy
from treadle.apps.settings.plugins import is_plugin_unchanged, read_plugins
from treadle.apps.settings.settings import Settings, treadle_home
from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_json, read_text
from treadle.tools.folder_names import (
    PROJECT_COMMAND_FOLDERS,
    PROJECT_SKILL_FOLDERS,
    SKILL_FOLDERS,
)

if TYPE_CHECKING:
    from treadle.agents.agent_definition import AgentDefinition
    from treadle.apps.settings.command_files import CustomCommand
    from treadle.hooks.approval import UnapprovedExtension
    from treadle.hooks.hook_config import HookConfig
    from treadle.permissions.trust import TrustStore
    from treadle.tools.skills import Skill

CURSOR_GEMINI_FILES = (".cursor/rules", ".cursorrules", "GEMINI.md")  # read with that setting only
# The files of a folder that are used once it is trusted.
EXTENSION_FILES = (
    *("AGENTS.md", "AGENTS.override.md", "CLAUDE.md", "CLAUDE.local.md", ".claude/CLAUDE.md"),
    *(".claude/rules", ".mcp.json", ".treadle/config.toml", ".treadle/settings.json"),
    *(".claude/settings.json", ".claude/settings.local.json"),
    *(".treadle/agents", ".claude/agents", ".treadle/output-styles", ".claude/output-styles"),
    *PROJECT_COMMAND_FOLDERS,
    *PROJECT_SKILL_FOLDERS,
    *(CURSOR_FILE, CODEX_FILE, *CURSOR_GEMINI_FILES),
)
# Files of other programs that mean nothing here.
PLUGIN_FILES = ".claude-plugin"
UNREAD_FILES = (
    *(PLUGIN_FILES, ".cursor/hooks.json", ".cursor/agents", ".codex/hooks.json"),
    *(".codex/agents", ".codex/rules", ".codex/prompts", ".agents/plugins"),
    *(".gemini/settings.json", ".gemini/commands", ".vscode/mcp.json", ".windsurfrules"),
    *(".github/copilot-instructions.md", ".github/instructions", ".github/prompts"),
    *(".windsurf/rules", ".windsurf/workflows", ".clinerules", "opencode.json", "opencode.jsonc"),
    *(".kiro/hooks", ".kiro/steering", ".kiro/settings/mcp.json", ".roo/rules", ".roo/mcp.json"),
    *(".junie/guidelines.md", ".continue/rules", ".amazonq/rules", ".goosehints"),
)
CHANGED_SINCE_APPROVAL = (
    "it changed since you approved it: review the changes in the folder, then run "
    "`treadle trust --approve` to allow it again"
)
PLUGIN_CHANGED = (
    "its plugin changed since you agreed to it, or is removed: `treadle plugin list` says which"
)
CHANGE_UNKNOWN = (
    "it ran before, and its program may have changed since: review the folder, then start a new "
    "session to run it again"
)


class Extensions(msgspec.Struct, frozen=True):
    """The programs that the settings name: those that may run, and those that need approval.

    `unapproved` are hooks and servers of the folder that are new, changed, or not trusted; see
    `approve_extensions`. `notes` report likely mistakes, `unsupported` what only other programs
    have. `user_servers` are those of the user, `plugin_servers` those of plugins.
    `env`, `added_folders` and `network` are approved ones of the folder's settings.
    """

    hooks: tuple[HookConfig, ...] = ()
    servers: dict[str, Mapping[str, Any]] = {}
    unapproved: tuple[UnapprovedExtension, ...] = ()
    notes: tuple[str, ...] = ()
    user_servers: frozenset[str] = frozenset()
    plugin_servers: frozenset[str] = frozenset()
    env: dict[str, str] = {}
    added_folders: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()


def list_extension_files(folder: Path) -> list[str]:
    """The files of the folder that are used once it is trusted."""
    found = [name for name in EXTENSION_FILES if (folder / name).exists()]
    if set(found).isdisjoint(CURSOR_GEMINI_FILES) or _reads_cursor_gemini_files(folder):
        return found
    return [name for name in found if name not in CURSOR_GEMINI_FILES]


def _reads_cursor_gemini_files(folder: Path) -> bool:
    try:
        return load_settings(folder).cursor_gemini_files
    except ConfigError:
        return False  # no session starts with such a file


def discover_extensions(
    folder: Path, open_store: Callable[[], TrustStore] = open_trust_store
) -> Extensions:
    """The extensions of the user and of the folder, as they are now."""
    problems, unsupported = list[str](), list[str]()
    user_hooks = _read_hook_commands(folder, problems, unsupported, from_user=True)
    project_hooks = _read_hook_commands(folder, problems, unsupported, from_user=False)
    project_settings = _read_project_settings(folder)
    project_commands = _read_project_commands(folder)
    user_servers = _read_servers(folder, from_user=True, problems=problems)
    plugins = read_plugins(("hooks", "servers"))
    user_hooks += plugins.hooks
    problems += plugins.problems
    unsupported += plugins.unsupported
    # Of one name the user's server is used, then that of a plugin.
    own_servers = {**plugins.servers, **user_servers}
    names = frozenset(user_servers)
    plugin_names = frozenset(plugins.servers) - names
    try:
        project_servers = _read_servers(folder, from_user=False, problems=problems)
        problems += _check_mcp_file(folder)
    except ConfigError as error:  # an invalid file of the folder must not stop the work there
        project_servers = {}
        problems.append(f"no MCP server of this folder is started: {error}")
    notes = tuple(problems)
    unsupported += _list_unread(folder)
    if not any((project_hooks, project_servers, project_settings, project_commands)):
        return Extensions(
            tuple(user_hooks),
            own_servers,
            notes=notes,
            user_servers=names,
            plugin_servers=plugin_names,
            unsupported=tuple(unsupported),
        )
    from treadle.hooks.approval import (
        filter_approved_definitions,
        filter_approved_hooks,
        filter_approved_servers,
    )

    trust = open_store()
    hooks, new_hooks = filter_approved_hooks(trust, folder, project_hooks)
    approved, new_servers = filter_approved_servers(trust, folder, project_servers)
    filter_others = partial(filter_approved_definitions, trust, folder)
    files, new_settings = filter_others("settings", project_settings)
    _, new_commands = filter_others("command", project_commands)
    used = [project_settings[name] for name in files]
    return Extensions(
        (*user_hooks, *hooks),
        {**approved, **own_servers},
        (*new_hooks, *new_servers, *new_settings, *new_commands),
        notes,
        names,
        plugin_names,
        {name: value for one in used for name, value in one.get("env", {}).items()},
        tuple(added for one in used for added in one.get("folders", ())),
        tuple(host for one in used for host in one.get("network", ())),
        tuple(unsupported),
    )


def add_project_settings(
    settings: Settings, extensions: Extensions, folder: Path, notes: list[str]
) -> Settings:
    """The settings with the approved environment and folders of the project; a folder that does
    not exist is left out, with a note."""
    found = [one for one in extensions.added_folders if Path(folder, one).expanduser().is_dir()]
    missing = [one for one in extensions.added_folders if one not in found]
    notes += [f"{folder / '.claude'}: there is no folder {one}" for one in missing]
    network = settings.network
    if extensions.network and network is not True:
        network = tuple(dict.fromkeys((*(network or ()), *extensions.network)))
    return apply_policy(
        msgspec.structs.replace(
            settings,
            env={**settings.env, **extensions.env},
            add_dir=(*settings.add_dir, *found),
            network=network,
        )
    )


def approve_extensions(
    folder: Path, open_store: Callable[[], TrustStore] = open_trust_store
) -> list[str]:
    """Approve the hooks and servers of the folder as they are now; returns their names.

    Only after the user has seen them, or for a program that trusts the folder.
    """
    commands = _read_hook_commands(folder, [], [], from_user=False)
    servers = _read_servers(folder, from_user=False)
    settings, slash_commands = _read_project_settings(folder), _read_project_commands(folder)
    if not any((commands, servers, settings, slash_commands)):
        return []
    from treadle.hooks.approval import approve_definitions, approve_hooks, approve_server

    trust = open_store()
    approve_hooks(trust, folder, commands)
    for name, server in servers.items():
        approve_server(trust, folder, name, server)
    approve_definitions(trust, folder, "settings", settings)
    approve_definitions(trust, folder, "command", slash_commands)
    return [*(command.name for command in commands), *servers, *settings, *slash_commands]


def find_project_status_line(
    folder: Path, open_store: Callable[[], TrustStore] = open_trust_store
) -> str:
    """The command of the project's status line, if it is approved as it is now; else ""."""
    definitions = {
        name: one for name, one in _read_project_settings(folder).items() if "run" in one
    }
    if not definitions:
        return ""
    from treadle.hooks.approval import filter_approved_definitions

    names = filter_approved_definitions(open_store(), folder, "settings", definitions)[0]
    return str(definitions[names[-1]]["run"][0]) if names else ""


def is_command_approved(folder: Path, command: CustomCommand) -> bool:
    """Whether what a custom command runs and allows takes effect."""
    if command.is_user or command.is_plugin or not command.definition:
        return True
    from treadle.hooks.approval import filter_approved_definitions

    definitions = {f"/{command.name}": command.definition}
    return bool(filter_approved_definitions(open_trust_store(), folder, "command", definitions)[0])


def make_approval_check(
    folder: Path, open_store: Callable[[], TrustStore] = open_trust_store
) -> Callable[[HookConfig], bool]:
    """A check before each run of a hook: a script that changed since its approval may not run."""

    def is_approved(command: HookConfig) -> bool:
        if not command.is_project:
            return True
        if command.plugin_root:
            return is_plugin_unchanged(command.plugin_root)
        from treadle.hooks.approval import filter_approved_hooks

        return bool(filter_approved_hooks(open_store(), folder, [command])[0])

    return is_approved


def start_objections(
    folder: Path,
    open_store: Callable[[], TrustStore] = open_trust_store,
    given: Mapping[str, Mapping[str, Any]] | None = None,
) -> Callable[[str, Mapping[str, Any], bool], str]:
    """A check before each start of a server: why it may not start, or "".

    Servers run outside the sandbox, so one that a command may have changed is not started. `given`
    are servers of the program itself.
    """
    user_servers = {**_read_servers(folder, from_user=True), **(given or {})}
    of_plugins = read_plugins(("servers",)).servers

    def find_objection(name: str, definition: Mapping[str, Any], again: bool) -> str:
        if user_servers.get(name) == definition:
            return ""
        if of_plugins.get(name) == definition:
            now = read_plugins(("servers",)).servers
            return "" if now.get(name) == definition else PLUGIN_CHANGED
        from treadle.hooks.approval import add_file_hashes, filter_approved_servers

        if not filter_approved_servers(open_store(), folder, {name: definition})[0]:
            return CHANGED_SINCE_APPROVAL
        return CHANGE_UNKNOWN if again and "unseen" in add_file_hashes(definition, folder) else ""

    return find_objection


def _read_hook_commands(
    folder: Path, problems: list[str], unsupported: list[str], *, from_user: bool
) -> list[HookConfig]:
    commands: list[HookConfig] = []
    for file in _find_files_with_key(folder, '"hooks"', from_user=from_user):
        from treadle.hooks.hook_config import FOREIGN_FOLDER, read_hooks_file

        within = None if from_user else symlink_boundary(folder)
        is_foreign = file.parent.name == FOREIGN_FOLDER
        lists = (problems, unsupported) if is_foreign else ()
        commands += read_hooks_file(file, within, *lists)
    return commands


def _read_project_settings(folder: Path) -> dict[str, dict[str, Any]]:
    """The environment, the folders and the hosts that settings of the project add, by file."""
    found: dict[str, dict[str, Any]] = {}
    if symlink_boundary(folder) is None:
        return found
    config = project_config_file(folder)
    try:
        network = read_config_file(config, folder).get("network", (False, ""))[0]
    except ConfigError:
        network = False  # load.py reports it, if the folder is trusted
    if isinstance(network, tuple):
        found[f"{config.parent.name}/{config.name}"] = {"network": list(network)}
    for file in project_settings_files(folder):
        claude = read_claude_settings(file, folder)
        if claude is not None and (claude.env or claude.added_folders or claude.status_line):
            added: dict[str, Any] = {"env": claude.env, "folders": list(claude.added_folders)}
            if claude.status_line:
                added["run"] = [claude.status_line]
            found[f"{file.parent.name}/{file.name}"] = added
    return found


def _read_project_commands(folder: Path) -> dict[str, dict[str, Any]]:
    """What the custom commands of the project run and allow, by name."""
    places = (*PROJECT_COMMAND_FOLDERS, *PROJECT_SKILL_FOLDERS)
    if symlink_boundary(folder) is None or not _has_any(folder, places):
        return {}
    from treadle.apps.settings.command_files import find_custom_commands

    commands, _ = find_custom_commands([folder])
    return {f"/{one.name}": one.definition for one in commands if one.definition}


def _read_servers(
    folder: Path, *, from_user: bool, problems: list[str] | None = None
) -> dict[str, Mapping[str, Any]]:
    """The definitions; of those that are wrong, `problems` gets a line each."""
    problems = [] if problems is None else problems
    servers: dict[str, Mapping[str, Any]] = {}
    more = () if from_user else (folder / ".mcp.json",)
    for file in _find_files_with_key(folder, '"mcpServers"', *more, from_user=from_user):
        from treadle.tools.mcp.server_config import load_servers

        within = None if from_user else symlink_boundary(folder)
        servers = {**load_servers(file, within, problems), **servers}
    within = symlink_boundary(folder)
    if from_user or within is None or not _has_any(folder, (CURSOR_FILE, CODEX_FILE)):
        return servers
    return {**read_foreign_servers(folder, within, problems), **servers}


def _list_unread(folder: Path) -> list[str]:
    """A line about the folder's files for other programs that are not read here."""
    unread = [name for name in UNREAD_FILES if _has_any(folder, (name,))]
    hint = " (`treadle plugin add .` adds the plugin)" if PLUGIN_FILES in unread else ""
    return [f"{folder}: not read here: {', '.join(unread)}{hint}"] if unread else []


def _has_any(folder: Path, names: Iterable[str]) -> bool:
    return any((folder / name).exists() for name in names)


def _check_mcp_file(folder: Path) -> list[str]:
    """A note on a server file that defines none: it is empty, or other programs use other keys.
    ConfigError if it cannot be read."""
    file = folder / ".mcp.json"
    try:
        settings, text = read_json(file, within=symlink_boundary(folder))
    except FileNotFoundError:
        return []
    if not text.strip():
        return [f"{file} is empty: it defines no servers"]
    if settings == {} or (isinstance(settings, dict) and "mcpServers" in settings):
        return []
    return [f'{file} defines no servers: put them under the key "mcpServers"']


def _find_files_with_key(folder: Path, key: str, *more: Path, from_user: bool) -> Iterator[Path]:
    """The settings files that contain the key; most do not, and need no parser."""
    settings_files = [file.path for file in list_rules_files(folder) if file.is_user is from_user]
    within = None if from_user else symlink_boundary(folder)
    if not from_user and within is None:
        return  # in the home folder these are the user's files
    for file in [*settings_files, *more]:
        try:
            if key in read_text(file, within=within):
                yield file
        except FileNotFoundError:
            continue


# ------------------------------------------------------------------ skills, commands, agents


def list_user_skill_folders() -> list[Path]:
    """The folders with the user's own skills."""
    return [treadle_home() / "skills", *(Path.home() / name for name in SKILL_FOLDERS[1:])]


def load_skills(folder: Path, *, trusted: bool) -> tuple[list[Skill], list[str]]:
    """The skills in use, and notes on those that are not."""
    folders = [*list_user_skill_folders(), *(folder / name for name in PROJECT_SKILL_FOLDERS)]
    of_plugins = read_plugins(("skills",)).skills
    if not any(path.is_dir() for path in folders):
        return of_plugins, []
    from treadle.tools.skills import find_skills

    found, notes = find_skills(folder, Path.home(), trusted=trusted)
    return [*found, *of_plugins], notes


def load_commands(folder: Path, *, trusted: bool) -> tuple[list[CustomCommand], list[str]]:
    """The custom commands in use, and a line for each file that was skipped."""
    from treadle.apps.settings.command_files import find_custom_commands

    home, folders = Path.home(), [folder] if trusted else []
    found, notes = find_custom_commands([*folders, home], home=home)
    return [*found, *read_plugins(("commands",)).commands], notes


def load_agents(folder: Path, *, trusted: bool) -> tuple[list[AgentDefinition], list[str]]:
    """The agent definitions in use, and a line for each file that was skipped."""
    from treadle.agents.agent_files import read_agent_files

    home, folders = Path.home(), [folder] if trusted else []
    found, notes = read_agent_files([*folders, home], home=home)
    return [*found, *read_plugins(("agents",)).agents], notes

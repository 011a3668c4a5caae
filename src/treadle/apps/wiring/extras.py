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

from treadle.apps.settings import bounds, home
from treadle.apps.wiring.rules import rules_files, trust_file
from treadle.core.contracts.hook import Hook
from treadle.core.errors import ConfigError
from treadle.core.textfile import read_text

if TYPE_CHECKING:
    from treadle.apps.wiring.late import LateWorkspace
    from treadle.policy.hooks import HookCommand, Waiting
    from treadle.tools.skills import Skill

# What of a folder counts once it is trusted.
BRINGS = (
    *("AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", ".mcp.json"),
    *(".treadle/config.toml", ".treadle/settings.json", ".treadle/commands", ".claude/commands"),
    *(".treadle/agents", ".claude/agents", ".treadle/skills", ".claude/skills"),
)
SKILL_PLACES = (".treadle/skills", ".claude/skills")
CHANGED = (
    "it is not what you approved any more: look at what changed in the folder, and "
    "`treadle trust --approve` lets it be started again"
)
UNSEEN = (
    "it ran before, and it cannot be seen whether what it runs has changed since then: look at the "
    "folder, and begin a new session to start it again"
)
WALLED_IN = (
    "this folder is not trusted: your own hooks run in the sandbox here, where one can be built, "
    "and see of your home only ~/.treadle/hooks and your tools"
)


class Brought(msgspec.Struct, frozen=True):
    """The programs that settings name: those that may run, and those that wait for the user.

    `waiting` holds hooks and servers of the folder that are new, changed, or not trusted; they
    are approved by `approve`. `notes` say what the person may have meant otherwise. `own` names
    the servers that are the user's.
    """

    hooks: tuple[HookCommand, ...] = ()
    servers: dict[str, Mapping[str, Any]] = {}
    waiting: tuple[Waiting, ...] = ()
    notes: tuple[str, ...] = ()
    own: frozenset[str] = frozenset()


def brings(folder: Path) -> list[str]:
    """The names of what a folder has that counts with trust."""
    return [name for name in BRINGS if (folder / name).exists()]


def brought(folder: Path) -> Brought:
    """What settings and the folder bring, looked at as it is now."""
    own, theirs = _commands(folder, own=True), _commands(folder, own=False)
    servers, notes = _servers(folder, own=True), _nameless(folder)
    try:
        foreign = _servers(folder, own=False)
    except ConfigError as error:  # nobody has to mend a folder's file before it can be worked in
        foreign, notes = {}, (f"no server of this folder is started: {error}",)
    if not theirs and not foreign:
        return Brought(tuple(own), servers, notes=notes, own=frozenset(servers))
    from treadle.policy.hooks import approved_hooks, approved_servers
    from treadle.policy.trust import TrustStore

    trust = TrustStore(trust_file())
    hooks, waiting = approved_hooks(trust, folder, theirs)
    allowed, more = approved_servers(trust, folder, foreign)
    # Of two servers with one name the user's own counts.
    both = {**allowed, **servers}
    return Brought((*own, *hooks), both, (*waiting, *more), notes, frozenset(servers))


def approve(folder: Path) -> list[str]:
    """The user was shown the hooks and servers of the folder and approves them; their names."""
    commands, servers = _commands(folder, own=False), _servers(folder, own=False)
    if not commands and not servers:
        return []
    from treadle.policy.hooks import approve_hooks, approve_server
    from treadle.policy.trust import TrustStore

    trust = TrustStore(trust_file())
    approve_hooks(trust, folder, commands)
    for name, server in servers.items():
        approve_server(trust, folder, name, server)
    return [*(command.name for command in commands), *servers]


def still_approved(folder: Path) -> Callable[[HookCommand], bool]:
    """Asked before each run of a hook: a script that changed since then is not the approved one."""

    def ask(command: HookCommand) -> bool:
        if not command.of_folder:
            return True
        from treadle.policy.hooks import approved_hooks
        from treadle.policy.trust import TrustStore

        return bool(approved_hooks(TrustStore(trust_file()), folder, [command])[0])

    return ask


def objections(folder: Path) -> Callable[[str, Mapping[str, Any], bool], str]:
    """Asked before each start of a server, with whether it ran before: why not, or "".

    Servers run outside of the sandbox, so one that a command may have rewritten is not started.
    """
    own = _servers(folder, own=True)

    def ask(name: str, definition: Mapping[str, Any], again: bool) -> str:
        if own.get(name) == definition:
            return ""
        from treadle.policy.hooks import approved_servers, bound
        from treadle.policy.trust import TrustStore

        if not approved_servers(TrustStore(trust_file()), folder, {name: definition})[0]:
            return CHANGED
        return UNSEEN if again and "unseen" in bound(definition, folder) else ""

    return ask


def _commands(folder: Path, *, own: bool) -> list[HookCommand]:
    found: list[HookCommand] = []
    for file in _files(folder, '"hooks"', own=own):
        from treadle.policy.hooks import hooks_of_file

        found += hooks_of_file(file, None if own else bounds(folder))
    return found


def _servers(folder: Path, *, own: bool) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    more = () if own else (folder / ".mcp.json",)
    for file in _files(folder, '"mcpServers"', *more, own=own):
        from treadle.tools.mcp.config import servers_of_file

        found = {**servers_of_file(file, None if own else bounds(folder)), **found}
    return found


def _nameless(folder: Path) -> tuple[str, ...]:
    """A file for servers that names none where we look: others use other keys."""
    file = folder / ".mcp.json"
    try:
        text = read_text(file, within=bounds(folder))
    except (ConfigError, FileNotFoundError):  # said by those who look for servers in it
        return ()
    if '"mcpServers"' in text or text.strip() in ("", "{}"):
        return ()
    return (f'{file} names no servers: they stand under "mcpServers"',)


def _files(folder: Path, word: str, *more: Path, own: bool) -> Iterator[Path]:
    """Files that may say something about it; most say nothing, and need no parser."""
    named = [file for scope, file in rules_files(folder) if (scope == "everywhere") is own]
    within = None if own else bounds(folder)
    if not own and within is None:
        return  # at home the folder's files are the user's own
    for file in [*named, *more]:
        try:
            if word in read_text(file, within=within):
                yield file
        except FileNotFoundError:
            continue


# ------------------------------------------------------------------ hooks


def hooks_of(
    commands: Sequence[HookCommand],
    workspace: LateWorkspace,
    folder: Path,
    *,
    transcript: Path,
    mode: Callable[[], str],
    tell: Callable[[str], None] | None,
    halt: Callable[[str], None],
    confined: bool | None,
) -> list[Hook]:
    """The commands as hooks of an agent. `confined` is about the user's own: what the folder
    brings runs in the sandbox wherever there is one."""
    if not commands:
        return []
    from treadle.apps.wiring.surroundings import own_surroundings
    from treadle.policy.hooks import shell_hooks

    def surround(command: HookCommand) -> Mapping[str, str]:
        return {} if command.of_folder else own_surroundings(command.command, folder)

    return shell_hooks(
        commands,
        workspace.execute,
        folder,
        transcript_path=str(transcript),
        mode=mode,
        tell=tell,
        halt=halt,
        approved=still_approved(folder),
        surround=surround,
        confined=confined,
    )


# ------------------------------------------------------------------ skills


def skills_of(folder: Path, *, trusted: bool) -> tuple[list[Skill], list[str]]:
    """The skills that count here, and notes on those that do not."""
    places = [home() / "skills", *(folder / place for place in SKILL_PLACES)]
    if not any(place.is_dir() for place in places):
        return [], []
    from treadle.tools.skills import find_skills

    return find_skills(folder, Path.home(), trusted=trusted)

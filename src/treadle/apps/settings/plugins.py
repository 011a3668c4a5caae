"""Plugins of Claude Code: copies in ~/.treadle/plugins, used as long as the user's consent is for
exactly their content.

    .claude-plugin/plugin.json    its name, and paths of parts in other places
    hooks/hooks.json  .mcp.json   programs: hooks run as those of a project, in the sandbox
    commands/*.md                 /NAME:command
    agents/*.md, skills/*/SKILL.md        NAME:agent, NAME:skill

~/.treadle/plugins.json has the source of each, and the hash of the content that the user was shown.
A copy with another content is not used. Reads only; extensions.py adds the parts to those of the
user, apps/cli/commands/plugin.py makes the copies.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from treadle.apps.settings.settings import treadle_home
from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_prefix, read_settings_file

if TYPE_CHECKING:
    from treadle.agents.agent_definition import AgentDefinition
    from treadle.apps.settings.command_files import CustomCommand
    from treadle.hooks.hook_config import HookConfig
    from treadle.tools.skills import Skill

MANIFEST = ".claude-plugin/plugin.json"
ROOT_VARIABLE = "${CLAUDE_PLUGIN_ROOT}"
# A hash is kept for later processes if no file changed so recently: a change within one tick of the
# clock, or through a mapping that is not written back yet, would leave the ctime as it is.
SETTLED_SECONDS = 120.0
MAX_FILES = 5_000
MAX_BYTES = 32 << 20
KEY = "plugins"
# Parts that have no counterpart here: keys of the manifest, and files.
UNREAD_PARTS = (
    *("lspServers", "outputStyles", "monitors", "themes", "workflows", "userConfig"),
    *(".lsp.json", "output-styles", "bin", "settings.json"),
)


class Plugin(msgspec.Struct, frozen=True):
    """One plugin. `source`, and `entry` of a marketplace, are what it was added with; `hash` is
    that of the content that the user agreed to."""

    name: str
    source: str = ""
    entry: str = ""
    commit: str = ""
    hash: str = ""

    @property
    def root(self) -> Path:
        """Where its copy is."""
        return get_plugins_folder() / self.name

    @property
    def is_unchanged(self) -> bool:
        try:
            return self.hash == _hash_once(self.root, _stat_files(self.root))
        except (ConfigError, OSError):
            return False


class PluginParts(msgspec.Struct):
    """What plugins bring. `problems` are about parts that are wrong, `unsupported` about those that
    only Claude Code has."""

    hooks: list[HookConfig] = []
    servers: dict[str, dict[str, Any]] = {}
    commands: list[CustomCommand] = []
    agents: list[AgentDefinition] = []
    skills: list[Skill] = []
    problems: list[str] = []
    unsupported: list[str] = []


def get_plugins_folder() -> Path:
    return treadle_home() / "plugins"


def get_record_file() -> Path:
    return treadle_home() / "plugins.json"


def get_hashes_file() -> Path:
    """By name of a plugin: a hash of the stats of its files, and the hash of their content. Who can
    write it can write the record, too."""
    return treadle_home() / "plugin_hashes.json"


def list_plugins() -> list[Plugin]:
    """All that are installed; ConfigError if the record is damaged."""
    file = get_record_file()
    if not file.exists():
        return []
    record = read_settings_file(file)[0].get(KEY, {})
    try:
        plugins = msgspec.convert(record, dict[str, dict[str, str]])
        return [Plugin(name, **fields) for name, fields in sorted(plugins.items())]
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigError(f"{file}: {error}; remove the file, and add the plugins again") from error


def read_plugins(kinds: Collection[str]) -> PluginParts:
    """The parts of these kinds of all plugins whose copies are unchanged."""
    parts = PluginParts()
    try:
        plugins = list_plugins()
    except ConfigError as error:
        parts.problems.append(f"no plugin is used: {error}")
        return parts
    for plugin in plugins:
        if plugin.is_unchanged:
            read_parts(plugin, parts, kinds)
        else:
            parts.problems.append(describe_change(plugin))
    return parts


def describe_change(plugin: Plugin) -> str:
    return (
        f"the plugin {plugin.name} is not used: {plugin.root} changed since you agreed to it; "
        f"`treadle plugin update {plugin.name}` gets it from its source again"
    )


def is_plugin_unchanged(root: str) -> bool:
    """Whether the plugin with this folder is as the user agreed to it."""
    try:
        return any(one.is_unchanged for one in list_plugins() if str(one.root) == root)
    except ConfigError:
        return False


# ------------------------------------------------------------------ content


def iterate_files(folder: Path, skip: str = "") -> Iterator[tuple[str, str, bytes]]:
    """The path, kind (file, program, symlink) and content of each file; ConfigError if there are
    too many, one is no file, or a symlink leaves the folder."""
    count, left = 0, MAX_BYTES
    for parent, folders, names in os.walk(folder):
        links = [name for name in folders if Path(parent, name).is_symlink()]
        folders[:] = sorted(name for name in folders if name != skip)
        for name in sorted((*names, *links)):
            if name == skip:
                continue
            path = Path(parent, name)
            is_symlink = path.is_symlink()
            content = _read_symlink(path, folder) if is_symlink else _read_file(path, left, folder)
            count, left = count + 1, left - len(content)
            if count > MAX_FILES or left < 0:
                limit = f"{MAX_FILES:,} files, or {MAX_BYTES >> 20} MiB"
                raise ConfigError(f"{folder}: more than {limit}: too large for a plugin")
            is_program = not is_symlink and path.stat().st_mode & 0o100
            kind = "symlink" if is_symlink else "program" if is_program else "file"
            yield os.path.relpath(path, folder), kind, content


def _read_file(path: Path, left: int, folder: Path) -> bytes:
    return read_prefix(path, left + 1, within=folder)


def _read_symlink(path: Path, folder: Path) -> bytes:
    target = path.readlink()
    if target.is_absolute() or not _is_inside(path, folder):
        raise ConfigError(f"{path}: a symlink that leaves the plugin; remove it")
    return os.fsencode(target)


def _is_inside(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def hash_content(folder: Path) -> str:
    import hashlib

    digest = hashlib.sha256()
    for name, kind, content in iterate_files(folder):
        for part in (os.fsencode(name), kind.encode(), content):
            digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()


class _FileStats(NamedTuple):
    """What changes with a file: no program can set its ctime."""

    path: str
    device: int
    inode: int
    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int


def _stat_files(folder: Path) -> tuple[_FileStats, ...]:
    return tuple(
        _FileStats(
            path, one.st_dev, one.st_ino, one.st_mode, one.st_size, one.st_mtime_ns, one.st_ctime_ns
        )
        for parent, *both in os.walk(folder)
        for path in (os.path.join(parent, name) for name in chain(*both))  # noqa: PTH118 (fast)
        for one in (os.lstat(path),)
    )


@lru_cache(maxsize=64)
def _hash_once(folder: Path, stats: tuple[_FileStats, ...]) -> str:
    """The hash of the content; that of unchanged files is known from an earlier process."""
    file, name = get_hashes_file(), folder.name
    state = _hash_stats(stats)
    known = _read_hashes(file).get(name)
    if known is not None and known[0] == state:
        return known[1]
    content = hash_content(folder)
    newest = max((one.ctime_ns for one in stats), default=0) / 1e9
    if newest < time.time() - SETTLED_SECONDS and _stat_files(folder) == stats:
        with suppress(OSError, ConfigError):
            _write_hash(file, name, (state, content))
    return content


def _hash_stats(stats: tuple[_FileStats, ...]) -> str:
    import hashlib

    return hashlib.sha256(msgspec.json.encode([list(map(repr, one)) for one in stats])).hexdigest()


def _read_hashes(file: Path) -> dict[str, tuple[str, str]]:
    try:
        return msgspec.json.decode(
            read_prefix(file, MAX_BYTES, within=None), type=dict[str, tuple[str, str]]
        )
    except (OSError, ConfigError, msgspec.MsgspecError):
        return {}


def _write_hash(file: Path, name: str, known: tuple[str, str]) -> None:
    from treadle.lib.files.private_files import locked_update

    locked_update(file, lambda: msgspec.json.encode({**_read_hashes(file), name: known}))


# ------------------------------------------------------------------ parts


def read_parts(
    plugin: Plugin, parts: PluginParts, kinds: Collection[str] = (), folder: Path | None = None
) -> None:
    """Add the parts of these kinds, or of all; one that is wrong is left out, with a line in
    `problems`. `folder` is read in place of the copy."""
    folder = folder or plugin.root
    try:
        manifest = read_settings_file(folder / MANIFEST, folder)[0]
    except ConfigError as error:
        parts.problems.append(f"the plugin {plugin.name} is not used: {error}")
        return
    reader = _PluginReader(plugin, folder, manifest, parts)
    readers = {
        "hooks": reader.read_hooks,
        "servers": reader.read_servers,
        "commands": reader.read_commands,
        "agents": reader.read_agents,
        "skills": reader.read_skills,
    }
    for kind in kinds or readers:
        with reader.skipping_wrong():
            readers[kind]()
    unread = [one for one in UNREAD_PARTS if one in manifest or (folder / one).exists()]
    if unread and (not kinds or "hooks" in kinds):
        parts.unsupported.append(f"plugin {plugin.name}: not read here: {', '.join(unread)}")


class _PluginReader:
    """Reads one plugin; a file outside of it is never read."""

    def __init__(
        self, plugin: Plugin, folder: Path, manifest: dict[str, Any], parts: PluginParts
    ) -> None:
        self._plugin, self._folder, self._parts = plugin, folder, parts
        self._manifest = manifest

    @contextmanager
    def skipping_wrong(self) -> Iterator[None]:
        try:
            yield
        except (ConfigError, FileNotFoundError) as error:
            self._parts.problems.append(f"plugin {self._plugin.name}: {error}; it is not used")

    def read_hooks(self) -> None:
        for settings, origin in self._read_objects("hooks", "hooks/hooks.json"):
            from treadle.hooks.hook_config import parse_hooks

            lists = self._parts.problems, self._parts.unsupported
            self._parts.hooks += [
                replace(hook, is_project=True, plugin_root=str(self._plugin.root))
                for hook in parse_hooks(settings, origin, "", *lists)
            ]

    def read_servers(self) -> None:
        for settings, origin in self._read_objects("mcpServers", ".mcp.json"):
            from treadle.tools.mcp.server_config import parse_servers

            for name, raw in parse_servers(settings, origin, self._parts.problems).items():
                if name in self._parts.servers:
                    problem = f"{origin}: another plugin has a server {name!r}"
                    self._parts.problems.append(f"{problem}; it is not started")
                    continue
                root = msgspec.json.encode(str(self._plugin.root))[1:-1]
                filled = msgspec.json.encode(raw).replace(ROOT_VARIABLE.encode(), root)
                server = msgspec.json.decode(filled)
                if "command" in server:  # the files that Python caches would change the copy
                    server["env"] = {"PYTHONDONTWRITEBYTECODE": "1", **server.get("env", {})}
                self._parts.servers[name] = server

    def read_commands(self) -> None:
        from treadle.apps.settings.command_files import read_command

        files = [
            (file, ":".join(file.relative_to(place).with_suffix("").parts) or file.stem)
            for place, file in self._list_files("commands")
        ]
        files += [(folder / "SKILL.md", folder.name) for folder in self._list_skill_folders()]
        for file, name in files:
            with self.skipping_wrong():
                name = self._prefix(name)
                command = read_command(file, name, self._folder, is_plugin=True)
                changes = {
                    "body": self._fill_root(command.body),
                    "allowed_tools": tuple(map(self._fill_root, command.allowed_tools)),
                }
                self._parts.commands.append(replace(command, **changes))

    def read_agents(self) -> None:
        from treadle.agents.agent_files import read_agent_file

        for _, file in self._list_files("agents"):
            with self.skipping_wrong():
                agent = read_agent_file(file, self._folder)
                name, prompt = self._prefix(agent.name), self._fill_root(agent.prompt)
                self._parts.agents.append(replace(agent, name=name, prompt=prompt))

    def read_skills(self) -> None:
        from treadle.tools.skills import read_skill

        for folder in self._list_skill_folders():
            with self.skipping_wrong():
                skill = read_skill(folder, self._folder, folder.name)[0]
                name, root = self._prefix(skill.name), str(self._plugin.root)
                self._parts.skills.append(replace(skill, name=name, plugin_root=root))

    def _prefix(self, name: str) -> str:
        return f"{self._plugin.name}:{name}"

    def _fill_root(self, text: str) -> str:
        return text.replace(ROOT_VARIABLE, str(self._plugin.root))

    def _list_named(self, key: str, usual: str) -> list[object]:
        """The usual place of a kind of parts, and what the manifest names: paths or objects. An
        entry of a marketplace that is not strict names all."""
        named = self._manifest.get(key) or []
        all_named = named if isinstance(named, list) else [named]
        is_complete = named and self._manifest.get("strict") is False
        return all_named if is_complete else [usual, *all_named]

    def _list_places(self, key: str) -> Iterator[Path]:
        for name in self._list_named(key, key):
            place = self._folder / str(name)
            if not _is_inside(place, self._folder):
                raise ConfigError(f"{self._folder / MANIFEST}: {key}: {name!r} leaves the plugin")
            yield Path(os.path.normpath(place))

    def _list_files(self, key: str) -> Iterator[tuple[Path, Path]]:
        for place in dict.fromkeys(self._list_places(key)):
            files = [place] if place.is_file() else sorted(place.glob("**/*.md"))
            yield from ((place, file) for file in files)

    def _list_skill_folders(self) -> list[Path]:
        found = dict[Path, None]()
        for place in self._list_places("skills"):
            files = (place / "SKILL.md", *sorted(place.glob("*/SKILL.md")))
            found.update((file.parent, None) for file in files if file.exists())
        return list(found)

    def _read_objects(self, key: str, usual: str) -> Iterator[tuple[dict[str, Any], str]]:
        """The objects under a key of the manifest and of the files for it, with or without the key
        around them, and where each is from."""
        origins = dict[str, None]()
        for named in self._list_named(key, usual):
            origin = os.path.normpath(
                self._folder / (named if isinstance(named, str) else MANIFEST)
            )
            content: object = named
            if isinstance(named, str) and origin in origins:
                continue
            if isinstance(named, str):
                origins[origin] = None
                content = read_settings_file(Path(origin), self._folder)[0]
            if isinstance(content, dict) and content:
                yield content if key in content else {key: content}, origin

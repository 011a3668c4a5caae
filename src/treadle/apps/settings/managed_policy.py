"""The managed policy: what the owner of the machine forbids, for every user, folder and program.

    /etc/treadle/policy.toml                     ours
    /etc/claude-code/managed-settings.json       that of Claude Code, and managed-settings.d/*.json

It only narrows: rules that deny or ask, a widest mode, limits, models and servers that may be used.
Nothing overrides it. Only root may have written it; one that is not so, or that is wrong, is a
ConfigError: Treadle does not start. Used by load.py, folder_rules.py and the assembly.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from treadle.apps.settings.claude_settings import translate_model
from treadle.apps.settings.settings import (
    SETTINGS_BY_NAME,
    Settings,
    check_value,
    find_key_line,
    format_value,
    is_narrower,
    parse_toml,
    suggest_name,
)
from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import find_line, read_settings_file, read_text
from treadle.lib.text.word_set import word_set

if TYPE_CHECKING:
    from treadle.core.contracts.workspace import NetworkAccess
    from treadle.permissions.modes import PermissionMode
    from treadle.permissions.ruleset.rules_file import FoundRules

POLICY_FILE = Path("/etc/treadle/policy.toml")
_CLAUDE_FOLDER = Path(
    "/Library/Application Support/ClaudeCode" if sys.platform == "darwin" else "/etc/claude-code"
)
CLAUDE_FILE = _CLAUDE_FOLDER / "managed-settings.json"
OWNERS = frozenset({0})  # root
SCOPE = "managed policy"
_CLAUDE_KEYS = word_set(
    "$schema permissions availableModels allowedMcpServers deniedMcpServers disableAllHooks "
    "allowManagedHooksOnly allowManagedPermissionRulesOnly disableAutoMode sandbox"
)
_CLAUDE_PERMISSIONS = word_set("deny ask disableBypassPermissionsMode disableAutoMode")
_CLAUDE_SANDBOX = word_set("enabled failIfUnavailable allowUnsandboxedCommands")


class ServerPattern(msgspec.Struct, frozen=True):
    """Servers by their name, by the words of their command, or by their address."""

    name: str = ""
    command: tuple[str, ...] = ()  # each word is a pattern; `*` at the end: any further words
    url: str = ""

    def matches(self, name: str, command: Sequence[str], url: str) -> bool:
        if self.name:
            return fnmatchcase(name, self.name)
        return _match_url(url, self.url) if self.url else _match_words(command, self.command)

    def __str__(self) -> str:
        return self.name or self.url or " ".join(self.command)


class LimitedValue(NamedTuple):
    """A value that the policy sets, and where."""

    value: Any
    origin: str


class PolicyRule(NamedTuple):
    """A rule of the policy, as it is written; `outcome` is ask or deny."""

    outcome: str
    text: str
    file: str
    line: int


class ManagedPolicy(msgspec.Struct, frozen=True):
    """What the files say together. A model or a server has to be in each of the lists."""

    limits: Mapping[str, LimitedValue] = {}  # the widest values of settings
    rules: tuple[PolicyRule, ...] = ()
    models: tuple[LimitedValue, ...] = ()  # patterns, `provider/model` or `provider/model@host`
    servers: tuple[LimitedValue, ...] = ()
    denied_servers: tuple[LimitedValue, ...] = ()
    managed_rules_only: tuple[LimitedValue, ...] = ()
    no_hooks: tuple[LimitedValue, ...] = ()
    claude_files: tuple[Path, ...] = ()  # their rules that deny or ask are used as well
    notes: tuple[str, ...] = ()  # what is not used

    @property
    def widest_mode(self) -> PermissionMode:
        limit = self.limits.get("permission_mode")
        return limit.value if limit is not None else "bypass"

    @property
    def widest_network(self) -> NetworkAccess:
        limit = self.limits.get("network")
        return limit.value if limit is not None else True

    def check_model(self, name: str, host: str = "") -> None:
        """ConfigError if this model may not be used. `host`: where it is, if not at its maker's."""
        full = f"{name}@{host}" if host else name
        for patterns, origin in self.models:
            if not any(_match_model(name, host, pattern) for pattern in patterns):
                allowed = ", ".join(patterns) or "none"
                problem = f"the model {full} is not allowed by {origin}"
                raise ConfigError(f"{problem}; allowed: {allowed}")

    def find_server_objection(self, name: str, command: Sequence[str], url: str) -> str:
        """Why this server may not be started; "" if it may."""
        for found, is_allowed in ((self.denied_servers, False), (self.servers, True)):
            for patterns, origin in found:
                if any(one.matches(name, command, url) for one in patterns) != is_allowed:
                    reason = "does not list it" if is_allowed else "denies it"
                    return f"MCP server {name} is not started: {origin} {reason}"
        return ""

    def list_limits(self) -> Iterator[tuple[str, str, str]]:
        """What it limits besides rules: name, value, origin."""
        for name, (value, origin) in self.limits.items():
            at_most = "" if isinstance(value, bool) else "at most "
            yield name, at_most + format_value(value), origin
        for name in ("models", "servers", "denied_servers"):
            for found in getattr(self, name):
                yield name, ", ".join(map(str, found.value)) or "none", found.origin
        for _, origin in self.managed_rules_only[:1]:
            yield "managed_rules_only", "true", origin
        for _, origin in self.no_hooks[:1]:
            yield "hooks", "false", origin

    def join(self, other: ManagedPolicy) -> ManagedPolicy:
        """What both say: the narrower of two limits, and everything else."""
        limits = dict(self.limits)
        for name, found in other.limits.items():
            setting = SETTINGS_BY_NAME[name]
            if name not in limits or is_narrower(setting, found.value, limits[name].value):
                limits[name] = found
        others = ManagedPolicy.__struct_fields__[1:]
        return ManagedPolicy(limits, *(getattr(self, n) + getattr(other, n) for n in others))


def read_policy() -> ManagedPolicy:
    """The policy of this machine, as it is now; ConfigError if a file of it cannot be used."""
    policy = ManagedPolicy()
    more = CLAUDE_FILE.parent / f"{CLAUDE_FILE.stem}.d"
    readers: list[tuple[Path, Callable[[Path], ManagedPolicy]]] = [(POLICY_FILE, _read_own_file)]
    files = [CLAUDE_FILE, *(sorted(more.glob("*.json")) if more.is_dir() else ())]
    readers += [(file, _read_claude_file) for file in files]
    for file, read in readers:
        try:
            if _exists(file):
                _check_owner(file)
                policy = policy.join(read(file))
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"{file}: the managed policy cannot be read: {reason}") from error
    return msgspec.structs.replace(policy, rules=(*policy.rules, *_deny_requests(policy.limits)))


def _deny_requests(limits: Mapping[str, LimitedValue]) -> Iterator[PolicyRule]:
    """What limits mean for commands that ask to run outside of their sandbox."""
    if "sandbox" in limits and limits["sandbox"].value == "required":
        file, _, line = limits["sandbox"].origin.rpartition(":")
        yield PolicyRule("deny", "Sandbox(off)", file, int(line))


def apply_policy(settings: Settings) -> Settings:
    """The settings, with every value that is wider than the policy allows replaced."""
    policy = read_policy()
    changes: dict[str, Any] = {}
    origins, notes, narrowed = dict(settings.origins), [*settings.notes], [*settings.narrowed]
    for name, (value, origin) in policy.limits.items():
        before = getattr(settings, name)
        setting = SETTINGS_BY_NAME[name]
        if before == value or (before is not None and is_narrower(setting, before, value)):
            continue
        if name in origins and origins[name] != origin:
            wide, narrow = format_value(before), format_value(value)
            narrowed.append(
                f"{origins[name]}: {name} {wide} is not allowed: {origin} says {narrow}"
            )
        if isinstance(before, tuple) and value:  # hosts: those of both
            from treadle.lib.http.hosts import is_within

            value = tuple(host for host in before if is_within([host], value)) or False
        changes[name], origins[name] = value, origin
    notes += [note for note in (*narrowed, *policy.notes) if note not in notes]
    if not changes and len(notes) == len(settings.notes):
        return settings
    changes |= {"origins": origins, "notes": tuple(notes), "narrowed": tuple(narrowed)}
    return msgspec.structs.replace(settings, **changes)


def parse_policy_rules(policy: ManagedPolicy, root: str, home: str) -> FoundRules:
    """Its rules, for a folder; with what its limits mean for the requests of commands."""
    from treadle.permissions.ruleset.rules import InvalidRule, RuleOrigin, RuleSet, parse_rule
    from treadle.permissions.ruleset.rules_file import FoundRules, read_foreign_rules

    found = FoundRules(RuleSet(), [], [])
    for file in policy.claude_files:
        found = found.join(read_foreign_rules(file, scope=SCOPE, root=root, home=home, within=None))
    lists: dict[str, list[Any]] = {
        name: [
            msgspec.structs.replace(
                rule, origin=msgspec.structs.replace(rule.origin, is_managed=True)
            )
            for rule in getattr(found.rules, name)
        ]
        for name in ("deny", "ask")
    }
    for one in policy.rules:
        origin = RuleOrigin(SCOPE, one.file, one.line, is_managed=True)
        try:
            lists[one.outcome].append(parse_rule(one.text, root, home, origin))
        except InvalidRule as error:
            raise ConfigError(f"{one.file}:{one.line}: {error}") from error
    rules = RuleSet(deny=tuple(lists["deny"]), ask=tuple(lists["ask"]))
    return FoundRules(rules, [], found.warnings)


# ------------------------------------------------------------------ files


def _exists(file: Path) -> bool:
    try:
        file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _check_owner(file: Path) -> None:
    """Only root may change the file, also by another file at its path."""
    real = Path(os.path.realpath(file.parent))
    for place in (file, real, *real.parents):
        mode, owner = place.lstat().st_mode, place.lstat().st_uid
        # In a folder with the sticky bit others can add files, but not replace those of root. A
        # symlink into such a folder is refused: others may have made what it names.
        is_kept = stat.S_ISDIR(mode) and mode & stat.S_ISVTX and real == file.parent
        if owner not in OWNERS:
            problem = f"{place} belongs to the user {owner}, not to root"
        elif stat.S_ISLNK(mode):
            problem = f"{place} is a symlink"
        elif mode & 0o022 and not is_kept:
            problem = f"others than root can write to {place}"
        else:
            continue
        raise ConfigError(
            f"{file}: the managed policy is not used, and Treadle does not start: {problem}; it "
            "has to be a file of root that only root can change (chown root:root, chmod go-w)"
        )


def _read_own_file(file: Path) -> ManagedPolicy:
    text = read_text(file, within=None)
    limits: dict[str, LimitedValue] = {}
    more: dict[str, Any] = {}
    for name, value in parse_toml(file, text).items():
        line = find_key_line(text, name)
        where = f"{file}:{line}"
        setting = SETTINGS_BY_NAME.get(name)
        if name == "permissions":
            more["rules"] = tuple(_read_rules(file, text, value))
        elif name == "models":
            more[name] = (LimitedValue(_check_texts(value, where, name), where),)
        elif name in ("servers", "denied_servers"):
            more[name] = (LimitedValue(tuple(_read_servers(value, where, name)), where),)
        elif name == "managed_rules_only" and isinstance(value, bool):
            more[name] = (LimitedValue(True, where),) if value else ()
        elif name == "hooks" and value is False:
            more["no_hooks"] = (LimitedValue(True, where),)
        elif setting is None or setting.narrowing == "never":
            known = [one for one, own in SETTINGS_BY_NAME.items() if own.narrowing != "never"]
            known += ["permissions", *ManagedPolicy.__struct_fields__[2:6], "hooks"]
            hint = suggest_name(name, known) or f"; it knows {', '.join(known)}"
            raise ConfigError(f"{where}: the policy has no {name!r}, or not with this value{hint}")
        else:
            limits[name] = LimitedValue(check_value(setting, value, where, by_flag=False), where)
    return ManagedPolicy(limits, **more)


def _read_rules(file: Path, text: str, value: object) -> Iterator[PolicyRule]:
    where = f"{file}:{find_key_line(text, 'permissions')}"
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: permissions must be a table with deny and ask")
    for name, rules in value.items():
        if name not in ("deny", "ask"):
            raise ConfigError(f"{where}: the policy only narrows: it has deny and ask, no {name!r}")
        for rule in _check_texts(rules, where, f"permissions.{name}"):
            yield PolicyRule(name, rule, str(file), find_line(text, rule))


def _read_servers(value: object, where: str, name: str) -> Iterator[ServerPattern]:
    import shlex

    listed: list[Any] = value if isinstance(value, list) else [None]
    for one in listed:
        try:
            match one:
                case {"name": str(text)} | {"url": str(text)} if text and len(one) == 1:
                    yield ServerPattern(**one)
                    continue
                case {"command": str(text)} if text and len(one) == 1:
                    yield ServerPattern(command=tuple(shlex.split(text)))
                    continue
        except ValueError:  # quotes that do not end
            pass
        raise ConfigError(
            f"{where}: {name} must be a list of tables with name, command or url, such as "
            '[{url = "https://mcp.example.org/*"}]'
        )


def _check_texts(value: object, where: str, name: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise ConfigError(f"{where}: {name} must be a list of strings")
    return tuple(value)


# ------------------------------------------------------------------ the file of Claude Code


def _read_claude_file(file: Path) -> ManagedPolicy:
    settings, text = read_settings_file(file)

    def locate(name: str) -> str:
        return f"{file}:{find_line(text, name)}"

    def read_switch(name: str, place: Mapping[str, Any] = settings) -> tuple[LimitedValue, ...]:
        is_set = place.get(name) in (True, "disable")
        return (LimitedValue(True, locate(name)),) if is_set else ()

    permissions = _get_table(settings, "permissions", file)
    sandbox = _get_table(settings, "sandbox", file)
    limits: dict[str, LimitedValue] = {}
    modes = {"disableBypassPermissionsMode": "auto", "disableAutoMode": "accept-edits"}
    for name, mode in modes.items():
        for found in read_switch(name, {**settings, **permissions}):
            limits["permission_mode"] = LimitedValue(mode, found.origin)
    kinds = {"enabled": "auto", "failIfUnavailable": "required"}
    for name, kind in kinds.items() if sandbox.get("enabled") is True else ():
        for found in read_switch(name, sandbox):
            limits["sandbox"] = LimitedValue(kind, found.origin)
    rules: list[PolicyRule] = []
    if sandbox.get("allowUnsandboxedCommands") is False:
        at = find_line(text, "allowUnsandboxedCommands")
        rules.append(PolicyRule("deny", "Sandbox(off)", str(file), at))
    lists: dict[str, tuple[LimitedValue, ...]] = {}
    for ours, (name, read) in _CLAUDE_LISTS.items():
        if name in settings:
            where = locate(name)
            lists[ours] = (LimitedValue(tuple(read(settings[name], where)), where),)
    unused = sorted(set(settings) - _CLAUDE_KEYS)
    unused += [f"permissions.{name}" for name in sorted(set(permissions) - _CLAUDE_PERMISSIONS)]
    unused += [f"sandbox.{name}" for name in sorted(set(sandbox) - _CLAUDE_SANDBOX)]
    return ManagedPolicy(
        limits,
        tuple(rules),
        managed_rules_only=read_switch("allowManagedPermissionRulesOnly"),
        no_hooks=read_switch("disableAllHooks") or read_switch("allowManagedHooksOnly"),
        claude_files=(file,),
        notes=(f"{file}: not used here: {', '.join(unused)}",) if unused else (),
        **lists,
    )


def _get_table(settings: Mapping[str, Any], name: str, file: Path) -> Mapping[str, Any]:
    found = settings.get(name, {})
    if not isinstance(found, dict):
        raise ConfigError(f"{file}:1: {name} must be an object")
    return found


def _read_claude_models(value: object, where: str) -> Iterator[str]:
    for name in _check_texts(value, where, "availableModels"):
        model = translate_model(name)
        pattern = model if "/" in model else f"anthropic/*{model or name}*"
        yield from (pattern, f"{pattern}@*")  # there no address counts


def _read_claude_servers(value: object, where: str) -> Iterator[ServerPattern]:
    import glob

    for one in value if isinstance(value, list) else [None]:
        match one:
            case {"serverName": str(name)}:
                yield ServerPattern(name=glob.escape(name))
            case {"serverUrl": str(url)}:
                yield ServerPattern(url=url)
            case {"serverCommand": [str(first), *words]} if all(type(w) is str for w in words):
                yield ServerPattern(command=tuple(map(glob.escape, (first, *words))))
            case _:
                raise ConfigError(f"{where}: {one!r} is no serverName, serverCommand or serverUrl")


_CLAUDE_LISTS: Mapping[str, tuple[str, Callable[[object, str], Iterator[Any]]]] = {
    "models": ("availableModels", _read_claude_models),
    "servers": ("allowedMcpServers", _read_claude_servers),
    "denied_servers": ("deniedMcpServers", _read_claude_servers),
}

# ------------------------------------------------------------------ patterns


def _match_model(name: str, host: str, pattern: str) -> bool:
    """Only `*` and a pattern with a host match a model that is not at its maker's address."""
    if not host or pattern == "*":
        return fnmatchcase(name, pattern)
    name_pattern, _, host_pattern = pattern.rpartition("@")
    return fnmatchcase(name, name_pattern) and fnmatchcase(host, host_pattern)


def _match_words(words: Sequence[str], patterns: Sequence[str]) -> bool:
    if patterns[-1:] == ("*",):
        patterns = patterns[:-1]
        words = words[: len(patterns)]
    return bool(words) and len(words) == len(patterns) and all(map(fnmatchcase, words, patterns))


def _match_url(url: str, pattern: str) -> bool:
    """Part by part: a `*` of the host does not reach into the path."""
    try:
        given, wanted = urlsplit(url), urlsplit(pattern)
        ports = given.port, wanted.port
    except ValueError:
        return False
    is_plain = given.username is None and ".." not in given.path and "%2e" not in url.casefold()
    return (
        bool(url)
        and is_plain
        and given.scheme == wanted.scheme
        and ports[0] == ports[1]
        and fnmatchcase(given.hostname or "", wanted.hostname or "")
        and fnmatchcase(given.path or "/", wanted.path or "/")
    )

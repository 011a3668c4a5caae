"""Rules in settings files: read with file and line, saved without losing the rest.

    {"permissions": {"allow": ["Bash(git status:*)"], "ask": [], "deny": ["Read(.env)"]}}

A file that cannot be read or holds a wrong rule is an error, never an empty rule set. Rules are
read once: what a tool does to the file while a run goes on changes nothing in that run.
"""

import os
import tempfile
from pathlib import Path

import msgspec

from treadle.core.errors import ConfigError
from treadle.policy.ruleset.rules import (
    InvalidRule,
    Rule,
    RuleListName,
    RuleOrigin,
    RuleSet,
    parse_rule,
)
from treadle.policy.settings_file import find_line, read_settings_file

RULE_LISTS: tuple[RuleListName, ...] = ("allow", "ask", "deny")


def read_rules(
    file: Path, *, scope: str, root: str, home: str, within: Path | None = None
) -> RuleSet:
    """The rules of a settings file; no file means no rules, a wrong one a ConfigError.

    A file of the folder `within` is not read where a link leads out of it.
    """
    settings, text = read_settings_file(file, within)
    permissions = settings.get("permissions", {})
    if not isinstance(permissions, dict):
        raise ConfigError(
            f"{file}:{find_line(text, 'permissions')}: permissions has to be an object"
        )
    lists: dict[str, tuple[Rule, ...]] = {}
    for name in RULE_LISTS:
        lists[name] = _parse_list(file, text, permissions.get(name, []), name, scope, root, home)
    unknown = set(permissions) - {*RULE_LISTS, "mode", "defaultMode", "additionalDirectories"}
    for name in sorted(unknown):
        # A misspelt list would be a list of rules that nobody keeps.
        raise ConfigError(f"{file}:{find_line(text, name)}: {name!r} is not a list of rules")
    return RuleSet(**lists)


def _parse_list(
    file: Path, text: str, value: object, name: str, scope: str, root: str, home: str
) -> tuple[Rule, ...]:
    if not isinstance(value, list) or not all(isinstance(r, str) for r in value):
        line = find_line(text, name)
        raise ConfigError(f"{file}:{line}: permissions.{name} has to be a list of rules")
    rules: list[Rule] = []
    for rule in value:
        line = find_line(text, rule)
        try:
            rules.append(parse_rule(rule, root, home, RuleOrigin(scope, str(file), line)))
        except InvalidRule as error:
            raise ConfigError(f"{file}:{line}: {error}") from error
    return tuple(rules)


def parse_rules(
    lists: dict[str, list[str]], *, root: str, home: str, scope: str = "given"
) -> RuleSet:
    """Rules from memory (a case, an argument); an InvalidRule says which is wrong."""
    parsed = {
        name: tuple(parse_rule(r, root, home, RuleOrigin(scope)) for r in lists.get(name, []))
        for name in RULE_LISTS
    }
    return RuleSet(**parsed)


def save_rules(
    file: Path, rules: tuple[str, ...], *, root: str, home: str, within: Path | None = None
) -> None:
    """Add allow rules to a settings file, atomically, keeping all else in it."""
    if within is not None and not _resolve_symlinks(file.parent).is_relative_to(
        _resolve_symlinks(within)
    ):
        raise ConfigError(f"{file.parent}: leads out of {within} by a link; nothing is written")
    for rule in rules:
        parse_rule(rule, root, home)
    settings, _ = read_settings_file(file, within)
    allow = settings.setdefault("permissions", {}).setdefault("allow", [])
    allow.extend(rule for rule in rules if rule not in allow)
    encoded = msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n"
    write_private_file(file, encoded)


def _resolve_symlinks(path: Path) -> Path:
    return Path(os.path.realpath(path))


def write_private_file(file: Path, content: bytes) -> None:
    """Replace a file at once, readable by its owner only."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

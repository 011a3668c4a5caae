"""Rules in settings files: reads them with file and line, adds to them without other changes.

    {"permissions": {"allow": ["Bash(git status:*)"], "ask": [], "deny": ["Read(.env)"]}}

A file that cannot be read, or with an invalid rule in it, is an error, never an empty rule set.
Rules are read once: a change of the file during a run has no effect on that run.
"""

import os
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.errors import ConfigError
from treadle.lib.files.private_files import write_private_file
from treadle.lib.text.text import suggest
from treadle.policy.ruleset.paths import is_inside
from treadle.policy.ruleset.rules import (
    RULE_LISTS,
    InvalidRule,
    Rule,
    RuleOrigin,
    RuleSet,
    parse_rule,
)
from treadle.policy.settings_file import find_line, read_settings_file


def read_rules(
    file: Path, *, scope: str, root: str, home: str, within: Path | None = None
) -> RuleSet:
    """The rules of a settings file; no rules without a file, ConfigError if it is wrong.

    With `within`, a symlink out of that folder is not followed.
    """
    settings, text = read_settings_file(file, within)
    permissions = settings.get("permissions", {})
    if not isinstance(permissions, dict):
        line = find_line(text, "permissions")
        raise ConfigError(f"{file}:{line}: permissions must be an object")
    lists: dict[str, tuple[Rule, ...]] = {}
    for name in RULE_LISTS:
        lists[name] = _parse_list(file, text, permissions.get(name, []), name, scope, root, home)
    unknown = set(permissions) - {*RULE_LISTS, "mode", "defaultMode", "additionalDirectories"}
    for name in sorted(unknown):
        # A misspelt list would be a list of rules without effect.
        where, near = f"{file}:{find_line(text, name)}", suggest(name, RULE_LISTS)
        hint = f"did you mean {near!r}?" if near else f"use {', '.join(RULE_LISTS)}"
        raise ConfigError(f"{where}: unknown list of rules {name!r}; {hint}")
    return RuleSet(**lists)


def _parse_list(
    file: Path, text: str, value: object, name: str, scope: str, root: str, home: str
) -> tuple[Rule, ...]:
    if not isinstance(value, list) or not all(isinstance(r, str) for r in value):
        line = find_line(text, name)
        raise ConfigError(f"{file}:{line}: permissions.{name} must be a list of rules")
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
    """Parse lists of rules from memory, such as arguments; InvalidRule if one is wrong."""
    parsed = {
        name: tuple(parse_rule(r, root, home, RuleOrigin(scope)) for r in lists.get(name, []))
        for name in RULE_LISTS
    }
    return RuleSet(**parsed)


def save_rules(
    file: Path,
    rules: tuple[str, ...],
    *,
    root: str,
    home: str,
    within: Path | None = None,
    name: str = "allow",
) -> bool:
    """Add rules to a list of a settings file, atomically, and keep the rest of it; False if they
    were there already."""
    _check_symlinks(file, within)
    for rule in rules:
        parse_rule(rule, root, home)
    settings, _ = read_settings_file(file, within)
    listed = settings.setdefault("permissions", {}).setdefault(name, [])
    added = [rule for rule in rules if rule not in listed]
    listed.extend(added)
    _write_settings(file, settings)
    return bool(added)


def remove_rule(file: Path, rule: str, *, within: Path | None = None) -> list[str]:
    """Take a rule out of a settings file; the lists that it was in. The rest of it stays."""
    _check_symlinks(file, within)
    settings, _ = read_settings_file(file, within)
    lists = settings.get("permissions", {})
    found: list[str] = [name for name in RULE_LISTS if rule in lists.get(name, [])]
    for name in found:
        lists[name] = [other for other in lists[name] if other != rule]
    if found:
        _write_settings(file, settings)
    return found


def _check_symlinks(file: Path, within: Path | None) -> None:
    if within is not None and not is_inside(
        os.path.realpath(file.parent), (os.path.realpath(within),)
    ):
        raise ConfigError(f"{file.parent}: a symlink leaves {within}; nothing was written")


def _write_settings(file: Path, settings: dict[str, Any]) -> None:
    encoded = msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n"
    write_private_file(file, encoded)

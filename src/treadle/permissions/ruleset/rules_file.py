"""Rules in settings files: reads them with file and line, adds to them without other changes.

    {"permissions": {"allow": ["Bash(git status:*)"], "ask": [], "deny": ["Read(.env)"]}}

A file that cannot be read, or with an invalid rule in it, is an error, never an empty rule set.
Rules are read once: a change of the file during a run has no effect on that run.

In a file that was written for Claude Code, names of its tools are translated, and a rule that is
not understood is a line for the user: an allow rule is left out, instead of a deny or ask rule the
user is asked about every call of that tool. It is an error if it names no tool, or if a list of
them is no list: the file must not forbid less than it says.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import find_line, read_settings_file, update_settings_file
from treadle.lib.files.file_view import is_inside
from treadle.lib.text.text import suggest
from treadle.permissions.ruleset.rules import (
    RULE_LISTS,
    InvalidRule,
    Outcome,
    Rule,
    RuleOrigin,
    RuleSet,
    parse_rule,
)


def read_rules(
    file: Path, *, scope: str, root: str, home: str, within: Path | None = None
) -> RuleSet:
    """The rules of a settings file; no rules without a file, ConfigError if it is wrong.

    With `within`, a symlink out of that folder is not followed.
    """
    permissions, text = _read_permissions(file, within)
    lists: dict[str, tuple[Rule, ...]] = {}
    for name in RULE_LISTS:
        lists[name] = _parse_list(file, text, permissions.get(name, []), name, scope, root, home)
    unknown = set(permissions) - {*RULE_LISTS, "mode", "defaultMode", "additionalDirectories"}
    for wrong in sorted(unknown):
        # A misspelt list would be a list of rules without effect.
        where, near = f"{file}:{find_line(text, wrong)}", suggest(wrong, RULE_LISTS)
        hint = f"did you mean {near!r}?" if near else f"use {', '.join(RULE_LISTS)}"
        raise ConfigError(f"{where}: unknown list of rules {wrong!r}; {hint}")
    return RuleSet(**lists)


def _read_permissions(
    file: Path, within: Path | None, *, is_foreign: bool = False
) -> tuple[dict[str, Any], str]:
    """The permissions of a settings file, and its text."""
    settings, text = read_settings_file(file, within)
    permissions = settings.get("permissions", {})
    if is_foreign and not permissions:
        return {}, text
    if not isinstance(permissions, dict):
        line, lists = find_line(text, "permissions"), "allow, ask and deny"
        raise ConfigError(f"{file}:{line}: permissions must be an object with {lists}")
    return permissions, text


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
    added: list[str] = []

    def add(settings: dict[str, Any]) -> bool:
        listed = settings.setdefault("permissions", {}).setdefault(name, [])
        added.extend(rule for rule in rules if rule not in listed)
        listed.extend(added)
        return bool(added)

    update_settings_file(file, add, within)
    return bool(added)


def remove_rule(file: Path, rule: str, *, within: Path | None = None) -> list[str]:
    """Take a rule out of a settings file; the lists that it was in. The rest of it stays."""
    _check_symlinks(file, within)
    found: list[str] = []

    def remove(settings: dict[str, Any]) -> bool:
        lists = settings.get("permissions", {})
        found.extend(name for name in RULE_LISTS if rule in lists.get(name, []))
        for name in found:
            lists[name] = [other for other in lists[name] if other != rule]
        return bool(found)

    update_settings_file(file, remove, within)
    return found


def _check_symlinks(file: Path, within: Path | None) -> None:
    if within is not None and not is_inside(
        os.path.realpath(file.parent), (os.path.realpath(within),)
    ):
        raise ConfigError(f"{file.parent}: a symlink leaves {within}; nothing was written")


# ---------------------------------------------------------------- files of Claude Code

# Its tools that are called otherwise here, as `normalize_tool_name` writes them.
_TOOL_NAMES = {
    "agent": "task",
    "todowrite": "todo",
    "askuserquestion": "ask",
    "bashoutput": "taskoutput",
    "killshell": "taskstop",
}


class FoundRules(NamedTuple):
    """The rules of a file. `notes`: a line for each allow rule that is not used; `warnings`: a line
    for each deny or ask rule that is applied in another way."""

    rules: RuleSet
    notes: list[str]
    warnings: list[str]

    def join(self, other: "FoundRules") -> "FoundRules":
        """The rules and lines of both."""
        notes, warnings = self.notes + other.notes, self.warnings + other.warnings
        return FoundRules(self.rules + other.rules, notes, warnings)


def read_foreign_rules(
    file: Path, *, scope: str, root: str, home: str, within: Path | None
) -> FoundRules:
    """The rules of the file; ConfigError if it forbids something that cannot be read."""
    permissions, text = _read_permissions(file, within, is_foreign=True)
    lists: dict[Outcome, list[Rule]] = {name: [] for name in RULE_LISTS}
    notes: list[str] = []
    warnings: list[str] = []
    for name in RULE_LISTS:
        for value in _list_values(permissions, name, file, text, notes):
            where = RuleOrigin(scope, str(file), find_line(text, value))
            try:
                lists[name].append(_parse(value, root, home, where))
            except InvalidRule as error:
                problem = f"{file}:{where.line}: {error}"
                if name == "allow":
                    notes.append(f"{problem}; it is not used")
                    continue
                instead = _ask_instead(value, where, f"{problem}; correct or remove this rule")
                lists["ask"].append(instead)
                warnings.append(f"{problem}; {instead.text} is asked about instead")
    return FoundRules(RuleSet(**{n: tuple(rules) for n, rules in lists.items()}), notes, warnings)


def _list_values(
    permissions: Mapping[str, Any], name: str, file: Path, text: str, notes: list[str]
) -> list[str]:
    """The rules of a list as texts; a text alone is a list of one."""
    given = permissions.get(name)
    values = [given] if isinstance(given, str) else given or []
    if isinstance(values, list) and all(isinstance(value, str) for value in values):
        return [value for value in values if value.strip()]
    problem = f"{file}:{find_line(text, name)}: permissions.{name} must be a list of rules"
    if name != "allow":
        raise ConfigError(problem)  # without it, more would be allowed than the file says
    notes.append(f"{problem}; what is none is not used")
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


def _parse(text: str, root: str, home: str, origin: RuleOrigin) -> Rule:
    if text.strip() in ("mcp__*", "mcp__*__*"):
        return Rule(text, "mcp__*", None, origin)
    rule = parse_rule(text, root, home, origin)
    tool = _TOOL_NAMES.get(rule.tool)
    return rule if tool is None else Rule(rule.text, tool, rule.pattern, origin)


def _ask_instead(text: str, origin: RuleOrigin, problem: str) -> Rule:
    """A rule that asks about every call of the tool that this text names; ConfigError with the
    problem if it names none."""
    try:
        return _parse(text.partition("(")[0], "/", "~", origin)
    except InvalidRule as error:
        raise ConfigError(problem) from error

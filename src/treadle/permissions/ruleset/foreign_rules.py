"""The rules of a settings file that was written for Claude Code.

Names of its tools are translated. A rule that cannot be read here is no error, but a line for the
user: an allow rule is left out, instead of a deny or ask rule the user is asked about every call of
that tool. It is an error if it names no tool, or if a list of such rules is no list: the file must
not forbid less than it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import find_line, read_settings_file
from treadle.permissions.ruleset.rules import (
    RULE_LISTS,
    InvalidRule,
    Outcome,
    Rule,
    RuleOrigin,
    RuleSet,
    parse_rule,
)

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

    def join(self, other: FoundRules) -> FoundRules:
        """The rules and lines of both."""
        notes, warnings = self.notes + other.notes, self.warnings + other.warnings
        return FoundRules(self.rules + other.rules, notes, warnings)


def read_foreign_rules(
    file: Path, *, scope: str, root: str, home: str, within: Path | None
) -> FoundRules:
    """The rules of the file; ConfigError if it forbids something that cannot be read."""
    settings, text = read_settings_file(file, within)
    permissions = settings.get("permissions") or {}
    if not isinstance(permissions, dict):
        line = find_line(text, "permissions")
        raise ConfigError(f"{file}:{line}: permissions must be an object with allow, ask and deny")
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

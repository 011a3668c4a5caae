"""The rules of a settings file that was written for Claude Code.

Names of its tools are translated. A rule that cannot be read here is no error, but a note: an allow
rule is left out, instead of a deny or ask rule the user is asked about every call of that tool.
"""

from __future__ import annotations

from pathlib import Path

from treadle.policy.ruleset.rules import (
    RULE_LISTS,
    InvalidRule,
    Outcome,
    Rule,
    RuleOrigin,
    RuleSet,
    parse_rule,
)
from treadle.policy.settings_file import find_line, read_settings_file

# Its tools that are called otherwise here, as `normalize_tool_name` writes them.
_TOOL_NAMES = {
    "agent": "task",
    "todowrite": "todo",
    "askuserquestion": "ask",
    "bashoutput": "taskoutput",
    "killshell": "taskstop",
}


def read_foreign_rules(
    file: Path, *, scope: str, root: str, home: str, within: Path | None
) -> tuple[RuleSet, list[str]]:
    """The rules of the file, and a line for each that cannot be read."""
    settings, text = read_settings_file(file, within)
    permissions = settings.get("permissions")
    lists: dict[Outcome, list[Rule]] = {name: [] for name in RULE_LISTS}
    problems: list[str] = []
    for name in RULE_LISTS:
        values = permissions.get(name, []) if isinstance(permissions, dict) else []
        if not isinstance(values, list):
            line = find_line(text, name)
            problems.append(f"{file}:{line}: permissions.{name} is not used: it is not a list")
            continue
        for value in values:
            where = RuleOrigin(scope, str(file), find_line(text, str(value)))
            try:
                lists[name].append(_parse(str(value), root, home, where))
            except InvalidRule as error:
                instead = _ask_instead(str(value), where) if name != "allow" else None
                lists["ask"] += [instead] if instead is not None else []
                effect = f"{instead.text} is asked about instead" if instead else "it is not used"
                problems.append(f"{file}:{where.line}: {error}; {effect}")
    return RuleSet(**{name: tuple(rules) for name, rules in lists.items()}), problems


def _parse(text: str, root: str, home: str, origin: RuleOrigin) -> Rule:
    if text.strip() in ("mcp__*", "mcp__*__*"):
        return Rule(text, "mcp__*", None, origin)
    rule = parse_rule(text, root, home, origin)
    tool = _TOOL_NAMES.get(rule.tool)
    return rule if tool is None else Rule(rule.text, tool, rule.pattern, origin)


def _ask_instead(text: str, origin: RuleOrigin) -> Rule | None:
    """A rule that asks about every call of the tool that this text names."""
    try:
        return _parse(text.partition("(")[0], "/", "~", origin)
    except InvalidRule:
        return None

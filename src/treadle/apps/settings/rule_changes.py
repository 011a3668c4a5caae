"""Adds and removes permission rules in settings files, for `/permissions`.

Only files of Treadle are written, never those of Claude Code. A rule that the user adds to a file
of the project is accepted at once. Used by conversation/session.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Literal, NamedTuple

from treadle.apps.settings import folder_rules as rule_files
from treadle.apps.settings.load import symlink_boundary
from treadle.apps.settings.settings import treadle_home
from treadle.core.errors import ConfigError
from treadle.lib.text.text import shorten_home, suggest

RuleScope = Literal["user", "project", "local"]
RuleList = Literal["allow", "ask", "deny"]
RULE_LIST_NAMES: tuple[RuleList, ...] = ("allow", "ask", "deny")
RULE_SCOPES: tuple[RuleScope, ...] = ("user", "project", "local")
DEFAULT_SCOPE: RuleScope = "local"
USAGE = (
    "usage: /permissions add [allow|ask|deny] RULE [--user|--project|--local], or "
    "/permissions remove RULE; a rule is such as Bash(npm test:*) or Read(.env)"
)


class RuleChange(NamedTuple):
    """What to do: `name` is the list of a rule to add; `scope` None: any file."""

    action: Literal["add", "remove"]
    rule: str
    name: RuleList = "allow"
    scope: RuleScope | None = None


class ChangedFile(NamedTuple):
    """A file that was written, and the lists of it that changed. `exclude`: the file that keeps it
    out of git from now on."""

    file: Path
    names: tuple[str, ...]
    exclude: Path | None = None


def parse_rule_change(arguments: str) -> RuleChange:
    """`add deny Read(.env) --project`, `remove Bash(npm test:*)`; ConfigError if it is neither."""
    action, _, rest = arguments.strip().partition(" ")
    rest, scope = _split_scope(rest.strip())
    first, _, after = rest.partition(" ")
    name: RuleList = "allow"
    if first in RULE_LIST_NAMES and after:
        name, rest = first, after.strip()
    if not rest or rest in RULE_LIST_NAMES or action not in ("add", "remove"):
        raise ConfigError(USAGE)
    return RuleChange("add" if action == "add" else "remove", rest, name, scope)


def _split_scope(text: str) -> tuple[str, RuleScope | None]:
    for scope in RULE_SCOPES:
        for spelled in (f" --{scope}", f"--{scope} "):
            if text.endswith(spelled) or text.startswith(spelled):
                return text.replace(spelled, "", 1).strip(), scope
    return text, None


def change_rules(folder: Path, change: RuleChange) -> list[ChangedFile]:
    """The files that were written; none if there was nothing to change."""
    return _add_rule(folder, change) if change.action == "add" else _remove_rule(folder, change)


def list_scope_files(folder: Path) -> Mapping[RuleScope, Path]:
    project = folder / ".treadle"
    return {
        "user": treadle_home() / "settings.json",
        "project": project / "settings.json",
        "local": project / "settings.local.json",
    }


def _add_rule(folder: Path, change: RuleChange) -> list[ChangedFile]:
    from treadle.apps.settings.git_exclude import exclude_from_git
    from treadle.permissions.ruleset.rules import InvalidRule, parse_rule
    from treadle.permissions.ruleset.rules_file import save_rules
    from treadle.permissions.trust import may_project_allow

    scope, root, home = change.scope or DEFAULT_SCOPE, os.path.realpath(folder), str(Path.home())
    try:
        parsed = parse_rule(change.rule, root, home)
    except InvalidRule as error:
        raise ConfigError(f"{error}; nothing was changed") from error
    is_project_allow = scope != "user" and change.name == "allow"
    if is_project_allow and not may_project_allow(parsed):
        raise ConfigError(f"nothing was changed: {rule_files.PROJECT_SANDBOX_NOTE}")
    file = list_scope_files(folder)[scope]
    within = None if scope == "user" else symlink_boundary(folder)
    trust, rules = rule_files.open_trust_store(), (change.rule,)
    with rule_files.keep_acceptance(folder, trust) if is_project_allow else nullcontext():
        is_new = save_rules(file, rules, root=root, home=home, within=within, name=change.name)
        if is_project_allow:
            trust.accept_rule(folder, change.rule)
    exclude = exclude_from_git(file) if scope == "local" else None
    return [ChangedFile(file, (change.name,), exclude)] if is_new else []


def _remove_rule(folder: Path, change: RuleChange) -> list[ChangedFile]:
    from treadle.permissions.ruleset.rules_file import remove_rule

    changed: list[ChangedFile] = []
    with rule_files.keep_acceptance(folder, rule_files.open_trust_store()):
        for scope, file in list_scope_files(folder).items():
            if change.scope in (None, scope) and file.exists():
                within = None if scope == "user" else symlink_boundary(folder)
                names = remove_rule(file, change.rule, within=within)
                if names:
                    changed.append(ChangedFile(file, tuple(names)))
        if not changed:
            raise ConfigError(_describe_missing(folder, change))
    return changed


def _describe_missing(folder: Path, change: RuleChange) -> str:
    """Where the rule is instead, or which one is near."""
    known = rule_files.load_rules(folder).get_rules()
    every = [*known.deny, *known.ask, *known.allow]
    for rule in every:
        if rule.text == change.rule:
            return f"{change.rule} is in {rule.origin}, which /permissions does not write; edit it"
    near = suggest(change.rule, [rule.text for rule in every])
    hint = f"; did you mean {near}?" if near else "; /permissions lists the rules"
    return f"there is no rule {change.rule}{hint}"


def describe_rule_change(folder: Path, change: RuleChange, changed: list[ChangedFile]) -> str:
    """What changed, for the user."""
    if not changed:
        scope = change.scope or DEFAULT_SCOPE
        file = shorten_home(list_scope_files(folder)[scope])
        return f"{change.name} {change.rule} is in {file} already"
    verb, where = ("+", "added to") if change.action == "add" else ("-", "removed from")
    lines = [
        f"{verb} {name} {change.rule}   {where} {shorten_home(one.file)}"
        for one in changed
        for name in one.names
    ]
    lines += [
        f"note: {shorten_home(one.exclude)} keeps {one.file.name} out of git in this clone"
        for one in changed
        if one.exclude is not None
    ]
    risk = _describe_risk(folder, change)
    return "\n".join([*lines, *([f"note: {risk}"] if risk else [])])


def _describe_risk(folder: Path, change: RuleChange) -> str:
    if change.action == "remove" or change.name != "allow":
        return ""
    from treadle.permissions.ruleset.rules import describe_rule_risk, parse_rule

    return describe_rule_risk(parse_rule(change.rule, os.path.realpath(folder), str(Path.home())))

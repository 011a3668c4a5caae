"""The permission rules in force in a folder, from settings files and flags; trust decides.

The files are read once, at the start: an invalid one raises ConfigError there, not at the first
call. Used by the assembly, extensions.py, the console and the hosts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from treadle.apps.settings.claude_settings import project_settings_files, user_settings_file
from treadle.apps.settings.load import symlink_boundary
from treadle.apps.settings.managed_policy import (
    ManagedPolicy,
    parse_policy_rules,
    read_policy,
)
from treadle.apps.settings.settings import treadle_home
from treadle.core.errors import ConfigError
from treadle.lib.files.private_files import find_state_dir
from treadle.lib.text.text import plural

if TYPE_CHECKING:
    from treadle.permissions.policy import RulePolicy
    from treadle.permissions.ruleset.path_patterns import FolderCopy
    from treadle.permissions.ruleset.rules import RuleSet
    from treadle.permissions.ruleset.rules_file import FoundRules
    from treadle.permissions.trust import TrustStore
    from treadle.workspace.command_limits import FileDenials


PROJECT_SANDBOX_NOTE = (
    "a project cannot open the sandbox; if you want that, write the rule in "
    "~/.treadle/settings.json"
)


def trust_file() -> Path:
    return treadle_home() / "trust.json"


def open_trust_store() -> TrustStore:
    from treadle.permissions.trust import TrustStore

    return TrustStore(trust_file())


def is_trusted(folder: Path) -> bool:
    """Whether the user trusts this folder."""
    return trust_file().exists() and open_trust_store().is_trusted(folder)


def is_trust_declined(folder: Path) -> bool:
    """Whether the user declined to trust this folder, and is not asked again."""
    return trust_file().exists() and open_trust_store().is_declined(folder)


class FolderTrust(NamedTuple):
    """Whether a folder is trusted; `open_store` opens the store that says what is approved."""

    is_trusted: bool
    open_store: Callable[[], TrustStore]


def choose_trust(folder: Path, trust: bool | None) -> FolderTrust:
    """The trust of a folder: the user's decision, or, if `trust` is given, that of the program.

    A program that trusts a folder accepts its allow rules; what it decides is not saved.
    """
    if trust is None:
        return FolderTrust(is_trusted(folder), open_trust_store)
    from treadle.permissions.trust import TemporaryTrust

    store = TemporaryTrust(folder if trust else None)
    if trust:
        store.accept_rules(folder, read_project_rules(folder))
    return FolderTrust(trust, lambda: store)


class RulesFile(NamedTuple):
    """A settings file that may hold rules; `scope` is its name for the user. `is_foreign`: it was
    written for Claude Code, and what it has more is no error."""

    path: Path
    scope: str
    is_user: bool
    is_foreign: bool = False


def list_rules_files(folder: Path) -> list[RulesFile]:
    """The settings files with rules and hooks, of the user and of a folder."""
    project = folder / ".treadle"
    files = [
        RulesFile(treadle_home() / "settings.json", "everywhere", is_user=True),
        RulesFile(project / "settings.json", "this project", is_user=False),
        RulesFile(project / "settings.local.json", "this project, only you", is_user=False),
        RulesFile(user_settings_file(), "everywhere", is_user=True, is_foreign=True),
    ]
    if symlink_boundary(folder) is not None:  # in the home folder they are the user's
        shared, local = project_settings_files(folder)
        files.append(RulesFile(shared, "this project", is_user=False, is_foreign=True))
        files.append(RulesFile(local, "this project, only you", is_user=False, is_foreign=True))
    return files


class LoadedRules(NamedTuple):
    """A function that returns the rules, and lines for the user: `notes` on rules that are not in
    force, `warnings` on deny and ask rules that are applied in another way, for every host."""

    get_rules: Callable[[], RuleSet]
    notes: list[str]
    warnings: list[str]

    def forbids(self, tool: str) -> bool:
        """Whether a rule denies calls of this tool or asks about them; `tool` as rules name it."""
        if self.get_rules is _make_empty_rules:
            return False  # without the modules of rules
        rules = self.get_rules()
        return any(rule.matches_tool(tool) for rule in (*rules.deny, *rules.ask))


def load_rules(
    folder: Path,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    ask: Sequence[str] = (),
    *,
    format_origin: Callable[[str], str] = "--{}".format,
    open_store: Callable[[], TrustStore] = open_trust_store,
) -> LoadedRules:
    """The rules in force in a folder, with those that are given.

    `format_origin` names the flag or the argument that has a rule which is not in a file.
    """
    files = [file for file in list_rules_files(folder) if file.path.exists()]
    policy = read_policy()
    if not files and not allow and not deny and not ask and policy == ManagedPolicy():
        return LoadedRules(_make_empty_rules, [], [])
    rules, notes, warnings = _read_rules(folder, files, open_store)
    given = {"allow": allow, "deny": deny, "ask": ask}
    rules = rules + _parse_given_rules(folder, given, format_origin)
    managed = parse_policy_rules(policy, os.path.realpath(folder), str(Path.home()))
    if policy.managed_rules_only and rules.allow:
        origin = policy.managed_rules_only[0].origin
        warnings.append(f"{plural(len(rules.allow), 'allow rule')} not used: {origin} forbids it")
        rules = type(rules)(ask=rules.ask, deny=rules.deny)
    rules = managed.rules + rules  # the first that matches is named
    if (copy := _find_worktree_copy(folder)) is not None:
        rules = rules.add_copy(copy)
    return LoadedRules(lambda: rules, notes, [*warnings, *managed.warnings])


def _find_worktree_copy(folder: Path) -> FolderCopy | None:
    """For a worktree that Treadle made: its paths are judged as those of the repository, too."""
    folder = folder.resolve()
    if not folder.is_relative_to(find_state_dir().resolve()):
        return None
    from treadle.lib.git.repository import find_own_repository, find_repository
    from treadle.permissions.ruleset.path_patterns import FolderCopy

    top = find_repository(folder)
    own = None if top is None else find_own_repository(top / ".git")
    if top is None or own is None or own.common == own.git_folder:
        return None
    return FolderCopy(str(top), str(Path(own.common).parent))


def _make_empty_rules() -> RuleSet:
    from treadle.permissions.ruleset.rules import RuleSet

    return RuleSet()


def _read_rules(
    folder: Path, files: Sequence[RulesFile], open_store: Callable[[], TrustStore]
) -> FoundRules:
    from treadle.permissions.ruleset.rules_file import FoundRules
    from treadle.permissions.trust import filter_project_rules, may_project_allow

    user = _read_files(folder, [file for file in files if file.is_user])
    found = _read_files(folder, [file for file in files if not file.is_user])
    project, notes = found.rules, user.notes + found.notes
    active = filter_project_rules(project, open_store(), folder)
    unused = [rule for rule in project.allow if rule not in active.allow]
    own_files = {str(file.path) for file in files if file.is_user}
    notes += [
        f"{rule.origin.file}:{rule.origin.line}: {rule.text} is not used: {PROJECT_SANDBOX_NOTE}"
        for rule in unused
        if not may_project_allow(rule) and rule.origin.file not in own_files
    ]
    if count := sum(map(may_project_allow, unused)):
        allow = "that allows commands is" if count == 1 else "that allow commands are"
        folders = {file.path.parent for file in files if not file.is_user}
        where = " and ".join(sorted(map(str, folders)))
        which = f"{plural(count, 'rule')} in {where} {allow}"
        it = "it" if count == 1 else "them"
        notes.append(f"{which} not active. To activate {it}: treadle trust")
    return FoundRules(user.rules + active, notes, user.warnings + found.warnings)


def read_project_rules(folder: Path) -> RuleSet:
    """All rules in the project's files, in force or not."""
    return _read_files(folder, [f for f in list_rules_files(folder) if not f.is_user]).rules


def describe_project_rules(folder: Path) -> list[str]:
    """The allow rules that trust accepts, the widest first, each with its risk if it has one."""
    from treadle.permissions.ruleset.rules import describe_rule_risk, sort_widest_first
    from treadle.permissions.trust import may_project_allow

    rules = filter(may_project_allow, read_project_rules(folder).allow)
    lines = (
        f"{rule.text}: {risk}" if (risk := describe_rule_risk(rule)) else rule.text
        for rule in sort_widest_first(rules)
    )
    return list(dict.fromkeys(lines))


def _read_files(folder: Path, files: Sequence[RulesFile]) -> FoundRules:
    from treadle.permissions.ruleset.rules_file import FoundRules, read_foreign_rules, read_rules

    whole = FoundRules(_make_empty_rules(), [], [])
    root, home = os.path.realpath(folder), str(Path.home())
    for file in files:
        within = None if file.is_user else symlink_boundary(folder)
        places = {"scope": file.scope, "root": root, "home": home}
        if file.is_foreign:
            found = read_foreign_rules(file.path, **places, within=within)
        else:
            found = FoundRules(read_rules(file.path, **places, within=within), [], [])
        whole = whole.join(found)
    return whole


def _parse_given_rules(
    folder: Path, given: Mapping[str, Sequence[str]], format_origin: Callable[[str], str]
) -> RuleSet:
    from treadle.permissions.ruleset.rules import InvalidRule, RuleSet
    from treadle.permissions.ruleset.rules_file import parse_rules

    rules = RuleSet()
    root, home = os.path.realpath(folder), str(Path.home())
    for name, texts in given.items():
        scope = format_origin(name)
        try:
            rules += parse_rules({name: list(texts)}, root=root, home=home, scope=scope)
        except InvalidRule as error:
            raise ConfigError(f"{scope}: {error}") from error
    return rules


def make_read_check(folder: Path, rules: Callable[[], RuleSet]) -> Callable[[Path], str]:
    """A function that tells why a file which a file of the project names may not be read, as the
    tool `read` would; "" if it may. It loads what it needs with the first such file."""

    @cache
    def make_policy() -> RulePolicy:
        from treadle.permissions.policy import RulePolicy, build_policy_context

        return RulePolicy(build_policy_context(folder, rules()))

    return lambda path: make_policy().explain_unreadable(str(path))


def make_file_denials(rules: RuleSet) -> FileDenials:
    """The deny rules about files, for the sandbox: a command is held to them, too."""
    from treadle.permissions.ruleset.path_patterns import PathPattern
    from treadle.permissions.ruleset.rules import EDIT_TOOLS
    from treadle.workspace.command_limits import FileDenials

    patterns = [(r.tool, r.pattern) for r in rules.deny if isinstance(r.pattern, PathPattern)]
    return FileDenials(
        unreadable=tuple(pattern for tool, pattern in patterns if tool == "read"),
        unwritable=tuple(pattern for tool, pattern in patterns if tool in EDIT_TOOLS),
    )


def make_rule_saver(
    folder: Path, open_store: Callable[[], TrustStore] = open_trust_store
) -> Callable[[tuple[str, ...]], None]:
    """A function that saves "always allow" rules for this user in this project.

    They are accepted at once, and their file is kept out of git.
    """

    def save(rules: tuple[str, ...]) -> None:
        from treadle.apps.settings.git_exclude import exclude_from_git
        from treadle.permissions.ruleset.rules_file import save_rules

        trust, file = open_store(), folder / ".treadle" / "settings.local.json"
        root, home = os.path.realpath(folder), str(Path.home())
        with keep_acceptance(folder, trust):
            save_rules(file, rules, root=root, home=home, within=symlink_boundary(folder))
            exclude_from_git(file)
            for rule in rules:
                trust.accept_rule(folder, rule)

    return save


@contextmanager
def keep_acceptance(folder: Path, trust: TrustStore) -> Iterator[None]:
    """Around a change of the project's rules: if all were accepted they stay so."""
    with trust.hold():
        was_accepted = trust.has_accepted_rules(folder, read_project_rules(folder))
        yield
        if was_accepted:
            trust.accept_rules(folder, read_project_rules(folder))

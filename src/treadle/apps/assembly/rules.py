"""The permission rules in force in a folder: settings files, flags, and what trust makes of them.

Files are read once, at the start; a wrong one is a ConfigError then and not at the first call.
A folder without such files costs a look at three names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.settings import symlink_boundary, treadle_home
from treadle.core.errors import ConfigError

if TYPE_CHECKING:
    from treadle.policy.ruleset.rules import RuleSet

# How the reason begins with which a run without a person denies what needs one.
UNATTENDED_DENIAL_PREFIX = "This needs a person's approval, and nobody can be asked in this run"


def trust_file() -> Path:
    return treadle_home() / "trust.json"


def is_trusted(folder: Path) -> bool:
    """Whether the user trusts this folder."""
    if not trust_file().exists():
        return False
    from treadle.policy.trust import TrustStore

    return TrustStore(trust_file()).is_trusted(folder)


def is_trust_declined(folder: Path) -> bool:
    """Whether the user does not want to be asked about this folder again."""
    if not trust_file().exists():
        return False
    from treadle.policy.trust import TrustStore

    return TrustStore(trust_file()).is_declined(folder)


def list_rules_files(folder: Path) -> list[tuple[str, Path]]:
    """Where rules are kept, with what the user calls the place."""
    return [
        ("everywhere", treadle_home() / "settings.json"),
        ("this project", folder / ".treadle" / "settings.json"),
        ("this project, only you", folder / ".treadle" / "settings.local.json"),
    ]


def load_rules(
    folder: Path, allow: Sequence[str] = (), deny: Sequence[str] = ()
) -> tuple[Callable[[], RuleSet], list[str]]:
    """The rules, once somebody asks for them, and a note on each set that is not in force."""
    files = [(scope, file) for scope, file in list_rules_files(folder) if file.exists()]
    if not files and not allow and not deny:
        return _make_empty_rules, []
    rules, notes = _read_rules(folder, files)
    rules = rules + _parse_flag_rules(folder, allow, deny)
    return (lambda: rules), notes


def _make_empty_rules() -> RuleSet:
    from treadle.policy.ruleset.rules import RuleSet

    return RuleSet()


def _read_rules(folder: Path, files: Sequence[tuple[str, Path]]) -> tuple[RuleSet, list[str]]:
    from treadle.policy.ruleset.rules_file import read_rules
    from treadle.policy.trust import TrustStore, filter_project_rules

    notes = list[str]()
    everywhere, project = _make_empty_rules(), _make_empty_rules()
    root, own = os.path.realpath(folder), str(Path.home())
    for scope, file in files:
        within = None if scope == "everywhere" else symlink_boundary(folder)
        found = read_rules(file, scope=scope, root=root, home=own, within=within)
        if scope == "everywhere":
            everywhere = found
        else:
            project = project + found
    # The folder's files are accepted together: there is one hash for all that it allows.
    accepted = TrustStore(trust_file()).has_accepted_rules(folder, project)
    if project.allow and not accepted:
        count = f"{len(project.allow)} allow rules of {folder / '.treadle'}"
        notes.append(f"{count} wait until you accept them: `treadle trust` does")
    return everywhere + filter_project_rules(project, is_accepted=accepted), notes


def read_project_rules(folder: Path) -> RuleSet:
    """All rules that a folder brings, whether or not they count."""
    from treadle.policy.ruleset.rules_file import read_rules

    rules = _make_empty_rules()
    root, own, within = os.path.realpath(folder), str(Path.home()), symlink_boundary(folder)
    for scope, file in list_rules_files(folder)[1:]:
        rules = rules + read_rules(file, scope=scope, root=root, home=own, within=within)
    return rules


def _parse_flag_rules(folder: Path, allow: Sequence[str], deny: Sequence[str]) -> RuleSet:
    from treadle.policy.ruleset.rules import InvalidRule, RuleSet
    from treadle.policy.ruleset.rules_file import parse_rules

    rules = RuleSet()
    for flag, texts in (("allow", allow), ("deny", deny)):
        try:
            rules = rules + parse_rules(
                {flag: list(texts)},
                root=os.path.realpath(folder),
                home=str(Path.home()),
                scope=f"--{flag}",
            )
        except InvalidRule as error:
            raise ConfigError(f"--{flag}: {error}") from error
    return rules


def make_rule_saver(folder: Path) -> Callable[[tuple[str, ...]], None]:
    """Saves what the person always allows in this project, for this person.

    Rules of the folder that were accepted stay so; others are not accepted by the way.
    """

    def keep(rules: tuple[str, ...]) -> None:
        from treadle.policy.ruleset.rules_file import save_rules
        from treadle.policy.trust import TrustStore

        trust = TrustStore(trust_file())
        accepted = trust.has_accepted_rules(folder, read_project_rules(folder))
        file = folder / ".treadle" / "settings.local.json"
        root, own = os.path.realpath(folder), str(Path.home())
        save_rules(file, rules, root=root, home=own, within=symlink_boundary(folder))
        if accepted:
            trust.accept_rules(folder, read_project_rules(folder))

    return keep

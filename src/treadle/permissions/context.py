"""Where and under which rules calls are evaluated. Values only."""

from collections.abc import Iterable

import msgspec

from treadle.lib.files.paths import FileSystemView
from treadle.permissions.ruleset.rules import RuleOrigin, RuleSet, parse_rule


class PolicyContext(msgspec.Struct, frozen=True):
    """The workspace, the rules in force, and the file system."""

    root: str
    home: str
    rules: RuleSet = RuleSet()
    extra_roots: tuple[str, ...] = ()
    file_system: FileSystemView = FileSystemView()
    accept_edits: bool = False  # writing inside the roots needs no rule
    tools_skip_denied: bool = False  # the search tools leave out files that a rule denies
    sandbox_hides_denied: bool = False  # commands run where files that a rule denies are hidden
    sandbox_has_network: bool = True
    readable: tuple[str, ...] = ()  # folders outside the roots that may be read

    @property
    def roots(self) -> tuple[str, ...]:
        return (self.root, *self.extra_roots)

    def with_rules(self, added: RuleSet) -> "PolicyContext":
        return msgspec.structs.replace(self, rules=self.rules + added)

    def with_allow_rules(self, texts: Iterable[str], scope: str) -> "PolicyContext":
        """With these allow rules in addition; InvalidRule if one is wrong."""
        origin = RuleOrigin(scope)
        parsed = tuple(parse_rule(text, self.root, self.home, origin) for text in texts)
        return self.with_rules(RuleSet(allow=parsed))

"""Where and under which rules a call is evaluated, and the result: an outcome and its reason, for
the call and for each part of it.

Values only. `core.contracts.policy` has the smaller values that the engine uses.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from treadle.core.contracts.tool import NO_ACCESS, Access
from treadle.core.contracts.workspace import NetworkAccess
from treadle.lib.files.file_view import FileSystemView
from treadle.lib.shell.ast import SimpleCommand
from treadle.permissions.ruleset.rules import Outcome, Rule, RuleOrigin, RuleSet, parse_rule

# unruled_workspace_write: asked only because no rule allows this write inside the folder.
# protected_removal: `rm` would remove what is protected, and the sandbox would not stop it.
# outside_read: asked only because the path is outside of the folder.
# changed_definition: the tool is not the one that the user approved.
FindingKind = Literal[
    "other", "unruled_workspace_write", "protected_removal", "outside_read", "changed_definition"
]


class PolicyContext(msgspec.Struct, frozen=True):
    """The workspace, the rules in force, and the file system."""

    root: str
    home: str
    rules: RuleSet = RuleSet()
    extra_roots: tuple[str, ...] = ()
    file_system: FileSystemView = FileSystemView()
    accept_edits: bool = False  # writing inside the roots needs no rule
    has_checkpoints: bool = False  # removed files can be brought back, unless git ignores them
    tools_skip_denied: bool = False  # the search tools leave out files that a rule denies
    sandbox_hides_denied: bool = False  # commands run where files that a rule denies are hidden
    sandbox_network: NetworkAccess = True
    widest_network: NetworkAccess = True  # that the managed policy allows
    readable: tuple[str, ...] = ()  # folders outside the roots that may be read
    accepts_rules: bool = True  # the managed policy does not forbid allow rules

    @property
    def may_remove(self) -> bool:
        """Whether removing inside the roots needs no rule, if a checkpoint has it."""
        return self.accept_edits and self.has_checkpoints

    def with_allow_rules(self, texts: Iterable[str], scope: str) -> "PolicyContext":
        """With these allow rules in addition, if there may be any; InvalidRule if one is wrong."""
        origin = RuleOrigin(scope)
        parsed = tuple(parse_rule(text, self.root, self.home, origin) for text in texts)
        if not self.accepts_rules:
            return self
        return msgspec.structs.replace(self, rules=self.rules + RuleSet(allow=parsed))


class PolicyCall(msgspec.Struct, frozen=True):
    """A call to be evaluated."""

    tool: str
    access: Access = NO_ACCESS
    is_pure: bool = False  # the engine declares it to be pure; never set for MCP tools
    is_definition_changed: bool = False  # its definition is not the approved one
    is_sandboxed: bool = False  # commands run inside the sandbox


class PolicyFinding(msgspec.Struct, frozen=True):
    """The outcome for one part of a call: a command, a file, a URL, the tool itself."""

    subject: str
    outcome: Outcome
    reason: str
    rule: str = ""  # the rule that decided, if one did
    is_read_only: bool = False  # allowed because it only reads
    inner: tuple["PolicyFinding", ...] = ()
    kind: FindingKind = "other"
    path: str = ""  # the resolved path, if it is about a file
    command: SimpleCommand | None = None  # if it is about a command of a line

    @classmethod
    def from_rule(
        cls, subject: str, outcome: Outcome, rule: Rule, *, is_read_only: bool = False
    ) -> "PolicyFinding":
        return cls(subject, outcome, f"rule {rule.text}", rule.text, is_read_only)


class PolicyRuling(msgspec.Struct, frozen=True):
    """The outcome for a call, with the findings that led to it, also those that allow."""

    outcome: Outcome
    reason: str
    findings: tuple[PolicyFinding, ...] = ()
    must_ask: bool = False  # no mode may turn this ask into an allow
    is_static: bool = True  # every program that it would run is known

    @property
    def is_read_only(self) -> bool:
        """Whether every part only reads."""
        return bool(self.findings) and all(f.is_read_only for f in self.findings)

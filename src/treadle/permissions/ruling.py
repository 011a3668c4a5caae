"""The result of an evaluation: an outcome and its reason, for the call and for each part of it.

Values only. `core.contracts.policy` has the smaller values that the engine uses.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from treadle.core.contracts.tool import NO_ACCESS, Access
from treadle.lib.text.sanitize import escape_invisible
from treadle.permissions.ruleset.rules import Outcome, Rule

_SEVERITY = {"allow": 0, "ask": 1, "deny": 2}

# unruled_workspace_write: asked only because no rule allows this write inside the folder.
# protected_removal: `rm` would remove what is protected, and the sandbox would not stop it.
# outside_read: asked only because the path is outside of the folder.
FindingKind = Literal["other", "unruled_workspace_write", "protected_removal", "outside_read"]


class PolicyCall(msgspec.Struct, frozen=True):
    """A call to be evaluated."""

    tool: str
    access: Access = NO_ACCESS
    is_pure: bool = False  # the engine declares it to be pure; never set for MCP tools
    is_definition_changed: bool = False  # its definition is not the approved one
    is_sandboxed: bool = False  # commands run inside the sandbox

    @property
    def stays_sandboxed(self) -> bool:
        """Whether this command runs inside the sandbox, also if it gets what it asks for."""
        return self.is_sandboxed and self.access.sandbox != "off"


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

    @property
    def must_ask(self) -> bool:
        """Whether no mode may turn it into an allow."""
        return self.outcome == "ask" and (bool(self.rule) or self.kind == "protected_removal")

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

    @classmethod
    def from_finding(cls, finding: PolicyFinding) -> "PolicyRuling":
        return cls(finding.outcome, finding.reason, (finding,), finding.must_ask)

    @classmethod
    def from_findings(
        cls, findings: Sequence[PolicyFinding], *, is_static: bool = True
    ) -> "PolicyRuling":
        """Deny over ask over allow; the reason is the first with the gravest outcome."""
        gravest = max(findings, key=lambda f: _SEVERITY[f.outcome])
        return cls(
            gravest.outcome,
            f"{_shorten_subject(gravest.subject)}: {gravest.reason}",
            tuple(findings),
            must_ask=any(f.must_ask for f in findings),
            is_static=is_static,
        )


def _shorten_subject(text: str) -> str:
    """A subject that is safe to show: one short line without escapes or invisible characters."""
    line = escape_invisible(text)
    return line if len(line) <= 80 else line[:60] + " … " + line[-16:]

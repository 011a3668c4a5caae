"""What the judge says: a verdict, its reason, and the same for each part.

Values only. `core.contracts.policy` has the engine's own, smaller words for the outcome.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from treadle.core.sanitize import escape_invisible

Outcome = Literal["allow", "ask", "deny"]
_SEVERITY = {"allow": 0, "ask": 1, "deny": 2}


class PolicyCall(msgspec.Struct, frozen=True):
    """A call to be judged."""

    tool: str
    input: Mapping[str, Any]
    cwd: str = ""  # where a command would run; "" is the root
    is_pure: bool = False  # the engine's own word that it changes nothing; never a server's
    is_definition_changed: bool = False  # its definition is not the one that was approved
    is_sandboxed: bool = False  # a command of it would run inside the sandbox


class PolicyFinding(msgspec.Struct, frozen=True):
    """One thing that was looked at, and what follows from it."""

    subject: str
    outcome: Outcome
    reason: str
    rule: str = ""  # the rule that decided, if one did
    is_read_only: bool = False  # allowed because it only reads
    inner: tuple["PolicyFinding", ...] = ()


class PolicyRuling(msgspec.Struct, frozen=True):
    """The verdict on a call. `findings` show every part of it, allowed ones as well."""

    outcome: Outcome
    reason: str
    findings: tuple[PolicyFinding, ...] = ()
    must_ask: bool = False  # an ask rule, or something no mode may wave through, wants a person
    is_static: bool = True  # everything that it would run is known

    @property
    def is_read_only(self) -> bool:
        """Whether every part only reads."""
        return bool(self.findings) and all(f.is_read_only for f in self.findings)


def combine_findings(findings: Iterable[PolicyFinding]) -> tuple[Outcome, str]:
    """Deny over ask over allow; the reason is the first of the gravest."""
    outcome: Outcome = "allow"
    reason = ""
    for finding in findings:
        if not reason or _SEVERITY[finding.outcome] > _SEVERITY[outcome]:
            outcome, reason = (
                finding.outcome,
                f"{_shorten_subject(finding.subject)}: {finding.reason}",
            )
    return outcome, reason


def _shorten_subject(text: str) -> str:
    """A subject as a person may be shown it: no escapes, no tricks with direction."""
    line = escape_invisible(text)
    return line if len(line) <= 80 else line[:60] + " … " + line[-16:]

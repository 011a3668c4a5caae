"""What the judge says: a verdict, its reason, and the same for each part.

Values only. `core.contracts.policy` has the engine's own, smaller words for the outcome.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from treadle.core.terminal import visible

Outcome = Literal["allow", "ask", "deny"]
_ORDER = {"allow": 0, "ask": 1, "deny": 2}


class Call(msgspec.Struct, frozen=True):
    """A call to be judged."""

    tool: str
    input: Mapping[str, Any]
    cwd: str = ""  # where a command would run; "" is the root
    pure: bool = False  # the engine's own word that it changes nothing; never a server's
    changed: bool = False  # its definition is not the one that was approved
    sandboxed: bool = False  # a command of it would run inside the sandbox


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at, and what follows from it."""

    subject: str
    outcome: Outcome
    reason: str
    rule: str = ""  # the rule that decided, if one did
    plain: bool = False  # allowed because it only reads
    inner: tuple["Finding", ...] = ()


class Ruling(msgspec.Struct, frozen=True):
    """The verdict on a call. `findings` show every part of it, allowed ones as well."""

    outcome: Outcome
    reason: str
    findings: tuple[Finding, ...] = ()
    asked: bool = False  # an ask rule, or something no mode may wave through, wants a person
    static: bool = True  # everything that it would run is known

    @property
    def reads_only(self) -> bool:
        """Whether every part only reads."""
        return bool(self.findings) and all(f.plain for f in self.findings)


def combine(findings: Iterable[Finding]) -> tuple[Outcome, str]:
    """Deny over ask over allow; the reason is the first of the gravest."""
    outcome: Outcome = "allow"
    reason = ""
    for finding in findings:
        if not reason or _ORDER[finding.outcome] > _ORDER[outcome]:
            outcome, reason = finding.outcome, f"{_short(finding.subject)}: {finding.reason}"
    return outcome, reason


def _short(text: str) -> str:
    """A subject as a person may be shown it: no escapes, no tricks with direction."""
    line = visible(text)
    return line if len(line) <= 80 else line[:60] + " … " + line[-16:]

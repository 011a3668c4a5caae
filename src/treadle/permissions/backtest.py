"""Tests allow rules on past calls: how many questions they would have saved the user.

A function of pairs of a call and its decision. `apps/console/permission_history.py` reads them
from the sessions.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from treadle.permissions.findings import PolicyCall, PolicyContext
from treadle.permissions.ruleset.rules import Rule
from treadle.permissions.verdict import PermissionEvaluator

PastDecision = Literal["allowed", "approved", "denied"]  # by a rule, by the user, by either
_MAX_EXAMPLES = 5


class BacktestResult(msgspec.Struct, frozen=True):
    """Counts and examples."""

    questions: int = 0  # calls about which the user was asked
    covered: int = 0  # approved calls that the rules would have allowed
    denied: int = 0  # calls that the user denied
    denied_covered: int = 0  # denied calls that the rules would have allowed
    examples: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # the denied calls that they would have allowed

    def __str__(self) -> str:
        denied = "no denied call"
        if self.denied_covered:
            denied = f"{self.denied_covered} of {self.denied} denied calls"
        return f"would have covered {self.covered} of {self.questions} questions and {denied}"


def run_backtest(
    rules: Iterable[Rule], past: Iterable[tuple[PolicyCall, PastDecision]], context: PolicyContext
) -> BacktestResult:
    """Evaluate past questions again with these allow rules added to those in force."""
    before = PermissionEvaluator(context)
    after = before.with_rules([*rules])
    decisions: list[PastDecision] = []
    covered: dict[PastDecision, list[str]] = {"approved": [], "denied": []}
    for call, decision in past:
        if decision == "allowed":
            continue
        decisions.append(decision)
        if before.evaluate(call).outcome != "allow" and after.evaluate(call).outcome == "allow":
            covered[decision].append(_format_call(call))
    return BacktestResult(
        questions=len(decisions),
        covered=len(covered["approved"]),
        denied=decisions.count("denied"),
        denied_covered=len(covered["denied"]),
        examples=tuple(dict.fromkeys(covered["approved"]))[:_MAX_EXAMPLES],
        warnings=tuple(dict.fromkeys(covered["denied"]))[:_MAX_EXAMPLES],
    )


def _format_call(call: PolicyCall) -> str:
    access = call.access
    touched = access.command or access.url or ", ".join(file.path for file in access.files)
    return f"{call.tool}: {touched}"[:100]

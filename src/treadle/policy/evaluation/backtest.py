"""What a rule would have meant for the user's own past: how many questions it would have spared.

A function over pairs of calls and rulings; where they were kept is the session store's business.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from treadle.policy.evaluation.file_evaluator import PolicyContext
from treadle.policy.evaluation.permission_evaluator import PermissionEvaluator
from treadle.policy.evaluation.ruling import PolicyCall
from treadle.policy.ruleset.rules import Rule, RuleSet

PastDecision = Literal["allowed", "approved", "denied"]  # by a rule, by the person, by either
_MAX_EXAMPLES = 5


class BacktestResult(msgspec.Struct, frozen=True):
    """The count, and examples to look at."""

    questions: int = 0  # times that the person was asked, whatever they said
    covered: int = 0  # of those that they approved, how many the rule would have spared
    denied: int = 0  # calls that the person denied
    denied_covered: int = 0  # of those, how many the rule would have let through
    examples: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # the denied calls that it would have let through

    def __str__(self) -> str:
        let_through = f"{self.denied_covered} of {self.denied} denied calls"
        if not self.denied_covered:
            let_through = "no denied call"
        return f"would have covered {self.covered} of {self.questions} questions and {let_through}"


def run_backtest(
    rules: Iterable[Rule], past: Iterable[tuple[PolicyCall, PastDecision]], context: PolicyContext
) -> BacktestResult:
    """Judge past questions again with these allow rules added to those in force."""
    before = PermissionEvaluator(context)
    wider = context.rules + RuleSet(allow=tuple(rules))
    after = PermissionEvaluator(msgspec.structs.replace(context, rules=wider))
    counts = {"questions": 0, "covered": 0, "denied": 0, "denied_covered": 0}
    examples: list[str] = []
    warnings: list[str] = []
    for call, ruling in past:
        if ruling == "allowed":
            continue
        counts["questions"] += 1
        counts["denied"] += ruling == "denied"
        if before.evaluate(call).outcome == "allow" or after.evaluate(call).outcome != "allow":
            continue
        if ruling == "denied":
            counts["denied_covered"] += 1
            warnings.append(_format_call(call))
        else:
            counts["covered"] += 1
            examples.append(_format_call(call))
    return BacktestResult(
        **counts,
        examples=tuple(dict.fromkeys(examples))[:_MAX_EXAMPLES],
        warnings=tuple(dict.fromkeys(warnings))[:_MAX_EXAMPLES],
    )


def _format_call(call: PolicyCall) -> str:
    value = next((v for v in call.input.values() if isinstance(v, str)), "")
    return f"{call.tool}: {value}"[:100]

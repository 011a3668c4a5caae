"""The line that `treadle -p` prints when its exit code is not 0: what happened, what to do next.

Loaded only then. Used by headless.py.
"""

from __future__ import annotations

from treadle.apps.assembly.suspend import TurnSuspended
from treadle.apps.cli import exit_codes
from treadle.apps.cli.output import RunReport


def explain_exit(report: RunReport, suspended: TurnSuspended | None) -> str:
    resume = f"; to continue: treadle -p --resume {report.session_id}" if report.session_id else ""
    match report.exit_code:
        case exit_codes.APPROVAL_NEEDED:
            calls = ", ".join(dict.fromkeys(report.denied))
            return f"needs approval: {calls} (allow with --allow RULE)"
        case exit_codes.REFUSED:
            return "the model refused to answer"
        case exit_codes.SUSPENDED:
            from treadle.apps.cli.resume_answers import format_resume_hint

            reason = suspended.reason if suspended is not None else ""
            return f"suspended: {report.detail}; {format_resume_hint(report.session_id, reason)}"
        case exit_codes.MAX_TURNS | exit_codes.BUDGET_EXCEEDED | exit_codes.GOAL_NOT_MET:
            return f"{report.reason}: {report.detail}{resume}"
        case exit_codes.ABORTED | exit_codes.TERMINATED:
            return f"interrupted{resume}"
        case _:
            return report.error or report.detail

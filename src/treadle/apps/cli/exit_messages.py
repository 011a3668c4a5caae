"""Why a run of `treadle -p` did not end well, in one sentence that says what to do next.

Loaded when there is something to say. Above stands headless.py.
"""

from __future__ import annotations

from treadle.apps.assembly.suspend import TurnSuspended
from treadle.apps.cli import exit_codes
from treadle.apps.cli.output import RunReport


def explain_exit(report: RunReport, suspended: TurnSuspended | None) -> str:
    """For a report whose exit code is not 0; `wait` is why it was parked, if it was."""
    again = f"treadle -p --resume {report.session_id} goes on with it" if report.session_id else ""
    match report.exit_code:
        case exit_codes.APPROVAL_NEEDED:
            calls = ", ".join(dict.fromkeys(report.denied))
            return f"not done, for want of somebody's approval: {calls}. --allow RULE allows it"
        case exit_codes.REFUSED:
            return "the model refused"
        case exit_codes.SUSPENDED:
            from treadle.apps.cli.resume_answers import format_resume_hint

            reason = suspended.reason if suspended is not None else ""
            return f"parked: {report.detail}; {format_resume_hint(report.session_id, reason)}"
        case exit_codes.MAX_TURNS | exit_codes.BUDGET_EXCEEDED | exit_codes.GOAL_NOT_MET:
            return f"{report.reason}: {report.detail}; {again}"
        case exit_codes.ABORTED | exit_codes.TERMINATED:
            return f"stopped; {again}"
        case _:
            return report.error or report.detail

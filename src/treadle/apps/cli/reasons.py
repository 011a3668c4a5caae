"""Why a run of `treadle -p` did not end well, in one sentence that says what to do next.

Loaded when there is something to say. Above stands headless.py.
"""

from __future__ import annotations

from treadle.apps.cli import exits
from treadle.apps.cli.output import RunReport
from treadle.apps.wiring.parking import TurnSuspended


def explain_exit(report: RunReport, suspended: TurnSuspended | None) -> str:
    """For a report whose exit code is not 0; `wait` is why it was parked, if it was."""
    again = f"treadle -p --resume {report.session_id} goes on with it" if report.session_id else ""
    match report.exit_code:
        case exits.APPROVAL_NEEDED:
            calls = ", ".join(dict.fromkeys(report.denied))
            return f"not done, for want of somebody's approval: {calls}. --allow RULE allows it"
        case exits.REFUSED:
            return "the model refused"
        case exits.SUSPENDED:
            from treadle.apps.cli.parked import format_resume_hint

            reason = suspended.reason if suspended is not None else ""
            return f"parked: {report.detail}; {format_resume_hint(report.session_id, reason)}"
        case exits.MAX_TURNS | exits.BUDGET_EXCEEDED | exits.GOAL_NOT_MET:
            return f"{report.reason}: {report.detail}; {again}"
        case exits.ABORTED | exits.TERMINATED:
            return f"stopped; {again}"
        case _:
            return report.error or report.detail

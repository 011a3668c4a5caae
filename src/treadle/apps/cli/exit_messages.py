"""The line that `treadle -p` prints when its exit code is not 0: what happened, what to do next.

Loaded only then. Used by headless.py.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from treadle.apps.assembly.suspend import TurnSuspended
from treadle.apps.cli.output import RunReport
from treadle.apps.console import exit_codes
from treadle.apps.settings.settings import Settings

# The options that limit a session, with a word for their value.
_LIMITS = {"max_cost": "USD", "max_tokens": "N", "max_time": "TIME"}


def explain_exit(
    report: RunReport,
    suspended: TurnSuspended | None,
    settings: Settings,
    flags: Mapping[str, object],
    until: str = "",
) -> str:
    """`flags` are the settings of the command line: those that limit a session are not stored.
    `until` is the command of the goal."""
    given = "".join(f" {_format_flag(name)} {flags[name]}" for name in _LIMITS if name in flags)
    given += f" --until {shlex.quote(until)}" if until else ""
    command = f"treadle -p --resume {report.session_id}"
    resume = f"; to continue: {command}{given}" if report.session_id else ""
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
        case exit_codes.BUDGET_EXCEEDED if report.reason == "repetition":
            other = f'; to continue, say what to do instead: {command}{given} "..."'
            return f"stopped: {report.detail}{other if report.session_id else ''}"
        case exit_codes.BUDGET_EXCEEDED if report.reason == "background_wait":
            return f"{report.detail} (set TREADLE_BACKGROUND_WAIT to wait longer){resume}"
        case exit_codes.BUDGET_EXCEEDED:
            higher, kind = _format_higher_limits(settings), "a higher limit"
            if settings.origin("max_cost") != "default" and not _has_price(report.model):
                higher, kind = " --max-tokens N", "a limit of tokens"
                if "max_cost" not in flags:
                    kind += f" and without max_cost (set by {settings.origin('max_cost')})"
            higher += f" --until {shlex.quote(until)}" if until else ""
            resume = f"; to continue with {kind}: {command}{higher}"
            return f"stopped: {report.detail}{resume if report.session_id else ''}"
        case exit_codes.MAX_TURNS:
            return f"stopped: {report.detail}{resume}"
        case exit_codes.GOAL_NOT_MET:
            return f"the goal is not met: {report.detail}{resume}"
        case exit_codes.ABORTED | exit_codes.TERMINATED:
            return f"interrupted{resume}"
        case _:
            return report.error or report.detail


def _format_higher_limits(settings: Settings) -> str:
    """The options for the limits that are set, or for the limit that applies by default."""
    names = [name for name in _LIMITS if settings.origin(name) != "default"] or ["max_cost"]
    return "".join(f" {_format_flag(name)} {_LIMITS[name]}" for name in names)


def _has_price(model: str) -> bool:
    from treadle.models.catalog import card_for

    card = card_for(model)
    return card.input_price is not None and card.output_price is not None


def _format_flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"

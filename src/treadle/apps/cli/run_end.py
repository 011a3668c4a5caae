"""How a run of `treadle -p` ended: its report with the exit code, and the line that is printed when
this code is not 0: what happened, what to do next. Used by headless.py.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import msgspec

from treadle.apps.assembly.suspend import TurnSuspended
from treadle.apps.cli.output import RunReport, get_turn_detail
from treadle.apps.console import exit_codes
from treadle.apps.settings.settings import Settings
from treadle.core.errors import LoopError, NothingToAnswer, TreadleError
from treadle.core.events import TurnResult
from treadle.core.loop.driver import Driver
from treadle.core.transcript import Rest, pending
from treadle.core.transcript.state import SessionState

_MAX_NAMED_RULES = 4
# The options that limit a session, with a word for their value.
_LIMITS = {"max_cost": "USD", "max_tokens": "N", "max_time": "TIME"}


class RunEnd(msgspec.Struct, frozen=True):
    """What decides about the end of a run, besides its last turn."""

    settings: Settings
    has_denied_calls: bool = False
    is_time_limit_reached: bool = False
    is_wait_over: bool = False  # for background tasks
    signal_code: int | None = None


def report_turn(turn: TurnResult, output: object, text: str, end: RunEnd) -> RunReport:
    """The report of a run whose last turn is this one."""
    reason, detail = str(turn.reason), get_turn_detail(turn)
    if turn.reason == "aborted" and end.is_time_limit_reached:
        reason = "budget_exceeded"
        detail = f"the time limit of {end.settings.max_time:g} s is reached"
    elif end.is_wait_over:
        reason, seconds = "background_wait", end.settings.background_wait
        detail = f"background agents were stopped after a wait of {seconds:g} s"
    code = exit_codes.EXIT_CODE_BY_REASON[reason]
    if turn.error is not None:
        code = exit_codes.exit_code_for(turn.error)
    elif reason == "end_turn" and end.has_denied_calls:
        code = exit_codes.APPROVAL_NEEDED
    elif reason == "end_turn" and turn.metadata.get("truncated"):
        code, detail = exit_codes.ERROR, ""  # a warning has said it
    elif reason == "end_turn" and not turn.text.strip() and not turn.rounds:
        code, detail = exit_codes.ERROR, "the model returned an empty answer"
    if end.signal_code is not None and reason == "aborted":
        code = end.signal_code
    error = str(turn.error) if turn.error is not None else ""
    return RunReport(
        reason=reason,
        exit_code=code,
        text=text,
        output=output,
        error=error,
        detail=detail,
        rounds=turn.rounds,
    )


def report_error(error: TreadleError, resumed: str = "") -> RunReport:
    """The report of a run that has no last turn. `resumed` is the session that it should continue
    without a prompt."""
    is_usage = isinstance(error, LoopError)
    code = exit_codes.USAGE_ERROR if is_usage else exit_codes.exit_code_for(error)
    text = str(error)
    if isinstance(error, NothingToAnswer) and resumed:
        text = f'The last turn is finished. Write a new message: treadle -p --resume {resumed} "…"'
    return RunReport(reason="error", exit_code=code, error=text)


def explain_exit(
    report: RunReport,
    denied: Sequence[str],
    suspended: TurnSuspended | None,
    settings: Settings,
    flags: Mapping[str, object],
    until: str = "",
    program: str = "treadle",
) -> str:
    """`denied` are the calls that needed an approval. `flags` are the settings of the command line:
    those that limit a session are not stored. `until` is the command of the goal, `program` how the
    program is started again."""
    given = "".join(f" {_format_flag(name)} {flags[name]}" for name in _LIMITS if name in flags)
    given += f" --until {shlex.quote(until)}" if until else ""
    command = f"{program} -p --resume {report.session_id}"
    resume = f"; to continue: {command}{given}" if report.session_id else ""
    match report.exit_code:
        case exit_codes.APPROVAL_NEEDED:
            calls = ", ".join(dict.fromkeys(denied))
            rules = report.missing_rules if len(report.missing_rules) <= _MAX_NAMED_RULES else ()
            allow = " ".join(f"--allow {shlex.quote(rule)}" for rule in rules)
            return f"needs approval: {calls} (allow with {allow or '--allow RULE'})"
        case exit_codes.REFUSED:
            return report.detail or "the model refused to answer"
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


def find_unwritten_answer(old: SessionState | None, driver: Driver | None) -> str:
    """The answer of a run that failed after it, because the session could not be written."""
    old = old or SessionState()
    before = old.full_history
    if driver is None or len(driver.history) == len(before):
        return ""
    move = pending(driver.transcript)
    return move.reply.text if isinstance(move, Rest) and move.reply is not None else ""

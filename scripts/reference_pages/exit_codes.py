"""The page of the exit codes: the constants of apps/console/exit_codes.py."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.reference_pages.markdown import list_codes, make_page, make_table
from treadle import errors
from treadle.apps.console import exit_codes
from treadle.core.errors import TreadleError

INTRODUCTION = """\
All commands share these codes; codes from 64 on follow `sysexits.h` where it has one that fits.
Whatever the code of `treadle -p`, the session has everything that was done, and `--resume ID`
continues it ([continue and resume](../cli.md#continue-and-resume)).

The reason is the field `reason` of `--output-format json` and of the last line of `stream-json`.
An error has the code of the nearest class above it that is named; every other one ends with 1."""
COLUMNS = ("code", "meaning", "reason, error")
# By the name of the constant: what it means with `treadle -p`, and with other commands.
TEXTS = {
    "SUCCESS": "Done.",
    "ERROR": (
        "An error; the message says which. Also: a test of `treadle test` failed, `treadle "
        "permissions backtest` found "
        "a call that you denied, a fleet cannot use its database."
    ),
    "USAGE_ERROR": (
        "The command line, a settings file, a rule, a task or a model name is invalid, or there is"
        " nothing to do."
    ),
    "MAX_TURNS": "The limit of tool rounds is reached.",
    "BUDGET_EXCEEDED": (
        "The limit of cost, tokens or time is reached, the model repeats the same calls, or "
        "background agents took "
        "too long. Of a fleet: the money of `--total-cost` is spent before all runs have ended."
    ),
    "GOAL_NOT_MET": (
        "The command of `--until` failed too often. Of a fleet: some runs did not pass."
    ),
    "REFUSED": (
        "The model refused to answer, or a small model could not do what you asked, and its answer "
        "says so."
    ),
    "APPROVAL_NEEDED": "The turn ended, but a call that needed an approval was denied.",
    "SESSION_NOT_FOUND": "The session does not exist.",
    "WRONG_FOLDER": "The session belongs to another folder.",
    "SESSION_BUSY": "Another process has the session open.",
    "UNAVAILABLE": "The provider cannot be reached, or stays overloaded.",
    "IO_ERROR": "The session, the answer, or the report or database of a fleet cannot be written.",
    "SUSPENDED": "The turn is suspended on disk (`--suspend`).",
    "SESSION_TOO_NEW": "The session has a newer format: it can be shown, not resumed.",
    "ACCESS_DENIED": "The key is invalid or lacks a permission, or the account has no credit.",
    "ABORTED": "Interrupted (SIGINT); a second one exits at once.",
    "BROKEN_PIPE": "The reader of standard output closed it, as `head` does.",
    "TERMINATED": "SIGTERM, SIGHUP, or the parent died. The program ends within two seconds.",
}
# Reasons that the table of the program does not have: they are no end of a turn.
OTHER_REASONS = {
    "APPROVAL_NEEDED": ["end_turn"],
    "SUSPENDED": ["suspended"],
    "BROKEN_PIPE": ["aborted"],
    "TERMINATED": ["aborted"],
}


def write_page() -> str:
    rows = [describe(name) for name in list_constants()]
    return make_page("Exit codes", INTRODUCTION, make_table(COLUMNS, rows))


def list_constants() -> list[str]:
    """The names of the exit codes, by their numbers."""
    values = {name: value for name, value in vars(exit_codes).items() if isinstance(value, int)}
    return sorted(values, key=values.__getitem__)


def describe(name: str) -> list[str]:
    code = getattr(exit_codes, name)
    return [str(code), TEXTS[name], ", ".join(list_causes(name))]


def list_causes(name: str) -> Iterator[str]:
    """The reasons of a turn that ended so, and the errors."""
    code = getattr(exit_codes, name)
    table = exit_codes.EXIT_CODE_BY_REASON
    reasons = [one for one, its_code in table.items() if its_code == code]
    if reasons := reasons + OTHER_REASONS.get(name, []):
        yield list_codes(reasons)
    if code != exit_codes.ERROR:
        kinds = [one for one in errors.__all__ if find_exit_code(getattr(errors, one)) == code]
        yield from (f"[`{one}`](errors.md#{one.lower()})" for one in kinds)


def find_exit_code(kind: type[TreadleError]) -> int:
    """The code with which `treadle -p` ends after this error."""
    return exit_codes.exit_code_for(kind.__new__(kind))

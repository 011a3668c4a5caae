"""The exit codes that a script reads, and which error leads to which.

Values and one table. The reasons why a turn ends have codes too; those of errors that end the
program are decided here, so that every command answers the same trouble with the same number.
"""

from __future__ import annotations

from treadle.core.errors import (
    AccessDenied,
    ConfigError,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    SessionUnknown,
    StoreError,
    StreamBroken,
    TreadleError,
    UnknownModel,
    Unreachable,
)

DONE = 0
ERROR = 1
USAGE = 2
MAX_TURNS = 3
BUDGET_EXCEEDED = 4
GOAL_NOT_MET = 5
REFUSED = 6
APPROVAL_NEEDED = 7
UNAVAILABLE = 69
DISK = 74
PARKED = 75
NO_ACCESS = 77
ABORTED = 130
NO_READER = 141  # of standard output: as if SIGPIPE had ended us
TERMINATED = 143

OF_REASON = {
    "end_turn": DONE,
    "max_turns": MAX_TURNS,
    "budget_exceeded": BUDGET_EXCEEDED,
    "goal_not_met": GOAL_NOT_MET,
    "refused": REFUSED,
    "aborted": ABORTED,
    "error": ERROR,
}

_CODES: tuple[tuple[tuple[type[TreadleError], ...], int], ...] = (
    ((AccessDenied, QuotaExhausted), NO_ACCESS),
    ((RateLimited, Overloaded, Unreachable, StreamBroken), UNAVAILABLE),
    ((UnknownModel, ConfigError, SessionUnknown), USAGE),
    ((StoreError,), DISK),
)


def code_for(error: BaseException) -> int:
    """The exit code for an error that ends the program."""
    if isinstance(error, KeyboardInterrupt):
        return ABORTED
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), ERROR)

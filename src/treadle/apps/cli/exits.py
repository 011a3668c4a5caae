"""The exit codes that a script reads, and which error leads to which: one table for all commands.

Values alone. Codes from 64 on mean what sysexits.h says where it has a word for it. The reasons
why a turn ends have codes too.
"""

from __future__ import annotations

from treadle.core.errors import (
    AccessDenied,
    ConfigError,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    SessionBusy,
    SessionElsewhere,
    SessionTooNew,
    SessionUnknown,
    StoreError,
    StoreFull,
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
UNKNOWN = 66  # no such session
ELSEWHERE = 67  # the session belongs to another folder
BUSY = 68  # another process has the session open
UNAVAILABLE = 69
DISK = 74
PARKED = 75
TOO_NEW = 76  # the session was written by a newer version
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

# In this order: the first that fits says the code.
_CODES: tuple[tuple[tuple[type[TreadleError], ...], int], ...] = (
    ((AccessDenied, QuotaExhausted), NO_ACCESS),
    ((RateLimited, Overloaded, Unreachable, StreamBroken), UNAVAILABLE),
    ((UnknownModel, ConfigError), USAGE),
    ((SessionUnknown,), UNKNOWN),
    ((SessionElsewhere,), ELSEWHERE),
    ((SessionBusy,), BUSY),
    ((SessionTooNew,), TOO_NEW),
    ((StoreFull,), DISK),
)


def code_for(error: BaseException) -> int:
    """The exit code for an error that ends the program."""
    if isinstance(error, KeyboardInterrupt):
        return ABORTED
    if isinstance(error, StoreError) and isinstance(error.__cause__, OSError):
        return next((code for kinds, code in _CODES if isinstance(error, kinds)), DISK)
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), ERROR)

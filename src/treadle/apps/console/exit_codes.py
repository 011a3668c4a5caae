"""The exit codes of all commands, and which error or reason of a turn has which code.

Codes from 64 on follow sysexits.h where it has a matching one.
"""

from __future__ import annotations

from treadle.core import errors
from treadle.core.errors import TreadleError

SUCCESS = 0
ERROR = 1
USAGE_ERROR = 2
MAX_TURNS = 3
BUDGET_EXCEEDED = 4
GOAL_NOT_MET = 5
REFUSED = 6
APPROVAL_NEEDED = 7
SESSION_NOT_FOUND = 66  # no such session
WRONG_FOLDER = 67  # the session belongs to another folder
SESSION_BUSY = 68  # another process has the session open
UNAVAILABLE = 69
IO_ERROR = 74
SUSPENDED = 75
SESSION_TOO_NEW = 76  # the session has a newer format
ACCESS_DENIED = 77
ABORTED = 130
BROKEN_PIPE = 141  # of stdout: as if ended by SIGPIPE
TERMINATED = 143

EXIT_CODE_BY_REASON = {
    "end_turn": SUCCESS,
    "max_turns": MAX_TURNS,
    "budget_exceeded": BUDGET_EXCEEDED,
    "repetition": BUDGET_EXCEEDED,
    "background_wait": BUDGET_EXCEEDED,
    "goal_not_met": GOAL_NOT_MET,
    "refused": REFUSED,
    "aborted": ABORTED,
    "error": ERROR,
}

# The first match counts.
_CODES_BY_ERROR: tuple[tuple[tuple[type[TreadleError], ...], int], ...] = (
    ((errors.AccessDenied, errors.QuotaExhausted), ACCESS_DENIED),
    ((errors.RateLimited, errors.Overloaded, errors.Unreachable, errors.StreamBroken), UNAVAILABLE),
    ((errors.UnknownModel, errors.ConfigError), USAGE_ERROR),
    ((errors.SessionNotFound,), SESSION_NOT_FOUND),
    ((errors.SessionInOtherFolder,), WRONG_FOLDER),
    ((errors.SessionBusy,), SESSION_BUSY),
    ((errors.SessionTooNew,), SESSION_TOO_NEW),
    ((errors.StoreFull,), IO_ERROR),
)


def exit_code_for(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return ABORTED
    cause: BaseException | None = error
    while isinstance(cause, errors.StoreError):
        cause = cause.__cause__
    default = IO_ERROR if cause is not error and isinstance(cause, OSError) else ERROR
    return next((code for kinds, code in _CODES_BY_ERROR if isinstance(error, kinds)), default)

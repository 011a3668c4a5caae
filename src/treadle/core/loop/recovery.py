"""What to do about a failed model call: a pure table.

    error            verdict
    --------------   ----------------------------------------------------------
    RateLimited      retry 5 times, when the provider says or with backoff
    Overloaded       retry 3 times with backoff
    Unreachable      retry 3 times with backoff
    StreamBroken     retry 3 times with backoff
    ReplyTimedOut    retry once: each attempt waits for minutes
    anything else    surface: the same request would fail the same way

    ContextTooLong surfaces too; the driver makes the view smaller, once a round, and asks anew.

When the retries of a class are used up, the next fallback model is asked; without one the
error surfaces. Each class has a budget of its own. Asking and the driver carry verdicts out.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from treadle.core.errors import (
    AccessDenied,
    CacheUnsupported,
    ContextTooLong,
    ModelError,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    ReplyTimedOut,
    StreamBroken,
    UnknownModel,
    Unreachable,
)

RETRIES: Mapping[type[ModelError], int] = {
    RateLimited: 5,
    Overloaded: 3,
    Unreachable: 3,
    StreamBroken: 3,
    ReplyTimedOut: 1,
}
BASE_DELAY = 1.0
MAX_BACKOFF = 60.0
MAX_WAIT = 300.0

# Errors of one model's account, name or service: another model can help.
FALLBACK_ERRORS = (
    RateLimited,
    Overloaded,
    Unreachable,
    StreamBroken,
    AccessDenied,
    QuotaExhausted,
    UnknownModel,
    CacheUnsupported,
)


class Retry(msgspec.Struct, frozen=True):
    """Call the same model again after `delay` seconds."""

    delay: float


class UseFallback(msgspec.Struct, frozen=True):
    """Call the fallback model."""


class RaiseError(msgspec.Struct, frozen=True):
    """Raise the error: the turn ends."""


RecoveryAction = Retry | UseFallback | RaiseError


def choose_recovery(
    error: ModelError,
    failures: Mapping[type[ModelError], int],
    *,
    jitter: float,
    has_fallback: bool,
) -> RecoveryAction:
    """`failures` counts the earlier errors of this call by class; `jitter` is in [0, 1)."""
    allowed = RETRIES.get(type(error), 0)
    before = failures.get(type(error), 0)
    if before < allowed:
        return Retry(_delay(error, before, jitter))
    if has_fallback and isinstance(error, FALLBACK_ERRORS):
        return UseFallback()
    return RaiseError()


def may_compact(error: ModelError) -> bool:
    """Whether a smaller request could succeed."""
    return isinstance(error, ContextTooLong)


def _delay(error: ModelError, failures: int, jitter: float) -> float:
    if error.retry_after is not None and error.retry_after >= 0:
        return min(error.retry_after, MAX_WAIT)
    return min(BASE_DELAY * float(2**failures) + jitter, MAX_BACKOFF)

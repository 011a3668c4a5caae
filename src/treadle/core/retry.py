"""What to do about a failed model call: a pure table.

    error            verdict
    --------------   ----------------------------------------------------------
    RateLimited      retry 5 times with backoff
    Overloaded       retry 3 times with backoff
    Unreachable      retry 3 times with backoff
    StreamBroken     retry 3 times with backoff
    ReplyTimedOut    retry once: each attempt waits for minutes
    AccessDenied, QuotaExhausted, UnknownModel, CacheUnsupported
                     the fallback model at once: another account or name may work
    anything else    surface: the same request would fail the same way

    ContextTooLong surfaces too; the driver makes the view smaller, once a round, and asks anew.

A time that the provider announces replaces the backoff. When it is beyond `Retry.max_wait`, or the
retries of a class are used up, the next fallback model is asked; without one the error surfaces,
with the time. Each class has a budget of its own. `Retry` changes the numbers for an agent. The
driver, model_call.py and models/embeddings carry verdicts out.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from treadle.core import errors
from treadle.core.argument_checks import (
    FLAG,
    Expected,
    SuggestingMeta,
    check_fields,
    number,
    optional,
    whole_number,
)
from treadle.core.errors import ModelError

RETRIES: Mapping[type[ModelError], int] = {
    errors.RateLimited: 5,
    errors.Overloaded: 3,
    errors.Unreachable: 3,
    errors.StreamBroken: 3,
    errors.ReplyTimedOut: 1,
}
BASE_DELAY = 1.0
MAX_BACKOFF = 60.0
MAX_WAIT = 300.0

# Errors of one model's account, name or service: another model can help.
FALLBACK_ERRORS = (
    errors.RateLimited,
    errors.Overloaded,
    errors.Unreachable,
    errors.StreamBroken,
    errors.AccessDenied,
    errors.QuotaExhausted,
    errors.UnknownModel,
    errors.CacheUnsupported,
)


_RETRY: Mapping[str, Expected] = {
    "attempts": optional(whole_number(1)),
    "max_wait": number("seconds, 0 or more", lambda value: 0 <= value < float("inf")),
    "fallback": FLAG,
}


class Retry(msgspec.Struct, frozen=True, metaclass=SuggestingMeta):
    """How often a failed model call is repeated; `Agent(retry=Retry(attempts=3, max_wait=20))`.

    attempts   of one call with one model, the first included: 1 repeats nothing. None, the default:
               6 if the provider limits the rate, 2 if it is silent for minutes, otherwise 4
    max_wait   seconds between two attempts at most. If the provider asks for more, the fallback
               model is asked at once, or the error names the time. If the provider names no
               time, it is 1 second, doubled each time, and at most 60
    fallback   whether the fallback model, if there is one, is asked after the last attempt

    Only errors that may pass are repeated: rate limits, overload, broken connections and streams.
    """

    attempts: int | None = None
    max_wait: float = MAX_WAIT
    fallback: bool = True

    def __post_init__(self) -> None:
        check_fields(self, _RETRY)


DEFAULT_RETRY = Retry()


class RetryAfter(msgspec.Struct, frozen=True):
    """Call the same model again after `delay` seconds."""

    delay: float


class UseFallback(msgspec.Struct, frozen=True):
    """Call the fallback model."""


class RaiseError(msgspec.Struct, frozen=True):
    """Raise the error: the turn ends. `max_wait` is set if the provider announced a longer wait."""

    max_wait: float | None = None


RecoveryAction = RetryAfter | UseFallback | RaiseError


def choose_recovery(
    error: ModelError,
    failures: Mapping[type[ModelError], int],
    *,
    jitter: float,
    has_fallback: bool,
    retry: Retry = DEFAULT_RETRY,
) -> RecoveryAction:
    """`failures` counts the earlier errors of this call by class; `jitter` is in [0, 1)."""
    announced = error.retry_after if type(error) in RETRIES else None
    is_too_long = announced is not None and announced > retry.max_wait
    if not is_too_long and _may_retry(error, failures, retry):
        delay = _delay(error, failures.get(type(error), 0), jitter)
        return RetryAfter(min(delay, retry.max_wait))
    if has_fallback and retry.fallback and isinstance(error, FALLBACK_ERRORS):
        return UseFallback()
    return RaiseError(retry.max_wait if is_too_long else None)


def _may_retry(error: ModelError, failures: Mapping[type[ModelError], int], retry: Retry) -> bool:
    allowed = RETRIES.get(type(error), 0)
    if retry.attempts is None or not allowed:
        return failures.get(type(error), 0) < allowed
    return sum(failures.values()) + 1 < retry.attempts


def _delay(error: ModelError, failures: int, jitter: float) -> float:
    if error.retry_after is not None and error.retry_after >= 0:
        return error.retry_after
    return min(BASE_DELAY * float(2**failures) + jitter, MAX_BACKOFF)

"""The table of recovery, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.core.errors import (
    AccessDenied,
    BadRequest,
    ConfigError,
    ContextTooLong,
    EmptyReply,
    ModelError,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    ReplyTimedOut,
    StreamBroken,
    UnknownModel,
    Unreachable,
)
from treadle.core.retry import (
    RaiseError,
    Retry,
    RetryAfter,
    UseFallback,
    choose_recovery,
)

RETRIED = [
    (RateLimited, 5),
    (Overloaded, 3),
    (Unreachable, 3),
    (StreamBroken, 3),
    (ReplyTimedOut, 1),
]
FINAL = [BadRequest, AccessDenied, QuotaExhausted, UnknownModel, EmptyReply]


@pytest.mark.parametrize(("kind", "times"), RETRIED)
def test_transient_errors_are_retried_so_often_and_no_more(kind: type[ModelError], times: int):
    error = kind("passes")
    answers = [
        choose_recovery(error, {kind: before}, jitter=0.0, has_fallback=False)
        for before in range(times + 1)
    ]
    assert all(isinstance(answer, RetryAfter) for answer in answers[:times])
    assert answers[times] == RaiseError()


@pytest.mark.parametrize(("kind", "times"), RETRIED)
def test_then_the_fallback_is_asked(kind: type[ModelError], times: int):
    answer = choose_recovery(kind("x"), {kind: times}, jitter=0.0, has_fallback=True)
    assert answer == UseFallback()


@pytest.mark.parametrize("kind", FINAL)
def test_what_would_fail_again_is_never_retried(kind: type[ModelError]):
    assert choose_recovery(kind("x"), {}, jitter=0.0, has_fallback=False) == RaiseError()


@pytest.mark.parametrize("kind", [AccessDenied, QuotaExhausted, UnknownModel])
def test_another_model_helps_where_the_account_is_the_trouble(kind: type[ModelError]):
    assert choose_recovery(kind("x"), {}, jitter=0.0, has_fallback=True) == UseFallback()


def test_a_bad_request_is_not_shown_to_another_model_as_it_is():
    assert choose_recovery(BadRequest("x"), {}, jitter=0.0, has_fallback=True) == RaiseError()


def test_backoff_doubles_with_jitter_up_to_a_limit():
    delays = [
        choose_recovery(RateLimited("x"), {RateLimited: n}, jitter=0.5, has_fallback=False)
        for n in range(5)
    ]
    assert delays == [RetryAfter(seconds) for seconds in (1.5, 2.5, 4.5, 8.5, 16.5)]


@pytest.mark.parametrize(
    ("said", "waited"), [(7.0, 7.0), (0.0, 0.0), (300.0, 300.0), (-5.0, 1.5), (None, 1.5)]
)
def test_fault_30_the_providers_word_is_honoured(said: float | None, waited: float):
    error = RateLimited("x", retry_after=said)
    assert choose_recovery(error, {}, jitter=0.5, has_fallback=False) == RetryAfter(waited)


@pytest.mark.parametrize("kind", [RateLimited, Overloaded, Unreachable])
@pytest.mark.parametrize("said", [301.0, 3600.0, 1e9, float("inf")])
def test_fault_30_a_wait_beyond_the_limit_is_not_begun(kind: type[ModelError], said: float):
    error = kind("x", retry_after=said)
    assert choose_recovery(error, {}, jitter=0.0, has_fallback=True) == UseFallback()
    assert choose_recovery(error, {}, jitter=0.0, has_fallback=False) == RaiseError(300.0)


def test_each_class_has_a_budget_of_its_own():
    spent = {RateLimited: 5, Overloaded: 1}
    assert choose_recovery(RateLimited("x"), spent, jitter=0.0, has_fallback=False) == RaiseError()
    assert choose_recovery(Overloaded("x"), spent, jitter=0.0, has_fallback=False) == RetryAfter(
        2.0
    )


def test_a_context_that_is_too_long_is_not_sent_again():
    assert choose_recovery(ContextTooLong("x"), {}, jitter=0.0, has_fallback=True) == RaiseError()


# --- settings of an agent ----------------------------------------------------------------


def test_an_agent_may_set_how_many_attempts_one_call_has_whatever_fails():
    twice = Retry(attempts=2)
    for kind in (RateLimited, Overloaded):
        first = choose_recovery(kind("x"), {}, jitter=0.0, has_fallback=False, retry=twice)
        assert first == RetryAfter(1.0)
        last = choose_recovery(
            kind("x"), {Overloaded: 1}, jitter=0.0, has_fallback=False, retry=twice
        )
        assert last == RaiseError()


def test_an_agent_may_set_the_longest_wait():
    error = RateLimited("x", retry_after=120.0)
    patient = choose_recovery(error, {}, jitter=0.0, has_fallback=False, retry=Retry(max_wait=600))
    hasty = choose_recovery(error, {}, jitter=0.0, has_fallback=False, retry=Retry(max_wait=2))
    assert (patient, hasty) == (RetryAfter(120.0), RaiseError(2.0))
    backoff = choose_recovery(
        RateLimited("x"), {RateLimited: 4}, jitter=0.0, has_fallback=False, retry=Retry(max_wait=2)
    )
    assert backoff == RetryAfter(2.0)


def test_an_agent_may_do_without_its_fallback():
    only = Retry(attempts=1, fallback=False)
    error = Overloaded("x")
    assert choose_recovery(error, {}, jitter=0.0, has_fallback=True, retry=only) == RaiseError()


def test_what_can_never_succeed_is_not_repeated_with_any_setting():
    many = Retry(attempts=99)
    error = BadRequest("x")
    assert choose_recovery(error, {}, jitter=0.0, has_fallback=True, retry=many) == RaiseError()


@pytest.mark.parametrize(
    "given", [{"attempts": 0}, {"attempts": 1.5}, {"attempts": True}, {"attempts": "3"},
              {"max_wait": -1}, {"max_wait": "20"}, {"max_wait": float("nan")}, {"fallback": 1}],
)  # fmt: skip
def test_a_wrong_value_is_named(given: dict[str, Any]):
    with pytest.raises(ConfigError, match=rf"Retry\.{next(iter(given))} is .*; expected"):
        Retry(**given)

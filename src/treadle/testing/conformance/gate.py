"""The promises of a Gate (core/contracts/gate.py), as checks.

    await check_gate(lambda: TokenBudget(...), at_once=3)

`at_once` says how many requests of the suite (10,000 characters, a reply of 1,000 tokens) the
gate may admit before one of them is settled: a gate that reserves nothing admits more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import get_args

import msgspec

from treadle.core.contracts.gate import Admit, Gate, RequestEstimate, Stop, Wait
from treadle.core.contracts.model import ModelCard
from treadle.core.transcript.items import to_user_item
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage
from treadle.testing.conformance.promises import (
    Promise,
    assert_returns_at_once,
    build,
    keep_promises,
)

MakeGate = Callable[[], Gate | Awaitable[Gate]]

REQUEST_CHARS, MAX_OUTPUT = 10_000, 1_000
MANY = 1_000
SECONDS_TO_WAKE = 1.0
STOP_REASONS = get_args(msgspec.structs.fields(Stop)[0].type)


def make_estimate(
    turn_id: str = "turn-1", *, rounds: int = 0, card: ModelCard | None = None
) -> RequestEstimate:
    """The worst case of a request, as the loop gives it to a gate."""
    return RequestEstimate(
        session_id="session",
        turn_id=turn_id,
        rounds=rounds,
        calls=rounds,
        usage=Usage(),
        session_usage=Usage(),
        transcript=Transcript([to_user_item("Tidy up.")]),
        card=card or ModelCard("conformance/model", input_price=1.0, output_price=10.0),
        request_chars=REQUEST_CHARS,
        max_output=MAX_OUTPUT,
    )


async def check_gate(make: MakeGate, *, at_once: int | None = None) -> None:
    """Raise an AssertionError that names the first broken promise."""
    await keep_promises("gate", GATE_PROMISES, make, at_once)


async def admits_or_stops_with_a_reason(make: MakeGate, at_once: int | None) -> None:
    gate = await build(make)
    for rounds in range(50):
        estimate = make_estimate(rounds=rounds)
        answer = gate.admit(estimate)
        assert isinstance(answer, (Admit, Stop)), f"admit() returns {answer!r}"
        stop = answer.call_stop if isinstance(answer, Admit) else answer
        if stop is not None:
            assert stop.reason in STOP_REASONS, f"{stop.reason!r} is not one of {STOP_REASONS}"
            assert stop.detail.strip(), "a Stop says in `detail` why"
        if isinstance(answer, Admit):
            limit = answer.max_output
            assert limit is None or 0 < limit <= MAX_OUTPUT, f"the reply is limited to {limit}"
        if isinstance(answer, Admit) or answer.closing_tokens:
            gate.settle(estimate, Usage(100, 100, requests=1, cost=0.001))


async def does_not_block(make: MakeGate, at_once: int | None) -> None:
    gate = await build(make)
    assert_returns_at_once(lambda: gate.admit(make_estimate()), "admit()")
    gate = await build(make)
    estimates = [make_estimate() for _ in range(MANY)]
    admitted = [estimate for estimate in estimates if isinstance(gate.admit(estimate), Admit)]
    if len(admitted) >= 5:
        assert_returns_at_once(lambda: gate.settle(admitted.pop(), Usage()), "settle()")


async def gives_back_what_a_call_did_not_use(make: MakeGate, at_once: int | None) -> None:
    """A call that was admitted and not made costs nothing, however often."""
    gate = await build(make)
    for number in range(MANY):
        estimate = make_estimate()
        answer = gate.admit(estimate)
        if number == 0 and isinstance(answer, Stop):
            return  # it admits nothing
        assert isinstance(answer, Admit), f"after {number} calls that used nothing: {answer}"
        gate.settle(estimate, Usage())


async def reserves_what_it_admits(make: MakeGate, at_once: int | None) -> None:
    if at_once is None:
        return
    gate = await build(make)
    estimates = [make_estimate() for _ in range(at_once + 1)]
    answers = [gate.admit(estimate) for estimate in estimates]
    admitted = sum(isinstance(answer, Admit) for answer in answers)
    assert admitted <= at_once, f"{admitted} calls are admitted at once, and {at_once} fit"
    for estimate, answer in zip(estimates, answers, strict=True):
        if isinstance(answer, Admit):
            gate.settle(estimate, Usage())


async def settles_calls_in_any_order_and_of_unknown_cost(
    make: MakeGate, at_once: int | None
) -> None:
    """Several calls of one session may be open: that of the loop, and one of a mutator."""
    gate = await build(make)
    opened = []
    for _ in range(3):
        estimate = make_estimate()
        if isinstance(gate.admit(estimate), Admit):
            opened.append(estimate)
    for estimate in reversed(opened):
        gate.settle(estimate, Usage(1, 1, requests=1, cost=None))


async def ends_a_wait_when_another_call_is_settled(make: MakeGate, at_once: int | None) -> None:
    gate = await build(make)
    opened = [make_estimate() for _ in range(1 if at_once is None else at_once)]
    answers = [gate.admit(estimate) for estimate in opened]
    answer = gate.admit(make_estimate())
    if not isinstance(answer, Wait):
        return
    assert answer.detail.strip(), "a Wait says in `detail` what it waits for"
    waiting = asyncio.ensure_future(answer.until_freed())
    for estimate, earlier in zip(opened, answers, strict=True):
        if isinstance(earlier, Admit):
            gate.settle(estimate, Usage())
    done, _ = await asyncio.wait([waiting], timeout=SECONDS_TO_WAKE)
    waiting.cancel()
    assert done, "until_freed() does not end when the calls before it are settled"


GATE_PROMISES: tuple[Promise, ...] = (
    admits_or_stops_with_a_reason,
    does_not_block,
    gives_back_what_a_call_did_not_use,
    reserves_what_it_admits,
    settles_calls_in_any_order_and_of_unknown_cost,
    ends_a_wait_when_another_call_is_settled,
)

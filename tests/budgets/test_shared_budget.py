"""A budget that many requests use at once: in one loop, in several loops, in several threads."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import msgspec
import pytest

from treadle.budgets import CostBudget, SharedBudget, TokenBudget
from treadle.core.contracts.gate import Admit, RequestEstimate, Stop, Wait
from treadle.core.transcript.usage import Usage
from treadle.testing.conformance.gate import make_estimate

# A request of the suite may use 5,001 tokens.
USED = Usage(2_000, 1_000, requests=1)


def make_waiting(limit: int) -> TokenBudget:
    return TokenBudget(limit, when_reserved="wait")


def start(gate: TokenBudget) -> RequestEstimate:
    """A request of another run that is admitted and not settled."""
    estimate = make_estimate()
    assert isinstance(gate.admit(estimate), Admit)
    return estimate


def must_wait(gate: TokenBudget) -> Wait:
    answer = gate.admit(make_estimate())
    assert isinstance(answer, Wait)
    return answer


@pytest.fixture
def often_switched():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("often_switched")
def test_no_amount_is_lost_between_threads():
    budget, times = SharedBudget(1e12), 5_000

    def work() -> None:
        for _ in range(times):
            assert budget.reserve(1.0)
            budget.settle(1.0, 1.0)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(work) for _ in range(4)]:
            done.result()
    assert (budget.spent, budget.reserved) == (4 * times, 0.0)


@pytest.mark.usefixtures("often_switched")
def test_threads_that_wait_for_each_other_never_reserve_more_than_the_limit():
    gate = make_waiting(1_000_000)
    gate.budget.spent = 1_000_000 - 60_000  # for twenty requests, and for two at once at the end

    async def run() -> int:
        for number in range(20):
            estimate = make_estimate()
            while isinstance(answer := gate.admit(estimate), Wait):
                await answer.until_freed()
            if isinstance(answer, Stop):
                return number
            assert gate.budget.reserved + gate.budget.spent <= gate.budget.limit
            await asyncio.sleep(0)
            gate.settle(estimate, USED)
        return 20

    with ThreadPoolExecutor(4) as threads:
        done = [threads.submit(asyncio.run, run()) for _ in range(4)]
        assert sum(one.result() for one in done) == 19  # the rest pays for no twentieth
    assert (gate.budget.spent, gate.budget.reserved) == (997_000, 0)


async def test_a_request_waits_until_another_one_is_settled():
    gate = make_waiting(9_000)
    first = start(gate)
    answer = must_wait(gate)
    assert answer.detail.endswith(
        "(5,001 tokens reserved by other requests); it waits for one of them to end"
    )
    waiting = asyncio.create_task(_await(answer))
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.settle(first, USED)
    await waiting
    start(gate)


async def test_a_reservation_that_is_freed_before_the_wait_begins_is_not_missed():
    gate = make_waiting(9_000)
    first = start(gate)
    answer = must_wait(gate)
    gate.settle(first, USED)
    await answer.until_freed()


def test_a_request_waits_for_one_of_another_thread_and_loop():
    gate, is_asked = make_waiting(9_000), Event()
    first = start(gate)

    async def run() -> None:
        answer = must_wait(gate)
        is_asked.set()
        await answer.until_freed()
        start(gate)

    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(asyncio.run, run())
        is_asked.wait()
        gate.settle(first, USED)
        done.result()


async def test_a_wait_can_be_cancelled():
    gate = make_waiting(9_000)
    first = start(gate)
    waiting = asyncio.create_task(_await(must_wait(gate)))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.settle(first, USED)
    start(gate)


def test_what_no_other_request_can_free_is_refused():
    gate = make_waiting(9_000)
    gate.settle(start(gate), USED)
    gate.settle(start(gate), USED)
    assert isinstance(gate.admit(make_estimate()), Stop)  # nothing is reserved
    gate = make_waiting(9_000)
    start(gate)
    large = msgspec.structs.replace(make_estimate(), request_chars=100_000)
    assert isinstance(gate.admit(large), Stop)  # more than the whole budget


def test_a_request_does_not_wait_for_itself():
    budget = SharedBudget(0.02, "wait")
    first, second = CostBudget(budget), CostBudget(budget)
    estimate = make_estimate()
    assert isinstance(first.admit(estimate), Admit)
    assert isinstance(second.admit(estimate), Stop)


def ask(gate: TokenBudget, session_id: str, *parent_ids: str) -> type:
    """What the gate answers to a request of this session; if it is admitted, it uses 3,000."""
    estimate = msgspec.structs.replace(
        make_estimate(), session_id=session_id, parent_ids=parent_ids
    )
    answer = gate.admit(estimate)
    if isinstance(answer, Admit):
        gate.settle(estimate, USED)
    return type(answer)


def test_a_child_leaves_its_parents_a_closing_reply_and_a_stranger_does_not():
    gate = TokenBudget(17_000)
    assert ask(gate, "parent") is Admit
    assert ask(gate, "child", "parent") is Stop  # of 14,000 it leaves twice 5,001
    assert ask(gate, "grandchild", "child", "parent") is Stop
    for _ in range(2):
        assert ask(gate, "stranger") is Admit
    assert ask(gate, "parent") is Admit


def test_a_resumed_parent_is_left_a_closing_reply_before_it_asks():
    gate = TokenBudget(17_000)
    gate.expect_closing("parent", 6_000)
    assert ask(gate, "child", "parent") is Stop
    assert ask(gate, "stranger") is Admit


def test_the_sums_of_a_budget_have_no_noise():
    budget = SharedBudget(1.0)
    for amount in (0.1, 0.2):
        assert budget.reserve(amount)
        budget.settle(amount, amount)
    assert (budget.spent, budget.reserved) == (0.3, 0.0)


def test_children_use_the_budget_of_the_session_that_started_them():
    gate = TokenBudget(26_000, per_session=True)
    for _ in range(3):
        assert ask(gate, "parent") is Admit
    assert ask(gate, "child", "parent") is Admit
    assert ask(gate, "grandchild", "child", "parent") is Stop
    assert ask(gate, "other") is Admit


async def _await(answer: Wait) -> None:
    await answer.until_freed()

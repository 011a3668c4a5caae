"""An amount that requests reserve before they are sent, and the account of it.

Many runs may share it, with their children, in several event loops and threads. It knows no
prices: gates.py decides what a request reserves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from math import inf
from threading import RLock
from typing import Literal, get_args

import msgspec

from treadle.core.argument_checks import Expected, check, number, one_of
from treadle.core.contracts.gate import RequestEstimate
from treadle.core.session_cache import SessionCache

WhenReserved = Literal["refuse", "wait"]
ROUNDING = 1e-9
DIGITS = 12  # of sums: 0.1 + 0.2 is 0.3


LIMIT = number("a number of 0 or more", lambda value: value >= 0)
COUNT_LIMIT = Expected(
    lambda value: LIMIT.fits(value) and (isinstance(value, int) or value == inf),
    "a whole number of 0 or more",
)


class _Reservation(msgspec.Struct, frozen=True, eq=False):
    """What one gate has reserved for one request."""

    estimate: RequestEstimate
    amount: float


class SharedBudget:
    """An amount that many runs share, with their children, in any thread. Each request reserves
    before it is sent.

    A request that fits only if another one frees what it has reserved is refused or, with
    `when_reserved="wait"`, waits for that.
    """

    def __init__(self, limit: float, when_reserved: WhenReserved = "refuse") -> None:
        check("when_reserved", when_reserved, one_of(*get_args(WhenReserved)))
        check("budget", limit, LIMIT)
        self.limit = limit
        self.when_reserved = when_reserved
        self.spent = 0.0
        self.spent_before = 0.0  # the part of `spent` from before this run
        self.reserved = 0.0
        # For the gates of this budget, which hold the lock from the look to the reservation.
        self.lock = RLock()
        self.closings = SessionCache(lambda: 0.0)  # what a closing reply of a session may cost
        self.notice_counts = SessionCache(lambda: 0)  # of the notices that a session has got
        self.has_session = False  # as the account of one session: it has made a request
        self._reservations: dict[tuple[int, int], _Reservation] = {}
        self._waiters: set[Future[None]] = set()

    @property
    def remaining(self) -> float:
        return self.limit - self.spent - self.reserved

    def reserve(self, amount: float) -> bool:
        """Reserve an amount if it remains, and return whether it did."""
        with self.lock:
            if amount > self.remaining + ROUNDING:
                return False
            self.reserved += amount
            return True

    def settle(self, reserved: float, spent: float) -> None:
        """Free what was reserved, count what was spent, and wake the requests that wait."""
        with self.lock:
            self.reserved = max(0.0, round(self.reserved - reserved, DIGITS))
            self.spent = round(self.spent + spent, DIGITS)
            waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if waiter.set_running_or_notify_cancel():
                waiter.set_result(None)

    def add_earlier(self, spent: float) -> None:
        """Count what a resumed session has spent before."""
        with self.lock:
            self.spent_before = round(self.spent_before + spent, DIGITS)
            self.spent = round(self.spent + spent, DIGITS)

    # --- for the gates -------------------------------------------------------------------

    def reserve_request(self, gate: object, estimate: RequestEstimate, amount: float) -> bool:
        with self.lock:
            if not self.reserve(amount):
                return False
            # By identity: of one session several calls may be reserved at once, its closing reply
            # and the summary of a mutator. The reservation keeps the estimate, and so its id.
            self._reservations[id(gate), id(estimate)] = _Reservation(estimate, amount)
            return True

    def settle_request(self, gate: object, estimate: RequestEstimate, spent: float | None) -> None:
        """`spent` is None if it is not known: then all that was reserved counts."""
        with self.lock:
            reservation = self._reservations.pop((id(gate), id(estimate)), None)
            reserved = reservation.amount if reservation is not None else 0.0
            self.settle(reserved, reserved if spent is None else spent)

    def find_wait(
        self, estimate: RequestEstimate, needed: float
    ) -> Callable[[], Awaitable[None]] | None:
        """What a request that needs this much awaits before it asks again; None if it may not wait,
        or if nothing that others have reserved can help it."""
        with self.lock:
            every = self._reservations.values()
            others = {one for one in every if one.estimate is not estimate}
            if self.when_reserved == "refuse" or not others:
                return None
            is_possible = needed <= self.limit - self.spent + ROUNDING
            return partial(self._wait_for_any, others) if is_possible else None

    async def _wait_for_any(self, others: set[_Reservation]) -> None:
        """Wait until one of these is settled, or any later one."""
        waiter: Future[None] = Future()  # unlike a future of asyncio, any thread may set it
        with self.lock:
            if not others <= set(self._reservations.values()):
                return
            self._waiters.add(waiter)
        try:
            await asyncio.wrap_future(waiter)
        finally:
            with self.lock:
                self._waiters.discard(waiter)

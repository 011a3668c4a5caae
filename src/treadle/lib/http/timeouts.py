"""The timeouts of one exchange, the tracker that computes them, the timer that runs the tracker.

The tracker is pure arithmetic over clock readings. The timer closes nothing: connection.py and
other transports act when it reports an expired timeout.

    sent ──first_byte───▶ headers ──first_content──▶ content ──idle──▶ content ──idle──▶ …
                             └─ idle without a byte ─┘
    └───────────────────────────────── total ────────────────────────────────────────────┘
"""

import asyncio
from collections.abc import Callable
from typing import Final, Literal

import msgspec

TimeoutKind = Literal["connect", "first_byte", "first_content", "idle", "total"]


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds (None: no limit), and bytes of decoded response body."""

    connect: float | None = 15.0
    first_byte: float | None = 300.0
    first_content: float | None = 600.0
    idle: float | None = 120.0
    total: float | None = 3600.0
    max_bytes: int | None = 256 * 1024 * 1024


DEFAULT_TIMEOUTS: Final = Timeouts()

# A check at least this often, so that a suspended process is noticed; with small timeouts more
# often, because a check that is already scheduled does not move with the deadline.
_CHECK_SECONDS = 5.0
_CHECKS_PER_TIMEOUT = 10
# A check that is later than this means that the process was suspended.
_SUSPEND_SECONDS = 2.0
_NEVER = float("inf")


class TimeoutTracker:
    """Computes the deadlines of one exchange.

    Before the first content any byte restarts `idle`, within `first_content`; after it only
    content does. Time in which this process was suspended does not count.
    """

    def __init__(self, timeouts: Timeouts, now: float) -> None:
        self._timeouts = timeouts
        self._started_at = self._sent_at = self._bytes_at = now
        self._headers_at: float | None = None
        self._content_at: float | None = None
        self._next_check_at = now
        shortest = min(timeouts.idle or _NEVER, timeouts.first_content or _NEVER)
        self._interval = min(_CHECK_SECONDS, shortest / _CHECKS_PER_TIMEOUT)

    def on_request_sent(self, now: float) -> None:
        """The request is sent (again, after a redirect): the wait for headers starts."""
        self._sent_at = self._bytes_at = now
        self._headers_at = None

    def on_headers(self, now: float) -> None:
        """The response headers arrived."""
        self._headers_at = self._bytes_at = now

    def on_bytes(self, now: float) -> None:
        """Any bytes arrived, also pings."""
        self._bytes_at = now

    def on_content(self, now: float) -> None:
        """Content arrived."""
        self._content_at = self._bytes_at = now

    def schedule_check(self, now: float) -> float:
        """When to call `find_expired` next."""
        self._next_check_at = min(self._next_deadline()[0], now + self._interval)
        return self._next_check_at

    def find_expired(self, now: float) -> TimeoutKind | None:
        """The timeout that expired, if one did. Called at the scheduled time or later."""
        late = now - self._next_check_at
        if late > _SUSPEND_SECONDS:
            self._add_suspended_time(late, now)
        deadline, which = self._next_deadline()
        return which if now >= deadline else None

    def on_reader_behind(self, now: float) -> None:
        """Bytes wait to be read: the delay is ours, not the server's."""
        self._bytes_at = now
        if self._content_at is not None:
            self._content_at = now
        elif self._headers_at is not None:
            self._headers_at = now

    def get_seconds(self, kind: TimeoutKind) -> float:
        """The value of a timeout, for its message."""
        return getattr(self._timeouts, kind) or 0.0

    def _add_suspended_time(self, late: float, now: float) -> None:
        self._started_at = min(self._started_at + late, now)
        self._sent_at = min(self._sent_at + late, now)
        self._bytes_at = min(self._bytes_at + late, now)
        if self._headers_at is not None:
            self._headers_at = min(self._headers_at + late, now)
        if self._content_at is not None:
            self._content_at = min(self._content_at + late, now)

    def _next_deadline(self) -> tuple[float, TimeoutKind]:
        limits = self._timeouts
        total = _NEVER if limits.total is None else self._started_at + limits.total
        phase: tuple[float, TimeoutKind]
        if self._headers_at is None:
            phase = (_add_timeout(self._sent_at, limits.first_byte), "first_byte")
        elif self._content_at is not None:
            phase = (_add_timeout(self._content_at, limits.idle), "idle")
        else:
            first = _add_timeout(self._headers_at, limits.first_content)
            silent = _add_timeout(self._bytes_at, limits.idle)
            phase = (silent, "idle") if silent < first else (first, "first_content")
        return phase if phase[0] < total else (total, "total")


def _add_timeout(start: float, limit: float | None) -> float:
    return _NEVER if limit is None else start + limit


class TimeoutTimer:
    """Runs a tracker on an event loop until `stop`, or until it has reported a timeout. What it has
    set with the loop then stays for the next tracker, unless `close` takes it back."""

    def __init__(
        self, is_reader_behind: Callable[[], bool], on_expired: Callable[[TimeoutKind], None]
    ) -> None:
        self._is_reader_behind = is_reader_behind
        self._on_expired = on_expired
        self._handle: asyncio.TimerHandle | None = None
        self._tracker: TimeoutTracker | None = None  # that runs

    def start(self, loop: asyncio.AbstractEventLoop, tracker: TimeoutTracker) -> None:
        self._loop, self._tracker = loop, tracker
        when = tracker.schedule_check(loop.time())
        if self._handle is None or self._handle.when() > when:
            self._set(when)

    def stop(self) -> None:
        self._tracker = None

    def close(self) -> None:
        self._tracker = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _set(self, when: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_at(when, self._check)

    def _check(self) -> None:
        self._handle = None
        tracker, now = self._tracker, self._loop.time()
        if tracker is None:
            return
        if self._is_reader_behind():
            tracker.on_reader_behind(now)
        expired = tracker.find_expired(now)
        if expired is None:
            self._set(tracker.schedule_check(now))
        else:
            self._tracker = None
            self._on_expired(expired)

"""How long and how much: the limits of one exchange, and the meter that counts them.

Pure arithmetic over clock readings that the caller hands in; it owns no timer and closes nothing.
The client and the adapters above tick it and act on its verdict.

    asked ──first_byte──▶ headers ──first_content──▶ content ──idle──▶ content ──idle──▶ …
                             └─ idle without a byte ─┘
    └───────────────────────────────── total ────────────────────────────────────────────┘
"""

from typing import Final, Literal

import msgspec

Which = Literal["connect", "first_byte", "first_content", "idle", "total"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds (None: no limit), and bytes of decoded response body."""

    connect: float | None = 15.0
    first_byte: float | None = 300.0
    first_content: float | None = 600.0
    idle: float | None = 120.0
    total: float | None = 3600.0
    max_bytes: int | None = 256 * 1024 * 1024


DEFAULT_LIMITS: Final = Limits()

# A tick at least this often, so that a stopped process is noticed whatever the limits are; with
# small limits oftener, because a mark that moves does not move the tick that is already set.
_TICK = 5.0
_TICKS_A_LIMIT = 10
# A tick later than this was not the provider's doing: the process slept or was stopped.
_JUMP = 2.0
_NEVER = float("inf")


class Meter:
    """Counts one exchange against its limits.

    Before the first content any byte proves life, within `first_content`; after it only content
    does. Time in which this process did not run is given back in full.
    """

    __slots__ = (
        "_answered",
        "_asked",
        "_content",
        "_due",
        "_heard",
        "_limits",
        "_started",
        "_step",
    )

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._started = self._asked = self._heard = now
        self._answered: float | None = None
        self._content: float | None = None
        self._due = now
        shortest = min(limits.idle or _NEVER, limits.first_content or _NEVER)
        self._step = min(_TICK, shortest / _TICKS_A_LIMIT)

    def asked(self, now: float) -> None:
        """The request goes out (again, after a redirect): the wait for headers starts."""
        self._asked = self._heard = now
        self._answered = None

    def answered(self, now: float) -> None:
        """The response headers are here."""
        self._answered = self._heard = now

    def heard(self, now: float) -> None:
        """Some bytes arrived, be they pings."""
        self._heard = now

    def content(self, now: float) -> None:
        """Content arrived."""
        self._content = self._heard = now

    def next_tick(self, now: float) -> float:
        """When to call `expired` next."""
        self._due = min(self._nearest()[0], now + self._step)
        return self._due

    def expired(self, now: float) -> Which | None:
        """The limit that is used up, if one is. Called at `next_tick`, however late."""
        late = now - self._due
        if late > _JUMP:
            self._give_back(late, now)
        deadline, which = self._nearest()
        return which if now >= deadline else None

    def reader_behind(self, now: float) -> None:
        """Bytes wait here unread: the silence is ours, not the provider's."""
        self._heard = now
        if self._content is not None:
            self._content = now
        elif self._answered is not None:
            self._answered = now

    def seconds(self, which: Which) -> float:
        """The limit behind a verdict, for its message."""
        return getattr(self._limits, which) or 0.0

    def _give_back(self, late: float, now: float) -> None:
        self._started = min(self._started + late, now)
        self._asked = min(self._asked + late, now)
        self._heard = min(self._heard + late, now)
        if self._answered is not None:
            self._answered = min(self._answered + late, now)
        if self._content is not None:
            self._content = min(self._content + late, now)

    def _nearest(self) -> tuple[float, Which]:
        limits = self._limits
        total = _NEVER if limits.total is None else self._started + limits.total
        phase: tuple[float, Which]
        if self._answered is None:
            phase = (_after(self._asked, limits.first_byte), "first_byte")
        elif self._content is not None:
            phase = (_after(self._content, limits.idle), "idle")
        else:
            first = _after(self._answered, limits.first_content)
            silent = _after(self._heard, limits.idle)
            phase = (silent, "idle") if silent < first else (first, "first_content")
        return phase if phase[0] < total else (total, "total")


def _after(mark: float, limit: float | None) -> float:
    return _NEVER if limit is None else mark + limit

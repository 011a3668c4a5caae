"""The limits of a fleet: concurrent model calls, requests and tokens a minute, money, for all runs.

Each call is a row of the database from the moment when it waits. Rows are admitted in the order in
which they came, whichever worker they belong to, as long as all limits allow: so no run starves,
and a wait is never longer than the calls before it need. Without limits no row is written.

    LimitedModel   a model that waits for its admission       CallLimiter   the rows of one worker

A row ends with its worker: one that dies is forgotten after its lease (worker_registry.py), and one
that could not reach the database says later how its calls ended. Rows are admitted by the worker
whose call comes or ends, and by that of the first row that waits; the others only look at theirs,
the later they come the less often: so many workers do not compete for one lock.

A call reserves what it could cost at most, and costs that if its outcome is not known. If nothing
is reserved, the next call goes on without that while any money is left: so the last call may cost
more than what was left. When the money is spent, the turn is suspended, and runs are not submitted
until there is more.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import AsyncIterator

import msgspec

from treadle.apps.assembly.suspend import TurnSuspended
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.run_record import FleetLimits
from treadle.apps.fleet.sql.sql_connection import Rows, SqlConnection, Statement
from treadle.apps.fleet.sql.sql_database import LOCK_LIMITS
from treadle.core.contracts.model import (
    Model,
    ModelCard,
    ModelEvent,
    ModelRequest,
    Reply,
    add_cost,
)
from treadle.core.contracts.wrapped import WrappedModel, open_stream
from treadle.core.errors import (
    AccessDenied,
    BadRequest,
    CacheUnsupported,
    ConfigError,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    StoreError,
    UnknownModel,
    Unreachable,
)
from treadle.core.transcript.entries import WakeCondition
from treadle.core.transcript.items import AssistantItem
from treadle.core.transcript.size_estimate import BYTES_PER_TOKEN, estimate_item_chars
from treadle.core.transcript.usage import Usage
from treadle.lib.logger import logger
from treadle.lib.text.text import format_dollars
from treadle.models.batches.batched import Batched

POLL_SECONDS = 0.1  # between two looks of the first worker that waits
PLACE_SECONDS, MAX_POLL_SECONDS = 0.05, 2.0  # longer for each call before, up to this
REFRESH_SECONDS = 2.0  # between two looks at the limits
MINUTE = 60.0
_NO_LIMIT = 10**15


class CallEstimate(msgspec.Struct, frozen=True):
    """The worst case of a call: tokens of input and output, and what they cost."""

    tokens: int
    cost: float


class FleetMoneySpent(QuotaExhausted):
    """The runs of the fleet have cost as much as they may in all."""


class OpenCall(msgspec.Struct):
    """A call of this worker. `wait` is done when it is admitted; `usage` is what is to be settled
    when it has ended, None if that is not known."""

    provider: str
    wait: asyncio.Future[None]
    has_ended: bool = False
    usage: Usage | None = None


class CallLimiter:
    """Admits the model calls of one worker, together with those of all others."""

    def __init__(self, connection: SqlConnection, worker: str) -> None:
        self._connection = connection
        self._worker = worker
        self._limits = FleetLimits()
        self._limits_until = 0.0
        self._calls: dict[str, OpenCall] = {}
        self._watch: asyncio.Task[None] | None = None
        self._has_rows = False  # this worker has written a row

    async def admit(self, provider: str, estimate: CallEstimate, *, is_kept: bool = False) -> str:
        """Wait until the call may be made; its id, "" if there is no limit. FleetMoneySpent if the
        money of the fleet is spent. `is_kept`: if this worker dies, another one gets its result."""
        limits = await self._read_limits()
        if not has_limits(limits.for_provider(provider)) and limits.max_cost is None:
            return ""
        call_id = f"{self._worker}/{uuid.uuid4().hex}"
        call = OpenCall(provider, asyncio.get_running_loop().create_future())
        self._calls[call_id] = call
        self._has_rows = True
        insert = (
            "INSERT INTO fleet_calls (id, provider, worker, tokens, cost, kept, queued) "
            "VALUES (?, ?, ?, ?, ?, ?, {now}) ON CONFLICT (id) DO NOTHING"
        )
        tokens, cost = estimate.tokens, estimate.cost
        values = [call_id, provider, self._worker, tokens, cost, int(is_kept)]
        try:
            await self._admit_rows(provider, limits, (insert, values))
            if not call.wait.done():
                self._start_watch()
            await call.wait
        except BaseException:
            call.wait.cancel()
            await self.end(call_id, Usage())
            raise
        return call_id

    async def end(self, call_id: str, usage: Usage | None) -> None:
        """The call is over and used this; None: its outcome is not known, and it costs what was
        reserved. If the database is gone, `settle` says it later."""
        call = self._calls.get(call_id)
        if call is None:
            return
        call.has_ended, call.usage = True, usage
        try:
            await self._settle(call_id, call)
        except StoreError as error:
            logger.debug("the end of a model call is written later: %s", error)

    async def settle(self) -> None:
        """With each heartbeat: write the ends of calls that could not be written, and end rows that
        this worker knows nothing of, because an answer of the database was lost."""
        for call_id, call in [*self._calls.items()]:
            if call.has_ended:
                await self._settle(call_id, call)
        if self._has_rows:
            rows = await self._connection.execute(_MY_ROWS, [self._worker])
            unknown = [row[0] for row in rows if row[0] not in self._calls]
            end = "UPDATE fleet_calls SET ended = {now}, tokens = 0 WHERE id = ? AND ended IS NULL"
            for call_id in unknown:
                await self._connection.execute(end, [call_id])
            self._has_rows = bool(self._calls) or bool(unknown)

    async def check_price(self, model: Model) -> None:
        """ConfigError if the fleet has a limit in money, and the price of the model is not known:
        the limit could not be kept."""
        max_cost = (await self._read_limits()).max_cost
        if max_cost is not None and not has_price(model.card):
            raise ConfigError(
                f"the price of {model.name} is not known, so the limit of the fleet "
                f"({format_dollars(max_cost)}) cannot be kept: use a model with a price, or a "
                "fleet without --total-cost"
            )

    async def is_money_spent(self) -> bool:
        """Whether no call is admitted until the limit is raised."""
        max_cost = (await self._read_limits()).max_cost
        if max_cost is None:
            return False
        rows = await self._connection.execute(_SPENT)
        return bool(rows) and float(rows[0][0]) >= max_cost

    async def aclose(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])

    # --- details ---------------------------------------------------------------------------

    async def _settle(self, call_id: str, call: OpenCall) -> None:
        usage = call.usage
        is_known = usage is not None and usage.cost is not None
        cost = usage.known_cost if usage is not None and is_known else None
        tokens = usage.total if usage is not None else None
        reserved = "(SELECT cost FROM fleet_calls WHERE id = ?)"
        open_call = "EXISTS (SELECT 1 FROM fleet_calls WHERE id = ? AND ended IS NULL)"
        await self._admit_rows(
            call.provider,
            await self._read_limits(),
            (
                "UPDATE fleet_settings SET value = CAST(CAST(value AS float8) + "
                f"coalesce(CAST(? AS float8), {reserved}) AS text) "
                f"WHERE name = 'spent' AND {open_call}",
                [cost, call_id, call_id],
            ),
            (
                "UPDATE fleet_calls SET ended = {now}, tokens = coalesce(CAST(? AS bigint), "
                "tokens) WHERE id = ? AND ended IS NULL",
                [tokens, call_id],
            ),
        )
        self._calls.pop(call_id, None)

    async def _read_limits(self) -> FleetLimits:
        if time.monotonic() >= self._limits_until:
            sql = "SELECT value FROM fleet_settings WHERE name = 'limits'"
            rows = await self._connection.execute(sql)
            if rows:
                self._limits = msgspec.json.decode(rows[0][0], type=FleetLimits)
            self._limits_until = time.monotonic() + REFRESH_SECONDS
        return self._limits

    async def _admit_rows(self, provider: str, limits: FleetLimits, *changes: Statement) -> None:
        """Make the changes, then admit the rows whose turn it is, of all workers."""
        own = limits.for_provider(provider)
        max_cost = limits.max_cost if limits.max_cost is not None else float(_NO_LIMIT)
        admit = [
            provider,
            own.concurrent_calls or _NO_LIMIT,
            provider,
            own.requests_per_minute or _NO_LIMIT,
            provider,
            own.tokens_per_minute or _NO_LIMIT,
            provider,
            provider,
            max_cost,
            max_cost,
        ]
        *_, spent, rows, _ = await self._connection.execute_all(
            [
                LOCK_LIMITS,
                *changes,
                (_ADMIT, admit),
                (_SPENT, []),
                (_MY_ROWS, [self._worker]),
                ("DELETE FROM fleet_calls WHERE ended < {now} - ?", [2 * MINUTE]),
            ]
        )
        self._tell(rows, float(spent[0][0]) if spent else 0.0, limits)

    def _tell(self, rows: Rows, spent: float, limits: FleetLimits) -> None:
        """The calls of this worker that wait what came of it."""
        admitted = {call_id for call_id, at in rows if at is not None}
        is_spent = limits.max_cost is not None and spent >= limits.max_cost
        for call_id, call in self._calls.items():
            if call.wait.done():
                continue
            if call_id in admitted:
                call.wait.set_result(None)
            elif is_spent and limits.max_cost is not None:
                text = describe_spent(spent, limits.max_cost)
                call.wait.set_exception(FleetMoneySpent(text))

    def _list_waiting(self) -> list[OpenCall]:
        return [call for call in self._calls.values() if not call.wait.done()]

    def _start_watch(self) -> None:
        if self._watch is None or self._watch.done():
            self._watch = asyncio.get_running_loop().create_task(self._watch_waiting())

    async def _watch_waiting(self) -> None:
        """One look for all calls of this worker that wait, until none waits."""
        try:
            while waiting := self._list_waiting():
                seconds = MAX_POLL_SECONDS
                for provider in {call.provider for call in waiting}:
                    seconds = min(seconds, await self._look(provider))
                await asyncio.sleep(seconds * random.uniform(0.8, 1.2))
        except Exception as error:  # noqa: BLE001 - becomes that of the calls
            for call in self._list_waiting():
                call.wait.set_exception(error)

    async def _look(self, provider: str) -> float:
        """Whether calls were admitted; seconds until the next look. The worker of the first row
        that waits admits rows: a minute may be over, or a worker forgotten."""
        limits = await self._read_limits()
        spent, rows, places = await self._connection.execute_all(
            [(_SPENT, []), (_MY_ROWS, [self._worker]), (_PLACES, [self._worker, provider])]
        )
        self._tell(rows, float(spent[0][0]) if spent else 0.0, limits)
        place = places[0][0] if places and places[0][0] is not None else 0
        if place == 0:
            await self._admit_rows(provider, limits)
        return min(MAX_POLL_SECONDS, max(POLL_SECONDS, PLACE_SECONDS * place))


_SPENT = "SELECT CAST(value AS float8) FROM fleet_settings WHERE name = 'spent'"
_MY_ROWS = "SELECT id, admitted FROM fleet_calls WHERE worker = ? AND ended IS NULL"
_WAITS = "admitted IS NULL AND ended IS NULL"
# How many calls wait before the first of this worker; NULL if none of it waits.
_PLACES = (
    "SELECT (SELECT count(*) FROM fleet_calls AS other WHERE other.provider = mine.provider "
    "AND other.admitted IS NULL AND other.ended IS NULL AND other.number < mine.number) "
    f"FROM fleet_calls AS mine WHERE worker = ? AND provider = ? AND {_WAITS} "
    "ORDER BY number LIMIT 1"
)
_SPENT_SUM = (
    "(SELECT coalesce(sum(CAST(value AS float8)), 0) FROM fleet_settings WHERE name = 'spent')"
)
_AT_WORK = "admitted IS NOT NULL AND ended IS NULL"
_RECENT = "provider = ? AND admitted > {now} - 60"
_ADMIT = (
    "UPDATE fleet_calls SET admitted = {now} WHERE id IN (SELECT id FROM ("
    "SELECT id, row_number() OVER (ORDER BY number) AS place, "
    "sum(tokens) OVER (ORDER BY number) AS tokens, sum(cost) OVER (ORDER BY number) AS cost "
    f"FROM fleet_calls WHERE provider = ? AND {_WAITS}) AS waiting WHERE "
    "place <= ? - (SELECT count(*) FROM fleet_calls WHERE provider = ? "
    "AND admitted IS NOT NULL AND ended IS NULL) "
    f"AND place <= ? - (SELECT count(*) FROM fleet_calls WHERE {_RECENT}) "
    "AND (tokens <= ? - (SELECT coalesce(sum(tokens), 0) FROM fleet_calls "
    f"WHERE {_RECENT}) "
    # A call that is larger than the limit of a minute goes alone.
    f"OR (place = 1 AND NOT EXISTS (SELECT 1 FROM fleet_calls WHERE {_RECENT}))) "
    f"AND (cost < ? - (SELECT coalesce(sum(cost), 0) FROM fleet_calls WHERE {_AT_WORK}) "
    f"- {_SPENT_SUM} "
    # While any money is left, one call goes on, whatever it could cost at most.
    f"OR (place = 1 AND {_SPENT_SUM} < ? "
    f"AND NOT EXISTS (SELECT 1 FROM fleet_calls WHERE {_AT_WORK}))))"
)


class LimitedModel(WrappedModel):
    """The wrapped model; each call waits for the limits of the fleet. When the money of the fleet
    is spent, the turn of the session is suspended. A call in a batch that is not waited for any
    more costs nothing yet: who fetches its result counts it."""

    def __init__(self, model: Model, limiter: CallLimiter, session_id: str) -> None:
        super().__init__(model)
        self._is_batched = isinstance(model, Batched)
        self._limiter = limiter
        self._session_id = session_id
        self._provider = model.name.partition("/")[0]

    @property
    def fallback(self) -> Model | None:
        other = self._model.fallback
        return LimitedModel(other, self._limiter, self._session_id) if other is not None else None

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        estimate = estimate_call(request, self.card)
        try:
            call_id = await self._limiter.admit(self._provider, estimate, is_kept=self._is_batched)
        except FleetMoneySpent as error:
            if request.session_id != self._session_id:
                raise
            raise TurnSuspended("budget", WakeCondition("money"), str(error)) from error
        usage = Usage() if self._is_batched else None
        try:
            async with open_stream(self._model, request) as events:
                async for event in events:
                    if isinstance(event, Reply):
                        usage = add_cost(event.item.usage, self.card)
                    yield event
        except _NOT_CHARGED:
            usage = usage or Usage()
            raise
        finally:
            await self._limiter.end(call_id, usage)


# Errors with which a provider charges nothing; after others nobody knows.
_NOT_CHARGED = (
    RateLimited,
    Overloaded,
    Unreachable,
    BadRequest,
    AccessDenied,
    QuotaExhausted,
    UnknownModel,
    CacheUnsupported,
)


def describe_spent(spent: float, max_cost: float) -> str:
    return f"the fleet has spent {format_dollars(spent)} of {format_dollars(max_cost)}"


async def find_spent_money(database: FleetDatabase) -> str:
    """A sentence if no call is admitted until the limit is raised; "" otherwise."""
    max_cost = (await database.limits()).max_cost
    spent = await database.spent() if max_cost is not None else 0.0
    return describe_spent(spent, max_cost) if max_cost is not None and spent >= max_cost else ""


def has_price(card: ModelCard) -> bool:
    return card.input_price is not None or card.output_price is not None


def has_limits(limits: FleetLimits) -> bool:
    return any((limits.concurrent_calls, limits.requests_per_minute, limits.tokens_per_minute))


def estimate_call(request: ModelRequest, card: ModelCard) -> CallEstimate:
    """What is new since the last reply is measured; the rest that reply says."""
    known = chars = 0
    for item in reversed(request.transcript):
        if isinstance(item, AssistantItem) and item.usage.total:
            known = item.usage.total
            break
        chars += estimate_item_chars(item)
    else:
        chars += len(request.system)
    input_tokens = min(known + chars // BYTES_PER_TOKEN + 1, card.window)
    output = request.options.max_tokens or card.default_output or card.max_output
    prices = (card.input_price or 0.0, card.output_price or 0.0)
    cost = (input_tokens * prices[0] + output * prices[1]) / 1e6
    return CallEstimate(input_tokens + output, cost)

"""The limits of a fleet: concurrent model calls, requests and tokens a minute, money, for all runs.

Each call is a row of the database from the moment when it waits. Rows are admitted in the order in
which they came, whichever worker they belong to, as long as all limits allow: so no run starves,
and a wait is never longer than the calls before it need. Without limits no row is written.

    LimitedModel   a model that waits for its admission       CallLimiter   the rows of one worker

A call reserves what it could cost at most. If nothing is reserved, the next call goes on without
that while any money is left: so the last call may cost more than what was left. When the money is
spent, the turn is suspended, and no worker takes a run from the queue until there is more.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Collection
from typing import Any

import msgspec

from treadle.apps.assembly.suspend import TurnSuspended
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.run_record import FleetLimits
from treadle.apps.fleet.sql_connection import SqlConnection
from treadle.core.contracts.model import Model, ModelCard, ModelEvent, ModelRequest, Reply
from treadle.core.contracts.wrapped import WrappedModel, open_stream
from treadle.core.errors import QuotaExhausted
from treadle.core.transcript.entries import WakeCondition
from treadle.core.transcript.items import AssistantItem
from treadle.core.transcript.size_estimate import BYTES_PER_TOKEN, estimate_item_chars
from treadle.core.transcript.usage import Usage
from treadle.lib.text.text import format_dollars

POLL_SECONDS = 0.1  # between two looks at the rows while a call waits
REFRESH_SECONDS = 2.0  # between two looks at the limits
MINUTE = 60.0
_NO_LIMIT = 10**15


class CallEstimate(msgspec.Struct, frozen=True):
    """The worst case of a call: tokens of input and output, and what they cost."""

    tokens: int
    cost: float


class FleetMoneySpent(QuotaExhausted):
    """The runs of the fleet have cost as much as they may in all."""


class CallLimiter:
    """Admits the model calls of one worker, together with those of all others."""

    def __init__(self, connection: SqlConnection, worker: str) -> None:
        self._connection = connection
        self._worker = worker
        self._limits = FleetLimits()
        self._limits_until = 0.0
        self._waiting: dict[str, dict[str, asyncio.Future[None]]] = {}  # provider -> call -> wait
        self._admitters: dict[str, asyncio.Task[None]] = {}
        self._kick = asyncio.Event()

    async def admit(self, provider: str, estimate: CallEstimate) -> str:
        """Wait until the call may be made; its id, "" if there is no limit. FleetMoneySpent if the
        money of the fleet is spent."""
        limits = await self._read_limits()
        if not has_limits(limits.for_provider(provider)) and limits.max_cost is None:
            return ""
        call_id = f"{self._worker}/{uuid.uuid4().hex}"
        sql = (
            "INSERT INTO fleet_calls (id, provider, worker, tokens, cost, queued) "
            "VALUES (?, ?, ?, ?, ?, {now}) ON CONFLICT (id) DO NOTHING"
        )
        parameters = [call_id, provider, self._worker, estimate.tokens, estimate.cost]
        waiting = self._waiting.setdefault(provider, {})
        wait = waiting[call_id] = asyncio.get_running_loop().create_future()
        try:
            await self._connection.execute(sql, parameters)
            self._start_admitter(provider)
            await wait
        except BaseException:
            await self.end(call_id, Usage())
            raise
        finally:
            waiting.pop(call_id, None)
        return call_id

    async def end(self, call_id: str, usage: Usage) -> None:
        """The call is over and used this; harmless when it is repeated."""
        if not call_id:
            return
        cost = usage.known_cost
        open_call = "EXISTS (SELECT 1 FROM fleet_calls WHERE id = ? AND ended IS NULL)"
        await self._connection.execute_all(
            [
                (
                    "UPDATE fleet_settings SET value = CAST(CAST(value AS float8) + ? AS text) "
                    f"WHERE name = 'spent' AND {open_call}",
                    [cost, call_id],
                ),
                (
                    "UPDATE fleet_calls SET ended = {now}, tokens = ? "
                    "WHERE id = ? AND ended IS NULL",
                    [usage.total, call_id],
                ),
            ]
        )
        self._kick.set()

    async def is_money_spent(self) -> bool:
        """Whether no call is admitted until the limit is raised."""
        max_cost = (await self._read_limits()).max_cost
        if max_cost is None:
            return False
        rows = await self._connection.execute(_SPENT)
        return bool(rows) and float(rows[0][0]) >= max_cost

    async def aclose(self) -> None:
        await cancel_tasks(self._admitters.values())

    # --- details ---------------------------------------------------------------------------

    async def _read_limits(self) -> FleetLimits:
        if time.monotonic() >= self._limits_until:
            sql = "SELECT value FROM fleet_settings WHERE name = 'limits'"
            rows = await self._connection.execute(sql)
            if rows:
                self._limits = msgspec.json.decode(rows[0][0], type=FleetLimits)
            self._limits_until = time.monotonic() + REFRESH_SECONDS
        return self._limits

    def _start_admitter(self, provider: str) -> None:
        running = self._admitters.get(provider)
        if running is None or running.done():
            work = self._admit_waiting(provider)
            self._admitters[provider] = asyncio.get_running_loop().create_task(work)
        self._kick.set()

    async def _admit_waiting(self, provider: str) -> None:
        """One look for all calls of this worker that wait, until none waits."""
        waiting = self._waiting[provider]
        try:
            while waiting:
                self._kick.clear()
                limits = await self._read_limits()
                spent, admitted = await self._admit_rows(provider, limits)
                for call_id in admitted & waiting.keys():
                    if not waiting[call_id].done():
                        waiting[call_id].set_result(None)
                if limits.max_cost is not None and spent >= limits.max_cost:
                    _refuse(waiting, FleetMoneySpent(describe_spent(spent, limits.max_cost)))
                if not any(not wait.done() for wait in waiting.values()):
                    await asyncio.sleep(0)
                    continue
                try:
                    await asyncio.wait_for(self._kick.wait(), POLL_SECONDS)
                except TimeoutError:
                    pass
        except Exception as error:  # noqa: BLE001 - becomes that of the calls
            _refuse(waiting, error)

    async def _admit_rows(self, provider: str, limits: FleetLimits) -> tuple[float, set[str]]:
        """Admit the rows whose turn it is; what was spent, and the admitted rows of this worker."""
        own = limits.for_provider(provider)
        max_cost = limits.max_cost if limits.max_cost is not None else float(_NO_LIMIT)
        _, _, spent, rows, _ = await self._connection.execute_all(
            [
                # One look at a time, of all workers.
                ("SELECT 1 FROM fleet_settings WHERE name = 'limits' {for_update}", []),
                (
                    _ADMIT,
                    [
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
                    ],
                ),
                (_SPENT, []),
                (
                    "SELECT id FROM fleet_calls WHERE worker = ? AND admitted IS NOT NULL "
                    "AND ended IS NULL",
                    [self._worker],
                ),
                ("DELETE FROM fleet_calls WHERE ended < {now} - ?", [2 * MINUTE]),
            ]
        )
        return (float(spent[0][0]) if spent else 0.0), {row[0] for row in rows}


_SPENT = "SELECT CAST(value AS float8) FROM fleet_settings WHERE name = 'spent'"
_SPENT_SUM = (
    "(SELECT coalesce(sum(CAST(value AS float8)), 0) FROM fleet_settings WHERE name = 'spent')"
)
_AT_WORK = "admitted IS NOT NULL AND ended IS NULL"
_RECENT = "provider = ? AND admitted > {now} - 60"
_ADMIT = (
    "UPDATE fleet_calls SET admitted = {now} WHERE id IN (SELECT id FROM ("
    "SELECT id, row_number() OVER (ORDER BY number) AS place, "
    "sum(tokens) OVER (ORDER BY number) AS tokens, sum(cost) OVER (ORDER BY number) AS cost "
    "FROM fleet_calls WHERE provider = ? AND admitted IS NULL AND ended IS NULL) AS waiting WHERE "
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
    is spent, the turn of the session is suspended."""

    def __init__(self, model: Model, limiter: CallLimiter, session_id: str) -> None:
        super().__init__(model)
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
            call_id = await self._limiter.admit(self._provider, estimate)
        except FleetMoneySpent as error:
            if request.session_id != self._session_id:
                raise
            raise TurnSuspended("budget", WakeCondition("money"), str(error)) from error
        usage = Usage()
        try:
            async with open_stream(self._model, request) as events:
                async for event in events:
                    if isinstance(event, Reply):
                        usage = event.item.usage
                    yield event
        finally:
            await self._limiter.end(call_id, usage)


def _refuse(waiting: dict[str, asyncio.Future[None]], error: Exception) -> None:
    for wait in waiting.values():
        if not wait.done():
            wait.set_exception(error)


def describe_spent(spent: float, max_cost: float) -> str:
    return f"the fleet has spent {format_dollars(spent)} of {format_dollars(max_cost)}"


async def find_spent_money(database: FleetDatabase) -> str:
    """A sentence if no call is admitted until the limit is raised; "" otherwise."""
    max_cost = (await database.limits()).max_cost
    spent = await database.spent() if max_cost is not None else 0.0
    return describe_spent(spent, max_cost) if max_cost is not None and spent >= max_cost else ""


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


AGAIN_SECONDS = 1.0


async def cancel_tasks(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel the tasks, again if need be, until each has ended."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=AGAIN_SECONDS)

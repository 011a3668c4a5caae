"""Limits of a fleet: calls and money are leases that end with their holder."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.apps.fleet.conftest import working
from tests.apps.fleet.processes import PlayedWorker, until_state
from tests.patience import until
from tests.postgres import PostgresServer
from treadle import Agent, Usage
from treadle.apps.fleet.database import FleetDatabase, open_database
from treadle.apps.fleet.limits import CallEstimate, CallLimiter, LimitedModel
from treadle.apps.fleet.run_record import FleetLimits
from treadle.apps.fleet.sql.sql_database import SqlDatabase
from treadle.apps.fleet.task import FleetTask
from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.core.errors import RateLimited, StoreError, StreamBroken
from treadle.core.transcript.transcript import Transcript
from treadle.models.scripted import Say, Scripted, ScriptElement

ESTIMATE = CallEstimate(100, 0.9)
ONE_CALL = FleetLimits(concurrent_calls=1)


def make_limiter(database: FleetDatabase, worker: str) -> CallLimiter:
    assert isinstance(database, SqlDatabase)
    return CallLimiter(database.connection, worker)


async def test_a_call_that_ended_while_the_database_was_gone_frees_its_place_and_is_paid(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await open_database(store)
    assert isinstance(database, SqlDatabase)
    await database.set_limits(FleetLimits(concurrent_calls=1, max_cost=10.0))
    limiter, other = make_limiter(database, "one"), make_limiter(database, "two")
    call = await limiter.admit("p", ESTIMATE)

    async def fail(statements: Sequence[Any]) -> list[Any]:
        raise StoreError("the database cannot be reached")

    with monkeypatch.context() as gone:
        gone.setattr(database.connection, "execute_all", fail)
        await limiter.end(call, Usage(input=1000, output=1000, requests=1, cost=0.5))
    waiting = asyncio.create_task(other.admit("p", ESTIMATE))
    assert await database.spent() == 0.0
    await limiter.settle()  # with the next heartbeat
    assert await database.spent() == 0.5
    await other.end(await waiting, Usage())
    await database.aclose()


async def test_a_row_that_its_worker_does_not_know_is_ended_with_a_heartbeat(store: str) -> None:
    """The answer to its insertion was lost."""
    database = await open_database(store)
    await database.set_limits(ONE_CALL)
    limiter = make_limiter(database, "one")
    call = await limiter.admit("p", ESTIMATE)
    limiter._calls.clear()
    again = asyncio.create_task(limiter.admit("p", ESTIMATE))
    await until(lambda: bool(limiter._calls))
    await limiter.settle()
    assert await again != call
    await database.aclose()


async def test_a_call_whose_outcome_is_not_known_costs_what_was_reserved(store: str) -> None:
    database = await open_database(store)
    await database.set_limits(FleetLimits(max_cost=100.0))
    dead = PlayedWorker(database, "dead")
    await dead.registry.beat()
    await make_limiter(database, "dead").admit("p", ESTIMATE)
    for _ in range(2):
        await database.forget_workers(["dead"])
        assert await database.spent() == pytest.approx(0.9)
    limiter = make_limiter(database, "live")
    card = ModelCard("dear/model", input_price=0.0, output_price=1000.0, max_output=1000)
    request = ModelRequest(Transcript(), session_id="s")
    for error, cost in ((StreamBroken("cut off"), 1.0), (RateLimited("later"), 0.0)):
        before = await database.spent()
        model = Scripted([error])
        model.card = card
        with pytest.raises(type(error)):
            async for _ in LimitedModel(model, limiter, "s").stream(request):
                pass
        assert await database.spent() - before == pytest.approx(cost)
    await database.aclose()


async def test_a_limit_in_money_is_refused_for_a_model_without_a_price(store: str) -> None:
    database = await open_database(store)
    await database.set_limits(FleetLimits(max_cost=1.0))
    await database.submit([FleetTask(id="r", prompt="x")])
    calls: list[ModelRequest] = []

    def reply(request: ModelRequest) -> ScriptElement:
        calls.append(request)
        return "done"

    async with working(database, make_agent=lambda task, folder: Agent(Scripted(reply))):
        run = await until_state(database, "r", "failed")
    await database.aclose()
    assert "the price of" in run.error
    assert "the limit of the fleet ($1.00) cannot be kept: use a model with a price" in run.error
    assert calls == []


async def test_workers_that_wait_take_no_lock_and_look_the_less_the_more_they_are(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await open_database(postgres_url)
    await database.set_limits(ONE_CALL)
    holder = make_limiter(database, "holder")
    held = await holder.admit("p", ESTIMATE)
    locks, looks = list[str](), list[str]()
    admit, look = CallLimiter._admit_rows, CallLimiter._look

    async def count_lock(self: CallLimiter, *arguments: Any) -> None:
        locks.append(self._worker)
        await admit(self, *arguments)

    async def count_look(self: CallLimiter, provider: str) -> float:
        seconds = await look(self, provider)
        looks.append(self._worker)
        waits[self._worker] = seconds
        return seconds

    waits: dict[str, float] = {}
    limiters = [make_limiter(database, f"w{number}") for number in range(12)]
    waiting = []
    for limiter in limiters:
        waiting.append(asyncio.create_task(limiter.admit("p", ESTIMATE)))
        await until(lambda one=limiter: one._watch is not None)  # type: ignore[misc]
    monkeypatch.setattr(CallLimiter, "_admit_rows", count_lock)
    monkeypatch.setattr(CallLimiter, "_look", count_look)
    await until(lambda: len(waits) == 12 and looks.count("w0") > 3)
    assert set(locks) == {"w0"}, "only the first that waits may admit"
    assert waits["w11"] == pytest.approx(0.55)
    await holder.end(held, Usage())
    for limiter, one in zip(limiters, waiting, strict=True):
        await limiter.end(await one, Usage())
    await database.aclose()


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_after_an_outage_of_the_server_the_fleet_goes_on_by_itself(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is longer than statements are repeated, while a model call holds the only place."""
    calls, go = list[str](), asyncio.Event()
    database = await open_database(postgres_server.create_database())
    assert isinstance(database, SqlDatabase)
    database.connection._pool.retry_seconds = 0.5  # type: ignore[attr-defined]
    await database.set_limits(ONE_CALL)
    await database.submit([FleetTask(id=f"r{number}", prompt="x") for number in range(3)])

    def make(task: FleetTask, folder: object) -> Agent:
        async def reply(request: ModelRequest) -> ScriptElement:
            calls.append(task.id)
            await go.wait()
            return Say("done")

        return Agent(Scripted(reply))

    said: list[str] = []
    async with working(database, make_agent=make, lease=2.0, report=said.append):
        await until(lambda: bool(calls))
        await asyncio.to_thread(postgres_server.stop)
        go.set()  # the call ends while there is no database
        await until(lambda: bool(said))
        await asyncio.to_thread(postgres_server.start)
        for number in range(3):
            await until_state(database, f"r{number}", "done")
    rows = await database.connection.execute("SELECT 1 FROM fleet_calls WHERE ended IS NULL")
    await database.aclose()
    assert rows == []


async def test_a_budget_is_kept_also_if_workers_die_in_the_middle_of_calls(store: str) -> None:
    """Each dead worker has spent what its call could have cost at most."""
    database = await open_database(store)
    await database.set_limits(FleetLimits(max_cost=1.0))
    admitted = 0
    for number in range(30):
        name = f"w{number}"
        await PlayedWorker(database, name).registry.beat()
        limiter = make_limiter(database, name)
        if await limiter.is_money_spent():
            break
        await limiter.admit("p", CallEstimate(10, 0.07))
        admitted += 1
        await database.forget_workers([name])
    assert admitted == 15
    assert 1.0 <= await database.spent() <= 1.07
    await database.aclose()

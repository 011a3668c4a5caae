"""How many jobs a worker of the engine `dbos` has at once, whatever the queue's row says."""

from __future__ import annotations

import asyncio

import pytest

from treadle.core.contracts.run_engine import RunJob
from treadle.testing.conformance.run_engine import (
    POLL,
    Deliveries,
    find,
    make_ids,
    until_ended,
)

pytest.importorskip("dbos", reason="the extra `fleet` is not installed")


async def test_a_worker_keeps_its_number_from_the_first_job_on(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dbos import DBOS

    from treadle.apps.fleet.engines.dbos_engine import DbosEngine

    ids, got = make_ids(5), Deliveries(hold=True)
    loop, launch = asyncio.get_running_loop(), DBOS.launch

    def launch_and_take_jobs() -> None:
        launch()
        asyncio.run_coroutine_threadsafe(got.until(1), loop).result()

    monkeypatch.setattr(DBOS, "launch", launch_and_take_jobs)
    engine = DbosEngine(postgres_url)
    await engine.submit([RunJob(one) for one in ids])
    await engine.start("two", 2, got, poll=POLL)
    await got.until(2)
    states = [one.state for one in await find(engine, ids)]
    got.release()
    await until_ended(engine, ids)
    await engine.aclose()
    assert sorted(states) == ["delivered"] * 2 + ["queued"] * 3
    assert got.at_once == 2


async def test_a_worker_keeps_its_number_when_one_with_a_larger_number_starts(
    postgres_url: str,
) -> None:
    from dbos import DBOSClient

    from treadle.apps.fleet.engines.dbos_engine import APPLICATION, QUEUE, DbosEngine

    ids, got = make_ids(5), Deliveries(hold=True)
    engine = DbosEngine(postgres_url)
    await engine.start("two", 2, got, poll=POLL)
    client = DBOSClient(system_database_url=postgres_url, application_name=APPLICATION)
    await client.register_queue_async(QUEUE, worker_concurrency=5, polling_interval_sec=POLL)
    await asyncio.to_thread(client.destroy)
    await engine.submit([RunJob(one) for one in ids])
    while {one.state for one in await find(engine, ids)} != {"delivered"}:  # noqa: ASYNC110 - DBOS does it
        await asyncio.sleep(POLL)
    await got.until(2)
    got.release()
    await until_ended(engine, ids)
    await engine.aclose()
    assert (sorted(got.jobs), got.at_once) == (ids, 2)

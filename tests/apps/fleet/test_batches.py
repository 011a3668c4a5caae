"""Runs whose replies come from batches, on workers that are killed while they wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apps.fleet.processes import kill, until_state, worker_process
from tests.apps.fleet.test_command import FLAGS, GOOD, open_cli
from tests.patience import until
from treadle.apps.fleet.database import open_database
from treadle.apps.fleet.run_record import FleetLimits
from treadle.apps.fleet.task import FleetTask
from treadle.testing.provider import FakeReply, FakeUsage, ProviderServer

AGENT = "tests.apps.fleet.batch_agents:make_agent"
BATCH_PRICE = (1_000 * 10.0 + 100 * 100.0) / 1e6 / 2
REPLY = FakeReply("Done.", usage=FakeUsage(input=1_000, output=100))


async def test_a_batch_of_a_killed_worker_is_fetched_once_and_paid_once(store: str):
    async with ProviderServer(lambda request: REPLY) as server:
        server.batches.hold = True
        env = {"FLEET_PROVIDER": server.url}
        database = await open_database(store)
        try:
            await database.set_limits(FleetLimits(max_cost=1.0))
            await database.submit([FleetTask(id=f"r{n}", prompt="go", batch=True) for n in (1, 2)])
            with worker_process(store, agent=AGENT, env=env) as worker:
                await until(lambda: any(one.method == "GET" for one in server.requests))
                kill(worker)
            [batch] = server.batches.batches
            assert len(batch.answers) == 2
            with worker_process(store, agent=AGENT, env=env):
                seen = len(server.requests)
                await until(lambda: len(server.requests) > seen)
                server.batches.end()
                runs = [await until_state(database, name, "done") for name in ("r1", "r2")]
            assert [run.cost for run in runs] == [pytest.approx(BATCH_PRICE)] * 2
            assert await database.spent() == pytest.approx(2 * BATCH_PRICE)
        finally:
            await database.aclose()
        assert server.batches.batches == [batch]
        assert len(server.generation_requests) == 2


async def test_fleet_run_with_batch_asks_for_all_rounds_in_batches(tmp_path: Path):
    async with open_cli(tmp_path) as cli:
        tasks = cli.write_tasks(*({**GOOD, "id": f"t{number}"} for number in range(3)))
        ran = await cli("run", tasks, *FLAGS, "--batch")
        assert ran.code == 0, ran
        sizes = [len(batch.answers) for batch in cli.server.batches.batches]
        assert sizes[0] == 3, "all runs waited"
        assert sum(sizes) == len(cli.server.generation_requests) == 6
        assert cli.server.violations == []


async def test_a_model_without_batches_fails_with_what_to_do(store: str):
    database = await open_database(store)
    try:
        await database.submit([FleetTask(id="r1", prompt="look", batch=True)])
        with worker_process(store):
            run = await until_state(database, "r1", "failed")
        assert "run without batches" in run.error
    finally:
        await database.aclose()

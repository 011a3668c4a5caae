from __future__ import annotations

from tests.apps.fleet.processes import PlayedWorker
from treadle.apps.fleet.database import open_database
from treadle.apps.fleet.sql.sql_database import SqlDatabase
from treadle.apps.fleet.task import FleetTask


async def test_a_worker_that_was_taken_for_dead_has_its_host_again_with_its_next_beat(
    store: str,
) -> None:
    database = await open_database(store)
    assert isinstance(database, SqlDatabase)
    await database.submit([FleetTask(id="r", prompt="look")])
    slow, other = PlayedWorker(database, "slow", "1.2.3"), PlayedWorker(database, "other")
    await slow.claim()
    await other.registry.find_dead(30.0)
    await slow.registry.beat()
    (worker,) = await database.workers()
    await database.aclose()
    assert (worker.id, worker.host, worker.pid, worker.version) == ("slow", "here", 4711, "1.2.3")

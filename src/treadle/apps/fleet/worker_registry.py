"""Which workers of a fleet are alive. An engine delivers; who is dead is said here.

A worker is dead if its count of heartbeats does not change for the lease, on the clock of the one
who looks: no clock of another machine is trusted, and a clock that jumps changes nothing. Used by
worker.py; what a dead worker had is given to others by `FleetDatabase.forget_workers`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec

from treadle.apps.fleet.sql.sql_connection import SqlConnection, Statement
from treadle.apps.fleet.sql.sql_database import BATCH
from treadle.apps.fleet.worker_runs import WorkerIdentity

DEFAULT_LEASE = 30.0  # seconds without a heartbeat after which a worker is dead


class WorkSoFar(msgspec.Struct, frozen=True):
    """What all workers have done for a run; `cost` is None if it is not known."""

    seconds: float
    cost: float | None = None


class WorkerRegistry:
    """The workers, as one of them sees them."""

    def __init__(self, connection: SqlConnection, identity: WorkerIdentity) -> None:
        self._connection = connection
        self._identity = identity
        self._seen: dict[str, tuple[int, float]] = {}  # worker -> its beats, since when

    async def beat(self, worked: Mapping[str, WorkSoFar] | None = None) -> Mapping[str, int]:
        """Send a heartbeat; the runs that this worker has, with their epochs. `worked` has the
        time and the cost of each: they count when this worker dies."""
        me, execute = self._identity, self._connection.execute
        # One by one: a worker that is stopped in between holds no row that others need.
        beat = (
            "INSERT INTO fleet_workers VALUES (?, ?, ?, ?, {now}, 1) ON CONFLICT (id) "
            "DO UPDATE SET host = excluded.host, pid = excluded.pid, version = excluded.version, "
            "heartbeat = {now}, beats = fleet_workers.beats + 1"
        )
        await execute(beat, [me.id, me.host, me.pid, me.version])
        for statement, parameters in _make_work_statements(me.id, [*(worked or {}).items()]):
            await execute(statement, parameters)
        mine = "SELECT id, epoch FROM fleet_runs WHERE worker = ? AND state = 'running'"
        return dict(await execute(mine, [me.id]))

    async def find_dead(self, lease: float) -> list[str]:
        """Dead workers that this one is to bury: of several that look, one gets each. A claim may
        arrive at the server after its worker was buried, which is then to be buried again."""
        orphans = (
            "INSERT INTO fleet_workers SELECT DISTINCT worker, '', 0, '', {now}, 0 FROM fleet_runs "
            "WHERE state = 'running' AND worker NOT IN (SELECT id FROM fleet_workers) "
            "ON CONFLICT (id) DO NOTHING"
        )
        await self._connection.execute(orphans)
        rows = await self._connection.execute("SELECT id, beats FROM fleet_workers")
        now = time.monotonic()
        seen = self._seen
        self._seen = {
            worker: seen[worker] if worker in seen and seen[worker][0] == beats else (beats, now)
            for worker, beats in rows
        }
        dead = [
            (worker, beats)
            for worker, (beats, since) in self._seen.items()
            if now - since >= lease and worker != self._identity.id
        ]
        # The others see a new count, and wait for a lease: if this one dies now, they bury both.
        take = "UPDATE fleet_workers SET beats = beats + 1 WHERE id = ? AND beats = ? RETURNING id"
        execute = self._connection.execute
        return [worker for worker, beats in dead if await execute(take, [worker, beats])]


def _make_work_statements(worker: str, worked: Sequence[tuple[str, WorkSoFar]]) -> list[Statement]:
    statements: list[Statement] = []
    for start in range(0, len(worked), BATCH):
        batch = worked[start : start + BATCH]
        rows = ", ".join(["(CAST(? AS text), CAST(? AS float8), CAST(? AS float8))"] * len(batch))
        sql = (
            f"WITH worked (id, seconds, cost) AS (VALUES {rows}) UPDATE fleet_runs "
            "SET seconds = worked.seconds, cost = coalesce(worked.cost, fleet_runs.cost) "
            "FROM worked WHERE fleet_runs.id = worked.id AND fleet_runs.worker = ?"
        )
        values = [value for run, work in batch for value in (run, work.seconds, work.cost)]
        statements.append((sql, [*values, worker]))
    return statements

"""The queue of runs as a worker sees it: claim, heartbeat, results, and the runs of dead workers.

    claim        a run is this worker's; its epoch grows
    beat         a sign of life, and which runs this worker still has
    finish, release, wait     the run leaves this worker, if it still is this worker's
    sweep        the runs of a dead worker go back to the queue, or are set aside

A worker is dead if its count of heartbeats does not change for the lease, on the clock of the one
who looks: no clock of another machine is trusted, and a clock that jumps changes nothing. A worker
that was only slow finds a higher epoch at its next append and at its next heartbeat.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec

from treadle.apps.fleet.run_record import FleetApproval, FleetResult, FleetRun, RunState
from treadle.apps.fleet.run_rows import (
    RUN_COLUMNS,
    make_version_number,
    qualify,
    read_run,
    write_json,
)
from treadle.apps.fleet.sql_connection import RUNS_TABLE, SqlConnection, Statement
from treadle.apps.fleet.sql_database import BATCH, WAKE_ANSWERED, make_leave_statements
from treadle.core.contracts.store import Store
from treadle.sessions.queued_store import SessionFence

DEFAULT_LEASE = 30.0  # seconds without a heartbeat after which a worker is dead
_COST = "coalesce(CAST(? AS float8), cost)"
NOT_ANSWERED = "The call was not approved within the time limit."


class WorkerIdentity(msgspec.Struct, frozen=True):
    """Who a worker is; `id` is new for each process."""

    id: str
    host: str
    pid: int
    version: str


class WorkSoFar(msgspec.Struct, frozen=True):
    """What all workers have done for a run; `cost` is None if it is not known."""

    seconds: float
    cost: float | None = None


class FleetAnswer(msgspec.Struct, frozen=True):
    is_allowed: bool
    reason: str


class RunQueue:
    """The queue, for one worker."""

    def __init__(self, connection: SqlConnection, identity: WorkerIdentity) -> None:
        self._connection = connection
        self._identity = identity
        self._version_number = make_version_number(identity.version)
        self._seen: dict[str, tuple[int, float]] = {}  # worker -> its beats, since when

    # --- runs of this worker ---------------------------------------------------------------

    async def claim(self, count: int, *, attempts: tuple[int, int]) -> list[FleetRun]:
        """Take up to `count` runs, the oldest first. A run that a newer version has begun is left
        for workers of that version. `attempts`: only runs that have had so many, from and to."""
        sql = (
            f"WITH picked AS MATERIALIZED (SELECT id FROM fleet_runs WHERE {_claimable(attempts)} "
            "ORDER BY number LIMIT ? {skip_locked}) "
            "UPDATE fleet_runs SET state = 'running', worker = ?, epoch = epoch + 1, "
            "attempts = attempts + 1, wake = NULL, started = coalesce(started, {now}), "
            "version = CASE WHEN version_number = 0 THEN ? ELSE version END, "
            "version_number = CASE WHEN version_number = 0 THEN ? ELSE version_number END "
            f"FROM picked WHERE fleet_runs.id = picked.id "
            f"RETURNING {qualify(RUN_COLUMNS, RUNS_TABLE)}"
        )
        me, number = self._identity, self._version_number
        parameters = [number, *attempts, count, me.id, me.version, number]
        rows = await self._connection.execute(sql, parameters)
        return sorted((read_run(row) for row in rows), key=lambda run: run.created)

    async def has_claimable(self, *, attempts: tuple[int, int]) -> bool:
        sql = f"SELECT 1 FROM fleet_runs WHERE {_claimable(attempts)} LIMIT 1"
        return bool(await self._connection.execute(sql, [self._version_number, *attempts]))

    async def open_session(self, run: FleetRun) -> Store:
        """The log of the run. Appending fails once another worker has the run."""
        fence = SessionFence(RUNS_TABLE, run.id, run.epoch)
        return await self._connection.open_session(run.session, fence)

    async def is_mine(self, run: FleetRun) -> bool:
        sql = "SELECT 1 FROM fleet_runs WHERE id = ? AND epoch = ?"
        return bool(await self._connection.execute(sql, [run.id, run.epoch]))

    async def finish(
        self, run: FleetRun, state: RunState, result: FleetResult | None, error: str = ""
    ) -> bool:
        """Write how the run ended; False if another worker has it."""
        sql = (
            "UPDATE fleet_runs SET state = ?, result = ?, cost = ?, error = ?, worker = '', "
            "seconds = ?, ended = {now} WHERE id = ? AND epoch = ? RETURNING id"
        )
        encoded = write_json(result) if result is not None else None
        cost = result.cost if result is not None else None
        parameters = [state, encoded, cost, error, run.seconds, run.id, run.epoch]
        return bool(await self._connection.execute(sql, parameters))

    async def release(self, run: FleetRun, *, wake: float | None = None) -> bool:
        """Put the run back into the queue, or park it until a time; its attempts count anew."""
        sql = (
            "UPDATE fleet_runs SET state = ?, wake = ?, worker = '', attempts = 0, seconds = ?, "
            f"cost = {_COST} WHERE id = ? AND epoch = ? AND state = 'running' RETURNING id"
        )
        state = "queued" if wake is None else "parked"
        parameters = [state, wake, run.seconds, run.cost, run.id, run.epoch]
        return bool(await self._connection.execute(sql, parameters))

    async def requeue(self, run_id: str, epoch: int) -> None:
        """Put a run back into the queue that this worker has by the database only."""
        sql = (
            "UPDATE fleet_runs SET state = 'queued', worker = '', epoch = epoch + 1, attempts = 0 "
            "WHERE id = ? AND epoch = ? AND state = 'running'"
        )
        await self._connection.execute(sql, [run_id, epoch])

    async def wait(self, run: FleetRun, approvals: Sequence[FleetApproval]) -> None:
        """Let the run wait for these approvals; those that it has waited for before stay."""
        mine = "EXISTS (SELECT 1 FROM fleet_runs WHERE id = ? AND epoch = ? AND state = 'running')"
        statements: list[Statement] = [
            (
                "INSERT INTO fleet_approvals (id, run, call, tool, arguments, created, expires) "
                "SELECT CAST(? AS text), CAST(? AS text), CAST(? AS text), CAST(? AS text), "
                "CAST(? AS text), {now}, {now} + CAST(? AS float8) "
                f"WHERE {mine} ON CONFLICT (id) DO NOTHING",
                [
                    approval.id,
                    run.id,
                    approval.id.removeprefix(f"{run.id}/"),
                    approval.tool,
                    approval.arguments,
                    approval.expires,
                    run.id,
                    run.epoch,
                ],
            )
            for approval in approvals
        ]
        statements.append(
            (
                "UPDATE fleet_runs SET state = 'waiting', worker = '', attempts = 0, seconds = ?, "
                f"cost = {_COST} WHERE id = ? AND epoch = ? AND state = 'running'",
                [run.seconds, run.cost, run.id, run.epoch],
            )
        )
        statements.append((f"{WAKE_ANSWERED} AND id = ?", [run.id]))
        await self._connection.execute_all(statements)

    async def answers(self, run: FleetRun) -> dict[str, FleetAnswer]:
        """The decisions on calls of a run, by the ids of the calls."""
        sql = (
            "SELECT call, decision, reason FROM fleet_approvals "
            "WHERE run = ? AND decision IS NOT NULL"
        )
        rows = await self._connection.execute(sql, [run.id])
        return {call: FleetAnswer(decision == "allow", reason) for call, decision, reason in rows}

    # --- workers ---------------------------------------------------------------------------

    async def beat(self, worked: Mapping[str, WorkSoFar] | None = None) -> Mapping[str, int]:
        """Give a sign of life; the runs that this worker has, with their epochs. `worked` has the
        time and the cost of each: they count when this worker dies."""
        me, execute = self._identity, self._connection.execute
        # One by one: a worker that is stopped in between holds no row that others need.
        beat = (
            "INSERT INTO fleet_workers VALUES (?, ?, ?, ?, {now}, 1) ON CONFLICT (id) "
            "DO UPDATE SET heartbeat = {now}, beats = fleet_workers.beats + 1"
        )
        await execute(beat, [me.id, me.host, me.pid, me.version])
        for statement, parameters in _make_work_statements(me.id, [*(worked or {}).items()]):
            await execute(statement, parameters)
        mine = "SELECT id, epoch FROM fleet_runs WHERE worker = ? AND state = 'running'"
        return dict(await execute(mine, [me.id]))

    async def leave(self) -> None:
        """This worker ends: its runs, if it has any left, go back to the queue at once."""
        await self._connection.execute_all(make_leave_statements(self._identity.id))

    async def sweep(self, lease: float, max_attempts: int) -> list[str]:
        """Take the runs of dead workers away from them; the ids of those workers."""
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
        for worker, beats in dead:
            await self._bury(worker, beats, max_attempts)
        return [worker for worker, _ in dead]

    async def _bury(self, worker: str, beats: int, max_attempts: int) -> None:
        still_dead = "EXISTS (SELECT 1 FROM fleet_workers WHERE id = ? AND beats = ?)"
        error = f"its worker died in each of {max_attempts} attempts; the last one: {worker}"
        await self._connection.execute_all(
            [
                (
                    "UPDATE fleet_runs SET worker = '', epoch = epoch + 1, "
                    "state = CASE WHEN attempts >= ? THEN 'set_aside' ELSE 'queued' END, "
                    "error = CASE WHEN attempts >= ? THEN CAST(? AS text) ELSE error END, "
                    "ended = CASE WHEN attempts >= ? THEN {now} ELSE NULL END "
                    f"WHERE worker = ? AND state = 'running' AND {still_dead}",
                    [max_attempts, max_attempts, error, max_attempts, worker, worker, beats],
                ),
                (
                    "UPDATE fleet_calls SET ended = {now} WHERE worker = ? AND ended IS NULL AND "
                    f"{still_dead}",
                    [worker, worker, beats],
                ),
                ("DELETE FROM fleet_workers WHERE id = ? AND beats = ?", [worker, beats]),
            ]
        )

    async def sweep_leftovers(self) -> None:
        """Queue runs whose time has come, whose approvals expired or whose worker has no row."""
        await self._connection.execute_all(
            [
                (
                    "UPDATE fleet_approvals SET decision = 'deny', reason = ? "
                    "WHERE decision IS NULL AND expires <= {now}",
                    [NOT_ANSWERED],
                ),
                (WAKE_ANSWERED, []),
                (
                    "UPDATE fleet_runs SET state = 'queued', wake = NULL "
                    "WHERE state = 'parked' AND wake <= {now}",
                    [],
                ),
                (
                    "UPDATE fleet_runs SET state = 'queued', worker = '', epoch = epoch + 1 "
                    "WHERE state = 'running' AND NOT EXISTS "
                    "(SELECT 1 FROM fleet_workers WHERE id = fleet_runs.worker)",
                    [],
                ),
            ]
        )


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


def _claimable(attempts: tuple[int, int]) -> str:
    """The condition, in the words of an index (sql_connection.py); takes version and attempts."""
    condition = "state = 'queued' AND version_number <= ? AND attempts BETWEEN ? AND ?"
    return f"attempts > 0 AND {condition}" if attempts[0] > 0 else condition

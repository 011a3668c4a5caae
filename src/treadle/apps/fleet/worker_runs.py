"""The records of runs as a worker writes them: claim, result, wait. Delivery is an engine's.

    claim        a delivered run is this worker's; its epoch grows, and its attempts
    finish, release, wait     the run leaves this worker, if it still is this worker's
    defer        this worker cannot work on it: it is submitted again later

An engine delivers a run and its job, the epoch at which it was queued. A claim is refused if the
run was queued again since, has ended or was cancelled: so a delivery too many changes nothing. A
worker that lost its run finds a higher epoch at its next append and at its next heartbeat.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

import msgspec

from treadle.apps.fleet.run_record import FleetApproval, FleetResult, FleetRun, RunState
from treadle.apps.fleet.sql.run_rows import RUN_COLUMNS, make_version_number, read_run, write_json
from treadle.apps.fleet.sql.sql_connection import RUNS_TABLE, SqlConnection, Statement
from treadle.apps.fleet.sql.sql_database import QUEUE_AGAIN, WAKE_ANSWERED
from treadle.core.contracts.store import Store
from treadle.sessions.queued_store import SessionFence

_COST = "coalesce(CAST(? AS float8), cost)"
_DELIVERED = "id = ? AND job = ? AND state IN ('queued', 'running', 'waiting', 'parked')"
NOT_ANSWERED = "The call was not approved within the time limit."


class WorkerIdentity(msgspec.Struct, frozen=True):
    """Who a worker is; `id` is new for each process, and no other one has it."""

    id: str
    host: str
    pid: int
    version: str


def make_worker_name() -> str:
    """A name that no other worker has, on whatever machine."""
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"


class FleetAnswer(msgspec.Struct, frozen=True):
    is_allowed: bool
    reason: str


class WorkerRuns:
    """The runs of one worker."""

    def __init__(self, connection: SqlConnection, identity: WorkerIdentity) -> None:
        self._connection = connection
        self._identity = identity
        self._version_number = make_version_number(identity.version)

    async def claim(self, run_id: str, job: int, max_attempts: int) -> FleetRun | None:
        """Make a delivered run this worker's; None if there is nothing to do for it. A run that has
        had `max_attempts` without a completed step is set aside."""
        me, number = self._identity, self._version_number
        aside = f"no step was completed in {max_attempts} attempts: its workers died, or gave it up"
        *_, rows = await self._connection.execute_all(
            [
                (
                    "UPDATE fleet_approvals SET decision = 'deny', reason = ? WHERE run = ? "
                    "AND decision IS NULL AND expires <= {now}",
                    [NOT_ANSWERED, run_id],
                ),
                (
                    "UPDATE fleet_runs SET state = 'set_aside', error = ?, "
                    "worker = '', epoch = epoch + 1, ended = {now} "
                    f"WHERE {_DELIVERED} AND attempts >= ?",
                    [aside, run_id, job, max_attempts],
                ),
                (
                    "UPDATE fleet_runs SET state = 'running', worker = ?, epoch = epoch + 1, "
                    "attempts = attempts + 1, wake = NULL, started = coalesce(started, {now}), "
                    "version = CASE WHEN version_number = 0 THEN ? ELSE version END, "
                    "version_number = CASE WHEN version_number = 0 THEN ? ELSE version_number END "
                    f"WHERE {_DELIVERED} AND version_number <= ? RETURNING {RUN_COLUMNS}",
                    [me.id, me.version, number, run_id, job, number],
                ),
            ]
        )
        return read_run(rows[0]) if rows else None

    async def defer(self, run_id: str, job: int) -> None:
        """Queue a delivered run again; it is not submitted before `FleetDatabase.dispatch`."""
        sql = f"UPDATE fleet_runs SET worker = '', {QUEUE_AGAIN} WHERE {_DELIVERED}"
        await self._connection.execute(sql, [run_id, job])

    async def find_newer(self) -> list[FleetRun]:
        """Runs in the queue that a newer version has begun."""
        sql = (
            f"SELECT {RUN_COLUMNS} FROM fleet_runs WHERE state = 'queued' AND version_number > ? "
            "ORDER BY number"
        )
        return [
            read_run(row) for row in await self._connection.execute(sql, [self._version_number])
        ]

    async def note_step(self, run: FleetRun) -> None:
        """A step was completed: attempts count anew."""
        sql = "UPDATE fleet_runs SET attempts = 1 WHERE id = ? AND epoch = ?"
        await self._connection.execute(sql, [run.id, run.epoch])

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
        """Queue the run again, or park it until a time. It has completed a step."""
        sql = (
            f"UPDATE fleet_runs SET {QUEUE_AGAIN}, wake = ?, worker = '', attempts = 0, "
            f"seconds = ?, cost = {_COST} WHERE id = ? AND epoch = ? AND state = 'running' "
            "RETURNING id"
        )
        if wake is not None:
            sql = sql.replace("state = 'queued'", "state = 'parked'", 1)
        parameters = [wake, run.seconds, run.cost, run.id, run.epoch]
        return bool(await self._connection.execute(sql, parameters))

    async def wait(self, run: FleetRun, approvals: Sequence[FleetApproval]) -> None:
        """Let the run wait for these approvals; those that it has waited for before stay. It is
        delivered when the first of them expires."""
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
        first = "SELECT min(expires) FROM fleet_approvals WHERE run = ? AND decision IS NULL"
        statements.append(
            (
                "UPDATE fleet_runs SET state = 'waiting', worker = '', attempts = 0, seconds = ?, "
                f"cost = {_COST}, epoch = epoch + 1, job = epoch + 1, wake = ({first}) "
                "WHERE id = ? AND epoch = ? AND state = 'running'",
                [run.seconds, run.cost, run.id, run.id, run.epoch],
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

"""The database of a fleet over SQL: what hosts and programs see. See database.py.

Every change is one transaction. Workers use more: run_queue.py (claims, heartbeats, results) and
limits.py (model calls), over the same connection.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from treadle.apps.fleet.run_record import (
    END_STATES,
    FleetApproval,
    FleetLimits,
    FleetRun,
    FleetSchedule,
    FleetTotals,
    RunState,
    WorkerRecord,
)
from treadle.apps.fleet.run_rows import RUN_COLUMNS, read_run, write_json
from treadle.apps.fleet.sql_connection import (
    TABLES_VERSION,
    UPGRADES,
    SqlConnection,
    Statement,
    make_placeholders,
)
from treadle.apps.fleet.store_address import hide_password
from treadle.apps.fleet.task import FleetTask, reject_conflicts
from treadle.core.errors import ConfigError, StoreError
from treadle.core.transcript.entries import Entry

BATCH = 400  # rows of one statement
SESSION_PREFIX = "fleet-"
_ENDED = tuple(sorted(END_STATES))
_RETRIED = ("failed", "cancelled", "set_aside")
_FORGET_APPROVALS = (  # a retry asks again
    "DELETE FROM fleet_approvals WHERE decision IS NULL AND run IN "
    "(SELECT id FROM fleet_runs WHERE state = 'cancelled' AND id IN {})",
)


class SqlDatabase:
    """A fleet in a SQL database; made by `open_database`."""

    def __init__(self, url: str, connection: SqlConnection) -> None:
        self.url = url
        self.fleet_id = ""
        self.connection = connection

    @classmethod
    async def open(cls, url: str, connection: SqlConnection, create: bool) -> SqlDatabase:
        has_tables = await connection.open(create=create)
        database = cls(url, connection)
        try:
            if not has_tables:
                address = hide_password(url)
                raise ConfigError(f"there is no fleet at {address}; `treadle fleet run` makes one")
            await database._check_version()
            database.fleet_id = await database._get("fleet") or await database._make_fleet_id()
        except BaseException:
            await connection.aclose()
            raise
        return database

    async def aclose(self) -> None:
        await self.connection.aclose()

    # --- runs ------------------------------------------------------------------------------

    async def submit(self, tasks: Iterable[FleetTask]) -> list[FleetRun]:
        tasks = [*tasks]
        await self._find_runs_of(tasks)
        now = time.time()
        statements: list[Statement] = []
        for start in range(0, len(tasks), BATCH):
            batch = tasks[start : start + BATCH]
            rows = ", ".join(["(?, ?, 'queued', ?, ?)"] * len(batch))
            sql = f"INSERT INTO fleet_runs (id, task, state, session, created) VALUES {rows}"
            values = [(t.id, write_json(t), SESSION_PREFIX + t.id, now) for t in batch]
            parameters = [value for row in values for value in row]
            statements.append((f"{sql} ON CONFLICT (id) DO NOTHING", parameters))
        if statements:
            await self.connection.execute_all(statements)
        found = await self._find_runs_of(tasks)
        return [found[task_id] for task_id in dict.fromkeys(task.id for task in tasks)]

    async def _find_runs_of(self, tasks: Sequence[FleetTask]) -> dict[str, FleetRun]:
        """The runs that these tasks have. ConfigError if a run is that of another task."""
        known = {task.id: task for task in reversed(tasks)}  # the first task of an id
        found = {run.id: run for run in await self.runs(ids=known)}
        known |= {run.id: run.task for run in found.values()}
        reject_conflicts((task, known[task.id]) for task in tasks)
        return found

    async def runs(
        self,
        *,
        ids: Collection[str] | None = None,
        state: RunState | Collection[RunState] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[FleetRun]:
        wanted = None if ids is None else [*dict.fromkeys(ids)]
        states = [state] if isinstance(state, str) else None if state is None else [*state]
        found: list[FleetRun] = []
        for batch in [None] if wanted is None else _split(wanted):
            conditions, parameters = ["1 = 1"], list[object]()
            for column, values in (("id", batch), ("state", states)):
                if values is not None:
                    conditions.append(f"{column} IN {make_placeholders(values)}")
                    parameters += values
            where = " AND ".join(conditions)
            sql = f"SELECT {RUN_COLUMNS} FROM fleet_runs WHERE {where} ORDER BY number"
            found += map(read_run, await self.connection.execute(sql, parameters))
        if labels:
            found = [run for run in found if labels.items() <= run.task.labels.items()]
        return found

    async def run(self, run_id: str) -> FleetRun | None:
        found = await self.runs(ids=[run_id])
        return found[0] if found else None

    async def cancel(self, ids: Collection[str]) -> list[str]:
        # The epoch grows: the worker that has the run may not append or call a tool any more.
        sql = (
            "UPDATE fleet_runs SET state = 'cancelled', worker = '', epoch = epoch + 1, "
            "ended = {now} WHERE "
        )
        condition = f"state NOT IN {make_placeholders(_ENDED)}"
        return await self._change(sql, ids, condition, _ENDED, then=_FORGET_APPROVALS)

    async def retry(self, ids: Collection[str]) -> list[str]:
        sql = (
            "UPDATE fleet_runs SET state = 'queued', attempts = 0, epoch = epoch + 1, worker = '', "
            "error = '', ended = NULL, version_number = 0 WHERE "
        )
        return await self._change(sql, ids, f"state IN {make_placeholders(_RETRIED)}", _RETRIED)

    async def _change(
        self,
        sql: str,
        ids: Collection[str],
        condition: str,
        values: Sequence[str],
        then: Sequence[str] = (),
    ) -> list[str]:
        """The ids of the runs that were changed. `then`: statements that follow, for `{}` ids."""
        changed: list[str] = []
        for batch in _split([*ids]):
            where = f"id IN {make_placeholders(batch)} AND {condition} RETURNING id"
            rows, *_ = await self.connection.execute_all(
                [
                    (sql + where, [*batch, *values]),
                    *((one.format(make_placeholders(batch)), batch) for one in then),
                ]
            )
            changed += [row[0] for row in rows]
        return [run_id for run_id in dict.fromkeys(ids) if run_id in changed]

    async def delete_runs(self, ids: Collection[str], before: float) -> list[str]:
        deleted: list[str] = []
        for batch in _split([*dict.fromkeys(ids)]):
            where = (
                f"id IN {make_placeholders(batch)} AND state IN {make_placeholders(_ENDED)} "
                "AND ended <= ?"
            )
            values = [*batch, *_ENDED, before]
            chosen = f"FROM fleet_runs WHERE {where}"
            blobs = f"SELECT 'workspaces/' || id || '/{{}}' {chosen}"
            *_, rows = await self.connection.execute_all(
                [
                    # Locked: a retry waits, and then finds no run.
                    (f"SELECT id {chosen} {{for_update}}", values),
                    *(
                        (statement.format(f"SELECT session {chosen}"), values)
                        for statement in self.connection.session_deletes
                    ),
                    (f"DELETE FROM fleet_approvals WHERE run IN (SELECT id {chosen})", values),
                    *(
                        (f"DELETE FROM fleet_blobs WHERE id IN ({blobs.format(name)})", values)
                        for name in ("place", "snapshot")
                    ),
                    (f"DELETE {chosen} RETURNING id", values),
                ]
            )
            deleted += [row[0] for row in rows]
        return deleted

    async def totals(self) -> FleetTotals:
        sql = "SELECT state, count(*), coalesce(sum(cost), 0) FROM fleet_runs GROUP BY state"
        rows = await self.connection.execute(sql)
        return FleetTotals(
            {state: count for state, count, _ in rows}, float(sum(cost for *_, cost in rows))
        )

    async def load_session(self, run_id: str) -> Sequence[Entry]:
        run = await self.run(run_id)
        return [] if run is None else await self.connection.load_session(run.session)

    # --- approvals -------------------------------------------------------------------------

    async def approvals(self, run_id: str | None = None) -> list[FleetApproval]:
        sql = "SELECT id, run, tool, arguments, created, expires FROM fleet_approvals"
        sql += " WHERE decision IS NULL" + (" AND run = ?" if run_id is not None else "")
        parameters = [] if run_id is None else [run_id]
        rows = await self.connection.execute(f"{sql} ORDER BY number", parameters)
        return [FleetApproval(*row) for row in rows]

    async def answer_approval(self, approval_id: str, *, allow: bool, reason: str = "") -> bool:
        decision = "allow" if allow else "deny"
        run = "(SELECT run FROM fleet_approvals WHERE id = ?)"
        results = await self.connection.execute_all(
            [
                # Two answers at once must see each other, or the run would not wake.
                (f"SELECT 1 FROM fleet_runs WHERE id = {run} {{for_update}}", [approval_id]),
                (
                    "UPDATE fleet_approvals SET decision = ?, reason = ? "
                    "WHERE id = ? AND decision IS NULL RETURNING id",
                    [decision, reason, approval_id],
                ),
                (f"{WAKE_ANSWERED} AND id = {run}", [approval_id]),
            ]
        )
        return bool(results[1])

    # --- workers, limits, schedules, blobs -------------------------------------------------

    async def workers(self) -> list[WorkerRecord]:
        sql = (
            "SELECT id, host, pid, version, heartbeat, (SELECT count(*) FROM fleet_runs "
            "WHERE worker = fleet_workers.id AND state = 'running') FROM fleet_workers ORDER BY id"
        )
        return [WorkerRecord(*row) for row in await self.connection.execute(sql)]

    async def forget_workers(self, host: str, pids: Collection[int]) -> None:
        """Queue the runs of processes that were killed; nothing waits for their lease."""
        where = f"host = ? AND pid IN {make_placeholders([*pids])}"
        rows = await self.connection.execute(
            f"SELECT id FROM fleet_workers WHERE {where}", [host, *pids]
        )
        for (worker,) in rows:
            await self.connection.execute_all(make_leave_statements(worker))

    async def set_limits(self, limits: FleetLimits) -> None:
        await self._set("limits", write_json(limits))
        start = "INSERT INTO fleet_settings VALUES ('spent', '0') ON CONFLICT (name) DO NOTHING"
        await self.connection.execute(start)

    async def limits(self) -> FleetLimits:
        text = await self._get("limits")
        return msgspec.json.decode(text, type=FleetLimits) if text else FleetLimits()

    async def spent(self) -> float:
        return float(await self._get("spent") or 0.0)

    async def put_blob(self, key: str, data: bytes) -> None:
        sql = (
            "INSERT INTO fleet_blobs VALUES (?, ?, {now}) "
            "ON CONFLICT (id) DO UPDATE SET data = excluded.data, created = excluded.created"
        )
        await self.connection.execute(sql, [key, data])

    async def get_blob(self, key: str) -> bytes | None:
        rows = await self.connection.execute("SELECT data FROM fleet_blobs WHERE id = ?", [key])
        return bytes(rows[0][0]) if rows else None

    async def schedules(self) -> list[FleetSchedule]:
        sql = "SELECT name, cron, task, next FROM fleet_schedules ORDER BY name"
        rows = await self.connection.execute(sql)
        return [_read_schedule(row) for row in rows]

    async def set_schedule(self, schedule: FleetSchedule) -> None:
        sql = (
            "INSERT INTO fleet_schedules VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE "
            "SET cron = excluded.cron, task = excluded.task, next = excluded.next"
        )
        task = write_json(schedule.task)
        await self.connection.execute(sql, [schedule.name, schedule.cron, task, schedule.next])

    async def remove_schedule(self, name: str) -> bool:
        sql = "DELETE FROM fleet_schedules WHERE name = ? RETURNING name"
        return bool(await self.connection.execute(sql, [name]))

    async def advance_schedule(self, schedule: FleetSchedule, following: float) -> bool:
        sql = "UPDATE fleet_schedules SET next = ? WHERE name = ? AND next = ? RETURNING name"
        parameters = [following, schedule.name, schedule.next]
        return bool(await self.connection.execute(sql, parameters))

    # --- details ---------------------------------------------------------------------------

    async def _check_version(self) -> None:
        found = await self._get("tables")
        if found is None:
            await self._set("tables", str(TABLES_VERSION))
        elif int(found) < TABLES_VERSION:
            upgrades = [UPGRADES[version] for version in range(int(found), TABLES_VERSION)]
            await self.connection.execute_all([(upgrade, []) for upgrade in upgrades])
            await self._set("tables", str(TABLES_VERSION))
        elif int(found) > TABLES_VERSION:
            raise StoreError(
                f"the fleet's tables have version {found}; this program knows version "
                f"{TABLES_VERSION}: install the newer treadle on this machine"
            )

    async def _make_fleet_id(self) -> str:
        sql = "INSERT INTO fleet_settings VALUES ('fleet', ?) ON CONFLICT (name) DO NOTHING"
        await self.connection.execute(sql, [f"fleet-{uuid.uuid4().hex[:12]}"])
        return await self._get("fleet") or ""

    async def _get(self, name: str) -> str | None:
        sql = "SELECT value FROM fleet_settings WHERE name = ?"
        rows = await self.connection.execute(sql, [name])
        return str(rows[0][0]) if rows else None

    async def _set(self, name: str, value: str) -> None:
        sql = (
            "INSERT INTO fleet_settings VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        )
        await self.connection.execute(sql, [name, value])


def make_leave_statements(worker: str) -> list[Statement]:
    """A worker ends: its runs, if it has any left, go back to the queue at once."""
    return [
        (
            "UPDATE fleet_runs SET state = 'queued', worker = '', epoch = epoch + 1, "
            "attempts = 0 WHERE worker = ? AND state = 'running'",
            [worker],
        ),
        ("UPDATE fleet_calls SET ended = {now} WHERE worker = ? AND ended IS NULL", [worker]),
        ("DELETE FROM fleet_workers WHERE id = ?", [worker]),
    ]


# Runs that wait for no decision any more; further conditions may follow.
WAKE_ANSWERED = (
    "UPDATE fleet_runs SET state = 'queued' WHERE state = 'waiting' AND NOT EXISTS ("
    "SELECT 1 FROM fleet_approvals WHERE run = fleet_runs.id AND decision IS NULL)"
)


def _split(values: Sequence[str]) -> list[Sequence[str]]:
    return [values[start : start + BATCH] for start in range(0, len(values), BATCH)]


def _read_schedule(row: tuple[Any, ...]) -> FleetSchedule:
    name, cron, task, following = row
    return FleetSchedule(name, cron, msgspec.json.decode(task, type=FleetTask), following)

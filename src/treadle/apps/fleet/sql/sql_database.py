"""The database of a fleet over SQL: what hosts and programs see. See database.py.

Every change is one transaction. A run that is to be delivered is marked in it; then `dispatch`
submits it to the engine, and workers repeat that for what a process that died has left. Workers use
more: worker_runs.py, worker_registry.py and limits.py, over the same connection.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from treadle._version import __version__
from treadle.apps.fleet.engines import choose_engine, make_engine
from treadle.apps.fleet.run_record import (
    END_STATES,
    FleetApproval,
    FleetLimits,
    FleetRun,
    FleetTotals,
    RunState,
    WorkerRecord,
    make_job_id,
)
from treadle.apps.fleet.sql.run_rows import (
    RUN_COLUMNS,
    make_version_number,
    read_run,
    read_task,
    write_json,
)
from treadle.apps.fleet.sql.sql_connection import SqlConnection, Statement, make_placeholders
from treadle.apps.fleet.sql.sql_schedules import SqlSchedules
from treadle.apps.fleet.store_address import hide_password
from treadle.apps.fleet.task import FleetTask, reject_conflicts, update_limits
from treadle.core.contracts.run_engine import RunEngine, RunJob
from treadle.core.errors import ConfigError, StoreError
from treadle.core.transcript.entries import Entry
from treadle.lib.logger import logger

BATCH = 400  # rows of one statement
SESSION_PREFIX = "fleet-"
PACKAGES = "packages/"  # begins the id of a blob with the files of a session that was sent
_ENDED = tuple(sorted(END_STATES))
_RETRIED = ("failed", "cancelled", "set_aside")
_FORGET_APPROVALS = (  # a retry asks again
    "DELETE FROM fleet_approvals WHERE decision IS NULL AND run IN "
    "(SELECT id FROM fleet_runs WHERE state = 'cancelled' AND id IN {})",
)


class SqlDatabase(SqlSchedules):
    """A fleet in a SQL database; made by `open_database`."""

    def __init__(self, url: str, connection: SqlConnection) -> None:
        self.url = url
        self.fleet_id = self.engine_name = ""
        super().__init__(connection)
        self._engine: RunEngine | None = None

    @classmethod
    async def open(
        cls, url: str, connection: SqlConnection, create: bool, engine: str = ""
    ) -> SqlDatabase:
        has_tables = await connection.open(create=create)
        database = cls(url, connection)
        try:
            if not has_tables:
                address = hide_password(url)
                raise ConfigError(f"there is no fleet at {address}; `treadle fleet run` makes one")
            chosen = choose_engine(url, engine)
            if create:
                await database._set_once("fleet", f"fleet-{uuid.uuid4().hex[:12]}")
                await database._set_once("engine", chosen)
            database.fleet_id = await database._get("fleet") or ""
            database.engine_name = await database._get("engine") or chosen
            if engine and engine != database.engine_name:
                raise ConfigError(
                    f"this fleet has the engine {database.engine_name}; use another database for "
                    f"the engine {engine}"
                )
        except BaseException:
            await connection.aclose()
            raise
        return database

    @property
    def engine(self) -> RunEngine:
        """Made at its first use: those who only look import none."""
        if self._engine is None:
            self._engine = make_engine(self.engine_name, self.url, self.connection)
        return self._engine

    async def aclose(self) -> None:
        try:
            if self._engine is not None:
                await self._engine.aclose()
        finally:
            await self.connection.aclose()

    async def dispatch(self, version: str = __version__) -> None:
        """Submit the runs to the engine that are to be delivered and were not submitted yet. Not
        while the money is spent, and not those that a version newer than this one has begun."""
        due = (
            "SELECT id, job, CASE WHEN state = 'queued' THEN 0 ELSE wake - {now} END, task "
            "FROM fleet_runs WHERE submitted < job AND version_number <= ? AND (state = 'queued' "
            "OR (state IN ('parked', 'waiting') AND wake IS NOT NULL)) ORDER BY number LIMIT ?"
        )
        sent = "UPDATE fleet_runs SET submitted = ? WHERE id = ? AND job = ?"
        parameters = [make_version_number(version), BATCH]
        while rows := await self.connection.execute(due, parameters):
            if await self._is_money_spent():
                return
            await self.engine.submit(
                [
                    RunJob(make_job_id(run, job), max(0.0, delay), read_task(task).resources)
                    for run, job, delay, task in rows
                ]
            )
            await self.connection.execute_all([(sent, [job, run, job]) for run, job, *_ in rows])

    async def _cancel_jobs(self, ids: Sequence[str]) -> None:
        try:
            if ids:
                await self.engine.cancel(ids)
        except StoreError as error:  # a job too many changes nothing
            logger.debug("jobs stay in the queue: %s", error)

    # --- runs ------------------------------------------------------------------------------

    async def submit(self, tasks: Iterable[FleetTask]) -> list[FleetRun]:
        tasks = [*tasks]
        runs = await self._find_runs_of(tasks)
        now = time.time()
        statements: list[Statement] = [
            ("UPDATE fleet_runs SET task = ? WHERE id = ?", [write_json(changed), task.id])
            for task in reversed(tasks)  # the first task of an id counts
            if task.id in runs
            and (changed := update_limits(runs[task.id].task, task)) != runs[task.id].task
        ]
        for start in range(0, len(tasks), BATCH):
            batch = tasks[start : start + BATCH]
            rows = ", ".join(["(?, ?, 'queued', ?, ?)"] * len(batch))
            sql = f"INSERT INTO fleet_runs (id, task, state, session, created) VALUES {rows}"
            values = [(t.id, write_json(t), SESSION_PREFIX + t.id, now) for t in batch]
            parameters = [value for row in values for value in row]
            statements.append((f"{sql} ON CONFLICT (id) DO NOTHING", parameters))
        if statements:
            await self.connection.execute_all(statements)
            await self.dispatch()
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
        changed = await self._change(sql, ids, condition, _ENDED, then=_FORGET_APPROVALS)
        await self._cancel_jobs([make_job_id(run, job) for run, job in changed.items()])
        return [*changed]

    async def retry(self, ids: Collection[str]) -> list[str]:
        sql = (
            f"UPDATE fleet_runs SET {QUEUE_AGAIN}, attempts = 0, worker = '', "
            "error = '', ended = NULL, version_number = 0, earlier_seconds = seconds WHERE "
        )
        condition = f"state IN {make_placeholders(_RETRIED)}"
        changed = await self._change(sql, ids, condition, _RETRIED)
        await self.dispatch()
        return [*changed]

    async def _change(
        self,
        sql: str,
        ids: Collection[str],
        condition: str,
        values: Sequence[str],
        then: Sequence[str] = (),
    ) -> dict[str, int]:
        """The runs that were changed, with their jobs. `then`: statements that follow, for `{}`
        ids."""
        changed: dict[str, int] = {}
        for batch in _split([*ids]):
            where = f"id IN {make_placeholders(batch)} AND {condition} RETURNING id, job"
            rows, *_ = await self.connection.execute_all(
                [
                    (sql + where, [*batch, *values]),
                    *((one.format(make_placeholders(batch)), batch) for one in then),
                ]
            )
            changed |= dict(rows)
        return {run_id: changed[run_id] for run_id in dict.fromkeys(ids) if run_id in changed}

    async def delete_runs(self, ids: Collection[str], before: float) -> list[str]:
        deleted: list[str] = []
        for batch in _split([*dict.fromkeys(ids)]):
            where = (
                f"id IN {make_placeholders(batch)} AND state IN {make_placeholders(_ENDED)} "
                "AND ended <= ?"
            )
            values = [*batch, *_ENDED, before]
            *_, rows = await self.connection.execute_all(
                make_delete_statements(self.connection.session_deletes, where, values)
            )
            deleted += [row[0] for row in rows]
            # A task with the id of a deleted run is a new run: the engine must not know its jobs.
            await self.engine.delete(
                [make_job_id(run, n) for run, job in rows for n in range(job + 1)]
            )
        return deleted

    async def totals(self) -> FleetTotals:
        sql = (
            "SELECT state, count(*), coalesce(sum(cost), 0), {now} - min(created) FROM fleet_runs "
            "GROUP BY state"
        )
        rows = await self.connection.execute(sql)
        ages = {state: age for state, _, _, age in rows}
        return FleetTotals(
            {state: count for state, count, *_ in rows},
            float(sum(cost for _, _, cost, _ in rows)),
            max(0.0, ages.get("queued", 0.0)),
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
                (f"{WAKE_ANSWERED} AND id = {run} RETURNING id, job", [approval_id]),
            ]
        )
        # The job that would have come when the approval expires is of no use any more.
        await self._cancel_jobs([make_job_id(one, job - 1) for one, job in results[2]])
        await self.dispatch()
        return bool(results[1])

    # --- workers, limits, blobs -------------------------------------------------

    async def workers(self) -> list[WorkerRecord]:
        sql = (
            "SELECT id, host, pid, version, heartbeat, (SELECT count(*) FROM fleet_runs "
            "WHERE worker = fleet_workers.id AND state = 'running') FROM fleet_workers ORDER BY id"
        )
        return [WorkerRecord(*row) for row in await self.connection.execute(sql)]

    async def forget_workers(self, ids: Collection[str]) -> None:
        for worker in ids:
            await self.engine.abandon(worker)  # first: without its row no other worker would do it
            await self.connection.execute_all(make_leave_statements(worker))
        await self.dispatch()

    async def set_limits(self, limits: FleetLimits) -> None:
        await self._set("limits", write_json(limits))
        await self._set_once("spent", "0")
        await self.dispatch()

    async def limits(self) -> FleetLimits:
        text = await self._get("limits")
        return msgspec.json.decode(text, type=FleetLimits) if text else FleetLimits()

    async def spent(self) -> float:
        return float(await self._get("spent") or 0.0)

    async def _is_money_spent(self) -> bool:
        max_cost = (await self.limits()).max_cost
        return max_cost is not None and await self.spent() >= max_cost

    async def put_blob(self, key: str, data: bytes) -> None:
        sql = (
            "INSERT INTO fleet_blobs VALUES (?, ?, {now}) "
            "ON CONFLICT (id) DO UPDATE SET data = excluded.data, created = excluded.created"
        )
        await self.connection.execute(sql, [key, data])

    async def get_blob(self, key: str) -> bytes | None:
        rows = await self.connection.execute("SELECT data FROM fleet_blobs WHERE id = ?", [key])
        return bytes(rows[0][0]) if rows else None

    # --- details ---------------------------------------------------------------------------

    async def _get(self, name: str) -> str | None:
        sql = "SELECT value FROM fleet_settings WHERE name = ?"
        rows = await self.connection.execute(sql, [name])
        return str(rows[0][0]) if rows else None

    async def _set_once(self, name: str, value: str) -> None:
        sql = "INSERT INTO fleet_settings VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
        await self.connection.execute(sql, [name, value])

    async def _set(self, name: str, value: str) -> None:
        sql = (
            "INSERT INTO fleet_settings VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        )
        await self.connection.execute(sql, [name, value])


def make_delete_statements(
    session_deletes: Sequence[str], where: str, values: Sequence[object]
) -> list[Statement]:
    """Delete runs with all that belongs to them; the last statement returns their ids and jobs."""
    chosen = f"FROM fleet_runs WHERE {where}"
    places = [f"'workspaces/' || id || '/{name}'" for name in ("place", "snapshot")]
    keys = [*places, f"'{PACKAGES}' || session"]
    return [
        # Locked: a retry waits, and then finds no run.
        (f"SELECT id {chosen} {{for_update}}", values),
        *((one.format(f"SELECT session {chosen}"), values) for one in session_deletes),
        (f"DELETE FROM fleet_approvals WHERE run IN (SELECT id {chosen})", values),
        *((f"DELETE FROM fleet_blobs WHERE id IN (SELECT {key} {chosen})", values) for key in keys),
        (f"DELETE {chosen} RETURNING id, job", values),
    ]


def make_leave_statements(worker: str) -> list[Statement]:
    """A worker ended: it may write nothing more to its runs, and its model calls are over. How
    they ended is not known, so each costs what was reserved for it; not those in batches, whose
    results the next worker counts."""
    charged = "fleet_calls WHERE worker = ? AND ended IS NULL AND admitted IS NOT NULL AND kept = 0"
    return [
        (
            f"UPDATE fleet_runs SET {QUEUE_AGAIN}, worker = '' "
            "WHERE worker = ? AND state = 'running'",
            [worker],
        ),
        LOCK_LIMITS,
        (
            "UPDATE fleet_settings SET value = CAST(CAST(value AS float8) + (SELECT "
            f"coalesce(sum(cost), 0) FROM {charged}) AS text) "
            "WHERE name = 'spent'",
            [worker],
        ),
        ("UPDATE fleet_calls SET ended = {now} WHERE worker = ? AND ended IS NULL", [worker]),
        ("DELETE FROM fleet_workers WHERE id = ?", [worker]),
    ]


# First in a transaction that counts calls or money: one at a time, of all workers.
LOCK_LIMITS: Statement = ("SELECT 1 FROM fleet_settings WHERE name = 'limits' {for_update}", [])
# A run is to be delivered anew: the epoch at which it is queued is its job.
QUEUE_AGAIN = "state = 'queued', epoch = epoch + 1, job = epoch + 1"
# Runs that wait for no decision any more; further conditions may follow.
WAKE_ANSWERED = (
    f"UPDATE fleet_runs SET {QUEUE_AGAIN}, wake = NULL WHERE state = 'waiting' AND NOT EXISTS ("
    "SELECT 1 FROM fleet_approvals WHERE run = fleet_runs.id AND decision IS NULL)"
)


def _split(values: Sequence[str]) -> list[Sequence[str]]:
    return [values[start : start + BATCH] for start in range(0, len(values), BATCH)]

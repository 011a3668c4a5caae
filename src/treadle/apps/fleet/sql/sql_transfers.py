"""Transfers of sessions to a fleet and back (session_transfer.py): each is a row with an epoch.

    0   it is under way        1   it is committed        2   it was given up

Only a transfer at epoch 0 can be committed, in the transaction that makes the run of the session or
deletes it. So an attempt that was broken off is over once `settle` has said which of the two it is,
even if a statement of it still comes. The log on its way is fenced by the same row.
"""

from __future__ import annotations

from treadle.apps.fleet.run_record import FleetRun
from treadle.apps.fleet.sql.run_rows import write_json
from treadle.apps.fleet.sql.sql_connection import TRANSFERS_TABLE, Statement
from treadle.apps.fleet.sql.sql_database import PACKAGES, SqlDatabase, make_delete_statements
from treadle.apps.fleet.task import FleetTask
from treadle.core.contracts.store import Store
from treadle.sessions.queued_store import SessionFence

_READ = f"SELECT epoch FROM {TRANSFERS_TABLE} WHERE id = ?"
_IS_OPEN = f"EXISTS ({_READ} AND epoch = 0)"
_NO_RUN = "NOT EXISTS (SELECT 1 FROM fleet_runs WHERE session = ?)"
_IS_COMMITTED = f"EXISTS ({_READ} AND epoch = 1)"
_COMMIT = f"UPDATE {TRANSFERS_TABLE} SET epoch = 1 WHERE id = ? AND epoch = 0"


class SqlTransfers:
    def __init__(self, database: SqlDatabase) -> None:
        self._database = database
        self._connection = database.connection

    async def begin(self, token: str) -> None:
        sql = f"INSERT INTO {TRANSFERS_TABLE} VALUES (?, 0) ON CONFLICT (id) DO NOTHING"
        await self._connection.execute(sql, [token])

    async def settle(self, token: str) -> bool:
        """Whether the transfer is committed; if not, it never will be."""
        give_up = (
            f"INSERT INTO {TRANSFERS_TABLE} VALUES (?, 2) ON CONFLICT (id) "
            f"DO UPDATE SET epoch = 2 WHERE {TRANSFERS_TABLE}.epoch = 0"
        )
        *_, rows = await self._connection.execute_all([(give_up, [token]), (_READ, [token])])
        return bool(rows[0][0] == 1)

    async def forget(self, token: str) -> None:
        """The transfer is over on both sides."""
        await self._connection.execute(f"DELETE FROM {TRANSFERS_TABLE} WHERE id = ?", [token])

    async def open_log(self, token: str, session_id: str) -> Store:
        """An empty log for a session that no run has; writable until the transfer is over."""
        unused = f"SELECT CAST(? AS text) WHERE {_NO_RUN}"
        values = [session_id, session_id]
        deletes = self._connection.session_deletes
        await self._connection.execute_all([(one.format(unused), values) for one in deletes])
        return await self._connection.open_session(
            session_id, SessionFence(TRANSFERS_TABLE, token, 0)
        )

    async def find_run(self, session_id: str) -> FleetRun | None:
        """The run that has this session."""
        sql = "SELECT id FROM fleet_runs WHERE session = ?"
        rows = await self._connection.execute(sql, [session_id])
        return await self._database.run(rows[0][0]) if rows else None

    async def put_package(self, session_id: str, package: bytes) -> None:
        await self._database.put_blob(PACKAGES + session_id, package)

    async def get_package(self, session_id: str) -> bytes | None:
        return await self._database.get_blob(PACKAGES + session_id)

    async def commit_run(self, token: str, task: FleetTask, session_id: str) -> bool:
        """Queue a run with the log that was written; False if a run has this session."""
        insert = (
            "INSERT INTO fleet_runs (id, task, state, session, created) SELECT CAST(? AS text), "
            f"CAST(? AS text), 'queued', CAST(? AS text), {{now}} WHERE {_IS_OPEN} AND {_NO_RUN} "
            "ON CONFLICT (id) DO NOTHING"
        )
        is_made = "EXISTS (SELECT 1 FROM fleet_runs WHERE id = ? AND session = ?)"
        return await self._commit(
            token,
            (insert, [task.id, write_json(task), session_id, token, session_id]),
            (f"{_COMMIT} AND {is_made}", [token, task.id, session_id]),
        )

    async def commit_removal(self, token: str, run: FleetRun) -> bool:
        """Delete a run that is at no worker; False if it has changed since it was read."""
        values = [run.id, run.epoch, run.state]
        same = "id = ? AND epoch = ? AND state = ?"
        deletes = make_delete_statements(
            self._connection.session_deletes, f"{same} AND {_IS_COMMITTED}", [*values, token]
        )
        is_same = f"EXISTS (SELECT 1 FROM fleet_runs WHERE {same})"
        return await self._commit(
            token,
            (f"SELECT 1 FROM fleet_runs WHERE {same} {{for_update}}", values),
            (f"{_COMMIT} AND {is_same}", [token, *values]),
            *deletes,
        )

    async def _commit(self, token: str, *statements: Statement) -> bool:
        lock = (f"{_READ} {{for_update}}", [token])  # `settle` waits
        *_, rows = await self._connection.execute_all([lock, *statements, (_READ, [token])])
        return bool(rows) and bool(rows[0][0] == 1)

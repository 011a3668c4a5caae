"""What the two kinds of database have in common: the contract of a connection, and the tables.

Statements are written once, with `?` for a parameter and these words for what differs:
{now} the time, {skip_locked} rows of others are passed over, {for_update} rows are locked,
{serial} a number that grows, {if_not_exists} of a column that is added. Used by sql_database.py,
run_queue.py and limits.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from treadle.core.contracts.store import Store
from treadle.core.transcript.entries import Entry
from treadle.sessions.queued_store import SessionFence

Rows = list[tuple[Any, ...]]
Statement = tuple[str, Sequence[object]]

TABLES_VERSION = 2
RUNS_TABLE = "fleet_runs"

TABLES = """
CREATE TABLE IF NOT EXISTS fleet_runs (
    number {serial}, id text NOT NULL UNIQUE, task text NOT NULL, state text NOT NULL,
    attempts int NOT NULL DEFAULT 0, worker text NOT NULL DEFAULT '',
    epoch bigint NOT NULL DEFAULT 0, session text NOT NULL, result text, cost float8,
    error text NOT NULL DEFAULT '', created float8 NOT NULL, started float8, ended float8,
    wake float8, version text NOT NULL DEFAULT '', version_number bigint NOT NULL DEFAULT 0,
    seconds float8 NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS fleet_runs_by_state ON fleet_runs (state, number);
CREATE INDEX IF NOT EXISTS fleet_runs_tried ON fleet_runs (number)
    WHERE state = 'queued' AND attempts > 0;
CREATE INDEX IF NOT EXISTS fleet_runs_by_worker ON fleet_runs (worker) WHERE worker <> '';
CREATE TABLE IF NOT EXISTS fleet_approvals (
    number {serial}, id text NOT NULL UNIQUE, run text NOT NULL, call text NOT NULL,
    tool text NOT NULL, arguments text NOT NULL, created float8 NOT NULL, expires float8,
    decision text, reason text NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS fleet_approvals_by_run ON fleet_approvals (run);
CREATE INDEX IF NOT EXISTS fleet_approvals_open ON fleet_approvals (expires)
    WHERE decision IS NULL;
CREATE TABLE IF NOT EXISTS fleet_workers (
    id text PRIMARY KEY, host text NOT NULL, pid bigint NOT NULL, version text NOT NULL,
    heartbeat float8 NOT NULL, beats bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS fleet_calls (
    number {serial}, id text NOT NULL UNIQUE, provider text NOT NULL, worker text NOT NULL,
    tokens bigint NOT NULL, cost float8 NOT NULL, queued float8 NOT NULL,
    admitted float8, ended float8
);
CREATE INDEX IF NOT EXISTS fleet_calls_by_provider ON fleet_calls (provider, number);
CREATE TABLE IF NOT EXISTS fleet_settings (name text PRIMARY KEY, value text NOT NULL);
CREATE TABLE IF NOT EXISTS fleet_schedules (
    name text PRIMARY KEY, cron text NOT NULL, task text NOT NULL, next float8 NOT NULL
);
CREATE TABLE IF NOT EXISTS fleet_blobs (
    id text PRIMARY KEY, data bytea NOT NULL, created float8 NOT NULL
);
"""


# What turns the tables of a version into those of the next one.
UPGRADES: Mapping[int, str] = {
    1: "ALTER TABLE fleet_runs ADD COLUMN {if_not_exists} seconds float8 NOT NULL DEFAULT 0",
}


class SqlConnection(Protocol):
    """A database that a fleet can use.

    Promises: each call is one transaction. After a lost connection it is tried again for a while,
    so statements must be harmless when they run twice. Errors are StoreErrors. The sessions of
    runs are in the same database, so that a fence and the entries behind it are one transaction.
    """

    session_deletes: Sequence[str]  # statements that delete the sessions of a query, for `{}`

    async def open(self, *, create: bool) -> bool:
        """Connect; whether there are tables. With `create` they are made if there are none;
        without it nothing is written."""

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> Rows: ...

    async def execute_all(self, statements: Sequence[Statement]) -> list[Rows]: ...

    async def open_session(self, session_id: str, fence: SessionFence) -> Store: ...

    async def load_session(self, session_id: str) -> Sequence[Entry]: ...

    async def aclose(self) -> None: ...


def fill_in(sql: str, words: Mapping[str, str]) -> str:
    for word, text in words.items():
        sql = sql.replace("{" + word + "}", text)
    return sql


def make_placeholders(values: Sequence[object]) -> str:
    """`(?, ?, ?)`; of no values, a list that nothing is in."""
    return "(" + (", ".join("?" * len(values)) or "NULL") + ")"

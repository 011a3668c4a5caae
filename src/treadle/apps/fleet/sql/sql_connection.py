"""What the two kinds of database have in common: the contract of a connection, and the tables.

Statements are written once, with `?` for a parameter and these words for what differs:
{now} the time, {skip_locked} rows of others are passed over, {for_update} rows are locked,
{serial} a number that grows. Used by sql_database.py, worker_runs.py, worker_registry.py, limits.py
and the engines `local` and `ray`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from treadle.core.contracts.store import Store
from treadle.core.errors import StoreError
from treadle.core.transcript.entries import Entry
from treadle.lib.text.text import fix_surrogates
from treadle.sessions.queued_store import SessionFence

Rows = list[tuple[Any, ...]]
Statement = tuple[str, Sequence[object]]

TABLES_VERSION = 3
RUNS_TABLE = "fleet_runs"
TRANSFERS_TABLE = "fleet_transfers"  # sql_transfers.py

TABLES = """
CREATE TABLE IF NOT EXISTS fleet_runs (
    number {serial}, id text NOT NULL UNIQUE, task text NOT NULL, state text NOT NULL,
    attempts int NOT NULL DEFAULT 0, worker text NOT NULL DEFAULT '',
    epoch bigint NOT NULL DEFAULT 0, session text NOT NULL, result text, cost float8,
    error text NOT NULL DEFAULT '', created float8 NOT NULL, started float8, ended float8,
    wake float8, version text NOT NULL DEFAULT '', version_number bigint NOT NULL DEFAULT 0,
    seconds float8 NOT NULL DEFAULT 0, job bigint NOT NULL DEFAULT 0,
    submitted bigint NOT NULL DEFAULT -1, earlier_seconds float8 NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS fleet_runs_by_state ON fleet_runs (state, number);
CREATE INDEX IF NOT EXISTS fleet_runs_by_worker ON fleet_runs (worker) WHERE worker <> '';
CREATE TABLE IF NOT EXISTS fleet_approvals (
    number {serial}, id text NOT NULL UNIQUE, run text NOT NULL, call text NOT NULL,
    tool text NOT NULL, arguments text NOT NULL, created float8 NOT NULL, expires float8,
    decision text, reason text NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS fleet_approvals_by_run ON fleet_approvals (run);
CREATE TABLE IF NOT EXISTS fleet_workers (
    id text PRIMARY KEY, host text NOT NULL, pid bigint NOT NULL, version text NOT NULL,
    heartbeat float8 NOT NULL, beats bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS fleet_calls (
    number {serial}, id text NOT NULL UNIQUE, provider text NOT NULL, worker text NOT NULL,
    tokens bigint NOT NULL, cost float8 NOT NULL, queued float8 NOT NULL,
    admitted float8, ended float8, kept bigint NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS fleet_calls_by_provider ON fleet_calls (provider, number);
CREATE INDEX IF NOT EXISTS fleet_calls_open ON fleet_calls (worker) WHERE ended IS NULL;
CREATE TABLE IF NOT EXISTS fleet_settings (name text PRIMARY KEY, value text NOT NULL);
CREATE TABLE IF NOT EXISTS fleet_schedules (
    name text PRIMARY KEY, cron text NOT NULL, task text NOT NULL, next float8 NOT NULL,
    zone text NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS fleet_batches (
    id text PRIMARY KEY, record text NOT NULL, created float8 NOT NULL
);
CREATE TABLE IF NOT EXISTS fleet_blobs (
    id text PRIMARY KEY, data bytea NOT NULL, created float8 NOT NULL
);
CREATE TABLE IF NOT EXISTS fleet_transfers (id text PRIMARY KEY, epoch bigint NOT NULL);
CREATE TABLE IF NOT EXISTS fleet_jobs (
    number {serial}, id text NOT NULL UNIQUE, due float8 NOT NULL, worker text NOT NULL DEFAULT '',
    delivery bigint NOT NULL DEFAULT 0, resources text NOT NULL DEFAULT '{}'
);
CREATE INDEX IF NOT EXISTS fleet_jobs_by_worker ON fleet_jobs (worker, number)
"""

# Columns that came with a later version: table, column, type.
ADDED_COLUMNS = (
    ("fleet_runs", "seconds", "float8 NOT NULL DEFAULT 0"),
    ("fleet_runs", "job", "bigint NOT NULL DEFAULT 0"),
    ("fleet_runs", "submitted", "bigint NOT NULL DEFAULT -1"),
    ("fleet_runs", "earlier_seconds", "float8 NOT NULL DEFAULT 0"),
    ("fleet_calls", "kept", "bigint NOT NULL DEFAULT 0"),
    ("fleet_schedules", "zone", "text NOT NULL DEFAULT ''"),
    ("fleet_jobs", "resources", "text NOT NULL DEFAULT '{}'"),
)
# After the columns are there.
_LATE_INDEXES = (
    "CREATE INDEX IF NOT EXISTS fleet_runs_unsubmitted ON fleet_runs (number) "
    "WHERE submitted < job",
)
# What else turns the tables of a version into those of the next one. Workers of an older version
# lose their runs: the epoch grows, and an engine delivers them anew.
_UPGRADES: Mapping[int, Sequence[str]] = {
    2: (
        "UPDATE fleet_runs SET state = 'queued', worker = '', epoch = epoch + 1 "
        "WHERE state = 'running'",
        "UPDATE fleet_runs SET job = epoch, submitted = -1",
        "UPDATE fleet_runs SET wake = (SELECT min(expires) FROM fleet_approvals "
        "WHERE run = fleet_runs.id AND decision IS NULL) WHERE state = 'waiting'",
        "DELETE FROM fleet_workers",
        "DELETE FROM fleet_calls",
    ),
}
READ_VERSION = "SELECT value FROM fleet_settings WHERE name = 'tables'"


def list_upgrades(found: str | None, columns: Collection[tuple[str, str]]) -> list[str]:
    """The statements that bring tables to this version; run them in the transaction in which the
    version and the columns were read. StoreError if they are of a newer version."""
    version = int(found) if found is not None else TABLES_VERSION
    if version > TABLES_VERSION:
        raise StoreError(
            f"the fleet's tables have version {version}; this program knows version "
            f"{TABLES_VERSION}: install the newer treadle on this machine"
        )
    statements = [
        f"ALTER TABLE {table} ADD COLUMN {column} {kind}"
        for table, column, kind in ADDED_COLUMNS
        if (table, column) not in columns
    ]
    statements += _LATE_INDEXES
    for number in range(version, TABLES_VERSION):
        statements += _UPGRADES.get(number, ())
    statements.append(
        f"INSERT INTO fleet_settings VALUES ('tables', '{TABLES_VERSION}') "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    )
    return statements


def check_version(found: str | None) -> None:
    """For those who only look: StoreError if the tables are not of this version."""
    list_upgrades(found, ())
    if found is not None and int(found) < TABLES_VERSION:
        raise StoreError(
            f"the fleet's tables have version {found}; this program needs version "
            f"{TABLES_VERSION}. Make a backup, then start `treadle fleet worker`, which upgrades "
            "them; stop workers of older versions before"
        )


class SqlConnection(Protocol):
    """A database that a fleet can use.

    Promises: each call is one transaction. After a lost connection it is tried again for a while,
    so statements must be harmless when they run twice. Errors are StoreErrors. The sessions of
    runs are in the same database, so that a fence and the entries behind it are one transaction.
    """

    session_deletes: Sequence[str]  # statements that delete the sessions of a query, for `{}`

    async def open(self, *, create: bool) -> bool:
        """Connect; whether there are tables. With `create` they are made or upgraded, in one
        transaction under a lock; without it nothing is written. StoreError if they are of another
        version."""

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> Rows: ...

    async def execute_all(self, statements: Sequence[Statement]) -> list[Rows]: ...

    async def open_session(self, session_id: str, fence: SessionFence) -> Store: ...

    async def load_session(self, session_id: str) -> Sequence[Entry]: ...

    async def aclose(self) -> None: ...


def clean_parameters(parameters: Sequence[object]) -> list[object]:
    """Texts as both databases can keep them: without NUL and half surrogate pairs."""
    return [clean_text(value) if isinstance(value, str) else value for value in parameters]


def clean_text(text: str) -> str:
    return fix_surrogates(text.replace("\0", "\N{SYMBOL FOR NULL}") if "\0" in text else text)


def fill_in(sql: str, words: Mapping[str, str]) -> str:
    for word, text in words.items():
        sql = sql.replace("{" + word + "}", text)
    return sql


def make_placeholders(values: Sequence[object]) -> str:
    """`(?, ?, ?)`; of no values, a list that nothing is in."""
    return "(" + (", ".join("?" * len(values)) or "NULL") + ")"

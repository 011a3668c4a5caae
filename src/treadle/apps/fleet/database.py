"""The database of a fleet: the contract, and `open_database`.

    sqlite:PATH                     one machine: a file
    postgresql://USER@HOST/NAME     many machines; needs the extra `fleet`

The tables hold runs, sessions, approvals, workers, limits, schedules and snapshots. Implemented
once, in sql_database.py, over two small connections (sqlite_connection.py, postgres_connection.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from treadle.apps.fleet.run_record import (
    FleetApproval,
    FleetLimits,
    FleetRun,
    FleetSchedule,
    FleetTotals,
    RunState,
    WorkerRecord,
)
from treadle.apps.fleet.store_address import FILE_SCHEME, SERVER_SCHEMES
from treadle.apps.fleet.task import FleetTask
from treadle.core.errors import ConfigError
from treadle.core.transcript.entries import Entry


class FleetDatabase(Protocol):
    """What hosts and programs see of a fleet; workers use more of it (worker.py).

    Promises: every method is one transaction, and is repeated after a lost connection without a
    second effect. An unreachable, full or read-only database raises StoreError that says so.
    """

    url: str  # as it was given
    engine_name: str  # what delivers its runs: engines/
    fleet_id: str  # of this database, for all machines; it names the folder of the runs' folders

    async def submit(self, tasks: Iterable[FleetTask]) -> list[FleetRun]:
        """Queue tasks; the runs, in order. A task that has a run already changes only its limits.
        ConfigError if another task has this id (task.py): then none of the tasks is queued."""

    async def runs(
        self,
        *,
        ids: Collection[str] | None = None,
        state: RunState | Collection[RunState] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[FleetRun]:
        """The runs that match all that is given, the oldest first."""

    async def run(self, run_id: str) -> FleetRun | None: ...

    async def cancel(self, ids: Collection[str]) -> list[str]:
        """Cancel runs that have not ended; the ids of those. A worker stops at its next step."""

    async def retry(self, ids: Collection[str]) -> list[str]:
        """Queue runs again that failed, were cancelled or set aside; the ids of those. A run
        continues its session."""

    async def delete_runs(self, ids: Collection[str], before: float) -> list[str]:
        """Delete runs that ended at this time or before, with their sessions, approvals and
        snapshots; the ids of those. What has not ended stays."""

    async def approvals(self, run_id: str | None = None) -> list[FleetApproval]:
        """The calls that wait for a decision, the oldest first."""

    async def answer_approval(self, approval_id: str, *, allow: bool, reason: str = "") -> bool:
        """Decide on a call; False if it does not wait. Its run continues by itself."""

    async def workers(self) -> list[WorkerRecord]: ...

    async def forget_workers(self, ids: Collection[str]) -> None:
        """Give what these workers had to others: they were killed, or their lease is over."""

    async def dispatch(self) -> None:
        """Submit what is to be delivered to the engine; other methods do that by themselves."""

    async def totals(self) -> FleetTotals: ...

    async def set_limits(self, limits: FleetLimits) -> None: ...

    async def limits(self) -> FleetLimits: ...

    async def spent(self) -> float:
        """What model calls cost since the fleet has a limit, in USD."""

    async def load_session(self, run_id: str) -> Sequence[Entry]:
        """The log of a run, for `open`, `logs` and the report; [] if it has not begun."""

    async def put_blob(self, key: str, data: bytes) -> None:
        """Keep bytes for all machines: snapshots of workspaces. The same key replaces."""

    async def get_blob(self, key: str) -> bytes | None: ...

    async def schedules(self) -> list[FleetSchedule]: ...

    async def set_schedule(self, schedule: FleetSchedule) -> None:
        """Add a schedule, or replace the one of that name."""

    async def remove_schedule(self, name: str) -> bool: ...

    async def advance_schedule(self, schedule: FleetSchedule, following: float) -> bool:
        """Move a schedule that is due on to its following time; False if another worker did."""

    async def aclose(self) -> None: ...


async def open_database(url: str, *, create: bool = True, engine: str = "") -> FleetDatabase:
    """Open the database of a fleet, and make or upgrade its tables. `engine` is that of a new
    fleet; by default `local` for a file and `dbos` for PostgreSQL.

    ConfigError if the address is not one of those above, if the fleet has another engine, or if
    there is no fleet and `create` is False: then nothing is written. StoreError if it cannot be
    opened, or its tables are of another version.
    """
    from treadle.apps.fleet.sql.sql_database import SqlDatabase

    scheme, _, rest = url.partition(":")
    if scheme == FILE_SCHEME and rest:
        from treadle.apps.fleet.sql.sqlite_connection import SqliteConnection

        connection = SqliteConnection(_parse_path(rest))
        return await SqlDatabase.open(url, connection, create, engine)
    if scheme in SERVER_SCHEMES and rest.startswith("//"):
        from treadle.core.extras import require_extra

        require_extra("fleet")
        from treadle.apps.fleet.sql.postgres_connection import PostgresConnection

        return await SqlDatabase.open(url, PostgresConnection(url), create, engine)
    raise ConfigError(
        f"{url!r} is not the address of a database: use sqlite:PATH or postgresql://USER@HOST/NAME"
    )


def _parse_path(text: str) -> Path:
    return Path(text.removeprefix("//")).expanduser().absolute()

"""A database of a fleet, of either kind, and workers in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.apps.fleet.agents import make_agent
from tests.apps.fleet.processes import LEASE, POLL
from tests.postgres import ON_POSTGRESQL, PostgresServer
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.worker import Worker


@pytest.fixture(autouse=True)
def marks_folder(own_place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = own_place / "marks"
    monkeypatch.setenv("FLEET_MARKS", str(folder))
    return folder


@pytest.fixture(params=["sqlite", ON_POSTGRESQL])
def store(request: pytest.FixtureRequest, own_place: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{own_place / 'fleet.db'}"
    pytest.importorskip("psycopg_pool", reason="the extra `fleet` is not installed")
    server: PostgresServer = request.getfixturevalue("shared_postgres")
    return server.create_database(request.getfixturevalue("dbos_template"))


@pytest.fixture(scope="session")
def dbos_template(shared_postgres: PostgresServer) -> str:
    """A database with the tables of DBOS: to make them takes a second or more."""
    from dbos import DBOS

    url = shared_postgres.create_database()
    DBOS.migrate(url)
    return url.partition("?")[0].rpartition("/")[2]


@asynccontextmanager
async def working(database: FleetDatabase, **options: Any) -> AsyncIterator[Worker]:
    """A worker of this process, which stops at the end."""
    settings: dict[str, Any] = {
        "make_agent": make_agent,
        "lease": LEASE,
        "poll": POLL,
        "grace": 1.0,
    }
    worker = Worker(database, **{**settings, **options})
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await task

"""Our run engines against the suite, and a broken one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.ray_cluster import Forward, ray_cluster, serve_deliveries
from treadle.apps.fleet.engines.local_engine import LocalEngine
from treadle.apps.fleet.sql.sqlite_connection import SqliteConnection
from treadle.core.contracts.run_engine import Deliver, RunEngine
from treadle.testing import check_run_engine
from treadle.testing.conformance.run_engine import OpenEngine


def open_local(path: Path, kind: type[LocalEngine] = LocalEngine) -> OpenEngine:
    async def open_engine() -> RunEngine:
        connection = SqliteConnection(path)
        await connection.open(create=True)
        engine = kind(connection)
        close = engine.aclose

        async def close_both() -> None:
            await close()
            await connection.aclose()

        engine.aclose = close_both  # type: ignore[method-assign]
        return engine

    return open_engine


async def test_the_engine_of_one_machine_keeps_its_promises(own_place: Path) -> None:
    await check_run_engine(open_local(own_place / "fleet.db"))


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_dbos_keeps_the_promises_of_an_engine(postgres_url: str) -> None:
    pytest.importorskip("dbos", reason="the extra `fleet` is not installed")
    from treadle.apps.fleet.engines.dbos_engine import DbosEngine

    await check_run_engine(lambda: DbosEngine(postgres_url))


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_ray_keeps_the_promises_of_an_engine(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from treadle.apps.fleet.engines.ray_engine import RayEngine
    from treadle.apps.fleet.sql.postgres_connection import PostgresConnection

    with ray_cluster() as cluster:
        from ray import shutdown

        monkeypatch.setenv("RAY_ADDRESS", cluster.address)

        class ForwardingEngine(RayEngine):
            """Processes of Ray call the `deliver` of this one."""

            server: asyncio.Server | None = None

            async def start(
                self, worker: str, concurrency: int, deliver: Deliver, *, poll: float = 1.0
            ) -> None:
                place = cluster.folder / worker
                self.server = await serve_deliveries(place, deliver)
                await super().start(worker, concurrency, Forward(place), poll=poll)

            async def aclose(self) -> None:
                await super().aclose()
                await self._connection.aclose()
                if self.server is not None:
                    self.server.close()

        async def open_engine() -> RunEngine:
            connection = PostgresConnection(postgres_url)
            await connection.open(create=True)
            return ForwardingEngine(connection)

        try:
            await check_run_engine(open_engine)
        finally:
            shutdown()  # Ray ends a process whose node dies


class ForgetfulEngine(LocalEngine):
    """Jobs of a dead worker stay with it."""

    async def abandon(self, worker: str) -> None:
        pass


async def test_an_engine_that_leaves_jobs_with_a_dead_worker_is_found(
    own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.testing.conformance.run_engine.LIMIT", 1.0)
    with pytest.raises(AssertionError, match="jobs of a worker that stops go to others"):
        await check_run_engine(open_local(own_place / "fleet.db", ForgetfulEngine))

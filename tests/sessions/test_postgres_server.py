"""The sessions of a PostgreSQL database: few connections for many, and leases instead of locks."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from treadle import Agent
from treadle.core.errors import SessionBusy, StoreError
from treadle.models import Scripted
from treadle.sessions.open_store import open_store, read_session
from treadle.testing.conformance.store import user_entry

pytest.importorskip("psycopg_pool", reason="the extra `fleet` is not installed")

from treadle.sessions.postgres import postgres_pool, postgres_server
from treadle.sessions.postgres.postgres_pool import PostgresPool

COUNT = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
HOLD = """
import asyncio, sys
from treadle.sessions.open_store import open_store
async def main():
    await open_store(sys.argv[1], "s")
    print("open", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def count_connections(url: str) -> int:
    pool = PostgresPool(url, size=1)
    await pool.open()
    try:
        return int((await pool.execute(COUNT))[0][0])
    finally:
        await pool.aclose()


@pytest.mark.parametrize("count", [150, pytest.param(1_000, marks=pytest.mark.slow)])
async def test_all_sessions_at_once_share_one_pool(postgres_url: str, count: int) -> None:
    all_open, counted = asyncio.Event(), asyncio.Event()
    asked = 0

    async def answer(_: object) -> str:
        nonlocal asked
        asked += 1
        if asked == count:
            all_open.set()
        await counted.wait()
        return "ok"

    async with Agent(Scripted(answer), store=postgres_url) as agent:
        runs = asyncio.gather(*(agent.run("hi", session=f"load-{n}") for n in range(count)))
        waiting = asyncio.create_task(all_open.wait())
        ends: list[asyncio.Future[Any]] = [runs, waiting]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        connections = await count_connections(postgres_url)
        counted.set()
        answers = await runs
    assert {one.text for one in answers} == {"ok"}
    assert connections <= postgres_server.POOL_SIZE + 1  # the one that counts


async def test_work_waits_for_a_server_that_is_busy_with_other_work(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_pool, "CONNECT_SECONDS", 1.0)
    pool, is_held, may_end = (
        PostgresPool(postgres_url, size=1, retry_seconds=0),
        asyncio.Event(),
        asyncio.Event(),
    )
    timeouts = 0

    async def connect_once() -> None:
        nonlocal timeouts
        timeouts += 1
        if timeouts == 2:
            may_end.set()

    async def hold(_: object) -> None:
        is_held.set()
        await may_end.wait()

    await pool.open()
    monkeypatch.setattr(pool, "_connect_once", connect_once)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(pool.run(hold))
        await is_held.wait()
        assert await pool.execute("SELECT 1") == [(1,)]
    await pool.aclose()
    assert timeouts == 2


async def test_runs_one_after_the_other_log_in_once(postgres_url: str) -> None:
    agent = Agent(Scripted(lambda _: "ok"), store=postgres_url)
    await agent.run("hi", session="first")
    [server] = postgres_server._servers[asyncio.get_running_loop()].values()
    for number in range(5):
        await agent.run("hi", session=f"s{number}")
    assert list(postgres_server._servers[asyncio.get_running_loop()].values()) == [server]
    assert server.pool._pool.get_stats()["connections_num"] == 1


async def test_a_session_is_open_once_in_a_process_and_free_after_it_is_closed(
    postgres_url: str,
) -> None:
    opened = await open_store(postgres_url, "s")
    with pytest.raises(SessionBusy, match="another run of this process"):
        await open_store(postgres_url, "s")
    with pytest.raises(SessionBusy):  # in another event loop
        await asyncio.to_thread(lambda: asyncio.run(open_store(postgres_url, "s")))
    await opened.store.aclose()
    again = await open_store(postgres_url, "s")
    await again.store.aclose()


async def test_a_session_of_another_process_is_free_when_that_was_killed(
    postgres_url: str,
) -> None:
    command = [sys.executable, "-c", HOLD, postgres_url]
    holder = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert holder.stdout is not None
        await holder.stdout.readline()
        with pytest.raises(SessionBusy, match=f"process {holder.pid} on"):
            await open_store(postgres_url, "s")
        assert await read_session(postgres_url, "s") == []  # it can be read meanwhile
    finally:
        holder.kill()
        await holder.wait()
    opened = await open_store(postgres_url, "s")
    await opened.store.aclose()


async def test_the_lease_of_another_machine_is_over_when_it_is_not_renewed(
    postgres_url: str,
) -> None:
    opened = await open_store(postgres_url, "s")
    [server] = postgres_server._servers[asyncio.get_running_loop()].values()
    move = "UPDATE treadle_sessions SET holder = '1@elsewhere', free_at = now() + interval '{}'"
    await server.pool.execute(move.format("25 s"))
    await opened.store.aclose()
    await server.pool.execute(move.format("25 s"))
    with pytest.raises(SessionBusy, match="process 1 on elsewhere; close it there, or wait 25 s"):
        await open_store(postgres_url, "s")
    await server.pool.execute(move.format("-1 s"))
    again = await open_store(postgres_url, "s")
    await again.store.aclose()


async def test_the_leases_of_open_sessions_are_renewed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_server, "RENEW_SECONDS", 0.01)
    opened = await open_store(postgres_url, "s")
    [server] = postgres_server._servers[asyncio.get_running_loop()].values()
    await server.pool.execute("UPDATE treadle_sessions SET free_at = now()")
    is_renewed = "SELECT 1 FROM treadle_sessions WHERE free_at > now()"
    while not await server.pool.execute(is_renewed):
        pass
    await opened.store.aclose()


async def test_a_writer_whose_lease_was_taken_over_is_refused(postgres_url: str) -> None:
    opened = await open_store(postgres_url, "s")
    [server] = postgres_server._servers[asyncio.get_running_loop()].values()
    await server.pool.execute("UPDATE treadle_sessions SET epoch = epoch + 1")
    opened.store.append(user_entry("late"))
    with pytest.raises(SessionBusy, match="taken over"):
        await opened.store.flush()
    with pytest.raises(StoreError):
        await opened.store.aclose()

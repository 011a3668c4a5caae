"""The page of `treadle fleet serve`, over real sockets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from tests.apps.fleet.conftest import working
from treadle import Agent
from treadle.apps.fleet.database import FleetDatabase, open_database
from treadle.apps.fleet.reports.page_server import PageServer
from treadle.apps.fleet.task import FleetTask
from treadle.contracts import ModelRequest
from treadle.models import Say, Scripted
from treadle.tools import tool


@tool(approval=True)
async def pay(amount: int, note: str) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def reply(request: ModelRequest) -> Say:
    """Each attempt has an agent of its own, so the reply depends on the transcript only."""
    if len(request.transcript) > 1:
        return Say("The end.")
    return Say("I pay.", calls=[("pay", {"amount": 7, "note": "<script>x</script>"})])


def make_paying_agent(task: FleetTask, folder: Path) -> Agent:
    return Agent(Scripted(reply), [pay])


async def send(url: str, form: dict[str, str] | None = None, host: str = "") -> str:
    """The whole answer to one request."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    body = urlencode(form or {})
    head = f"{'GET' if form is None else 'POST'} {parts.path} HTTP/1.1\r\n"
    head += f"Host: {host or parts.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write((head + body).encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer


@asynccontextmanager
async def open_page(folder: Path) -> AsyncIterator[tuple[FleetDatabase, PageServer]]:
    database = await open_database(f"sqlite:{folder / 'fleet.db'}")
    server = PageServer(database)
    await server.start()
    try:
        yield database, server
    finally:
        await server.aclose()
        await database.aclose()


async def wait_for_state(database: FleetDatabase, state: str) -> None:
    while (run := await database.run("r")) is None or run.state != state:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("decision", ["allow", "deny"])
async def test_a_call_that_waits_is_decided_on_the_page(tmp_path, decision):
    async with open_page(tmp_path) as (database, server):
        await database.submit([FleetTask(prompt="pay it", id="r")])
        async with working(database, make_agent=make_paying_agent):
            await wait_for_state(database, "waiting")
            page = await send(server.url)
            assert "1 call waits for approval" in page
            assert "&lt;script&gt;x" in page
            assert "<script>" not in page
            found = re.search(r'name="id" value="([^"]+)"', page)
            assert found is not None
            form = {"id": found[1], "decision": decision, "reason": "not today"}
            answer = await send(f"{server.url}approvals", form)
            assert answer.startswith("HTTP/1.1 303")
            await wait_for_state(database, "done")
        session = await send(f"{server.url}runs/r")
        assert ("paid 7" if decision == "allow" else "not today") in session
        after = await send(server.url)
        assert "for approval" not in after
        assert 'href="runs/r"' in after


async def test_nothing_is_answered_without_the_token_or_under_another_name(tmp_path):
    async with open_page(tmp_path) as (_, server):
        root = server.url.rsplit("/", 2)[0]
        for url in (f"{root}/", f"{root}/wrong/", f"{root}/wrong/approvals"):
            assert (await send(url)).startswith("HTTP/1.1 404")
        form = {"id": "x", "decision": "allow"}
        assert (await send(f"{root}/wrong/approvals", form)).startswith("HTTP/1.1 404")
        assert (await send(server.url, host="evil.example")).startswith("HTTP/1.1 403")
        assert (await send(server.url)).startswith("HTTP/1.1 200")
        assert (await send(f"{server.url}runs/..%2f..%2fetc")).startswith("HTTP/1.1 404")
        assert (await send(f"{server.url}approvals", {"id": "x"})).startswith("HTTP/1.1 400")


async def test_what_is_no_request_ends_the_connection(tmp_path):
    async with open_page(tmp_path) as (_, server):
        parts = urlsplit(server.url)
        for data in (
            b"hello\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            b"x" * 99_999,
        ):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write(data)
            writer.write_eof()
            answer = await reader.read()
            assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
            writer.close()

"""The pages of a fleet in the real application, over real sockets and in a browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from playwright.async_api import async_playwright

from tests.apps.web.server import CHROMIUM, WebServer, needs_chromium, script, web_server
from tests.patience import PATIENCE
from treadle import Agent
from treadle.apps.fleet.database import FleetDatabase, open_database
from treadle.apps.fleet.task import FleetTask
from treadle.apps.fleet.worker import Worker
from treadle.apps.web.access import PageAccess
from treadle.apps.web.application import build_app
from treadle.apps.web.hub import Hub
from treadle.contracts import ModelRequest
from treadle.models import Say, Scripted
from treadle.testing.provider import ProviderServer
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


@asynccontextmanager
async def fleet_site(folder: Path) -> AsyncIterator[tuple[FleetDatabase, WebServer]]:
    """A fleet with two runs whose calls wait, and the server that shows it."""
    store = f"sqlite:{folder / 'fleet.db'}"
    database = await open_database(store)
    worker = Worker(database, make_agent=make_paying_agent, poll=0.05)
    working = asyncio.create_task(worker.run())
    try:
        await database.submit([FleetTask(prompt="pay it", id=name) for name in ("one", "two")])
        async with (
            ProviderServer(script()) as provider,
            web_server(provider, folder, "--fleet", store, HOME=str(folder)) as server,
        ):
            await until_state(database, "one", "waiting")
            await until_state(database, "two", "waiting")
            yield database, server
    finally:
        worker.stop()
        await working
        await database.aclose()


async def until_state(database: FleetDatabase, name: str, state: str) -> None:
    async with asyncio.timeout(120):
        while (run := await database.run(name)) is None or run.state != state:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_call_that_waits_is_decided_on_the_page(tmp_path: Path) -> None:
    async with fleet_site(tmp_path) as (database, server), server.client() as client:
        page = (await client.get("/fleet")).text
        assert "2 calls wait for approval" in page
        assert "&lt;script&gt;x" in page
        ids = re.findall(r'name="id" value="([^"]+)"', page)
        for name, decision in zip(ids, ("allow", "deny"), strict=True):
            form = {"id": name, "decision": decision, "reason": "not today"}
            after = await client.post("/fleet/approvals", data=form)
            assert after.status_code == 200, after.text  # of the page, where it leads
        assert (await client.post("/fleet/approvals", data={"id": "x"})).status_code == 400
        for one, text in zip(ids, ("paid 7", "not today"), strict=True):
            name = one.partition("/")[0]
            await until_state(database, name, "done")
            assert text in (await client.get(f"/fleet/runs/{name}")).text
        after = await client.get("/fleet")
        assert "for approval" not in after.text
        assert 'href="/fleet/runs/one"' in after.text
        assert (await client.get("/fleet/runs/..%2f..%2fetc")).status_code == 404


async def test_nothing_of_the_fleet_is_answered_without_the_key_or_to_another_site(
    tmp_path: Path,
) -> None:
    async with fleet_site(tmp_path) as (database, server), server.client() as client:
        form = {"id": (await database.approvals())[0].id, "decision": "allow"}
        other = {"Origin": "http://evil.example"}
        answer = await client.post("/fleet/approvals", data=form, headers=other)
        assert answer.status_code == 403
        client.cookies.clear()
        for address in ("/fleet", "/fleet/runs/one"):
            assert (await client.get(address)).status_code == 403
        assert (await client.post("/fleet/approvals", data=form)).status_code == 403
        assert len(await database.approvals()) == 2
        health = await client.get("/fleet/health")
        assert (health.status_code, health.json()["status"]) == (200, "ok")
        assert (health.json()["runs"], health.json()["workers"]) == ({"waiting": 2}, 1)
        for host in ("evil.example", "127.0.0.1.evil.example"):
            other = {"Host": host}
            assert (await client.get("/fleet/health", headers=other)).status_code == 403


async def test_runs_without_a_worker_are_no_good_health(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'fleet.db'}"
    app = build_app(Hub(tmp_path), PageAccess("token", "page.localhost", "value"), store)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.get("/fleet/health")).status_code == 503  # there is no fleet
        database = await open_database(store)
        assert (await client.get("/fleet/health")).status_code == 200
        await database.submit([FleetTask(prompt="pay it", id="one")])
        await database.aclose()
        answer = await client.get("/fleet/health")
        assert (answer.status_code, answer.json()["status"]) == (503, "no worker")


@needs_chromium
async def test_a_person_allows_a_call_in_a_browser(tmp_path: Path) -> None:
    async with fleet_site(tmp_path) as (database, server), async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = await browser.new_page()
        page.set_default_timeout(PATIENCE * 1_000)
        await page.goto(server.link)
        await page.get_by_role("heading", name="2 calls wait for approval").wait_for()
        await page.get_by_role("button", name="Allow").first.click()
        await page.get_by_role("heading", name="1 call waits for approval").wait_for()
        [left] = await database.approvals()
        name = "one" if left.run == "two" else "two"
        await until_state(database, name, "done")
        await page.goto(f"{server.address}/fleet/runs/{name}")
        await page.get_by_text("paid 7").first.wait_for()
        background = "getComputedStyle(document.body).backgroundColor"
        assert await page.evaluate(background) != "rgba(0, 0, 0, 0)", "its styles are refused"
        await browser.close()

"""Child agents as sessions of the page: opened while they work and after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.async_api import expect

from tests.apps.web.browser import (
    ACCESSIBILITY,
    PHONE,
    check_accessibility,
    open_inspection,
    send,
    take_picture,
)
from tests.apps.web.conftest import Site
from tests.apps.web.server import needs_chromium, web_server
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer, ReceivedRequest

pytestmark = needs_chromium

WAIT = "until [ -e go ]; do sleep 0.05; done"
TASK = FakeCall("task", {"description": "look", "prompt": "Look around"})


def answer(request: ReceivedRequest) -> FakeReply:
    """The parent starts an agent, which waits for a file, and repeats what it was told."""
    messages: Any = request.json["messages"]
    number, text = len([one for one in messages if one["role"] == "assistant"]), str(messages)
    if "begin the work" in text:
        return (FakeReply(calls=(TASK,)), FakeReply(text="all is done"))[number]
    if number == 0:
        return FakeReply(text="I wait.", calls=(FakeCall("bash", {"command": WAIT}),))
    return FakeReply(text="I was told to hurry." if "please hurry" in text else "Nobody said it.")


async def test_an_agent_is_stopped_on_its_own_page_and_its_parent_goes_on(
    site: Site, tmp_path: Path
):
    async with ProviderServer(answer) as provider:
        async with web_server(provider, tmp_path, "--permission-mode", "auto") as server:
            session = await server.find_session()
            async with site.open_page(session, server=server) as page:
                await send(page, "begin the work")
                await page.click("[data-panel='Agents'] a[href^='/session/']")
                await page.wait_for_selector(".call .arg >> text=until")
                await page.click("#stop-button")
                await page.wait_for_selector("#prompt:disabled")
                await page.click("#banner >> text=Open its parent")
                await page.wait_for_selector(".prose >> text=all is done")


async def test_an_agent_is_opened_while_it_works_takes_a_message_and_is_there_after_a_restart(
    site: Site, tmp_path: Path
):
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    flags = ("--permission-mode", "auto")
    async with ProviderServer(answer) as provider:
        async with web_server(provider, tmp_path, *flags, **home) as server:
            session = await server.find_session()
            async with site.open_page(session, server=server) as page:
                await send(page, "begin the work")
                await page.click("[data-panel='Agents'] a[href^='/session/']")
                await page.wait_for_selector("#banner >> text=An agent of “begin the work”")
                await page.wait_for_selector(".you >> text=Look around")
                await page.wait_for_selector(".call .arg >> text=until")
                await page.wait_for_selector("#now >> text=Esc stops", state="attached")
                await take_picture(page, "agent")
                await send(page, "please hurry")
                await expect(page.locator("#outbox li")).to_have_count(0)
                (tmp_path / "go").touch()
                await page.wait_for_selector(".prose >> text=I was told to hurry.")
                await page.wait_for_selector("#prompt:disabled")
                agent = page.url.rpartition("/")[2]
                await page.click("#banner >> text=Open its parent")
                await page.wait_for_selector(".prose >> text=all is done")
                await page.wait_for_selector("[data-panel='Agents'] >> text=0 of 1 at work")
        async with web_server(provider, tmp_path, *flags, **home) as server:
            async with site.open_page(session, server=server, **ACCESSIBILITY) as page:
                row = page.locator("[data-panel='Agents'] .agent-row")
                await expect(row).to_contain_text("$0.")
                await take_picture(page, "agents")
                await check_accessibility(page, "#side")
                await row.locator("a").click()
                await page.wait_for_url(f"**/session/{agent}")
                await page.wait_for_selector(".prose >> text=I was told to hurry.")
                await open_inspection(page)
                await page.wait_for_selector("text=Request 2")
                await page.goto(f"{server.address}/inspect/{session}")
                await take_picture(page, "lanes")
                await check_accessibility(page, ".plots")
                await page.click(f".gantt a[href='/inspect/{agent}']")
                await page.wait_for_url(f"**/inspect/{agent}")
            async with site.open_page(session, PHONE, server=server, has_touch=True) as page:
                await page.click("#pocket")
                await take_picture(page, "agents-phone")
                await page.click("[data-panel='Agents'] a[href^='/session/']")
                await page.wait_for_selector(".prose >> text=I was told to hurry.")

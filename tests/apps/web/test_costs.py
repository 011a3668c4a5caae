"""Why a request cost that, in a browser: a click on a bar, the break of the cache, a link."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from tests.apps.web.browser import (
    ACCESSIBILITY,
    PHONE,
    check_accessibility,
    open_inspection,
    send,
    take_picture,
    wait_until_shown,
)
from tests.apps.web.conftest import Site
from tests.apps.web.server import MODEL, needs_chromium, web_server
from tests.sessions.past_tasks import past
from treadle.testing.provider import FakeCall, FakeReply, FakeUsage, ProviderServer

pytestmark = needs_chromium

LOOK = FakeCall("bash", {"command": "seq 1 100"})
STORY = (
    FakeReply(calls=(LOOK,), usage=FakeUsage(input=10, cache_write=12_000)),
    FakeReply(text="once more", calls=(LOOK,), usage=FakeUsage(input=4_000, cache_read=12_000)),
    FakeReply(text="all done", usage=FakeUsage(input=10, cache_write=13_000)),
)


async def test_a_first_message_has_a_forecast_until_it_is_sent(site: Site, tmp_path: Path):
    for cost in (0.10, 0.20, 0.30):
        await past("Fix the parser", cost, cost * 100, MODEL)
    async with ProviderServer([FakeReply("Done.")]) as provider:
        async with web_server(provider, tmp_path) as server:
            session = await server.find_session()
            async with site.open_page(session, server=server) as page:
                await wait_until_shown(page)
                await page.fill("#prompt", "fix the parser")
                meters = page.locator("#meters")
                await expect(meters).to_contain_text("about $0.20 ($0.10–$0.30), 20 s, a guess")
                await take_picture(page, "forecast")
                await page.press("#prompt", "Enter")
                await page.wait_for_selector(".prose >> text=Done.")
                await expect(meters).not_to_contain_text("a guess")


async def test_a_click_on_a_bar_shows_why_it_cost_that(site: Site, project: Path):
    session = await site.create(project, *STORY, mode="auto")
    async with site.open_page(session, **ACCESSIBILITY) as page:
        await send(page, "go")
        await page.wait_for_selector(".prose >> text=all done")
        await page.wait_for_selector("#now:empty", state="attached")
        await open_inspection(page)
        await page.wait_for_selector("text=Request 3")
        await expect(page.locator(".cols rect.w-ink")).to_have_count(1)
        await page.locator("[data-column='1'] .hit").first.click()
        await page.wait_for_selector("text=Request 2")
        await page.wait_for_selector(".item-costs >> text=System")
        await page.wait_for_selector(".item-costs >> text=from here on not read from the cache")
        assert await page.locator("text=The cache broke here").count() == 0
        await page.locator("[data-column='2'] .hit").first.click()
        await page.wait_for_selector("text=The cache broke here")
        await expect(page.locator(".broke")).to_contain_text("12.0k tokens were sent again")
        await take_picture(page, "why-cost")
        await check_accessibility(page)
        await page.reload()  # the address is a link to this step
        await page.wait_for_selector("text=The cache broke here")
        await page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]

"""Settings, permissions, context, servers and memory as pages; what "always" would have covered;
a search that jumps to its hit. In a browser."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from tests.apps.web.browser import (
    ACCESSIBILITY,
    PHONE,
    check_accessibility,
    send,
    take_picture,
    wait_until_shown,
)
from tests.apps.web.conftest import Site
from tests.apps.web.server import needs_chromium
from tests.patience import until
from treadle.testing.provider import FakeCall, FakeReply

pytestmark = needs_chromium

PANES = ("settings", "permissions", "context", "servers", "memory")


async def test_a_setting_is_found_changed_and_reset(site: Site, project: Path):
    session = await site.create(project)
    async with site.open_page(session) as page:
        await wait_until_shown(page)
        await page.click("[href='#settings']")
        await page.fill("#pane [data-search]", "tool rounds")
        await expect(page.locator(".settings li:visible")).to_have_count(1)
        assert await page.evaluate("CSS.highlights.get('hit').size") == 1
        await page.fill("[data-setting=max_turns]", "many")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#toast >> text=max_turns cannot be")
        await page.fill("[data-setting=max_turns]", "77")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("li:has([data-setting=max_turns]) .origin.changed")
        await expect(page.locator("[data-setting=max_turns]")).to_have_value("77")
        await page.fill("#pane [data-search]", "")
        await page.click("#pane [data-rows=changed]")
        await take_picture(page, "settings")
        await page.click("[data-reset=max_turns]")
        await page.wait_for_selector("[data-reset=max_turns]", state="detached")
        await expect(page.locator("[data-setting=max_turns]")).to_have_value("200")


async def test_a_rule_shows_its_last_use_and_is_revoked(site: Site, project: Path):
    call = FakeReply(calls=(FakeCall("bash", {"command": "touch made"}),))
    session = await site.create(project, call, FakeReply(text="it ran"))
    async with site.open_page(session, color_scheme="dark") as page:
        await wait_until_shown(page)
        await send(page, "/permissions")
        await page.fill("#pane [name=rule]", "Bash(touch:*)")
        await page.click("#pane >> text=Add")
        await page.wait_for_selector(".rules >> text=never")
        await page.click("#pane [data-back]")
        await send(page, "go")
        await page.wait_for_selector(".prose >> text=it ran")
        await send(page, "/permissions")
        await page.wait_for_selector(f".rules a[href='/session/{session}']")
        await take_picture(page, "permissions")
        await page.click("[data-revoke]")
        await page.wait_for_selector("#pane >> text=there are no rules")
    assert "Bash(touch:*)" not in (project / ".treadle/settings.local.json").read_text()


async def test_always_says_what_it_would_have_covered_and_asks_again(site: Site, tmp_path: Path):
    make = FakeReply(calls=(FakeCall("bash", {"command": "touch made"}),))
    replies = (make, FakeReply(text="one"), make, FakeReply(text="two"))
    session = await site.create(tmp_path, *replies)
    async with site.open_page(session) as page:
        await wait_until_shown(page)
        await send(page, "first")
        await page.click("[data-answer=once]")
        await page.wait_for_selector(".prose >> text=one")
        await page.wait_for_selector("#now:empty", state="attached")
        await send(page, "second")
        await page.click("[data-answer=always]")
        await page.wait_for_selector("dialog >> text=would have covered")
        await page.wait_for_selector("dialog >> text=1 of 1 past call")
        await page.click("dialog >> text=No, go back")
        await page.wait_for_selector("dialog", state="hidden")
        assert await page.locator(".ask").count() == 1
        await page.click("[data-answer=always]")
        await page.click("dialog >> text=Yes, save it")
        await page.wait_for_selector(".prose >> text=two")
        await until((tmp_path / ".treadle/settings.local.json").exists)
        await page.wait_for_selector("#now:empty", state="attached")
        await send(page, "/permissions add Bash(make:*)")
        await page.wait_for_selector("#toast >> text=it would have covered 0 of")


async def test_a_line_is_remembered_and_the_context_is_shown(site: Site, project: Path):
    session = await site.create(project)
    async with site.open_page(session) as page:
        await send(page, "hi")
        await page.wait_for_selector(".prose >> text=hello")
        await page.click("[href='#settings']")
        await page.click("#pane >> text=Memory")
        await page.fill("#pane [name=text]", "Run pytest -q")
        await page.click("#pane >> text=Remember")
        await page.wait_for_selector("#toast >> text=added to")
        assert "Run pytest -q" in (project / "AGENTS.md").read_text()
        await page.click("#pane >> text=Context")
        await page.wait_for_selector("#pane >> text=system prompt")
        await take_picture(page, "context")


async def test_the_panes_fit_a_phone_and_are_accessible(site: Site, project: Path):
    session = await site.create(project)
    async with site.open_page(session, PHONE, has_touch=True, **ACCESSIBILITY) as page:
        await send(page, "hi")
        await page.wait_for_selector(".prose >> text=hello")
        await send(page, "/permissions add deny Read(.env)")
        address = page.url
        for name in PANES:
            await page.goto(f"{address}#{name}")
            await page.wait_for_selector(f"#pane[data-pane={name}]")
            assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE[0], name
            await take_picture(page, f"{name}-phone")
            await check_accessibility(page, "#pane")


async def test_a_search_jumps_to_its_hit_and_marks_it(site: Site, project: Path):
    text = "".join(f"Paragraph {number}.\n\n" for number in range(600))
    session = await site.create(project, FakeReply(text=f"The zebra is here.\n\n{text}"))
    async with site.open_page(session) as page:
        await send(page, "go")
        await page.wait_for_selector("text=Paragraph 599.")
        await page.wait_for_selector("#now:empty", state="attached")
        await page.fill("#search", "the zebra is")
        await page.press("#search", "Enter")
        await page.click("#found .session")
        await page.wait_for_selector("text=The zebra is here.")
        await expect(page.locator("text=The zebra is here.")).to_be_in_viewport()
        assert await page.evaluate("CSS.highlights.get('hit').size") >= 1

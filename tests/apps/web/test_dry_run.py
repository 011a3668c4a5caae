"""A dry run on the page, in a browser: what was recorded is looked at and carried out at once."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from tests.apps.web.browser import (
    ACCESSIBILITY,
    check_accessibility,
    send,
    take_picture,
    wait_until_shown,
)
from tests.apps.web.conftest import Site
from tests.apps.web.server import needs_chromium
from treadle.testing.provider import FakeCall, FakeReply

pytestmark = needs_chromium
EDIT = FakeCall("edit", {"file_path": "notes.md", "old_string": "Mai", "new_string": "May"})
WRITE = FakeCall("write", {"file_path": "new.md", "content": "new\n"})


async def test_recorded_calls_are_shown_and_carried_out(site: Site, project: Path):
    (project / "notes.md").write_text("Release in Mai.\n")
    replies = (FakeReply(calls=(EDIT,)), FakeReply(calls=(WRITE,)), FakeReply("All is done."))
    session = await site.create(project, *replies)
    async with site.open_page(session, **ACCESSIBILITY) as page:
        await wait_until_shown(page)
        await send(page, "/dry-run on")
        await expect(page.locator("#mode")).to_have_text("ask, dry run")
        await send(page, "Correct the month")
        await page.wait_for_selector("text=dry run: 2 calls recorded")
        await page.wait_for_selector("#now:empty", state="attached")
        assert (project / "notes.md").read_text() == "Release in Mai.\n"
        await send(page, "/apply")
        await page.wait_for_selector("dialog >> text=Carry out 2 recorded calls?")
        await check_accessibility(page, "dialog")
        await take_picture(page, "dry-run")
        await page.click("dialog >> text=Some of them")
        await expect(page.locator("#prompt")).to_have_value("/apply 1,2")
        await page.fill("#prompt", "/apply 1")
        await page.press("#prompt", "Enter")
        await page.wait_for_selector("text=1 call of 1 carried out.")
        assert (project / "notes.md").read_text() == "Release in May.\n"
        assert not (project / "new.md").exists()

"""The review of changes in a browser: by turn, session and git, hunk by hunk, with comments."""

from __future__ import annotations

import subprocess
from pathlib import Path

from playwright.async_api import Page, expect

from tests.apps.web.browser import (
    ACCESSIBILITY,
    PHONE,
    check_accessibility,
    send,
    take_picture,
)
from tests.apps.web.conftest import Site
from tests.apps.web.server import needs_chromium
from tests.patience import until
from treadle.testing.provider import FakeCall, FakeReply

pytestmark = needs_chromium

LINES = [f"value_{number} = {number}" for number in range(1, 41)]
TEXT = "\n".join(LINES) + "\n"
FIRST = FakeReply(
    calls=(
        FakeCall("bash", {"command": "sed -i 's/^value_3 = 3/value_3 = limit(300)/; "
                                     "s/^value_30 = 30/value_30 = 31/' app.py"}),
        FakeCall("bash", {"command": "printf 'one\\ntwo\\n' > new.txt"}),
    )
)  # fmt: skip
SECOND = FakeReply(calls=(FakeCall("bash", {"command": "sed -i '20s/.*/again = 1/' app.py"}),))
STORY = (FIRST, FakeReply(text="first done"), SECOND, FakeReply(text="second done"))
LATER = FakeReply(text="I saw the comments.")


def make_project(folder: Path) -> None:
    (folder / "app.py").write_text(TEXT)
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c")
    for command in ("init -q", "add .", "commit -q -m one"):
        subprocess.run([*git, *command.split()], cwd=folder, check=True)


async def run_story(page: Page) -> None:
    for text, answer in (("change it", "first done"), ("again", "second done")):
        await send(page, text)
        await page.wait_for_selector(f".prose >> text={answer}")
        await page.wait_for_selector("#now:empty", state="attached")


async def test_hunks_are_looked_at_kept_reverted_and_brought_back(site: Site, project: Path):
    make_project(project)
    session = await site.create(project, *STORY, mode="auto")
    async with site.open_page(session, color_scheme="dark") as page:
        await run_story(page)
        await page.click("[href='#review']")
        await page.wait_for_selector("#pane >> text=By turn")
        await expect(page.locator(".hunk-card")).to_have_count(1)
        assert await page.locator("table.diff.split").count() == 1
        await page.click("#pane >> text=Session")
        await expect(page.locator(".hunk-card")).to_have_count(4)
        await page.wait_for_selector(".hunk-card ins >> text=limit(300")
        await take_picture(page, "review")

        await page.click(".hunk-card >> nth=0 >> [data-keep]")
        await page.wait_for_selector(".hunk-card.folded >> text=kept")
        await page.wait_for_selector(".review-files >> text=1 of 3 kept")
        (project / "app.py").write_text((project / "app.py").read_text() + "mine = 1\n")
        await page.click(".hunk-card >> nth=2 >> [data-drop]")
        await page.wait_for_selector("#toast >> text=/redo brings it back")
        await expect(page.locator(".hunk-card")).to_have_count(3)
        text = (project / "app.py").read_text()
        assert "value_30 = 30\n" in text
        assert "value_3 = limit(300)\n" in text
        assert "mine = 1\n" in text
        await page.wait_for_selector(".hunk-card.folded >> text=kept")

        await send(page, "/redo")
        await page.click("dialog [data-files]")
        await until(lambda: "value_30 = 31\n" in (project / "app.py").read_text())
        assert "mine = 1\n" in (project / "app.py").read_text()
        await page.click("#pane >> text=Against git")
        await page.wait_for_selector(".hunk-card >> text=mine = 1")
        await page.go_back()
        await expect(page.locator(".hunk-card")).to_have_count(4)


async def test_a_turn_is_chosen_and_a_link_opens_the_same_review(site: Site, project: Path):
    make_project(project)
    session = await site.create(project, *STORY, mode="auto")
    async with site.open_page(session) as page:
        await run_story(page)
        await send(page, "/diff turn")
        await page.wait_for_selector(".hunk-card >> text=again = 1")
        await page.select_option("[data-turns]", label="Turn 1: change it")
        await page.wait_for_selector(".review-files >> text=new.txt")
        assert await page.locator(".hunk-card >> text=again = 1").count() == 0
        await page.reload()
        await page.wait_for_selector(".review-files >> text=new.txt")
        await page.click("[data-layout=unified]")
        await page.wait_for_selector("table.diff:not(.split)")
        await page.evaluate("document.activeElement.blur()")
        for place in (0, 1):
            await page.keyboard.press("j")
            card = page.locator(".hunk-card").nth(place)
            await expect(card.locator(":focus")).to_have_count(1)
        await page.keyboard.press("Escape")
        await page.wait_for_selector("#pane", state="hidden")
        await page.wait_for_selector(".prose >> text=second done")


async def test_comments_on_lines_become_part_of_the_next_message(site: Site, project: Path):
    make_project(project)
    session = await site.create(project, *STORY, LATER, mode="auto")
    async with site.open_page(session) as page:
        await run_story(page)
        await page.click("[href='#review']")
        await page.click("#pane >> text=Session")
        await page.click("[data-line=new-3]")
        await page.keyboard.type("why 300?")
        await page.keyboard.press("Control+Enter")
        await page.wait_for_selector("#comments >> text=1 comment goes with your next message")
        await page.click("[data-line=old-30]")
        await page.keyboard.type("a mistake")
        await page.keyboard.press("Escape")  # not added
        await page.click("[data-line=old-30]")
        await page.fill(".comment textarea", "it was right")
        await page.click("text=Add comment")
        await page.wait_for_selector("#comments >> text=2 comments go")
        await take_picture(page, "review-comments")
        await page.reload()
        await page.wait_for_selector(".comment >> text=why 300?")
        await page.press("#prompt", "Enter")
        await page.wait_for_selector(".prose >> text=I saw the comments.")
        said = await page.locator(".you .said").last.text_content()
        assert said is not None
        assert "- app.py, line 3: why 300?\n- app.py, removed line 30: it was right" in said
        await page.wait_for_selector("#comments", state="hidden")


async def test_the_review_fits_a_phone_and_is_accessible(site: Site, project: Path):
    make_project(project)
    session = await site.create(project, *STORY, mode="auto")
    async with site.open_page(session, PHONE, has_touch=True, **ACCESSIBILITY) as page:
        await run_story(page)
        await page.goto(f"{page.url}#review-session")
        await expect(page.locator(".hunk-card")).to_have_count(4)
        assert await page.locator("table.diff.split").count() == 0
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        await page.tap("[data-line=new-3]")
        await page.wait_for_selector(".comment textarea")
        await take_picture(page, "review-phone")
        await check_accessibility(page, "#pane")
        await page.set_viewport_size({"width": 1440, "height": 900})
        await page.wait_for_selector("table.diff.split")
        await check_accessibility(page)

"""Keys of the page in a real browser: each works where the focus is, and nowhere else."""

from __future__ import annotations

import asyncio
import os
import signal
import string
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from playwright.async_api import Page

from tests.apps.web.browser import PHONE, take_picture, wait_until_shown
from tests.apps.web.conftest import Site
from tests.apps.web.server import TabClient, needs_chromium, open_tab, script, web_server
from tests.patience import PATIENCE
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

pytestmark = needs_chromium

KEYS = (*string.ascii_lowercase, *string.digits, "Y", "A", "[", "]", ".", "Space", "ArrowDown")
PANES = ("review", "settings", "permissions", "context", "servers", "memory")
CONNECTED = "#live >> text=Connected"
FOCUS_QUESTION = """() => {
  const question = document.querySelector(".ask");
  question?.focus();
  return Boolean(question);
}"""
ASKS = FakeReply(calls=(FakeCall("bash", {"command": "touch made"}),))


async def ask(page: Page) -> None:
    await page.clock.install()
    await wait_until_shown(page)
    await page.fill("#prompt", "go")
    await page.press("#prompt", "Enter")
    await page.wait_for_selector(".ask")


async def wait_for_connection(page: Page) -> None:
    """The page's clock goes as the test wants it: faster than the server says that it is there."""
    async with asyncio.timeout(PATIENCE):
        while not await page.locator(CONNECTED).count():
            await page.clock.run_for(1_000)
            await asyncio.sleep(0.1)


async def repeat(
    page: Page, act: Callable[[], Awaitable[None]], is_done: Callable[[], Awaitable[bool]]
) -> None:
    """Do it until it has its effect. A connection that the page's clock has left behind is given
    up at any moment, and what is done without one is not sent: then it is done again."""
    async with asyncio.timeout(PATIENCE):
        while True:
            await wait_for_connection(page)
            await act()
            for _ in range(20):
                if await is_done():
                    return
                await asyncio.sleep(0.1)


async def answer(page: Page, key: str) -> None:
    """Mark an answer and take it."""

    async def press() -> None:
        if await page.evaluate(FOCUS_QUESTION):
            await page.clock.run_for(1_000)
            await page.keyboard.press(key)
            await page.keyboard.press("Enter")

    await repeat(page, press, partial(has_count, page, ".ask", 0))


async def has_count(page: Page, selector: str, count: int) -> bool:
    return await page.locator(selector).count() == count


async def open_pane(page: Page, view: str) -> None:
    """A server that the page's clock has left behind sends it when it is back."""
    await page.evaluate("name => { location.hash = name; }", view)
    await wait_for_connection(page)
    await page.wait_for_selector(f"#pane[data-pane={view}]")


async def type_all(page: Page, place: str) -> None:
    """Type every character into this field; the question waits all the time."""
    await page.focus(place)
    await page.clock.fast_forward(1_000)
    await page.keyboard.type("".join(key for key in KEYS if len(key) == 1) + " ")
    assert await page.locator(".ask").count() == 1, place


async def press_all(page: Page, place: str) -> None:
    """Press every key there; the question waits all the time."""
    for key in KEYS:
        if key == "n" and place in ("#scroll", "#pane"):
            continue  # goes to a new session
        if place == "dialog":
            if not await page.evaluate("document.getElementById('dialog').open"):
                await page.click("#keys-button")
        else:
            await page.focus(place)
        await page.clock.fast_forward(1_000)
        await page.keyboard.press(key)
        if place == "dialog" and key != "Space":
            await page.keyboard.press("y")
            await page.keyboard.press("Enter")  # at most closes the dialog
    await page.clock.fast_forward(1_000)
    assert await page.locator(".ask").count() == 1, place


async def test_no_key_answers_a_question_behind_a_dialog_or_with_the_focus_elsewhere(
    site: Site, tmp_path: Path
):
    session = await site.create(tmp_path, ASKS, FakeReply(text="done"))
    async with site.open_page(session) as page:
        await ask(page)
        await page.evaluate("document.getElementById('blocks').tabIndex = -1")
        await press_all(page, "dialog")
        await page.evaluate("document.getElementById('dialog').close()")
        await press_all(page, "#scroll")
        await type_all(page, "#prompt")
        await type_all(page, "#search")
        assert await page.evaluate("location.pathname") == f"/session/{session}"
        assert not (tmp_path / "made").exists()
        await wait_for_connection(page)
        await page.focus(".ask")
        await page.clock.run_for(1_000)
        await page.keyboard.press("y")
        await page.clock.run_for(5_000)
        assert await page.locator(".ask").count() == 1  # a key only marks
        await answer(page, "y")
        await page.wait_for_selector("text=done")
    assert (tmp_path / "made").exists()


async def test_no_key_of_a_pane_answers_a_question_that_it_covers(site: Site, tmp_path: Path):
    session = await site.create(tmp_path, ASKS, FakeReply(text="done"))
    async with site.open_page(session) as page:
        await ask(page)
        for view in PANES:
            await open_pane(page, view)
            await press_all(page, "#pane")
            assert await page.locator(f"#pane[data-pane={view}]").count() == 1
            assert not (tmp_path / "made").exists()
            await page.focus("#pane")
            await page.keyboard.press("Escape")  # closes the pane, not the turn
            await page.wait_for_selector("#pane", state="hidden")
        await page.wait_for_selector(".ask")
        await answer(page, "y")
        await page.wait_for_selector("text=done")


async def test_a_key_before_the_question_can_be_read_belongs_to_the_prompt(
    site: Site, tmp_path: Path
):
    session = await site.create(tmp_path, ASKS, FakeReply(text="done"))
    async with site.open_page(session) as page:
        await ask(page)
        await page.wait_for_selector(".ask:focus")
        await page.keyboard.type("yes, go on")
        assert await page.input_value("#prompt") == "yes, go on"
        await page.fill("#prompt", "")
        await page.focus(".ask")
        await page.clock.run_for(1_000)
        await page.keyboard.type("yes, go on")  # a word that begins like an answer
        assert await page.input_value("#prompt") == "yes, go on"
        assert await page.locator(".ask").count() == 1
        await answer(page, "n")
        await page.wait_for_selector(".ask", state="detached")
    assert not (tmp_path / "made").exists()


async def test_enter_in_a_dialog_that_has_just_opened_changes_nothing(site: Site, tmp_path: Path):
    session = await site.create(tmp_path)
    async with site.open_page(session) as page:
        await wait_until_shown(page)
        for name in ("model", "mode"):
            before = await page.text_content(f"#{name}")
            await page.click(f"[data-ask={name}]")
            await page.wait_for_selector("dialog[open]")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("dialog", state="hidden")
            assert await page.text_content(f"#{name}") == before


async def test_a_server_that_hangs_is_shown_and_what_is_sent_meanwhile_arrives(
    site: Site, tmp_path: Path
):
    async with ProviderServer(script()) as provider, web_server(provider, tmp_path) as server:
        session = await server.find_session()
        async with site.open_page(session, server=server) as page:
            await wait_until_shown(page)
            # Its time stands still from its first moment, so that the silence is as long as this
            # test makes it.
            await page.clock.install()
            await page.clock.pause_at(await page.evaluate("Date.now()") / 1000 + 3600)
            await page.reload()
            await wait_until_shown(page)
            os.kill(server.process.pid, signal.SIGSTOP)
            try:
                await page.fill("#prompt", "are you there?")
                await page.press("#prompt", "Enter")
                await page.wait_for_selector("#outbox >> text=Sending")
                await page.clock.run_for(10_000)
                await page.wait_for_selector("#live >> text=Reconnecting")
                await page.wait_for_selector("#outbox >> text=Waits for the connection")
            finally:
                os.kill(server.process.pid, signal.SIGCONT)
                await page.clock.resume()
            await wait_for_connection(page)
            await page.wait_for_selector(".prose >> text=hello")
            assert await page.locator(".you >> text=are you there?").count() == 1
            await page.wait_for_selector("#outbox:empty", state="attached")


async def test_the_inbox_has_the_questions_of_all_sessions_and_counts_them_after_a_restart(
    site: Site, tmp_path: Path
):
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    async with ProviderServer(script(ASKS, FakeReply(text="done"))) as provider:
        async with web_server(provider, tmp_path, **home) as server:
            sessions = []
            async with server.client() as client:
                for number in range(2):
                    answer = await client.post("/new", content="")
                    sessions.append(answer.json()["session"])
                    async with open_tab(server, sessions[-1]) as tab:
                        await tab.send(do="send", id="1", text=f"task {number}")
                        await tab.wait_until(lambda one: bool(one.regions.get("questions")))
            async with site.open_page(sessions[0], server=server) as page:
                await page.clock.install()
                await page.wait_for_selector("#waiting >> text=2")
                click = partial(page.dispatch_event, "#inbox-button", "click")
                await repeat(page, click, partial(has_count, page, "[data-inbox] .ask", 2))
                await take_picture(page, "inbox")
                size = page.viewport_size
                assert size is not None
                await page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
                assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
                await take_picture(page, "inbox-phone")
                await page.set_viewport_size(size)

                async def deny() -> None:
                    question = page.locator(f"[data-of='{sessions[1]}'] .ask")
                    if await question.count():
                        await question.focus()
                        await page.clock.run_for(1_000)  # it has to be in view for a moment
                        await page.keyboard.press("n")
                        await page.keyboard.press("Enter")

                await repeat(page, deny, partial(has_count, page, "dialog .ask", 1))
                await page.wait_for_selector("#waiting >> text=1")
            await server.kill()
        async with web_server(provider, tmp_path, **home) as again:
            async with again.client() as client:
                other = (await client.post("/new", content="")).json()["session"]
            async with open_tab(again, other) as tab:
                await tab.wait_until(lambda one: is_waiting(one, 1))
                await tab.send(do="inbox")
                shown = (await tab.wait_for("dialog"))["html"]
    assert sessions[0] in shown
    assert sessions[1] not in shown


def is_waiting(tab: TabClient, count: int) -> bool:
    lists = [one for one in tab.messages if one["kind"] == "list"]
    return bool(lists) and lists[-1]["waiting"] == count

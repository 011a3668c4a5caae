"""The page in a real browser: a whole task, at desktop and phone size, and its accessibility."""

import os
from pathlib import Path

import axe_playwright_python  # type: ignore[import-untyped]  # it ships no types
import pytest
from playwright.async_api import FilePayload, Page

from tests.apps.web.server import (
    WebServer,
    needs_chromium,
    open_page,
    open_tab,
    script,
    web_server,
)
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

pytestmark = needs_chromium
AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
SCREENSHOTS = os.environ.get("TREADLE_SCREENSHOTS", "")  # a folder to keep pictures in

TASK = (
    FakeReply(
        thinking="The user wants a parser. I look at the folder first.",
        text="I look first, then write `duration.py`.\n\n```python\ndef parse(text): ...\n```",
        calls=(
            FakeCall("todo", {"todos": [
                {"content": "Look at the folder", "status": "completed"},
                {"content": "Write duration.py", "status": "in_progress"},
                {"content": "Run the tests", "status": "pending"},
            ]}),
            FakeCall("bash", {"command": "seq 1 100"}),
        ),
    ),
    FakeReply(
        text="Now the file.",
        calls=(FakeCall("write", {"path": "duration.py", "content": "def parse(): ...\n"}),),
    ),
    FakeReply(text="**Done**: `duration.py` parses 1h30m."),
)  # fmt: skip


async def test_a_task_with_approval_undo_and_fork(tmp_path: Path):
    async with ProviderServer(script(*TASK)) as provider, web_server(provider, tmp_path) as server:
        async with open_page(server, color_scheme="dark") as page:
            await send(page, "Parse durations such as 1h30m")
            await page.wait_for_selector(".ask")
            assert not (tmp_path / "duration.py").exists()
            await page.click("text=Side by side")
            await page.wait_for_selector("table.diff.split")
            await take_picture(page, "work-dark")
            await page.click("[data-answer=once]")
            await page.wait_for_selector("text=parses 1h30m")
            assert (tmp_path / "duration.py").exists()
            await page.wait_for_selector("#panels >> text=duration.py")

            await page.click("[data-ask=undo]")
            await page.wait_for_selector("dialog >> text=duration.py")
            await page.click("dialog [data-do=restore]")
            await page.wait_for_selector("#toast:visible")
            assert not (tmp_path / "duration.py").exists()

            address = page.url
            await page.click("[data-do=fork]")
            await page.wait_for_url(lambda url: url != address)
            await page.wait_for_selector("text=parses 1h30m")


async def test_a_message_is_sent_when_the_server_is_back(tmp_path: Path):
    async with ProviderServer(script(*TASK[2:])) as provider:
        async with web_server(provider, tmp_path) as server, open_page(server) as page:
            await page.wait_for_selector("text=Connected")
            await server.kill()
            await page.wait_for_selector("text=Reconnecting")
            await send(page, "Are you back?")
            async with web_server(provider, tmp_path):
                await page.wait_for_selector("text=parses 1h30m")
                assert await page.locator(".you").count() == 1


async def test_words_that_are_typed_when_a_question_appears_do_not_answer_it(tmp_path: Path):
    async with ProviderServer(script(*TASK)) as provider, web_server(provider, tmp_path) as server:
        async with open_page(server) as page:
            await page.clock.install()
            await page.clock.pause_at(2_000_000_000_000)
            await send(page, "Parse durations")
            await page.wait_for_selector(".ask")
            for seconds in (0, 1):  # at once, and when the question can be read
                await page.clock.run_for(seconds * 1_000)
                await page.keyboard.type("yes, go on")
                assert await page.input_value("#prompt") == "yes, go on"
                await page.clock.run_for(1_000)
                assert await page.locator(".ask").count() == 1
                await page.fill("#prompt", "")
            assert not (tmp_path / "duration.py").exists()
            await page.keyboard.press("n")
            await page.clock.run_for(1_000)
            await page.wait_for_selector(".ask", state="detached")
    assert not (tmp_path / "duration.py").exists()


async def test_escape_stops_the_turn_and_gives_the_queued_message_back(tmp_path: Path):
    async with ProviderServer(script(*TASK)) as provider, web_server(provider, tmp_path) as server:
        async with open_page(server) as page:
            await send(page, "Parse durations")
            await page.wait_for_selector(".ask")
            await send(page, "and dates")
            await page.wait_for_selector("#queue >> text=and dates")
            await page.fill("#prompt", "a draft")
            await page.keyboard.press("Escape")
            await page.wait_for_selector(".ask", state="detached")
            both = "document.getElementById('prompt').value === 'and dates\\na draft'"
            await page.wait_for_function(both)


async def test_the_slider_shows_each_step_and_what_the_model_was_sent(tmp_path: Path):
    async with ProviderServer(script(*TASK)) as provider:
        async with web_server(provider, tmp_path, "--permission-mode", "accept-edits") as server:
            async with open_page(server) as page:
                await send(page, "Parse durations")
                await page.wait_for_selector("text=parses 1h30m")
                await page.click("#inspect-link")
                await page.wait_for_selector("text=Request 3")
                assert await page.locator(".gantt rect.g-call").count() == 3
                await take_picture(page, "inspect-light")
                await page.keyboard.press("Home")
                await page.wait_for_selector("text=Step 1 of")
                await page.wait_for_selector("text=Request 1")
                await page.keyboard.press("ArrowRight")
                await page.wait_for_selector("text=Step 2 of")
                await page.click("nav >> text=Cost")
                await page.wait_for_selector("text=By session")
                await take_picture(page, "cost-light")


async def test_commands_files_search_and_budget_by_keyboard(tmp_path: Path):
    (tmp_path / "notes.md").write_text("")
    async with ProviderServer(script(*TASK[2:])) as provider:
        async with web_server(provider, tmp_path) as server, open_page(server) as page:
            await page.wait_for_selector("text=Connected")
            await page.click("text=Explain how this project is laid out")
            assert await page.input_value("#prompt") == "Explain how this project is laid out"
            await page.fill("#prompt", "")
            await page.type("#prompt", "read @not")
            await page.wait_for_selector("#completions >> text=notes.md")
            await page.keyboard.press("Tab")
            assert await page.input_value("#prompt") == "read @notes.md "
            await page.keyboard.press("Enter")
            await page.wait_for_selector("text=parses 1h30m")
            await page.wait_for_selector("#now:empty", state="attached")  # the turn has ended
            await page.type("#prompt", "/bud")
            await page.wait_for_selector("#completions >> text=/budget")
            await page.keyboard.press("Enter")
            await page.keyboard.press("Enter")
            await page.fill("dialog [data-limit=cost]", "3")
            await page.click("dialog [data-kind=cost]")
            await page.wait_for_selector("#meters >> text=of $3")
            await page.fill("#search", "1h30m")
            await page.wait_for_selector("text=No title has")
            await page.press("#search", "Enter")
            await page.wait_for_selector("#found >> text=1 session with")


async def test_a_fork_is_compared_with_its_origin(tmp_path: Path):
    replies = (FakeReply(text="one"), FakeReply(text="two"), FakeReply(text="three"))
    async with ProviderServer(script(*replies)) as provider:
        async with web_server(provider, tmp_path) as server, open_page(server) as page:
            await send(page, "first")
            await page.wait_for_selector(".prose >> text=one")
            await page.wait_for_selector("#stop-button", state="hidden")
            address = page.url
            await page.click("[data-do=fork]")
            await page.wait_for_url(lambda url: url != address)
            await send(page, "another way")
            await page.wait_for_selector(".prose >> text=two")
            await page.click("#inspect-link")
            await page.click("text=Raw")
            await page.wait_for_selector("[data-view=raw][aria-pressed=true]")
            await page.click("text=Transcript")
            await page.wait_for_selector("#sheet .prose >> text=one")
            await page.click("[data-range=all]")
            await page.wait_for_selector("text=All turns")
            await page.click("a[href^='/compare/']")
            await page.wait_for_selector("text=The same up to item")
            await page.wait_for_selector(".pair >> text=another way")
            await page.wait_for_selector(".pair >> text=It ends here.")


async def test_the_page_fits_a_phone(tmp_path: Path):
    async with ProviderServer(script(*TASK)) as provider, web_server(provider, tmp_path) as server:
        async with open_page(server, (390, 844), has_touch=True) as page:
            await send(page, "Parse durations")
            await page.wait_for_selector(".ask")
            await take_picture(page, "work-phone")
            session = page.url.rpartition("/")[2]
            for path in ("", "/cost", f"/inspect/{session}", f"/compare/{session}"):
                if path:
                    await page.goto(server.address + path)
                    await page.wait_for_load_state()
                wide = await page.evaluate("document.documentElement.scrollWidth")
                assert wide <= 390, path or "work"


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_no_page_has_a_serious_accessibility_fault(tmp_path: Path, theme: str):
    async with ProviderServer(script(*TASK)) as provider, web_server(provider, tmp_path) as server:
        async with open_page(server, color_scheme=theme, bypass_csp=True) as page:
            await send(page, "Parse durations")
            await page.wait_for_selector(".ask")
            await check_accessibility(page)
            await page.click("[data-answer=once]")
            await page.wait_for_selector("text=parses 1h30m")
            await page.click("[data-ask=mode]")
            await page.wait_for_selector("dialog[open]")
            await check_accessibility(page)
            await page.click("[data-close]")
            await page.click("#inspect-link")
            await page.wait_for_selector("text=Request 3")
            await check_accessibility(page)
            await page.click("a[href^='/compare/']")
            await page.wait_for_selector("text=Choose the session")
            await check_accessibility(page)
            await page.click("nav >> text=Cost")
            await page.wait_for_selector("text=By session")
            await check_accessibility(page)


HOSTILE = '<img src=x onerror=alert(1)><script>alert(2)</script>"><svg onload=alert(3)>'


async def test_hostile_text_and_names_run_nothing_and_load_nothing(tmp_path: Path):
    name = "a<img src=x onerror=alert(4)>\u202egnp.exe"
    (tmp_path / name).write_text("x")
    call = FakeCall("bash", {"command": f"echo '{HOSTILE}'; ls", "description": HOSTILE})
    link = "[a](javascript:alert(5)) [b](data:text/html,x) ![c](https://evil.example/c.png)"
    replies = (FakeReply(text=f"{HOSTILE} {link}", calls=(call,)), FakeReply(text="the end"))
    async with ProviderServer(script(*replies)) as provider:
        async with web_server(provider, tmp_path, "--permission-mode", "auto") as server:
            async with open_page(server) as page:
                seen: list[str] = []
                page.on("dialog", lambda dialog: seen.append(dialog.message))
                page.on("console", lambda line: seen.append(line.text))
                page.on("request", lambda request: seen.append(request.url))
                svg = FilePayload(name=name, mimeType="image/svg+xml", buffer=HOSTILE.encode())
                await page.set_input_files("#file", svg)
                await page.wait_for_selector("#attach >> text=kB")
                await send(page, f"{HOSTILE} \u202eabc")
                await page.wait_for_selector("text=the end")
                await page.type("#prompt", "@a<")
                await page.wait_for_selector("#completions >> text=onerror")
                await page.fill("#search", HOSTILE)
                await page.press("#search", "Enter")
                await page.wait_for_selector("#found >> text=onerror")
                session = page.url.rpartition("/")[2]
                for path in (f"/inspect/{session}?view=transcript", f"/compare/{session}", "/cost"):
                    await page.goto(server.address + path)
                    await page.wait_for_selector("main")
                assert not [one for one in seen if not one.startswith((server.address, "blob:"))]


async def test_ten_thousand_items_open_at_once_and_scroll(tmp_path: Path):
    text = tuple(f"Paragraph {number}.\n\n" for number in range(10_000))
    replies = script(FakeReply(text=text))
    async with ProviderServer(replies) as provider, web_server(provider, tmp_path) as server:
        session = await fill_session(server)
        async with open_page(server) as page:
            await page.goto(f"{server.address}/session/{session}")
            await page.wait_for_selector("text=Paragraph 9999.")
            assert await page.locator("#blocks .item").count() <= 210
            await page.click("#earlier-button")
            await page.wait_for_selector("text=Paragraph 9700.", state="attached")


async def fill_session(server: WebServer) -> str:
    session = await server.find_session()
    async with open_tab(server, session) as tab:
        await tab.receive()
        await tab.send(do="send", text="go", id="1")
        await tab.wait_until(lambda one: "Paragraph 9999." in one.text and not one.regions["now"])
    return session


async def send(page: Page, text: str) -> None:
    await page.fill("#prompt", text)
    await page.press("#prompt", "Enter")


async def check_accessibility(page: Page) -> None:
    await page.add_script_tag(path=AXE)
    found = await page.evaluate("axe.run()")
    serious = [
        f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]
    assert not serious, "\n".join(serious)


async def take_picture(page: Page, name: str) -> None:
    if SCREENSHOTS:
        await page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png")

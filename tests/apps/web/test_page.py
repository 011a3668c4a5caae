"""The page in a real browser: a whole task, at desktop and phone size, and its accessibility."""

from pathlib import Path

from playwright.async_api import FilePayload, WebSocketRoute, expect

from tests.apps.web.browser import (
    ACCESSIBILITY,
    check_accessibility,
    open_inspection,
    send,
    take_picture,
    wait_until_shown,
)
from tests.apps.web.conftest import Site
from tests.apps.web.server import needs_chromium, script, web_server
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

pytestmark = needs_chromium

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


async def test_a_task_with_approval_undo_and_fork(site: Site, project: Path):
    session = await site.create(project, *TASK)
    async with site.open_page(session, color_scheme="dark") as page:
        await send(page, "Parse durations such as 1h30m")
        await page.wait_for_selector(".ask")
        assert not (project / "duration.py").exists()
        await page.click("text=Side by side")
        await page.wait_for_selector("table.diff.split")
        await take_picture(page, "work")
        await page.click("[data-answer=once]")
        await page.wait_for_selector("text=parses 1h30m")
        assert (project / "duration.py").exists()
        await page.wait_for_selector("[data-panel='Changed files'] >> text=duration.py")

        await page.click("[data-ask=undo]")
        await page.wait_for_selector("dialog >> text=duration.py")
        await page.click("dialog [data-files]")
        await page.wait_for_selector("#toast:visible")
        toast, form = [await page.locator(name).bounding_box() for name in ("#toast", "#form")]
        assert toast is not None
        assert form is not None
        assert toast["y"] + toast["height"] <= form["y"], "it does not cover the prompt"
        assert not (project / "duration.py").exists()
        await page.wait_for_selector("[data-panel='Changed files']", state="detached")

        await page.click("[data-do=fork]")
        await page.wait_for_url(lambda url: session not in url)
        await page.wait_for_selector("text=parses 1h30m")
        await page.wait_for_selector("#head >> text=Fork of Parse durations such as 1h30m")


async def test_a_message_without_a_connection_waits_in_view_and_is_sent_when_it_is_back(
    site: Site, tmp_path: Path
):
    async with ProviderServer(script(*TASK[2:])) as provider:
        async with web_server(provider, tmp_path) as server:
            session = await server.find_session()
            async with site.open_page(session, server=server) as page:
                await wait_until_shown(page)
                await server.kill()
                await page.wait_for_selector("text=Reconnecting")
                await send(page, "a mistake")
                await page.wait_for_selector("#outbox >> text=Waits for the connection")
                await page.click("#outbox >> text=Take back")
                assert await page.input_value("#prompt") == "a mistake"
                await send(page, "Are you back?")
                await page.wait_for_selector("#outbox >> text=Are you back?")
                async with web_server(provider, tmp_path):
                    await page.wait_for_selector("text=parses 1h30m")
                    assert await page.locator(".you").count() == 1
                    assert await page.locator("#outbox li").count() == 0


async def test_a_message_is_not_sent_unasked_when_the_session_has_moved_on(
    site: Site, tmp_path: Path
):
    session = await site.create(tmp_path, FakeReply(text="one"), FakeReply(text="two"))
    async with site.open_page(session) as page, site.open_tab(session) as tab:
        network = Network()
        await page.route_web_socket("**/socket*", network.connect)
        await page.reload()
        await wait_until_shown(page)
        await network.cut()
        await page.wait_for_selector("text=Reconnecting")
        await send(page, "too late")
        await tab.send(do="send", text="meanwhile", id="1")
        await tab.wait_until(lambda one: "one" in one.text and not one.regions["now"])
        network.is_cut = False
        await page.wait_for_selector("#outbox >> text=the session has moved on")
        assert await page.locator(".you").count() == 1
        await page.click("#outbox >> text=Send")
        await page.wait_for_selector(".prose >> text=two")
        assert await page.locator("#outbox li").count() == 0


async def test_a_message_that_is_written_before_anything_is_shown_is_sent(
    site: Site, tmp_path: Path
):
    session = await site.create(tmp_path, FakeReply(text="one"), FakeReply(text="two"))
    async with site.open_page(session) as page:
        await send(page, "first")
        await page.wait_for_selector(".prose >> text=one")
        await page.wait_for_selector("#stop-button", state="hidden")
        network = Network(is_cut=True)
        await page.route_web_socket("**/socket*", network.connect)
        await page.reload()
        await page.wait_for_selector("text=Reconnecting")
        await send(page, "early")
        await page.wait_for_selector("#outbox >> text=Waits for the connection")
        network.is_cut = False
        await page.wait_for_selector(".prose >> text=two")
        assert await page.locator("#outbox li").count() == 0


class Network:
    """The connections of a page, which a test can cut."""

    def __init__(self, *, is_cut: bool = False) -> None:
        self.is_cut = is_cut
        self._sockets: list[WebSocketRoute] = []

    async def connect(self, socket: WebSocketRoute) -> None:
        if self.is_cut:
            await socket.close()
            return
        socket.connect_to_server()
        self._sockets.append(socket)

    async def cut(self) -> None:
        self.is_cut = True
        for socket in self._sockets:
            await socket.close()


async def test_what_the_user_marked_opened_and_focused_stays_while_a_reply_grows(
    site: Site, tmp_path: Path
):
    session = await site.create(tmp_path)
    async with site.open_page(session) as page:
        kept = await page.evaluate(
            """async () => {
              const { Blocks } = await import("/static/blocks.js");
              const list = document.createElement("ol");
              document.body.append(list);
              const make = (more) => `<li><p>first words</p>
                <details><summary>more</summary>x</details><button>Copy</button><p>${more}</p></li>`;
              const blocks = new Blocks(list);
              blocks.set(0, make("a"));
              list.querySelector("details").open = true;
              list.querySelector("button").focus();
              getSelection().selectAllChildren(list.querySelector("p"));
              blocks.set(0, make("a and b"));
              return [getSelection().toString(), list.querySelector("details").open,
                document.activeElement.textContent, list.textContent.includes("a and b")];
            }"""
        )
    assert kept == ["first words", True, "Copy", True]


async def test_while_a_call_is_edited_only_the_edited_call_can_be_allowed(
    site: Site, tmp_path: Path
):
    run = FakeReply(calls=(FakeCall("bash", {"command": "touch first.txt"}),))
    session = await site.create(tmp_path, run, FakeReply(text="All is there"))
    async with site.open_page(session) as page:
        await send(page, "Make a file")
        await page.click("[data-answer=edit]")
        for answer in ("once", "session", "always"):
            assert await page.is_disabled(f"[data-answer={answer}]")
        await page.click("[data-answer=edit]")  # closes the editor
        assert await page.is_enabled("[data-answer=once]")
        await page.click("[data-answer=edit]")
        await page.fill(".edit textarea", "touch edited.txt")
        await page.click("[data-answer=edited]")
        await page.wait_for_selector("text=All is there")
        await page.wait_for_selector("text=bash (edited)")
        assert await page.locator(".call .arg >> text=touch edited.txt").count() == 1
        await page.click("[data-do=fork]")
        await page.wait_for_url(lambda url: session not in url)
        await page.wait_for_selector(".call .arg >> text=touch edited.txt")
    assert (tmp_path / "edited.txt").exists()
    assert not (tmp_path / "first.txt").exists()


async def test_escape_stops_the_turn_and_gives_the_queued_message_back(site: Site, tmp_path: Path):
    session = await site.create(tmp_path, *TASK)
    async with site.open_page(session) as page:
        await send(page, "Parse durations")
        await page.wait_for_selector(".ask")
        await send(page, "and dates")
        await page.wait_for_selector("#queue >> text=and dates")
        await page.fill("#prompt", "a draft")
        await page.keyboard.press("Escape")
        await page.wait_for_selector(".ask", state="detached")
        await expect(page.locator("#prompt")).to_have_value("and dates\na draft")


async def test_the_slider_shows_each_step_and_what_the_model_was_sent(site: Site, project: Path):
    session = await site.create(project, *TASK, mode="accept-edits")
    async with site.open_page(session) as page:
        await send(page, "Parse durations")
        await page.wait_for_selector("text=parses 1h30m")
        await open_inspection(page)
        await page.wait_for_selector("text=Request 3")
        assert await page.locator(".gantt rect.g-call").count() == 3
        for part in ("system", "tools", "user", "assistant", "results"):
            await page.wait_for_selector(f"#sheet .part.{part}")
        await take_picture(page, "inspect")
        await page.keyboard.press("Home")
        await page.wait_for_selector("text=Step 1 of")
        await page.wait_for_selector("text=Request 1")
        await page.keyboard.press("ArrowRight")
        await page.wait_for_selector("text=Step 2 of")
        await page.click("nav >> text=Cost")
        await page.wait_for_selector("text=By session")
        await take_picture(page, "cost")


PASTE_AND_DROP = """() => {
  for (const [kind, Kind, field] of [
    ["paste", ClipboardEvent, "clipboardData"], ["drop", DragEvent, "dataTransfer"],
  ]) {
    const data = new DataTransfer();
    data.items.add(new File(["text"], kind === "paste" ? "pasted.txt" : "dropped.txt"));
    document.dispatchEvent(new Kind(kind, { [field]: data, cancelable: true }));
  }
}"""


async def test_commands_files_search_and_budget_by_keyboard(site: Site, tmp_path: Path):
    (tmp_path / "notes.md").write_text("")
    session = await site.create(tmp_path, FakeReply(text="It takes 7h42m."))
    async with site.open_page(session) as page:
        await wait_until_shown(page)
        await page.click("text=Explain how this project is laid out")
        assert await page.input_value("#prompt") == "Explain how this project is laid out"
        await page.fill("#prompt", "")
        await page.type("#prompt", "read @not")
        await page.wait_for_selector("#completions >> text=notes.md")
        await page.keyboard.press("Tab")
        assert await page.input_value("#prompt") == "read @notes.md "
        await page.evaluate(PASTE_AND_DROP)
        for name in ("pasted.txt", "dropped.txt"):
            await page.wait_for_selector(f"#attach >> text={name} 1 kB")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("text=takes 7h42m")
        assert await page.locator(".you .shot").count() == 2
        await page.wait_for_selector("#now:empty", state="attached")  # the turn has ended
        await page.type("#prompt", "/bud")
        await page.wait_for_selector("#completions >> text=/budget")
        await page.keyboard.press("Enter")
        await page.keyboard.press("Enter")
        await page.fill("dialog [data-limit=cost]", "3")
        await page.click("dialog [data-kind=cost]")
        await page.wait_for_selector("#meters >> text=of $3")
        await page.fill("#search", "7h42m")
        await page.wait_for_selector("text=No title has")
        await page.press("#search", "Enter")
        await page.wait_for_selector("#found >> text=1 session with")


async def test_a_fork_is_compared_with_its_origin(site: Site, tmp_path: Path):
    replies = (FakeReply(text="one"), FakeReply(text="two"), FakeReply(text="three"))
    session = await site.create(tmp_path, *replies)
    async with site.open_page(session) as page:
        await send(page, "first")
        await page.wait_for_selector(".prose >> text=one")
        await page.wait_for_selector("#stop-button", state="hidden")
        await page.click("[data-do=fork]")
        await page.wait_for_url(lambda url: session not in url)
        await send(page, "another way")
        await page.wait_for_selector(".prose >> text=two")
        await open_inspection(page)
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


async def test_the_page_fits_a_phone(site: Site, project: Path):
    session = await site.create(project, *TASK)
    async with site.open_page(session, (390, 844), has_touch=True) as page:
        await send(page, "Parse durations")
        await page.wait_for_selector(".ask")
        await take_picture(page, "work-phone")
        address = page.url.partition("/session/")[0]
        for path in ("", "/cost", f"/inspect/{session}", f"/compare/{session}"):
            if path:
                await page.goto(address + path)
            wide = await page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 390, path or "work"


async def test_the_work_page_has_no_serious_accessibility_fault(site: Site, tmp_path: Path):
    session = await site.create(tmp_path, *TASK)
    async with site.open_page(session, **ACCESSIBILITY) as page:
        await send(page, "Parse durations")
        await page.wait_for_selector(".ask")
        await check_accessibility(page)
        await page.click("[data-ask=mode]")
        await page.wait_for_selector("dialog[open]")
        await check_accessibility(page, "dialog")


async def test_the_other_pages_have_no_serious_accessibility_fault(site: Site, tmp_path: Path):
    session = await site.create(tmp_path, *TASK, mode="accept-edits")
    async with site.open_page(session, **ACCESSIBILITY) as page:
        await send(page, "Parse durations")
        await page.wait_for_selector("text=parses 1h30m")
        await open_inspection(page)
        await page.wait_for_selector("text=Request 3")
        await check_accessibility(page)
        await page.click("a[href^='/compare/']")
        await page.wait_for_selector("text=Choose the session")
        await check_accessibility(page, "main")
        await page.click("nav >> text=Cost")
        await page.wait_for_selector("text=By session")
        await check_accessibility(page, "main")


HOSTILE = '<img src=x onerror=alert(1)><script>alert(2)</script>"><svg onload=alert(3)>'


async def test_hostile_text_and_names_run_nothing_and_load_nothing(site: Site, tmp_path: Path):
    name = "a<img src=x onerror=alert(4)>\u202egnp.exe"
    (tmp_path / name).write_text("x")
    call = FakeCall("bash", {"command": f"echo '{HOSTILE}'; ls", "description": HOSTILE})
    link = "[a](javascript:alert(5)) [b](data:text/html,x) ![c](https://evil.example/c.png)"
    replies = (FakeReply(text=f"{HOSTILE} {link}", calls=(call,)), FakeReply(text="the end"))
    session = await site.create(tmp_path, *replies, mode="auto")
    async with site.open_page(session) as page:
        address, seen = page.url.partition("/session/")[0], list[str]()
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
        for path in (f"/inspect/{session}?view=transcript", f"/compare/{session}", "/cost"):
            await page.goto(address + path)
            await page.wait_for_selector("main")
        assert not [one for one in seen if not one.startswith((address, "blob:"))]


async def test_ten_thousand_items_open_at_once_and_scroll(site: Site, tmp_path: Path):
    text = "".join(f"Paragraph {number}.\n\n" for number in range(10_000))
    session = await site.create(tmp_path, FakeReply(text=(text[:50], text[50:])))
    async with site.open_tab(session) as tab:
        await tab.send(do="send", text="go", id="1")
        await tab.wait_until(lambda one: "Paragraph 9999." in one.text and not one.regions["now"])
    async with site.open_page(session) as page:
        await page.wait_for_selector("text=Paragraph 9999.")
        assert await page.locator("#blocks .item").count() <= 210
        await page.click("#earlier-button")
        await page.wait_for_selector("text=Paragraph 9700.", state="attached")


async def test_a_long_name_of_a_folder_leaves_its_number_of_sessions_in_view(
    site: Site, tmp_path: Path
):
    folder = tmp_path / ("service-" * 12)
    folder.mkdir()
    session = await site.create(folder)
    async with site.open_page(session) as page:
        await send(page, "hi")
        head = page.locator(".folder > summary", has_text=folder.name)
        await expect(head).to_have_count(1)
        assert await head.evaluate("one => one.scrollWidth <= one.clientWidth")

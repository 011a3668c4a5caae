"""Slash commands, completions, search, budget and background tasks, over the page's socket."""

from pathlib import Path
from typing import Any

from tests.apps.web.conftest import Site
from tests.apps.web.server import TabClient, open_tab, script, web_server
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer


async def ask(tab: TabClient, kind: str, **request: Any) -> dict[str, Any]:
    """The answer of this kind to a request."""
    await tab.send(**request)
    return await tab.wait_for(kind)


async def test_commands_are_completed_and_run(tmp_path: Path):
    home = Path.home() / ".treadle" / "commands"
    home.mkdir(parents=True)
    (home / "greet.md").write_text("Greet $1 kindly.")
    replies = script(FakeReply(text="word " * 2_000), FakeReply(text="hello"))
    async with ProviderServer(replies) as provider, web_server(provider, tmp_path) as server:
        async with open_tab(server, await server.find_session()) as tab:
            await tab.receive()
            found = (await ask(tab, "completions", do="complete", line="/gre"))["found"]
            assert found[0]["text"] == "/greet "
            assert "/compact" in (await ask(tab, "dialog", do="command", line="/help"))["html"]
            assert "max_cost" in (await ask(tab, "message", do="command", line="/budget 2"))["text"]
            await tab.wait_until(lambda one: "of $2" in one.regions.get("meters", ""))
            await tab.send(do="command", line="/mode plan")
            await tab.wait_until(lambda one: one.regions["mode"] == "plan")
            unknown = await ask(tab, "message", do="command", line="/compac")
            assert "did you mean /compact?" in unknown["text"]
            await tab.send(do="command", line="/greet Ada")
            await tab.wait_until(lambda one: "Greet Ada kindly." in one.text)
            await tab.wait_until(lambda one: "word" in one.text and not one.regions["now"])
            await tab.send(do="send", text="more", id="2")
            await tab.wait_until(lambda one: "hello" in one.text and not one.regions["now"])
            context = await ask(tab, "pane", do="command", line="/context")
            assert "of 1M tokens" in context["html"]
            await tab.send(do="command", line="/compact")
            await tab.wait_until(lambda one: "compacted the context" in one.text)
            done = await ask(tab, "message", do="command", line="/export out.html")
            assert "out.html" in done["text"]
            assert (await ask(tab, "go", do="command", line="/fork"))["session"]
    assert "Greet Ada kindly." in (tmp_path / "out.html").read_text()


async def test_files_of_the_folder_are_completed_after_an_at(site: Site, tmp_path: Path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "my file.py").write_text("")
    session = await site.create(tmp_path)
    async with site.open_tab(session) as tab:
        answer = await ask(tab, "completions", do="complete", line="look at @my")
        assert answer["found"][0]["text"] == '@"src/my file.py" '
        assert answer["found"][0]["start"] == len("look at ")


async def test_a_text_is_found_in_the_calls_of_other_sessions(site: Site, tmp_path: Path):
    call = FakeCall("bash", {"command": "echo needle-in-a-call"})
    replies = (FakeReply(calls=(call,)), FakeReply(text="done"))
    session = await site.create(tmp_path, *replies, mode="auto")
    async with site.open_tab(session) as tab:
        await tab.send(do="send", text="Search <me>", id="1")
        await tab.wait_until(lambda one: "done" in one.text and not one.regions["now"])
        found = (await ask(tab, "found", do="search", text="needle-in-a"))["html"]
        assert f"/session/{session}" in found
        assert "Search &lt;me&gt;" in found
        nothing = (await ask(tab, "found", do="search", text="<b>nowhere"))["html"]
        assert "No session has the text “&lt;b&gt;nowhere”" in nothing


async def test_a_background_task_can_be_stopped(site: Site, tmp_path: Path):
    call = FakeCall("bash", {"command": "sleep 300", "run_in_background": True})
    replies = (FakeReply(calls=(call,)), FakeReply(text="it runs"), FakeReply(text="ended"))
    session = await site.create(tmp_path, *replies, mode="auto")
    async with site.open_tab(session) as tab:
        await tab.send(do="send", text="run it", id="1")
        await tab.wait_until(lambda one: "data-stop-task" in one.regions.get("panels", ""))
        await tab.send(do="stop_task", task="t1")
        await tab.wait_until(lambda one: "data-stop-task" not in one.regions["panels"])


async def test_an_attached_picture_is_shown_and_an_svg_is_only_named(site: Site, tmp_path: Path):
    png = b"\x89PNG\r\n\x1a\n" + b"\0" * 64
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>'
    session = await site.create(tmp_path)
    server = await site.start_server()
    async with server.client() as client, site.open_tab(session) as tab:
        names = ("a.png", "x.svg")
        uploads = [
            (await client.post(f"/upload?name={name}", content=data)).json()
            for name, data in zip(names, (png, svg), strict=True)
        ]
        ids = [one["id"] for one in uploads if "id" in one]
        await tab.send(do="send", text="look", id="1", attachments=ids)
        await tab.wait_until(lambda one: "<img" in one.text)
        assert tab.text.count("<img") == 1
        address = tab.text.partition('<img src="')[2].partition('"')[0]
        shown = await client.get(address)
        assert shown.content == png
        assert shown.headers["content-type"] == "image/png"
        assert (await client.get(address[:-1] + "x")).status_code == 404


async def test_settings_rules_and_side_questions_from_the_page(site: Site, tmp_path: Path):
    replies = (FakeReply(text="hello"), FakeReply(text="an answer beside"))
    session = await site.create(tmp_path, *replies)
    async with site.open_tab(session) as tab:
        await tab.send(do="send", text="hi", id="1")
        await tab.wait_until(lambda one: "hello" in one.text and not one.regions["now"])
        answer = await ask(tab, "message", do="command", line="/btw why?")
        assert answer["text"].startswith("an answer beside")
        assert "not part of the conversation" in answer["text"]
        rule = await ask(tab, "message", do="command", line="/permissions add Bash(true:*)")
        assert "+ allow Bash(true:*)" in rule["text"]
        wrong = await ask(tab, "problem", do="command", line="/config max_turns many")
        assert "max_turns cannot be 'many'" in wrong["text"]
        done = await ask(tab, "message", do="command", line="/config max_turns 12")
        assert "max_turns = 12 is written to ~/.treadle/config.toml" in done["text"]
    assert "Bash(true:*)" in (tmp_path / ".treadle/settings.local.json").read_text()

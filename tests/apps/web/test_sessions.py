"""Sessions over the page's socket: every change once, in order, also after breaks and restarts."""

import asyncio
from pathlib import Path

from tests.apps.web.server import TabClient, WebServer, open_tab, script, web_server
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

WRITE = FakeCall("write", {"path": "a.txt", "content": "new\n"})


async def test_an_approval_is_asked_and_answered_in_the_page(tmp_path: Path):
    replies = script(FakeReply(calls=(WRITE,)), FakeReply(text="written"))
    async with ProviderServer(replies) as provider, web_server(provider, tmp_path) as server:
        async with open_tab(server, await server.find_session()) as tab:
            await tab.receive()
            await tab.send(do="send", text="write it", id="1")
            number = await wait_for_question(tab)
            assert not (tmp_path / "a.txt").exists()
            await tab.send(do="answer", question=number, answer="once")
            await tab.wait_until(lambda one: "written" in one.text)
    assert (tmp_path / "a.txt").read_text() == "new\n"


async def test_an_answer_to_a_question_that_is_gone_changes_nothing(tmp_path: Path):
    replies = script(FakeReply(calls=(WRITE,)), FakeReply(text="as you say"))
    async with ProviderServer(replies) as provider, web_server(provider, tmp_path) as server:
        async with open_tab(server, await server.find_session()) as tab:
            await tab.receive()
            await tab.send(do="send", text="write it", id="1")
            number = await wait_for_question(tab)
            await tab.send(do="answer", question=number, answer="deny", text="not now")
            await tab.send(do="answer", question=number, answer="once")
            assert "answered already" in (await tab.wait_for("message"))["text"]
            await tab.wait_until(lambda one: "as you say" in one.text)
    assert not (tmp_path / "a.txt").exists()


async def test_a_message_that_is_sent_again_after_a_break_counts_once(tmp_path: Path):
    replies = script(FakeReply(text="first"), FakeReply(text="second"))
    async with ProviderServer(replies) as provider, web_server(provider, tmp_path) as server:
        session = await server.find_session()
        async with open_tab(server, session) as tab:
            await tab.receive()
            await tab.send(do="send", text="only once", id="same")
            await tab.wait_until(lambda one: "first" in one.text and not one.regions["now"])
            have = tab.position
        async with open_tab(server, session, have) as tab:
            await tab.send(do="send", text="only once", id="same")
            assert (await tab.wait_for("received"))["id"] == "same"
            await tab.send(do="send", text="another", id="other")
            await tab.wait_until(lambda one: "second" in one.text)
        async with open_tab(server, session) as tab:
            await tab.receive()
            assert tab.text.count("only once") == 1


async def test_a_tab_that_comes_back_gets_only_what_it_lacks(tmp_path: Path):
    replies = script(FakeReply(text="one"), FakeReply(text="two"))
    async with ProviderServer(replies) as provider, web_server(provider, tmp_path) as server:
        session = await server.find_session()
        async with open_tab(server, session) as first, open_tab(server, session) as second:
            await first.receive()
            await first.send(do="send", text="a", id="1")
            await first.wait_until(lambda tab: "one" in tab.text and not tab.regions["now"])
            have, blocks = first.position, len(first.blocks)
            await second.send(do="send", text="b", id="2")
            await second.wait_until(lambda tab: "two" in tab.text and not tab.regions["now"])
        async with open_tab(server, session, have) as tab:
            update = await tab.wait_for("update")
            assert not update.get("is_reset")
            assert min(index for index, _ in update["blocks"]) >= blocks


async def test_a_question_that_was_open_when_the_server_was_killed_is_open_again(tmp_path: Path):
    replies = script(FakeReply(calls=(WRITE,)), FakeReply(text="written"))
    async with ProviderServer(replies) as provider:
        async with web_server(provider, tmp_path) as server:
            session = await server.find_session()
            async with open_tab(server, session) as tab:
                await tab.receive()
                await tab.send(do="send", text="write it", id="1")
                await wait_for_question(tab)
                have, link = tab.position, server.link
                await server.kill()
        async with web_server(provider, tmp_path) as server:
            assert server.link == link  # an open page finds the new server
            async with open_tab(server, session, have) as tab:
                number = await wait_for_question(tab)
                await tab.send(do="answer", question=number, answer="once")
                await tab.wait_until(lambda one: "written" in one.text)
    assert (tmp_path / "a.txt").read_text() == "new\n"


async def test_a_steered_message_can_be_taken_back_and_an_interrupt_returns_it(tmp_path: Path):
    replies = script(FakeReply(calls=(WRITE,)), FakeReply(text="done"))
    async with ProviderServer(replies) as provider, web_server(provider, tmp_path) as server:
        async with open_tab(server, await server.find_session()) as tab:
            await tab.receive()
            await tab.send(do="send", text="write it", id="1")
            await wait_for_question(tab)
            await tab.send(do="send", text="and more", id="2")
            await tab.wait_until(lambda one: "and more" in one.regions["queue"])
            await tab.send(do="withdraw", index=0)
            assert (await tab.wait_for("prompt"))["text"] == "and more"
            await tab.send(do="send", text="again", id="3")
            await tab.wait_until(lambda one: "again" in one.regions["queue"])
            await tab.send(do="interrupt")
            assert (await tab.wait_for("prompt"))["text"] == "again"
            await tab.wait_until(lambda one: not one.regions["now"])


async def test_undo_and_redo_name_the_files_first(tmp_path: Path):
    replies = script(FakeReply(calls=(WRITE,)), FakeReply(text="written"))
    async with ProviderServer(replies) as provider:
        async with web_server(provider, tmp_path, "--permission-mode", "accept-edits") as server:
            async with open_tab(server, await server.find_session()) as tab:
                await tab.receive()
                await tab.send(do="send", text="write it", id="1")
                await tab.wait_until(lambda one: "written" in one.text and not one.regions["now"])
                await tab.send(do="ask", dialog="undo")
                assert "a.txt" in (await tab.wait_for("dialog"))["html"]
                assert (tmp_path / "a.txt").exists()
                await tab.send(do="restore", action="undo")
                await tab.wait_for("message")
                assert not (tmp_path / "a.txt").exists()
                await tab.send(do="restore", action="redo")
                await tab.wait_for("message")
                assert (tmp_path / "a.txt").exists()


async def test_twenty_sessions_stream_at_once_to_five_tabs_each_change_once_and_in_order(
    tmp_path: Path,
):
    pieces = tuple(f"piece {number} " for number in range(200))
    async with ProviderServer(script(FakeReply(text=pieces))) as provider:
        async with web_server(provider, tmp_path) as server:
            sessions = await create_sessions(server, 20)
            texts = await asyncio.gather(*(watch(server, one, 5) for one in sessions))
    expected = "".join(pieces).strip()
    for text in (one for group in texts for one in group):
        assert expected in text
        assert text.count("piece 199") == 1


async def watch(server: WebServer, session: str, tabs: int) -> list[str]:
    """Send a message in one tab; what each tab shows in the end."""

    async def follow(is_first: bool) -> str:
        async with open_tab(server, session) as tab:
            await tab.receive()
            if is_first:
                await tab.send(do="send", text="go", id="1")
            await tab.wait_until(lambda one: "piece 199" in one.text and not one.regions["now"])
            assert tab.versions == sorted(set(tab.versions))
            return tab.text

    return await asyncio.gather(*(follow(not number) for number in range(tabs)))


async def create_sessions(server: WebServer, count: int) -> list[str]:
    async with server.client() as client:
        answers = [(await client.post("/new")).json() for _ in range(count)]
    return [answer["session"] for answer in answers]


async def wait_for_question(tab: TabClient) -> int:
    await tab.wait_until(lambda one: "data-question" in one.regions.get("questions", ""))
    html = tab.regions["questions"]
    return int(html.partition('data-question="')[2].partition('"')[0])

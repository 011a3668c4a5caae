"""Who may use the page: everything else is refused, over real HTTP and WebSocket connections."""

import asyncio
from pathlib import Path

import httpx
import pytest
import websockets

from tests.apps.web.conftest import Site
from tests.apps.web.server import (
    TabClient,
    WebServer,
    needs_chromium,
    open_tab,
    script,
    web_server,
)
from treadle.apps.web.access import PageAccess
from treadle.apps.web.application import build_app
from treadle.apps.web.hub import Hub
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer


async def test_without_the_token_nothing_is_shown(site: Site, tmp_path: Path):
    session = await site.create(tmp_path)
    server = await site.start_server()
    own = {"Host": server.host}
    async with httpx.AsyncClient(base_url=server.local, headers=own) as stranger:
        for path in ("/", f"/session/{session}", "/cost", "/static/work.js", "/?token=wrong"):
            answer = await stranger.get(path)
            assert answer.status_code == 403, path
            assert "treadle web" in answer.text
        assert (await stranger.post("/new", headers={"Origin": server.address})).status_code == 403


async def test_the_link_leads_to_a_cookie_that_holds_no_token_and_scripts_cannot_read(site: Site):
    server = await site.start_server()
    async with httpx.AsyncClient(base_url=server.local) as client:
        answer = await client.get(f"/?token={server.token}", headers={"Host": server.host})
    assert answer.status_code == 303
    assert "token" not in answer.headers["location"]
    cookie = answer.headers["set-cookie"]
    assert server.token not in cookie
    assert "httponly" in cookie.lower()
    assert "samesite=strict" in cookie.lower()


async def test_the_page_has_a_name_of_its_own_and_other_names_are_refused(site: Site):
    server = await site.start_server()
    name = server.host.rpartition(":")[0]
    assert name.endswith(".localhost")
    async with server.client() as client:
        for host in ("evil.example", "127.0.0.1.evil.example", "[::2]", "", "a@b:c", "127.0.0.1"):
            assert (await client.get("/", headers={"Host": host})).status_code == 403, host
        answer = await client.get("/", headers={"Host": f"{name}:9999"})  # a tunnel's port
        assert answer.status_code == 200
        link = f"/?token={server.token}"
        answer = await client.get(link, headers={"Host": "localhost:80"}, follow_redirects=False)
        assert answer.headers["location"] == f"http://{name}:80{link}"
        assert "set-cookie" not in answer.headers


@needs_chromium
async def test_a_server_on_another_port_of_this_machine_gets_no_cookie(site: Site, tmp_path: Path):
    session = await site.create(tmp_path)
    heads: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    async with site.open_page(session) as page:
        await page.wait_for_selector("text=Connected")
        for name in ("127.0.0.1", "localhost", "other.localhost"):
            await page.goto(f"http://{name}:{port}/")
    other.close()
    assert len(heads) >= 3
    assert not [head for head in heads if "cookie:" in head]


async def test_a_new_link_tells_open_tabs_why_they_are_out(site: Site, tmp_path: Path):
    async with ProviderServer(script()) as provider:
        async with web_server(provider, tmp_path) as server:
            session = await server.find_session()
            old_cookie = await server.find_cookie()
        async with web_server(provider, tmp_path) as again:  # the same link: open tabs stay
            assert (again.token, again.host) == (server.token, server.host)
            async with open_tab(again, session, Cookie=old_cookie) as tab:
                assert "--new-link" not in str(await tab.receive())
        async with web_server(provider, tmp_path, "--new-link") as new:
            assert new.token != server.token
            async with open_tab(new, session, Cookie=old_cookie) as tab:
                problem = await tab.receive()
    assert "--new-link" in problem["text"]


async def test_a_mistake_in_the_settings_is_a_sentence_on_every_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
    config = Path.home() / ".treadle/config.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text('modle = "x"\n')
    app = build_app(Hub(tmp_path), PageAccess("token", "page.localhost", "value"))
    own = {"Cookie": "treadle=value", "Origin": "http://page.localhost"}
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://page.localhost") as client:
        page = await client.get("/", headers={**own, "Accept": "text/html"})
        made = await client.post("/new", headers=own)
        large = await client.post("/new", headers=own, content=b"x" * 100_000)
    assert "modle" in page.text
    assert page.headers["content-type"].startswith("text/html")
    assert (made.status_code, "modle" in made.json()["problem"]) == (400, True)
    assert "larger than 4,096 bytes" in large.json()["problem"]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", None])
async def test_a_page_of_another_site_changes_nothing(site: Site, origin: str | None):
    server = await site.start_server()
    async with server.client() as client:
        del client.headers["Origin"]
        headers = {"Origin": origin} if origin is not None else {}
        assert (await client.post("/new", headers=headers)).status_code == 403
        cookie = "; ".join(f"{one.name}={one.value}" for one in client.cookies.jar)
    address = server.address.replace("http", "ws") + "/session/any/socket"
    opening = websockets.connect(
        address,
        additional_headers={"Cookie": cookie, **headers},
        host="127.0.0.1",
        port=server.port,
    )
    with pytest.raises(websockets.InvalidStatus) as refused:
        await opening.__aenter__()
    assert refused.value.response.status_code == 403


async def test_the_pages_run_no_script_but_their_own(site: Site):
    server = await site.start_server()
    async with server.client() as client:
        for path in ("/", "/cost", "/static/work.js"):
            policy = (await client.get(path)).headers["content-security-policy"]
            assert "script-src 'self'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy


async def test_a_message_of_100_mb_closes_its_tab_and_no_other(site: Site, tmp_path: Path):
    session = await site.create(tmp_path)
    async with site.open_tab(session) as good:
        async with site.open_tab(session) as bad:
            with pytest.raises(websockets.ConnectionClosed):
                await send_and_read(bad, "x" * 100_000_000)
        await good.send(do="command", line="/mode plan")
        await good.wait_until(lambda tab: tab.regions.get("mode") == "plan")


async def send_and_read(tab: TabClient, text: str) -> None:
    await tab.send(do="send", text=text, id="1")
    while True:
        await tab.receive()


async def test_an_upload_that_is_too_large_is_refused_with_its_name(site: Site):
    server = await site.start_server()
    async with server.client() as client:
        answer = await client.post("/upload?name=big.bin", content=b"\0" * (33 << 20))
    assert answer.status_code == 400
    assert "big.bin" in answer.json()["problem"]


async def test_a_tab_that_never_reads_does_not_hold_up_the_others(site: Site, tmp_path: Path):
    text = "".join(f"line {number} of a long reply\n\n" for number in range(3_000))
    session = await site.create(tmp_path, FakeReply(text=text))
    async with site.open_tab(session), site.open_tab(session) as reader:
        await reader.send(do="send", text="write much", id="1")
        await reader.wait_until(lambda tab: "line 2999" in tab.text and not tab.regions["now"])


async def test_twenty_tabs_show_the_same(site: Site, tmp_path: Path):
    session = await site.create(tmp_path, FakeReply(text="hello tabs"))
    server = await site.start_server()
    async with open_many(server, session, 20) as tabs:
        await tabs[0].send(do="send", text="greet", id="1")
        for tab in tabs:
            await tab.wait_until(lambda one: "hello tabs" in one.text)
        for tab in tabs:
            await tab.wait_until(lambda one: not one.regions["now"])
        assert len({tab.text for tab in tabs}) == 1


class open_many:  # noqa: N801 - used as a function
    """Several tabs of one session."""

    def __init__(self, server: WebServer, session: str, count: int) -> None:
        self._openings = [open_tab(server, session) for _ in range(count)]

    async def __aenter__(self) -> list[TabClient]:
        return list(await asyncio.gather(*(one.__aenter__() for one in self._openings)))

    async def __aexit__(self, *error: object) -> None:
        await asyncio.gather(*(one.__aexit__(None, None, None) for one in self._openings))


async def test_hostile_text_stays_text(site: Site, tmp_path: Path):
    hostile = (
        '<img src=x onerror="alert(1)"><svg onload=alert(1)> [a](javascript:alert(1)) \u202eabc'
    )
    call = FakeCall("bash", {"command": "echo '<script>alert(2)</script>'"})
    replies = (FakeReply(text=hostile, calls=(call,)), FakeReply(text="`<b>`"))
    session = await site.create(tmp_path, *replies, mode="auto")
    async with site.open_tab(session) as tab:
        await tab.send(do="send", text="<script>alert(0)</script>", id="1")
        await tab.wait_until(lambda one: "&lt;b&gt;" in one.text)
        html = tab.text + "".join(tab.regions.values())
    for dangerous in ("<script", "<img", 'onerror="', "<svg onload", 'href="java', "\u202e"):
        assert dangerous not in html, dangerous


async def test_a_message_that_the_server_does_not_know_gets_an_answer(site: Site, tmp_path: Path):
    messages = ("", "{", "[]", '{"do":"fly"}', '{"do":"send"}', '{"do":"answer","question":"x"}')
    session = await site.create(tmp_path)
    async with site.open_tab(session) as tab:
        for message in (*messages, "\U0001f4a5", b"{}"):
            await tab.send_text(message)
            assert "does not know" in (await tab.wait_for("problem"))["text"], message

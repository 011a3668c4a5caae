"""Logins with OAuth: by a person, kept, refreshed, and used by a session that runs already."""

from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import msgspec
import pytest

from tests.patience import PATIENCE
from tests.tools.mcp.helpers import Log, call
from tests.tools.mcp.oauth_server import OAuthServer
from treadle.core.errors import AuthRequired, ConfigError, ToolError
from treadle.tools.mcp import McpServer
from treadle.tools.mcp.auth.token_store import LoginRecord, TokenStore
from treadle.tools.mcp.client_options import McpClientOptions


class Browser:
    """A person with a browser: opens the link and follows the redirect, or copies its address."""

    def __init__(self, *, on_this_machine: bool = True) -> None:
        self._is_here = on_this_machine
        self.copied: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.pages: list[str] = []

    async def show_link(self, url: str) -> None:
        async with httpx2.AsyncClient(follow_redirects=False) as http:
            back = (await http.get(url)).headers["location"]
            if self._is_here:
                self.pages.append((await http.get(back)).text)
            else:
                self.copied.set_result(back)

    async def paste(self) -> str:
        return await self.copied


@asynccontextmanager
async def far(
    url: str, store: TokenStore, **config: object
) -> AsyncIterator[tuple[McpServer, Log]]:
    log = Log()
    options = McpClientOptions(tokens=store)
    server = McpServer(
        "far", {"url": url, **config}, options=options, on_change=log, delays=(0.0,), required=False
    )
    await server.open()
    try:
        yield server, log
    finally:
        await server.aclose()


@pytest.fixture
def store(own_place: Path) -> TokenStore:
    return TokenStore(own_place / "treadle" / "logins.json")


async def test_a_person_logs_in_with_a_browser_on_this_machine(store: TokenStore):
    web, browser = OAuthServer(), Browser()
    async with web.open() as url, far(url, store) as (server, log):
        assert "treadle mcp login far" in (await log.until("login")).problem
        assert await server.log_in(browser.show_link)
        assert (await call(server, "hello")).content == "hello"
    assert "You can close this page" in browser.pages[0]
    assert stat.S_IMODE(store.file.stat().st_mode) == 0o600
    form = web.token_requests[0]
    assert form["resource"] == url
    assert form["code_verifier"]


async def test_over_ssh_the_address_of_the_redirect_is_pasted(store: TokenStore):
    web, browser = OAuthServer(), Browser(on_this_machine=False)
    async with web.open() as url, far(url, store) as (server, _):
        assert await server.log_in(browser.show_link, browser.paste)


async def test_a_login_in_another_terminal_is_used_by_the_next_call(store: TokenStore):
    web, browser = OAuthServer(), Browser()
    async with web.open() as url, far(url, store) as (server, log):
        await log.until("login")
        elsewhere = McpServer(
            "far", {"url": url}, options=McpClientOptions(tokens=store), required=False
        )
        await elsewhere.log_in(browser.show_link)
        server.retry()
        await log.until("up")
        web.accepted = "none any more"
        web.refuses_refresh = True
        with pytest.raises(AuthRequired):
            await call(server, "hello")
        await log.until("login", after=len(log.seen) - 1)
        web.refuses_refresh = False
        await elsewhere.log_in(Browser().show_link)
        assert (await call(server, "hello")).content == "hello"


async def test_a_token_that_ended_is_refreshed_after_a_restart_without_a_person(
    store: TokenStore,
):
    web, browser = OAuthServer(), Browser()
    async with web.open() as url:
        async with far(url, store) as (server, _):
            await server.log_in(browser.show_link)
        record = store.load("far", url)
        assert record is not None
        store.save("far", url, msgspec.structs.replace(record, expires_at=time.time() - 5))
        web.seen.clear()
        async with far(url, store) as (server, _):
            assert await server.wait_ready()
            assert (await call(server, "hello")).content == "hello"
    assert [form["grant_type"] for form in web.token_requests][1:] == ["refresh_token"]
    assert web.token_requests[1]["resource"] == url
    assert "POST /register" not in web.seen


async def test_a_token_that_was_withdrawn_is_refreshed(store: TokenStore):
    web, browser = OAuthServer(), Browser()
    async with web.open() as url:
        async with far(url, store) as (server, _):
            await server.log_in(browser.show_link)
        web.accepted = "another"
        async with far(url, store) as (server, _):
            assert await server.wait_ready()
    assert [form["grant_type"] for form in web.token_requests][1:] == ["refresh_token"]


async def test_the_user_says_no(store: TokenStore):
    web = OAuthServer()

    async def refuse(url: str) -> None:
        return None

    async def paste() -> str:
        return "http://127.0.0.1/callback?error=access_denied&error_description=not+you"

    async with web.open() as url, far(url, store) as (server, _):
        with pytest.raises(ToolError, match="the login to far failed: the login was refused: not"):
            await server.log_in(refuse, paste)


async def test_a_port_that_is_taken_is_said(store: TokenStore):
    async with OAuthServer().open() as url:
        port = int(url.split(":")[2].split("/")[0])
        async with far(url, store, oauth={"callbackPort": port}) as (server, _):
            with pytest.raises(ToolError, match="is not free"):
                await server.log_in(Browser().show_link)


async def test_a_program_has_no_login(own_place: Path):
    async def start(*_: object, **__: object) -> None: ...

    server = McpServer("near", {"command": "x"}, start=start)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has no login"):
        await server.log_in(Browser().show_link)


class Ring:
    """A keyring in memory."""

    def __init__(self, *, broken: bool = False) -> None:
        self.kept: dict[str, str] = {}
        self._broken = broken

    def get_password(self, service: str, name: str) -> str | None:
        return self.kept.get(name)

    def set_password(self, service: str, name: str, secret: str) -> None:
        if self._broken:
            raise OSError("locked")
        self.kept[name] = secret

    def delete_password(self, service: str, name: str) -> None:
        del self.kept[name]


def test_tokens_are_in_the_keyring_where_there_is_one(own_place: Path):
    ring = Ring()
    store = TokenStore(own_place / "logins.json", lambda: ring)
    record = LoginRecord(tokens={"access_token": "secret"})
    store.save("a", "http://a", record)
    assert "secret" not in store.file.read_text()
    assert store.load("a", "http://a") == record
    assert store.load("a", "http://other") is None
    assert store.has_login("a", "http://a")
    assert store.remove("a", "http://a")
    assert not store.remove("a", "http://a")
    assert ring.kept == {}


def test_a_keyring_that_fails_leaves_the_file(own_place: Path):
    store = TokenStore(own_place / "logins.json", lambda: Ring(broken=True))
    store.save("a", "http://a", LoginRecord(tokens={"access_token": "secret"}))
    assert store.load("a", "http://a") == LoginRecord(tokens={"access_token": "secret"})
    assert stat.S_IMODE(store.file.stat().st_mode) == 0o600


def test_a_broken_file_of_logins_says_what_to_do(own_place: Path):
    file = own_place / "logins.json"
    for text in ("{", "[]"):
        file.write_text(text)
        with pytest.raises(ConfigError, match="remove it and log in again"):
            TokenStore(file).load("a", "http://a")


class RotatingServer(OAuthServer):
    """A refresh token works once; a used one revokes the login, as OAuth 2.1 asks for (4.3.1)."""

    newest = ""
    is_revoked = False

    def _issue(self, form: dict[str, str]) -> tuple[str, str, object]:
        if form.get("refresh_token", self.newest) != self.newest:
            self.is_revoked, self.accepted = True, ""
        status, more, answer = super()._issue(form)
        if self.is_revoked:
            return "400 Bad Request", "", {"error": "invalid_grant"}
        self.newest = f"refresh-{len(self.token_requests)}"
        return status, more, {**answer, "refresh_token": self.newest}


async def test_two_programs_with_one_login_refresh_it_once(store: TokenStore):
    """When the tokens that both hold expire, one refreshes and the other takes what it got."""
    web, browser = RotatingServer(), Browser()
    web.expires_in = 1
    async with web.open() as url, far(url, store) as (one, _):
        assert await one.log_in(browser.show_link)
        async with far(url, TokenStore(store.file)) as (other, _):
            async with asyncio.timeout(PATIENCE):
                while len(web.token_requests) < 4:
                    answers = await asyncio.gather(call(one, "hello"), call(other, "hello"))
                    assert [answer.content for answer in answers] == ["hello", "hello"]
    assert not web.is_revoked
    used = [form.get("refresh_token") for form in web.token_requests]
    assert len(used) == len(set(used))

"""One server, one provider and one browser for all tests of a worker, in one event loop.

A test gets a session in a folder of its own, and a fresh browser context. What the model says is
found by the folder, which every request names.
"""

from __future__ import annotations

import asyncio
import inspect
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.apps.web.browser import SCREENSHOTS
from tests.apps.web.server import (
    CHROMIUM,
    TabClient,
    WebServer,
    open_tab,
    web_server,
)
from tests.patience import PATIENCE
from treadle.sessions import Library
from treadle.testing.provider import FakeReply, ProviderServer, ReceivedRequest

expect.set_options(timeout=PATIENCE * 1_000)


class Site:
    """What the tests share. `server` has its own home and runs until the last test."""

    def __init__(self, place: Path) -> None:
        self.folder = place / "site"
        self.folder.mkdir()
        self._home = {"HOME": str(place), "XDG_DATA_HOME": str(place / "data")}
        self.library = Library(place / "data" / "treadle" / "sessions")
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._replies: dict[str, Sequence[FakeReply]] = {}
        self._server: WebServer | None = None
        self._browser: Browser | None = None

    def run(self, test: Any) -> Any:
        return self._runner.run(test)

    def close(self) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()

    async def start_server(self) -> WebServer:
        if self._server is None:
            provider = await self._stack.enter_async_context(ProviderServer(self._pick_reply))
            starting = web_server(provider, self.folder, **self._home)
            self._server = await self._stack.enter_async_context(starting)
        return self._server

    def _pick_reply(self, request: ReceivedRequest) -> FakeReply:
        """The reply of the script of this folder, by the number of replies before."""
        messages: Any = request.json["messages"]
        number = len([one for one in messages if one["role"] == "assistant"])
        text = request.body.decode()
        [replies] = [replies for folder, replies in self._replies.items() if folder in text]
        return replies[number]

    async def create(self, folder: Path, *replies: FakeReply, mode: str = "") -> str:
        """A new session in the folder, in which the model says this."""
        self._replies[f"{folder}\\n"] = replies or (FakeReply(text="hello"),)
        server = await self.start_server()
        async with server.client() as client:
            answer = await client.post("/new", content=str(folder))
            session: str = answer.json()["session"]
        if mode:
            async with open_tab(server, session) as tab:
                await tab.send(do="command", line=f"/mode {mode}")
                await tab.wait_until(lambda one: one.regions.get("mode") == mode)
        return session

    @asynccontextmanager
    async def open_tab(self, session: str, **options: Any) -> AsyncIterator[TabClient]:
        """A tab that shows the session."""
        async with open_tab(await self.start_server(), session, **options) as tab:
            if "have" not in options:
                await tab.wait_until(lambda one: bool(one.regions))
            yield tab

    @asynccontextmanager
    async def open_page(
        self,
        session: str,
        size: tuple[int, int] = (1440, 900),
        server: WebServer | None = None,
        **options: Any,
    ) -> AsyncIterator[Page]:
        """The session in a real browser. Whatever it reports as an error fails the test."""
        problems: list[str] = []
        server = server or await self.start_server()
        browser = await self._start_browser()
        viewport = {"width": size[0], "height": size[1]}
        context = await browser.new_context(viewport=viewport, **options)  # type: ignore[arg-type]
        try:
            page = await context.new_page()
            page.set_default_timeout(PATIENCE * 1_000)
            page.on("pageerror", lambda error: problems.append(str(error)))
            await page.goto(server.link)
            await page.goto(f"{server.address}/session/{session}")
            yield page
        finally:
            await context.close()
        assert not problems, problems

    async def _start_browser(self) -> Browser:
        if self._browser is None:
            playwright = await self._stack.enter_async_context(async_playwright())
            self._browser = await playwright.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
            )
            self._stack.push_async_callback(self._browser.close)
        return self._browser


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="treadle-site-") as place:
        shared = Site(Path(place).resolve())
        yield shared
        shared.close()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """The folder of a session of which a picture is taken: its path is seen there."""
    if not SCREENSHOTS:
        yield tmp_path
        return
    folder = Path(tempfile.gettempdir(), "durations")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the tests that use the site in its event loop."""
    shared = pyfuncitem.funcargs.get("site")
    if not isinstance(shared, Site) or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    shared.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True

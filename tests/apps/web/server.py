"""The page's server as a process of its own, and a client that speaks as a tab does."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import websockets

from tests.apps.program import finish, start
from tests.patience import PATIENCE
from treadle.testing.provider import FakeReply, ProviderServer, ReplyScript

MODEL = "anthropic/claude-sonnet-5-5"
_TLS = ssl.create_default_context()  # slow to make; these connections do not use it
CHROMIUM = shutil.which("chromium") or ""
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="there is no chromium here")


class WebServer:
    """A server that runs. `link` is what it printed."""

    def __init__(self, process: asyncio.subprocess.Process, link: str) -> None:
        self.process = process
        self.link = link
        self.address = "/".join(link.split("/")[:3])
        self.token = link.partition("?token=")[2]
        self.host = self.address.removeprefix("http://")  # a name that only browsers know
        self.port = int(self.host.rpartition(":")[2])
        self.local = f"http://127.0.0.1:{self.port}"
        self._cookies = httpx.Cookies()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client that has opened the link."""
        async with httpx.AsyncClient(
            base_url=self.local,
            follow_redirects=True,
            headers={"Origin": self.address, "Host": self.host},
            cookies=self._cookies,
            timeout=PATIENCE,
            verify=_TLS,
        ) as client:
            if not self._cookies:
                await client.get(f"/?token={self.token}", follow_redirects=False)
                self._cookies = client.cookies
            yield client

    async def find_cookie(self) -> str:
        """The header of a tab that has opened the link."""
        if not self._cookies:
            async with self.client():
                pass
        return "; ".join(f"{one.name}={one.value}" for one in self._cookies.jar)

    async def find_session(self) -> str:
        """The session that the first page shows."""
        async with self.client() as client:
            return str((await client.get("/")).url).rpartition("/")[2]

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


def script(*replies: FakeReply) -> ReplyScript:
    """What the model says, in every session anew."""
    return ReplyScript(replies or (FakeReply(text="hello"),), by="turn")


@asynccontextmanager
async def web_server(
    provider: ProviderServer, folder: Path, *more: str, **environment: Any
) -> AsyncIterator[WebServer]:
    arguments = ("web", str(folder), "--model", MODEL, *more)
    process = await start(provider, *arguments, cwd=folder, **environment)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            line = (await process.stdout.readline()).decode()
        assert "http" in line, (await finish(process)).err
        yield WebServer(process, line.split()[-1])
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), PATIENCE)


class TabClient:
    """A tab without a browser: applies the updates as the page does."""

    def __init__(self, socket: websockets.ClientConnection) -> None:
        self._socket = socket
        self.blocks: dict[int, str] = {}
        self.regions: dict[str, str] = {}
        self.position: list[Any] | None = None
        self.versions: list[int] = []
        self.messages: list[dict[str, Any]] = []

    async def send(self, **request: Any) -> None:
        await self.send_text(msgspec.json.encode(request).decode())

    async def send_text(self, text: str | bytes) -> None:
        await self._socket.send(text)

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            message: dict[str, Any] = msgspec.json.decode(await self._socket.recv())
        if message["kind"] == "update":
            self._apply(message)
        else:
            self.messages.append(message)
        return message

    def _apply(self, update: dict[str, Any]) -> None:
        if update.get("is_reset"):
            self.blocks, self.regions = {}, {}
        self.blocks |= dict(update.get("blocks", []))
        self.blocks = {at: html for at, html in self.blocks.items() if at < update["count"]}
        self.regions |= update.get("regions", {})
        self.position = update["position"]
        self.versions.append(update["position"][1])

    async def wait_until(self, is_there: Callable[[TabClient], bool]) -> None:
        while not is_there(self):
            await self.receive()

    async def wait_for(self, kind: str) -> dict[str, Any]:
        """The next message of this kind."""
        while True:
            message = await self.receive()
            if message["kind"] == kind:
                return message
            assert message["kind"] != "problem", message["text"]

    @property
    def text(self) -> str:
        return "".join(self.blocks[index] for index in sorted(self.blocks))


@asynccontextmanager
async def open_tab(
    server: WebServer, session: str, have: list[Any] | None = None, **headers: str
) -> AsyncIterator[TabClient]:
    cookie = await server.find_cookie()
    address = server.address.replace("http", "ws") + f"/session/{session}/socket"
    if have is not None:
        address += "?have=" + msgspec.json.encode(have).decode()
    given = {"Origin": server.address, "Cookie": cookie, **headers}
    async with websockets.connect(
        address,
        additional_headers=given,
        max_size=None,
        open_timeout=PATIENCE,
        host="127.0.0.1",
        port=server.port,
    ) as socket:
        yield TabClient(socket)

"""Logging in to a server at a URL: a link for the browser, and the redirect that comes back.

The redirect goes to a port of this machine; where the browser runs elsewhere (ssh), the person
pastes the address that it could not open. Used by McpServer.log_in, which connects once: so the SDK
goes through the flow of oauth.py, which leaves the tokens in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from treadle.core.errors import ToolError
from treadle.lib.http.local_hosts import LOOPBACK
from treadle.lib.http.loopback_server import LoopbackServer, PageAnswer, PageRequest

LOGIN_TIMEOUT = 600.0
CALLBACK_PATH = "/callback"
_PAGE = (
    "<!doctype html><meta charset=utf-8><title>Treadle</title>"
    "<p>The login is complete. You can close this page and return to the terminal."
)

ShowLink = Callable[[str], Awaitable[None]]
ReadPaste = Callable[[], Awaitable[str]]


class LoopbackLogin:
    """A PersonLogin whose redirect arrives at a port of this machine, or is pasted."""

    def __init__(self, show_link: ShowLink, read_paste: ReadPaste | None) -> None:
        self.redirect_uri = ""
        self._show_link, self._read_paste = show_link, read_paste
        self._arrived: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def show_link(self, url: str) -> None:
        if self._arrived.done():  # a second round, for more scopes
            self._arrived = asyncio.get_running_loop().create_future()
        await self._show_link(url)

    async def wait_redirect(self) -> str:
        if self._read_paste is None:
            return await self._arrived
        paste = asyncio.ensure_future(self._read_paste())
        try:
            await asyncio.wait([paste, self._arrived], return_when=asyncio.FIRST_COMPLETED)
            return self._arrived.result() if self._arrived.done() else paste.result()
        finally:
            paste.cancel()

    async def answer(self, request: PageRequest) -> PageAnswer:
        """One request of a browser."""
        if request.method != "GET" or urlsplit(request.path).path != CALLBACK_PATH:
            return PageAnswer("404 Not Found", "not found")
        if not self._arrived.done():
            self._arrived.set_result(request.path)
        return PageAnswer("200 OK", _PAGE)


@asynccontextmanager
async def open_loopback(
    port: int, show_link: ShowLink, read_paste: ReadPaste | None = None
) -> AsyncIterator[LoopbackLogin]:
    """Listen for the redirect. Port 0 is any free one."""
    login = LoopbackLogin(show_link, read_paste)
    server = LoopbackServer(login.answer)
    try:
        await server.start(port)
    except OSError as error:
        raise ToolError(
            f"the port {port} for the redirect of the login is not free ({error.strerror}); "
            "end the program that uses it, or set another callbackPort"
        ) from error
    try:
        login.redirect_uri = f"http://{LOOPBACK}:{server.port}{CALLBACK_PATH}"
        yield login
    finally:
        await server.aclose()

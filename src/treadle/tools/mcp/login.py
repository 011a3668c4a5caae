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

    def __init__(self, port: int, show_link: ShowLink, read_paste: ReadPaste | None) -> None:
        self.redirect_uri = f"http://127.0.0.1:{port}{CALLBACK_PATH}"
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

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request of a browser."""
        try:
            async with asyncio.timeout(10):
                line = (await reader.readline()).decode("latin-1").split(" ")
                target = line[1] if len(line) == 3 else ""
                is_ours = line[0] == "GET" and urlsplit(target).path == CALLBACK_PATH
                body = _PAGE if is_ours else "not found"
                status = "200 OK" if is_ours else "404 Not Found"
                head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nConnection: close\r\n"
                length = f"Content-Length: {len(body)}\r\n\r\n"
                writer.write((head + length + body).encode())
                await writer.drain()
                if is_ours and not self._arrived.done():
                    self._arrived.set_result(target)
        except (TimeoutError, OSError, ValueError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def open_loopback(
    port: int, show_link: ShowLink, read_paste: ReadPaste | None = None
) -> AsyncIterator[LoopbackLogin]:
    """Listen for the redirect. Port 0 is any free one."""
    login: LoopbackLogin | None = None
    answers: set[asyncio.Task[None] | None] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers.add(asyncio.current_task())
        assert login is not None
        await login.answer(reader, writer)

    try:
        server = await asyncio.start_server(answer, "127.0.0.1", port)
    except OSError as error:
        raise ToolError(
            f"the port {port} for the redirect of the login is not free ({error.strerror}); "
            "end the program that uses it, or set another callbackPort"
        ) from error
    try:
        login = LoopbackLogin(server.sockets[0].getsockname()[1], show_link, read_paste)
        yield login
    finally:
        server.close()
        left = [task for task in answers if task is not None and not task.done()]
        for task in left:  # a browser may keep a connection open that it does not use
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

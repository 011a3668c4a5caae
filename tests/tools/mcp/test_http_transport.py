from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.tools.mcp.helpers import Log, call, served, workspace
from treadle import Agent, Finished
from treadle.core.errors import AuthRequired, ToolError
from treadle.core.events import AuthenticationRequired
from treadle.core.transcript import ToolResultItem
from treadle.models import Say, Scripted
from treadle.models.scripted import ScriptElement
from treadle.testing.observers import RecordingObserver
from treadle.tools.mcp import McpServer

SDK = str(Path(__file__).with_name("sdk_server.py"))


TOOLS = ("hello", "big", "deep", "half", "flood")


def answer_with(number: int, text: str) -> bytes:
    """The response to a call, with this JSON text between the quotes."""
    head = (
        b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [{"type": "text", "text": "' % number
    )
    return head + text.encode() + b'"}]}}'


class Web:
    """An HTTP server that speaks just enough of the protocol, and misbehaves on demand."""

    def __init__(self) -> None:
        self.key = ""  # what Authorization has to be, if anything
        self.seen: list[dict[str, str]] = []
        self.session = "s1"
        self.port = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{self.port}/mcp"
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.seen.append(headers)
            status, answer = self._answer(head[0], headers, body)
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            kind = "text/event-stream" if data.startswith(b"data:") else "application/json"
            more = 'WWW-Authenticate: Bearer realm="here"\r\n' if status.startswith("401") else ""
            if b'"initialize"' in body:
                more += f"Mcp-Session-Id: {self.session}\r\n"
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n"
                f"{more}Content-Length: {len(data)}\r\n\r\n".encode()
            )
            writer.write(data)
            await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    def _answer(self, line: str, headers: dict[str, str], body: bytes) -> tuple[str, Any]:
        if self.key and headers.get("authorization") != self.key.lower():
            return "401 Unauthorized", {}
        if not line.startswith("POST"):
            return "405 Method Not Allowed", {}
        message = json.loads(body)
        method, number = message["method"], message.get("id")
        if headers.get("mcp-session-id", self.session) != self.session:
            return "404 Not Found", b""
        if number is None:
            return "202 Accepted", b""
        match method:
            case "initialize":
                info = {"name": "web", "version": "1"}
                result: Any = {"protocolVersion": "2025-06-18", "serverInfo": info,
                               "capabilities": {"tools": {}}}  # fmt: skip
            case "tools/list":
                tool = {"inputSchema": {"type": "object"}}
                result = {"tools": [{**tool, "name": name} for name in TOOLS]}
            case "tools/call" if message["params"]["name"] == "big":
                return "200 OK", b'{"x": "' + b"x" * 20_000_000 + b'"}'
            case "tools/call" if message["params"]["name"] == "half":
                return "200 OK", answer_with(number, message["params"]["arguments"]["json"])
            case "tools/call" if message["params"]["name"] == "flood":
                log = {"level": "info", "data": "line"}
                line = json.dumps(
                    {"jsonrpc": "2.0", "method": "notifications/message", "params": log}
                )
                last = answer_with(number, "after \\ud83d")
                return "200 OK", b"data: %b\n\n" % line.encode() * 50_000 + b"data: %b\n\n" % last
            case "tools/call" if message["params"]["name"] == "deep":
                levels = message["params"]["arguments"]["levels"]
                inner = b'"structuredContent": {"a": ' + b"[" * levels + b"]" * levels + b"}"
                head = b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [], ' % number
                return "200 OK", head + inner + b"}}"
            case "tools/call":
                result = {"content": [{"type": "text", "text": "hello from afar"}]}
            case _:
                error = {"code": -32601, "message": "not found"}
                return "200 OK", {"jsonrpc": "2.0", "id": number, "error": error}
        return "200 OK", {"jsonrpc": "2.0", "id": number, "result": result}


@asynccontextmanager
async def far(url: str, **options: Any) -> AsyncIterator[tuple[McpServer, Log]]:
    log = Log()
    config = {"url": url, "headers": {"X-Team": "looms"}}
    server = McpServer(
        "far", config, on_change=log, **{"delays": (0.0,) * 3, "required": False, **options}
    )
    await server.open()
    try:
        yield server, log
    finally:
        await server.aclose()


async def test_a_server_at_an_address_is_called_with_its_headers():
    web = Web()
    async with web.open() as url, far(url) as (server, _):
        assert await server.wait_ready()
        assert (await call(server, "hello")).content == "hello from afar"
    assert {headers.get("x-team") for headers in web.seen} == {"looms"}


async def test_a_server_that_wants_a_login_waits_for_it():
    web = Web()
    web.key = "Bearer k2"
    given = {"Authorization": "Bearer k1"}
    async with web.open() as url, far(url, headers=lambda: given) as (server, log):
        status = await log.until("login")
        assert "treadle mcp login far" in status.problem
        assert server.tools() == ()
        given["Authorization"] = "Bearer k2"
        server.retry()
        await log.until("up")
        web.key = "Bearer k3"
        with pytest.raises(AuthRequired, match='realm="here"'):
            await call(server, "hello")
        await log.until("login", after=len(log.seen))
        given["Authorization"] = "Bearer k3"
        assert (await call(server, "hello")).content == "hello from afar"


async def test_the_host_answers_a_login_outside_of_the_turn_and_the_next_call_connects():
    web = Web()
    seen = RecordingObserver()
    script: list[ScriptElement] = [
        Say(calls=[("mcp__far__hello", {})]),
        "No login.",
        Say(calls=[("mcp__far__hello", {})]),
        "Done.",
    ]
    async with web.open() as url, far(url) as (server, _):
        assert await server.wait_ready()
        driver = Agent(Scripted(script), [server]).start(prompt="say hello")
        driver.watch(seen)
        web.key = "Bearer k9"
        await driver.next()
        assert isinstance(await driver.next(), Finished)
        needs = {"server": "far", "url": url, "challenge": 'Bearer realm="here"'}
        failed = driver.transcript[2]
        assert isinstance(failed, ToolResultItem)
        assert failed.data == {"auth_required": needs}
        (event,) = [one for one in seen.events if isinstance(one, AuthenticationRequired)]
        assert (event.call_id, event.server, event.url) == (failed.call_id, "far", url)

        assert not await server.authenticate(token="wrong")
        assert await server.authenticate(token="k9")
        driver.submit("again")
        await driver.next()
        await driver.next()
        result = driver.transcript[-2]
        assert isinstance(result, ToolResultItem)
        assert result.text == "hello from afar"


async def test_a_new_login_replaces_the_connection_that_is_up():
    web = Web()
    async with web.open() as url, far(url) as (server, _):
        assert await server.wait_ready()
        assert await server.authenticate({"X-Key": "one"})
        assert web.seen[-1]["x-key"] == "one"


async def test_a_session_that_was_forgotten_is_begun_anew():
    web = Web()
    async with web.open() as url, far(url) as (server, _):
        await server.wait_ready()
        web.session = "s2"
        with pytest.raises(ToolError, match="Session terminated"):
            await call(server, "hello")
        assert (await call(server, "hello")).content == "hello from afar"


async def test_an_answer_without_end_is_not_kept():
    web = Web()
    async with web.open() as url, far(url) as (server, _):
        await server.wait_ready()
        with pytest.raises(ToolError, match="longer than 16 MiB"):
            await call(server, "big")


async def test_an_answer_that_is_nested_too_deep_fails_its_call_at_once():
    web = Web()
    async with web.open() as url, far(url) as (server, _):
        await server.wait_ready()
        assert (await call(server, "deep", levels=100)).content
        for levels in (400, 900, 5_000, 100_000):
            with pytest.raises(ToolError, match="recursion limit"):
                await call(server, "deep", levels=levels)
        assert (await call(server, "hello")).content == "hello from afar"


@pytest.mark.parametrize(
    ("json_text", "seen"),
    [
        (r"a \ud83d b", "a \ufffd b"),
        (r"a \uDE00", "a \ufffd"),
        (r"\ud83d\ude00 \\ud83d", "\U0001f600 \\ud83d"),
        (r"\ud83d\ud83d\ude00\\\ud83d", "\ufffd\U0001f600\\\ufffd"),
    ],
)
async def test_half_an_emoji_in_an_answer_is_replaced(json_text: str, seen: str):
    async with Web().open() as url, far(url) as (server, _):
        assert (await call(server, "half", json=json_text)).content == seen


async def test_of_a_flood_of_log_lines_only_a_part_is_read():
    async with Web().open() as url, far(url) as (server, _):
        assert (await call(server, "flood")).content == "after \ufffd"
        assert len(server.logs) <= 500
        assert (await call(server, "hello")).content == "hello from afar"


async def test_an_unreachable_address_is_reported():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        async with far(url) as (_, log):
            assert "connect" in (await log.until("failed")).problem.lower()


async def test_a_server_that_goes_away_and_comes_back_is_found_again():
    web = Web()
    async with web.open() as url:
        pass
    async with far(url) as (server, log):
        await log.until("failed")
        async with web.open():
            server.retry()
            await log.until("up")
        with pytest.raises(ToolError, match="hello was not called: no server answers at"):
            await call(server, "hello")
        await log.until("failed", after=len(log.seen))
        async with web.open():
            assert (await call(server, "hello")).content == "hello from afar"


async def test_a_server_of_the_official_sdk_over_http(own_place: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with workspace(own_place) as place:
        web = await place.spawn([sys.executable, SDK, "http", str(port)], {})
        async with far(f"http://127.0.0.1:{port}/mcp", delays=(0.2,) * 100) as (server, log):
            await log.until("up")
            assert (await call(server, "add", a=20, b=22)).content == "42"
            seen_before = len(log.seen)
            await call(server, "grow")
            await log.until("up", after=seen_before)
            assert (await call(server, "grown")).content == "new"
        await web.kill_and_wait()


async def test_a_server_may_be_near_and_far_at_once(own_place: Path):
    web = Web()
    async with web.open() as url, far(url) as (remote, _), served(own_place) as near:
        await asyncio.gather(remote.wait_ready(), near.wait_ready())
        answers = await asyncio.gather(call(remote, "hello"), call(near, "echo", text="near"))
    assert [answer.content for answer in answers] == ["hello from afar", "near"]


async def test_a_server_that_dies_is_known_as_down_without_a_call(own_place: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with workspace(own_place) as place:
        web = await place.spawn([sys.executable, SDK, "http", str(port)], {})
        url = f"http://127.0.0.1:{port}/mcp"
        async with far(url, delays=(0.2,) * 200, call_wait=0.0) as (server, log):
            await log.until("up")
            seen_before = len(log.seen)
            await web.kill_and_wait()
            down = await log.until("down", after=seen_before)
            assert "no server answers at" in down.problem
            assert server.tools()
            with pytest.raises(ToolError, match="add was not called"):
                await call(server, "add", a=1, b=2)

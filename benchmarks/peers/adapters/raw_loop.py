"""Loops written by hand, without an SDK: what the others are compared with.

Variants are HTTP clients: aiohttp and httpx with a plain history, which is encoded whole for each
request as such scripts do, and `treadle`: Treadle's own client, each message encoded once. The last
one is the least that an agent over this client can cost. Anthropic Messages in all of them.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

HEADERS = {"content-type": "application/json", "x-api-key": "k", "anthropic-version": "2023-06-01"}


class Engine:
    def __init__(self, task: Any) -> None:
        self._tool = task.make_tool()
        self._url = task.url + "/v1/messages"
        spec = {
            "name": task.tool_name,
            "description": task.description,
            "input_schema": task.schema,
        }
        self._fields = {
            "model": "claude-sonnet-5-5",
            "max_tokens": 1000,
            "system": task.instructions,
            "tools": [spec],
            "stream": True,
        }
        self._client = CLIENTS[task.variant]()
        self._history = EncodedOnce if task.variant == "treadle" else History

    async def run(self) -> int:
        history = self._history(self._fields)
        history.append({"role": "user", "content": "go"})
        seen = 0
        while True:
            reply = Reply()
            buffer = b""
            async for piece in self._client.post(self._url, history.encode()):
                *lines, buffer = (buffer + piece).split(b"\n")
                for line in lines:
                    if line.startswith(b"data:"):
                        reply.add(json.loads(line[5:]))
            blocks = reply.finish()
            seen += reply.deltas
            history.append({"role": "assistant", "content": blocks})
            calls = [block for block in blocks if block["type"] == "tool_use"]
            if not calls:
                return seen
            results = await asyncio.gather(*(self._tool(**call["input"]) for call in calls))
            answers = [
                {"type": "tool_result", "tool_use_id": call["id"], "content": str(result)}
                for call, result in zip(calls, results, strict=True)
            ]
            history.append({"role": "user", "content": answers})

    async def aclose(self) -> None:
        await self._client.aclose()


class History:
    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields
        self._messages: list[dict[str, Any]] = []

    def append(self, message: dict[str, Any]) -> None:
        self._messages.append(message)

    def encode(self) -> bytes:
        return json.dumps({**self._fields, "messages": self._messages}).encode()


class EncodedOnce(History):
    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self._data = bytearray(json.dumps(fields)[:-1].encode() + b', "messages": [')
        self._is_empty = True

    def append(self, message: dict[str, Any]) -> None:
        self._data += (b"" if self._is_empty else b", ") + json.dumps(message).encode()
        self._is_empty = False

    def encode(self) -> bytes:
        return bytes(self._data) + b"]}"


class Reply:
    """The blocks of a reply, put together from its events."""

    def __init__(self) -> None:
        self._blocks: list[dict[str, Any]] = []
        self._pieces: list[list[str]] = []
        self.deltas = 0

    def add(self, event: dict[str, Any]) -> None:
        if event["type"] == "content_block_delta":
            delta = event["delta"]
            if delta["type"] == "text_delta":
                self._pieces[-1].append(delta["text"])
                self.deltas += 1
            else:
                self._pieces[-1].append(delta["partial_json"])
        elif event["type"] == "content_block_start":
            self._blocks.append(event["content_block"])
            self._pieces.append([])

    def finish(self) -> list[dict[str, Any]]:
        for block, pieces in zip(self._blocks, self._pieces, strict=True):
            if block["type"] == "text":
                block["text"] = "".join(pieces)
            else:
                block["input"] = json.loads("".join(pieces) or "{}")
        return self._blocks


class AiohttpClient:
    _session: Any = None

    async def post(self, url: str, body: bytes) -> AsyncIterator[bytes]:
        import aiohttp

        if self._session is None:
            connector = aiohttp.TCPConnector(limit=1000)
            self._session = aiohttp.ClientSession(connector=connector, read_bufsize=2**18)
        async with self._session.post(url, data=body, headers=HEADERS) as response:
            response.raise_for_status()
            async for piece in response.content.iter_any():
                yield piece

    async def aclose(self) -> None:
        await self._session.close()


class HttpxClient:
    def __init__(self) -> None:
        import httpx

        limits = httpx.Limits(max_connections=1000, max_keepalive_connections=1000)
        self._client = httpx.AsyncClient(timeout=600, limits=limits)

    async def post(self, url: str, body: bytes) -> AsyncIterator[bytes]:
        async with self._client.stream("POST", url, content=body, headers=HEADERS) as response:
            response.raise_for_status()
            async for piece in response.aiter_bytes():
                yield piece

    async def aclose(self) -> None:
        await self._client.aclose()


class TreadleClient:
    def __init__(self) -> None:
        from treadle.lib.http.client import Client

        self._client = Client()

    async def post(self, url: str, body: bytes) -> AsyncIterator[bytes]:
        async with self._client.post(url, HEADERS, body) as response:
            if response.status != 200:
                raise RuntimeError(f"HTTP {response.status}")
            async for piece in response:
                response.mark_content()
                yield piece

    async def aclose(self) -> None:
        await self._client.aclose()


CLIENTS: dict[str, Any] = {
    "aiohttp": AiohttpClient,
    "httpx": HttpxClient,
    "treadle": TreadleClient,
}


def make_in_process(task: Any, turns: int) -> "InProcess":
    return InProcess(task, turns)


class InProcess:
    """The same loop; the model is a local function."""

    def __init__(self, task: Any, turns: int) -> None:
        self._tool = task.make_tool()
        self._turns = turns

    async def run(self) -> int:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
        for turn in range(self._turns + 1):
            arguments = json.loads('{"a": 1, "b": 2}')
            content: list[dict[str, Any]] = [{"type": "text", "text": "word word"}]
            if turn == self._turns:
                messages.append({"role": "assistant", "content": content})
                break
            call = {"type": "tool_use", "id": f"c{turn}", "name": "add", "input": arguments}
            messages.append({"role": "assistant", "content": [*content, call]})
            [result] = await asyncio.gather(self._tool(**arguments))
            answer = {"type": "tool_result", "tool_use_id": f"c{turn}", "content": str(result)}
            messages.append({"role": "user", "content": [answer]})
        return self._turns

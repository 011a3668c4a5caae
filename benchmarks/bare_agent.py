"""The floor of startup.py: the smallest script that has the same talk and runs the same commands.

    python bare_agent.py URL                 asyncio alone: a socket, JSON, a subprocess
    python bare_agent.py URL --httpx         the same over httpx, as such scripts are written

No permissions, no journal, no retries, no limits: only requests, pieces of text, and a shell.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from urllib.parse import urlsplit

TOOLS = [
    {
        "name": "bash",
        "description": "Run a shell command",
        "input_schema": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        },
    }
]
HEADERS = {"content-type": "application/json", "x-api-key": "test"}


async def main(url: str, ask: Any) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    while True:
        body = {"model": "m", "max_tokens": 1000, "messages": messages, "tools": TOOLS}
        blocks: list[dict[str, Any]] = []
        async for line in ask(f"{url}/v1/messages", {**body, "stream": True}):
            take(line, blocks)
        content, results = [], []
        for block in blocks:
            said = "".join(block.pop("parts"))
            if block["type"] == "text":
                block["text"] = said
            else:
                block["input"] = json.loads(said)
                results.append(await answer(block))
            content.append(block)
        messages.append({"role": "assistant", "content": content})
        if not results:
            sys.stdout.write("\n")
            return
        messages.append({"role": "user", "content": results})


def take(line: str, blocks: list[dict[str, Any]]) -> None:
    if not line.startswith("data:"):
        return
    event = json.loads(line[5:])
    if event["type"] == "content_block_start":
        blocks.append({**event["content_block"], "parts": []})
    elif event["type"] == "content_block_delta":
        delta = event["delta"]
        blocks[-1]["parts"].append(delta.get("text") or delta.get("partial_json") or "")
        if "text" in delta:
            sys.stdout.write(delta["text"])
            sys.stdout.flush()


async def answer(block: dict[str, Any]) -> dict[str, Any]:
    process = await asyncio.create_subprocess_shell(
        block["input"]["command"], stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return {"type": "tool_result", "tool_use_id": block["id"], "content": out.decode()}


class Plain:
    """One connection, kept open; chunked answers taken apart by hand."""

    reader: asyncio.StreamReader | None = None

    async def __call__(self, url: str, body: dict[str, Any]) -> Any:
        place = urlsplit(url)
        if self.reader is None:
            self.reader, self.writer = await asyncio.open_connection(place.hostname, place.port)
        data = json.dumps(body).encode()
        head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
        self.writer.write(
            f"POST {place.path} HTTP/1.1\r\nhost: x\r\n{head}".encode()
            + b"content-length: %d\r\n\r\n%b" % (len(data), data)
        )
        await self.reader.readuntil(b"\r\n\r\n")
        rest = b""
        while size := int(await self.reader.readline(), 16):
            rest += (await self.reader.readexactly(size + 2))[:-2]
            *lines, rest = rest.split(b"\n")
            for line in lines:
                yield line.decode()
        await self.reader.readline()


class Httpx:
    client: Any = None

    async def __call__(self, url: str, body: dict[str, Any]) -> Any:
        import httpx

        if self.client is None:
            self.client = httpx.AsyncClient(timeout=600)
        async with self.client.stream("POST", url, json=body, headers=HEADERS) as response:
            async for line in response.aiter_lines():
                yield line


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Httpx() if "--httpx" in sys.argv else Plain()))

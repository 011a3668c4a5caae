"""Our HTTP client against a floor: CPU per request, deltas per second, concurrent streams.

    python benchmarks/http_client.py [--requests 2000] [--deltas 20000] [--streams 200]

A canned server runs in a process of its own. The floor is aiohttp with a hand-written line loop
(skipped, with a message, if aiohttp is not installed). Both decode every event's JSON with the
standard library, so that only the client differs. "events" is our client without any JSON. On
a busy machine look at the columns that count CPU.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar, cast

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import serve
from treadle.lib.http.client import Client
from treadle.lib.http.sse import SSEReader

HEADERS = {"content-type": "application/json", "x-api-key": "k", "anthropic-version": "2023-06-01"}
Run = Callable[[str, bytes], Awaitable[int]]


def event(kind: str, **fields: object) -> bytes:
    data = json.dumps({"type": kind, **fields}, separators=(",", ":"))
    return f"event: {kind}\ndata: {data}\n\n".encode()


def canned(deltas: int) -> bytes:
    """A whole response, each event in a chunk of its own as real servers flush them."""
    delta = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "word "})
    events = [
        event("message_start", message={"id": "m", "usage": {"input_tokens": 1}}),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *[delta] * deltas,
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn"}),
        event("message_stop"),
    ]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    chunks = [b"%x\r\n%s\r\n" % (len(data), data) for data in events]
    return head + b"transfer-encoding: chunked\r\n\r\n" + b"".join(chunks) + b"0\r\n\r\n"


class Canned(asyncio.Protocol):
    """Answers `POST /N` with N deltas, in one write: never the bottleneck."""

    answers: ClassVar[dict[int, bytes]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.data = bytearray()
        self.wanted = -1

    def data_received(self, data: bytes) -> None:
        self.data += data
        if self.wanted < 0:
            end = self.data.find(b"\r\n\r\n")
            if end < 0:
                return
            length = self.data[:end].lower().split(b"content-length: ")[1].split(b"\r\n")[0]
            self.wanted = end + 4 + int(length)
        if len(self.data) < self.wanted:
            return
        deltas = int(self.data.split(b" ", 2)[1].rsplit(b"/", 1)[1])
        self.data.clear()
        self.wanted = -1
        if deltas not in self.answers:
            self.answers[deltas] = canned(deltas)
        self.transport.write(self.answers[deltas])


async def run_server() -> None:
    server = await asyncio.get_running_loop().create_server(Canned, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def ours(client: Client, *, decode: bool = True) -> Run:
    async def run(url: str, body: bytes) -> int:
        seen = 0
        async with client.post(url, HEADERS, body) as response:
            reader = SSEReader()
            async for piece in response:
                events = reader.feed(piece)
                if decode:
                    for _, data in events:
                        if json.loads(data)["type"] == "content_block_delta":
                            seen += 1
                else:
                    seen += len(events)
                response.mark_content()
        return seen

    return run


def floor(session: Any) -> Run:
    async def run(url: str, body: bytes) -> int:
        seen = 0
        buffer = b""
        async with session.post(url, data=body, headers=HEADERS) as response:
            async for piece in response.content.iter_any():
                buffer += piece
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    if not line.startswith(b"data:"):
                        continue
                    if json.loads(line[5:])["type"] == "content_block_delta":
                        seen += 1
        return seen

    return run


async def measure(run: Run, base: str, args: argparse.Namespace) -> dict[str, float]:
    small, body = f"{base}/4", b"x" * 20_000
    for _ in range(50):
        await run(small, body)
    cpu = time.process_time()
    for _ in range(args.requests):
        await run(small, body)
    cpu = (time.process_time() - cpu) / args.requests
    await run(f"{base}/{args.deltas}", body)
    best = best_cpu = 0.0
    for _ in range(5):
        started, busy = time.perf_counter(), time.process_time()
        seen = await run(f"{base}/{args.deltas}", body)
        assert seen >= args.deltas, seen
        best = max(best, seen / (time.perf_counter() - started))
        best_cpu = max(best_cpu, seen / (time.process_time() - busy))

    async def agent() -> None:
        for _ in range(20):
            await run(small, body)

    await asyncio.gather(*(agent() for _ in range(args.streams)))
    started = time.perf_counter()
    busy = time.process_time()
    await asyncio.gather(*(agent() for _ in range(args.streams)))
    return {
        "cpu_us": cpu * 1e6,
        "deltas": best,
        "deltas_cpu": best_cpu,
        "turns": args.streams * 20 / (time.perf_counter() - started),
        "turn_cpu_us": (time.process_time() - busy) / (args.streams * 20) * 1e6,
    }


async def compare(base: str, args: argparse.Namespace) -> dict[str, dict[str, float]]:
    rows: dict[str, dict[str, float]] = {}
    client = Client(max_idle=1000)
    session = None
    try:
        import aiohttp
    except ImportError:
        print("aiohttp is not installed: no floor in this run")
    else:
        connector = aiohttp.TCPConnector(limit=1000)
        session = aiohttp.ClientSession(connector=connector, read_bufsize=2**18)
        rows["aiohttp floor"] = await measure(floor(session), base, args)
    rows["treadle client"] = await measure(ours(client), base, args)
    rows["treadle, events"] = await measure(ours(client, decode=False), base, args)
    if session is not None:
        await session.close()
    await client.aclose()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--deltas", type=int, default=20_000)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        asyncio.run(run_server())
    with serve([sys.executable, __file__, "--serve"]) as port:
        rows = asyncio.run(compare(f"http://127.0.0.1:{port}", args))
    titles = ("CPU µs/request", "deltas/s", "deltas/CPU s", "turns/s", "CPU µs/turn")
    print(" " * 16, *(f"{title:>15}" for title in titles))
    for name, row in rows.items():
        keys = ("cpu_us", "deltas", "deltas_cpu", "turns", "turn_cpu_us")
        print(f"{name:16}", *(f"{row[key]:15,.0f}" for key in keys))


if __name__ == "__main__":
    main()

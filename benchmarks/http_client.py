"""Our HTTP client against a floor: CPU per request, deltas per second, concurrent streams.

    python benchmarks/http_client.py [--requests 2000] [--deltas 20000] [--streams 200] [--json]

A canned server runs in a process of its own. The floor is aiohttp with a hand-written line loop
(skipped, with a message, if aiohttp is not installed). Both decode every event's JSON with the
standard library, so that only the client differs; they take turns. "events" is our client without
any JSON. Limits: at most the CPU of the floor, for a request, for deltas, for a turn of many.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, cast

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import Verdict, find_ratio, parse_options, serve, show_figures
from treadle.lib.http.client import Client
from treadle.lib.http.sse import SSEReader

HEADERS = {"content-type": "application/json", "x-api-key": "k", "anthropic-version": "2023-06-01"}
Run = Callable[[str, bytes], Awaitable[int]]
Row = dict[str, float]
OURS, FLOOR, EVENTS = "treadle client", "aiohttp floor", "treadle, events"
TITLES = {
    "cpu_us": "CPU µs/request",
    "deltas": "deltas/s",
    "delta_cpu_us": "CPU µs/delta",
    "turns": "turns/s",
    "turn_cpu_us": "CPU µs/turn",
}
LIMITED = ("cpu_us", "delta_cpu_us", "turn_cpu_us")
MOST_OF_FLOOR = 1.0
PAIRS = 5


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


async def measure(run: Run, base: str, args: argparse.Namespace) -> Row:
    small, body = f"{base}/4", b"x" * 20_000
    for _ in range(50):
        await run(small, body)
    cpu = time.process_time()
    for _ in range(args.requests):
        await run(small, body)
    cpu = (time.process_time() - cpu) / args.requests
    await run(f"{base}/{args.deltas}", body)
    started, busy = time.perf_counter(), time.process_time()
    seen = await run(f"{base}/{args.deltas}", body)
    assert seen >= args.deltas, seen
    deltas = seen / (time.perf_counter() - started)
    delta_cpu = (time.process_time() - busy) / seen

    async def agent() -> None:
        for _ in range(20):
            await run(small, body)

    await asyncio.gather(*(agent() for _ in range(args.streams)))
    started = time.perf_counter()
    busy = time.process_time()
    await asyncio.gather(*(agent() for _ in range(args.streams)))
    return {
        "cpu_us": cpu * 1e6,
        "deltas": deltas,
        "delta_cpu_us": delta_cpu * 1e6,
        "turns": args.streams * 20 / (time.perf_counter() - started),
        "turn_cpu_us": (time.process_time() - busy) / (args.streams * 20) * 1e6,
    }


async def compare(base: str, args: argparse.Namespace) -> dict[str, list[Row]]:
    """The figures of each client, of as many rounds as there are pairs."""
    runs: dict[str, Run] = {}
    client = Client(max_idle=1000)
    session = None
    try:
        import aiohttp
    except ImportError:
        print("aiohttp is not installed: no floor in this run", file=sys.stderr)
    else:
        connector = aiohttp.TCPConnector(limit=1000)
        session = aiohttp.ClientSession(connector=connector, read_bufsize=2**18)
        runs[FLOOR] = floor(session)
    runs |= {OURS: ours(client), EVENTS: ours(client, decode=False)}
    rows: dict[str, list[Row]] = {name: [] for name in runs}
    for _ in range(args.pairs):
        for name, run in runs.items():
            rows[name].append(await measure(run, base, args))
    if session is not None:
        await session.close()
    await client.aclose()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--deltas", type=int, default=20_000)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parse_options(parser)
    if args.serve:
        asyncio.run(run_server())
    with serve([sys.executable, __file__, "--serve"]) as port:
        rows = asyncio.run(compare(f"http://127.0.0.1:{port}", args))
    medians = {
        name: {key: median(row[key] for row in found) for key in TITLES}
        for name, found in rows.items()
    }
    if args.json:
        figures = {TITLES[key]: (medians[OURS][key], "µs") for key in LIMITED}
        show_figures(figures, as_json=True)
        return 0
    print(" " * 16, *(f"{title:>15}" for title in TITLES.values()))
    for name, row in medians.items():
        print(f"{name:16}", *(f"{row[key]:15,.1f}" for key in TITLES))
    verdict = Verdict()
    for key in LIMITED if FLOOR in rows else ():
        pairs = [(one[key], other[key]) for one, other in zip(rows[OURS], rows[FLOOR], strict=True)]
        verdict.check(f"{TITLES[key]}, of aiohttp", find_ratio(pairs), MOST_OF_FLOOR)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())

"""Whole agents over HTTP against a raw loop in the same run: what the engine adds to HTTP.

    python benchmarks/http.py [--turns 50,200,800] [--deltas 20000] [--agents 200] [--repeat 3]

A canned Messages server runs in a process of its own. There are two floors, the same hand-written
loop over another HTTP client: `aiohttp`, and `own client`, which is Treadle's. The loop encodes
each message once: no retries, no events, no checks, no transcript. Every measurement has a fresh
process; floors and engine take turns, and the best of each counts.

    CPU of a tool turn     at most 1.2 times that of the loop over aiohttp, and flat over the turns;
                           the ratio to the loop over our own client is told beside it
    deltas through stream  at least 60,000 a second
    200 agents x 20 turns  at least 0.8 of the throughput of aiohttp, under 0.2 MB an agent
    16 tools of 50 ms      within 65 ms
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

SYSTEM = "You are a calculator. Use the tool."
MODEL = "claude-sonnet-4-5"
HEADERS = {"content-type": "application/json", "x-api-key": "k"}

# The path says what to play: /<tool turns>/<parallel calls>/<deltas of the last answer>/<tool>.
SERVER = r"""
import asyncio, json
HEAD = (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        b"transfer-encoding: chunked\r\n\r\n")
def event(kind, **fields):
    data = json.dumps({"type": kind, **fields}, separators=(",", ":"))
    return f"event: {kind}\ndata: {data}\n\n".encode()
def reply(turn, calls, deltas, tool):
    usage = {"input_tokens": 100, "output_tokens": 1, "cache_read_input_tokens": 0}
    delta = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "word "})
    events = [event("message_start", message={"id": f"msg_{turn}", "usage": usage}),
              event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
              *[delta] * deltas, event("content_block_stop", index=0)]
    for n in range(calls):
        block = {"type": "tool_use", "id": f"toolu_{turn}_{n}", "name": tool, "input": {}}
        events.append(event("content_block_start", index=n + 1, content_block=block))
        for part in ('{"a":%d,' % turn, '"b":%d}' % n):
            piece = {"type": "input_json_delta", "partial_json": part}
            events.append(event("content_block_delta", index=n + 1, delta=piece))
        events.append(event("content_block_stop", index=n + 1))
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    events += [event("message_delta", delta=stop, usage={"output_tokens": 20}),
               event("message_stop")]
    return HEAD + b"".join(b"%x\r\n%s\r\n" % (len(e), e) for e in events) + b"0\r\n\r\n"
cache = {}
class Server(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.parts, self.size, self.want = transport, [], 0, -1
    def data_received(self, data):
        self.parts.append(data)
        self.size += len(data)
        if self.want < 0:
            head = b"".join(self.parts)
            self.parts = [head]
            end = head.find(b"\r\n\r\n")
            if end < 0: return
            length = head[:end].lower().split(b"content-length: ")[1].split(b"\r\n")[0]
            self.want = end + 4 + int(length)
        if self.size < self.want: return
        request = b"".join(self.parts)
        self.parts, self.size, self.want = [], 0, -1
        _, turns, parallel, deltas, tool = request.split(b" ", 2)[1].decode().split("/")[:5]
        turn = request.count(b'"tool_result"') // int(parallel)
        is_last = turn >= int(turns)
        key = (turn, 0 if is_last else int(parallel), int(deltas) if is_last else 4, tool)
        if key not in cache: cache[key] = reply(*key)
        self.transport.write(cache[key])
async def main():
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


class Engine(Protocol):
    async def run(self) -> int:
        """One conversation; how many text deltas were seen."""

    async def aclose(self) -> None: ...


async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


async def nap(a: int, b: int) -> int:
    """Sleep for 50 ms."""
    await asyncio.sleep(0.05)
    return a + b


TOOLS: dict[str, Callable[..., Awaitable[int]]] = {"add": add, "nap": nap}


# ------------------------------------------------------------------ the floor


class Floor:
    """The least that a loop can do: send bytes, read lines, call functions. A subclass has the
    HTTP client."""

    def __init__(self, base: str, tool: str, max_turns: int) -> None:
        numbers = {"a": {"type": "integer"}, "b": {"type": "integer"}}
        schema = {"type": "object", "properties": numbers, "required": ["a", "b"]}
        spec = {"name": tool, "description": TOOLS[tool].__doc__, "input_schema": schema}
        fields = {"model": MODEL, "max_tokens": 1000, "system": SYSTEM, "tools": [spec]}
        self._head = json.dumps({**fields, "stream": True})[:-1].encode() + b', "messages": ['
        self._url = base + "/v1/messages"
        self._tool = TOOLS[tool]
        self._max_turns = max_turns

    def _post(self, body: bytes) -> AsyncIterator[list[bytes]]:
        """The data of the events of the response, as they arrive together."""
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError

    async def run(self) -> int:
        seen = 0
        history = bytearray(self._head)
        history += json.dumps({"role": "user", "content": "go"}).encode()
        for _ in range(self._max_turns):
            blocks, deltas = await self._ask(bytes(history) + b"]}")
            seen += deltas
            history += b", " + json.dumps({"role": "assistant", "content": blocks}).encode()
            calls = [block for block in blocks if block["type"] == "tool_use"]
            if not calls:
                break
            results = await asyncio.gather(*(self._tool(**call["input"]) for call in calls))
            answers = [
                {"type": "tool_result", "tool_use_id": call["id"], "content": str(result)}
                for call, result in zip(calls, results, strict=True)
            ]
            history += b", " + json.dumps({"role": "user", "content": answers}).encode()
        return seen

    async def _ask(self, body: bytes) -> tuple[list[dict[str, Any]], int]:
        blocks: list[dict[str, Any]] = []
        pieces: list[list[str]] = []
        seen = 0
        async for batch in self._post(body):
            for data in batch:
                event = json.loads(data)
                if event["type"] == "content_block_delta":
                    delta = event["delta"]
                    if delta["type"] == "text_delta":
                        pieces[-1].append(delta["text"])
                        seen += 1
                    else:
                        pieces[-1].append(delta["partial_json"])
                elif event["type"] == "content_block_start":
                    blocks.append(event["content_block"])
                    pieces.append([])
        for block, parts in zip(blocks, pieces, strict=True):
            if block["type"] == "text":
                block["text"] = "".join(parts)
            else:
                block["input"] = json.loads("".join(parts) or "{}")
        return blocks, seen


class AiohttpFloor(Floor):
    def __init__(self, base: str, tool: str, max_turns: int) -> None:
        super().__init__(base, tool, max_turns)
        self._session: Any = None

    async def _post(self, body: bytes) -> AsyncIterator[list[bytes]]:
        if self._session is None:
            import aiohttp

            connector = aiohttp.TCPConnector(limit=1000)
            self._session = aiohttp.ClientSession(connector=connector, read_bufsize=2**18)
        buffer = b""
        async with self._session.post(self._url, data=body, headers=HEADERS) as response:
            response.raise_for_status()
            async for piece in response.content.iter_any():
                buffer += piece
                *lines, buffer = buffer.split(b"\n")
                yield [line[5:] for line in lines if line.startswith(b"data:")]

    async def aclose(self) -> None:
        await self._session.close()


class OwnClientFloor(Floor):
    def __init__(self, base: str, tool: str, max_turns: int) -> None:
        from treadle.lib.http.client import Client

        super().__init__(base, tool, max_turns)
        self._client = Client()

    async def _post(self, body: bytes) -> AsyncIterator[list[bytes]]:
        from treadle.lib.http.sse import SSEReader

        async with self._client.post(self._url, HEADERS, body) as response:
            reader = SSEReader()
            async for piece in response:
                yield [data for _, data in reader.feed(piece)]
                response.mark_content()

    async def aclose(self) -> None:
        await self._client.aclose()


# ------------------------------------------------------------------ the engine


class Treadle:
    """A whole agent, watched through `stream()`."""

    def __init__(self, base: str, tool: str, max_turns: int) -> None:
        from treadle import Agent
        from treadle import tool as as_tool
        from treadle.core.events import TextDelta
        from treadle.models import Anthropic

        self._delta = TextDelta
        self._agent = Agent(
            Anthropic(MODEL, base_url=base, api_key="k"),
            [as_tool(TOOLS[tool], effect="pure", concurrent=True)],
            instructions=SYSTEM,
            max_turns=max_turns,
        )

    async def run(self) -> int:
        seen = 0
        async with self._agent.stream("go") as events:
            async for event in events:
                seen += type(event) is self._delta
        assert events.result.reason == "end_turn", events.result
        return seen

    async def aclose(self) -> None:
        await self._agent.aclose()


class TreadleModel:
    """The model alone, without the loop: what HTTP and the codec cost."""

    def __init__(self, base: str, tool: str, max_turns: int) -> None:
        from treadle import tool as as_tool
        from treadle.models import Anthropic

        self._model = Anthropic(MODEL, base_url=base, api_key="k")
        self._specs = (as_tool(TOOLS[tool], effect="pure").spec,)
        self._tool = TOOLS[tool]
        self._max_turns = max_turns

    async def run(self) -> int:
        from treadle.core.contracts.model import ModelRequest, ModelTextDelta, Reply
        from treadle.core.transcript import Text, ToolCall, ToolResultItem, Transcript, to_user_item

        seen = 0
        transcript = Transcript([to_user_item("go")])
        for _ in range(self._max_turns):
            calls: tuple[ToolCall, ...] = ()
            async for event in self._model.stream(ModelRequest(transcript, SYSTEM, self._specs)):
                if type(event) is ModelTextDelta:
                    seen += 1
                elif type(event) is Reply:
                    transcript = transcript.append(event.item)
                    calls = event.item.calls
            if not calls:
                break
            results = await asyncio.gather(*(self._tool(**(c.arguments or {})) for c in calls))
            for call, result in zip(calls, results, strict=True):
                answer = ToolResultItem(call.id, call.name, (Text(str(result)),))
                transcript = transcript.append(answer)
        return seen

    async def aclose(self) -> None:
        await self._model.aclose()


ENGINES: dict[str, Callable[[str, str, int], Engine]] = {
    "aiohttp": AiohttpFloor,
    "own client": OwnClientFloor,
    "model": TreadleModel,
    "treadle": Treadle,
}


# ------------------------------------------------------------------ one measurement


async def measure(name: str, case: str, size: int, port: int) -> dict[str, float]:
    """One case in this process, after a warm-up."""

    def engine(turns: int, parallel: int, deltas: int, tool: str = "add") -> Engine:
        base = f"http://127.0.0.1:{port}/{turns}/{parallel}/{deltas}/{tool}"
        return ENGINES[name](base, tool, turns + 2)

    warm = engine(3, 1, 8)
    await warm.run()
    await warm.aclose()
    if case == "turns":
        job, count, runs = engine(size, 1, 8), size, 1
    elif case == "deltas":
        job, count, runs = engine(0, 1, size), size, 1
        await job.run()
    elif case == "agents":
        job, count, runs = engine(20, 1, 8), size * 20, size
    else:
        job, count, runs = engine(1, size, 8, "nap"), 1, 1
        await job.run()
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.perf_counter(), time.process_time()
    if runs == 1:
        seen = await job.run()
    else:
        seen = sum(await asyncio.gather(*(job.run() for _ in range(runs))))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await job.aclose()
    assert seen, "nothing was streamed"
    return {
        "cpu_ms": cpu / count * 1e3,
        "rate": count / wall,
        "wall_ms": wall * 1e3,
        "mb": (peak - before) / 1024 / runs,
    }


# ------------------------------------------------------------------ the whole comparison


def worker(name: str, case: str, size: int, port: int) -> dict[str, float]:
    # -P: this file's name must not stand before the standard library's.
    command = [sys.executable, "-P", __file__, "--worker", name, case, str(size), str(port)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def best(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: (max if key == "rate" else min)(row[key] for row in rows) for key in rows[0]}


def compare(port: int, args: argparse.Namespace) -> bool:
    names = [name for name in ENGINES if name != "model" or args.model]

    def taken(case: str, size: int) -> dict[str, dict[str, float]]:
        rows: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for _ in range(args.repeat):
            for name in names:
                rows[name].append(worker(name, case, size, port))
        return {name: best(found) for name, found in rows.items()}

    holds: list[bool] = []

    def line(what: str, rows: dict[str, str], verdict: str, ok: bool) -> None:
        cells = " ".join(f"{rows[name]:>12}" for name in names)
        print(f"{what:30} {cells}   {verdict}{'' if ok else '  DOES NOT HOLD'}", flush=True)
        holds.append(ok)

    print(f"{'':30} {' '.join(f'{name:>12}' for name in names)}")
    first = 0.0
    for turns in [int(count) for count in args.turns.split(",")]:
        rows = taken("turns", turns)
        ratio = rows["treadle"]["cpu_ms"] / rows["aiohttp"]["cpu_ms"]
        own = rows["treadle"]["cpu_ms"] / rows["own client"]["cpu_ms"]
        first = first or rows["treadle"]["cpu_ms"]
        growth = rows["treadle"]["cpu_ms"] / first
        shown = {name: f"{row['cpu_ms']:.3f} ms" for name, row in rows.items()}
        verdict = (
            f"{ratio:.2f} of aiohttp (1.20), {own:.2f} of own client, {growth:.2f} of the first"
        )
        line(f"CPU of a turn, {turns} turns", shown, verdict, ratio <= 1.2)
    rows = taken("deltas", args.deltas)
    shown = {name: f"{row['rate']:,.0f}/s" for name, row in rows.items()}
    line(f"{args.deltas:,} deltas", shown, "at least 60,000/s", rows["treadle"]["rate"] >= 60_000)
    rows = taken("agents", args.agents)
    shown = {name: f"{row['rate']:,.0f}/s" for name, row in rows.items()}
    ratio = rows["treadle"]["rate"] / rows["aiohttp"]["rate"]
    line(f"{args.agents} agents, turns", shown, f"{ratio:.2f} of aiohttp (0.80)", ratio >= 0.8)
    shown = {name: f"{row['cpu_ms']:.3f} ms" for name, row in rows.items()}
    line(f"CPU of a turn, {args.agents} agents", shown, "", True)
    shown = {name: f"{row['mb']:.3f} MB" for name, row in rows.items()}
    line("memory an agent", shown, "under 0.2 MB", rows["treadle"]["mb"] < 0.2)
    rows = taken("parallel", 16)
    shown = {name: f"{row['wall_ms']:.1f} ms" for name, row in rows.items()}
    line("16 tools of 50 ms", shown, "within 65 ms", rows["treadle"]["wall_ms"] <= 65)
    return all(holds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", default="50,200,800")
    parser.add_argument("--deltas", type=int, default=20_000)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--model", action="store_true", help="also the model without the loop")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        name, case, size, port = args.worker
        print(json.dumps(asyncio.run(measure(name, case, int(size), int(port)))))
        return 0
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        if hasattr(os, "sched_setaffinity") and len(os.sched_getaffinity(0)) > 1:
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(server.pid, {cores[0]})
            os.sched_setaffinity(0, {cores[1]})
        assert server.stdout is not None
        holds = compare(int(server.stdout.readline()), args)
    finally:
        server.kill()
        server.wait()
    print("holds" if holds else "DOES NOT HOLD")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())

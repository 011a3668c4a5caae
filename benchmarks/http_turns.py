"""Whole agents over HTTP against a raw loop in the same run: what the engine adds to HTTP.

    python benchmarks/http_turns.py [--turns 50,200,800] [--deltas 20000] [--agents 200] [--pairs 5]

A canned Messages server runs in a process of its own. There are two floors, the same hand-written
loop over another HTTP client: `aiohttp`, and `own client`, which is Treadle's. The loop encodes
each message once: no retries, no events, no checks, no transcript. Every measurement has a fresh
process; floors and engine take turns. Limits are ratios to a floor:

    CPU of a tool turn     at most 2.2 times that over our own client, and flat over the turns
    deltas through stream  at most 1.2 times the CPU over aiohttp
    200 agents x 20 turns  at most 2 times the time over aiohttp, and 4 times its memory
    16 tools of 50 ms      at most 1.3 times the time over aiohttp
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import Figures, Verdict, find_ratio, parse_options, serve, show_figures

SYSTEM = "You are a calculator. Use the tool."
MODEL = "claude-sonnet-5-5"
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
        "wall_ms": wall / count * 1e3,
        "mb": (peak - before) / 1024 / runs,
    }


# ------------------------------------------------------------------ the whole comparison

Row = dict[str, float]


def worker(name: str, case: str, size: int, port: str) -> Row:
    command = [sys.executable, __file__, "--worker", name, case, str(size), port]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    row: Row = json.loads(done.stdout)
    return row


class Case(NamedTuple):
    """What is measured, in which field of a row, and what it may be of a floor."""

    label: str
    case: str
    size: int
    field: str
    unit: str
    limits: dict[str, float]


def list_cases(options: argparse.Namespace) -> list[Case]:
    turns, agents = map(int, options.turns.split(",")), f"{options.agents} agents"
    of_own, of_aiohttp = {"own client": 2.2}, {"aiohttp": 1.2}
    return [
        *(Case(f"CPU of a turn, {n} turns", "turns", n, "cpu_ms", "ms", of_own) for n in turns),
        Case(f"{options.deltas:,} deltas", "deltas", options.deltas, "cpu_ms", "ms", of_aiohttp),
        Case(f"a turn of {agents}", "agents", options.agents, "wall_ms", "ms", {"aiohttp": 2.0}),
        Case(f"memory of one of {agents}", "agents", options.agents, "mb", "MB", {"aiohttp": 4}),
        Case("16 tools of 50 ms", "parallel", 16, "wall_ms", "ms", {"aiohttp": 1.3}),
    ]  # fmt: skip


def compare(port: str, options: argparse.Namespace) -> Verdict:
    names = [name for name in ENGINES if name != "model" or options.model]
    verdict, first = Verdict(), list[float]()
    for case in list_cases(options):
        rows: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(options.pairs):
            for name in names:
                rows[name].append(worker(name, case.case, case.size, port)[case.field])
        ours = rows["treadle"]
        cells = (f"{name} {median(found):.3f} {case.unit}" for name, found in rows.items())
        print(f"{case.label}: {', '.join(cells)}")
        for name in rows.keys() - {"treadle", "model"}:
            pairs = list(zip(ours, rows[name], strict=True))
            verdict.check(f"  of {name}", find_ratio(pairs), case.limits.get(name))
        if case.case == "turns":
            first = first or ours
            growth = list(zip(ours, first, strict=True))
            verdict.check("  of the first", find_ratio(growth), 1.2)
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", default="50,200,800")
    parser.add_argument("--deltas", type=int, default=20_000)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--model", action="store_true", help="also the model without the loop")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parse_options(parser)
    if options.worker:
        name, case, size, port = options.worker
        print(json.dumps(asyncio.run(measure(name, case, int(size), int(port)))))
        return 0
    with serve([sys.executable, "-c", SERVER]) as port:
        if not options.json:
            return compare(port, options).end()
        figures: Figures = {
            one.label: (worker("treadle", one.case, one.size, port)[one.field], one.unit)
            for one in list_cases(options)
        }
        show_figures(figures, as_json=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

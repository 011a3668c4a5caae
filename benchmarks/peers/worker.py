"""One measurement of one library, in a process of its own with the library's environment.

    python worker.py ADAPTER VARIANT MEASURE SIZE PORT

Standard library only. An adapter is a file of adapters/ with

    class Engine:
        def __init__(self, task): ...   makes client and agent against task.url
        async def run(self) -> int      one whole conversation; the number of text deltas that a
                                        consumer of the library's stream saw
        async def aclose(self): ...     optional
    def make_in_process(task, turns)    optional: an Engine with the library's own fake model
    MARKER = "text"                     optional: how its tool results are found in a request

Measures: turns (SIZE tool turns), agents (SIZE conversations at once, 5 turns each), deltas (SIZE
text deltas in one reply), parallel (SIZE calls of a tool of 50 ms in one turn), in_process (SIZE
turns without HTTP), fails (the first two requests get the status SIZE).
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import itertools
import json
import logging
import os
import statistics
import sys
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TURNS_OF_AN_AGENT = 5
WARM_UP_TURNS = 3


class Task:
    """What an adapter needs: the URL of the server, the tool, and the limits."""

    instructions = "You are a calculator. Use the tool."

    def __init__(self, url: str, variant: str, turns: int, tool: str = "add") -> None:
        self.url = url
        self.variant = variant
        self.max_turns = turns + 5
        self.tool_name = tool
        self.description = "Add two integers." if tool == "add" else "Sleep for 50 ms."
        numbers = {"a": {"type": "integer"}, "b": {"type": "integer"}}
        self.schema = {"type": "object", "properties": numbers, "required": ["a", "b"]}
        self.call_times: list[float] = []
        self._seconds = 0.05 if tool == "nap" else 0.0
        self._threads: ThreadPoolExecutor | None = None

    @property
    def openai_url(self) -> str:
        return self.url + "/v1"

    def make_tool(self) -> Any:
        async def call(a: int, b: int) -> int:
            if self._seconds:
                await asyncio.sleep(self._seconds)
            self.call_times.append(time.perf_counter())
            return a + b

        return self._named(call)

    def make_plain_tool(self) -> Any:
        def call(a: int, b: int) -> int:
            if self._seconds:
                time.sleep(self._seconds)
            self.call_times.append(time.perf_counter())
            return a + b

        return self._named(call)

    def _named(self, function: Any) -> Any:
        function.__name__ = function.__qualname__ = self.tool_name
        function.__doc__ = f"{self.description}\n\nArgs:\n    a: an integer\n    b: an integer\n"
        function.__annotations__ = {"a": int, "b": int, "return": int}
        return function

    def make_folder(self) -> Path:
        """For the sessions of an adapter; run.py removes it."""
        return Path(tempfile.mkdtemp())

    async def run_in_thread(self, function: Callable[[], int]) -> int:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(256)
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)


class Measurement:
    """One adapter on one server; each method is a measure and returns its figures."""

    def __init__(self, adapter: Any, variant: str, port: int) -> None:
        self._adapter = adapter
        self._variant = variant
        self._port = port

    def _task(self, turns: int, tool: str = "add", **job: object) -> Task:
        fields = {"turns": turns, "tool": tool, **job}
        if marker := getattr(self._adapter, "MARKER", ""):
            fields["marker"] = marker
        path = "_".join(f"{name}-{value}" for name, value in fields.items())
        return Task(f"http://127.0.0.1:{self._port}/{path}", self._variant, turns, tool)

    async def warm_up(self) -> None:
        """Late imports and schemas; also shows that the tool is really called."""
        task = self._task(WARM_UP_TURNS)
        await run_once(self._adapter.Engine(task))
        if len(task.call_times) != WARM_UP_TURNS:
            raise SystemExit(f"{len(task.call_times)} tool calls instead of {WARM_UP_TURNS}")
        request_json(self._port, "/reset", b"")

    async def turns(self, size: int) -> dict[str, Any]:
        task = self._task(size)
        figures = await timed(self._adapter.Engine(task), task, size)
        gaps = [after - before for before, after in itertools.pairwise(task.call_times)]
        tenth = max(5, len(gaps) // 10)
        figures["first_turns_ms"] = statistics.median(gaps[:tenth]) * 1e3
        figures["last_turns_ms"] = statistics.median(gaps[-tenth:]) * 1e3
        return figures | request_json(self._port, "/statistics")

    async def agents(self, size: int) -> dict[str, Any]:
        before = peak_mb()
        task = self._task(TURNS_OF_AN_AGENT)
        figures = await timed(
            self._adapter.Engine(task), task, size * TURNS_OF_AN_AGENT, agents=size
        )
        return {**figures, "mb_per_agent": (peak_mb() - before) / size}

    async def deltas(self, size: int) -> dict[str, Any]:
        task = self._task(0, deltas=size)
        for path in ("/v1/messages", "/v1/chat/completions", "/v1/responses"):
            request_bytes(task.url + path, b'{"stream": true}')  # rendered before the time is taken
        figures = await timed(self._adapter.Engine(task), task, 0)
        if figures["deltas"] != size:
            raise SystemExit(f"{figures['deltas']} deltas seen instead of {size}")
        return figures

    async def parallel(self, size: int) -> dict[str, Any]:
        task = self._task(1, "nap", calls=size)
        return await timed(self._adapter.Engine(task), task, size)

    async def fails(self, size: int) -> dict[str, Any]:
        task = self._task(2, fails=f"{size}x2", id=str(time.time_ns()))
        try:
            return {**await timed(self._adapter.Engine(task), task, 2), "recovers": True}
        except Exception as error:  # noqa: BLE001 - any library, any error: it is the result
            return {"recovers": False, "error": type(error).__name__}

    async def in_process(self, size: int) -> dict[str, Any]:
        await run_once(self._adapter.make_in_process(self._task(3), 3))
        task = self._task(size)
        return await timed(self._adapter.make_in_process(task, size), task, size)


async def run_once(engine: Any) -> None:
    await engine.run()
    await close(engine)


async def timed(engine: Any, task: Task, calls: int, agents: int = 1) -> dict[str, Any]:
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    if agents == 1:
        deltas = await engine.run()
    else:
        deltas = sum(await asyncio.gather(*(engine.run() for _ in range(agents))))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    if len(task.call_times) != calls:
        raise SystemExit(f"{len(task.call_times)} tool calls instead of {calls}")
    await close(engine)
    return {"wall": wall, "cpu": cpu, "deltas": deltas, "peak_mb": peak_mb()}


async def close(engine: Any) -> None:
    if hasattr(engine, "aclose"):
        await engine.aclose()


def peak_mb() -> float:
    """Of this program alone: `ru_maxrss` would begin with that of the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def request_json(port: int, path: str, data: bytes | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(request_bytes(f"http://127.0.0.1:{port}{path}", data))
    return found


def request_bytes(url: str, data: bytes | None) -> bytes:
    with urllib.request.urlopen(url, data) as response:
        body: bytes = response.read()
        return body


def load_adapter(name: str) -> Any:
    path = Path(__file__).parent / "adapters" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"adapter_of_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def measure(adapter: str, variant: str, name: str, size: int, port: int) -> dict[str, Any]:
    module = load_adapter(adapter)
    measurement = Measurement(module, variant, port)
    if name != "in_process":
        await measurement.warm_up()
    result: dict[str, Any] = await getattr(measurement, name)(size)
    return result


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    adapter, variant, name, size, port = sys.argv[1:]
    found = asyncio.run(measure(adapter, variant, name, int(size), int(port)))
    print("\n" + json.dumps(found), flush=True)
    os._exit(0)  # some libraries leave threads behind that would be waited for

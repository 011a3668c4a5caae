"""What a start and a turn cost, against a bare interpreter and a bare script, in the same run.

    python benchmarks/startup.py [--pairs 9] [--turns 20] [--json]

    import         `import treadle` against `python -c pass`                     at most 1.2
    first agent    made with a tool, against importing asyncio and msgspec       at most 1.4
    --version      against `python -c pass`                                      at most 2.0
    one reply      `treadle -p` against bare_agent.py over httpx                 at most 1.5
    shell turns    twenty of them, without the sandbox and with it               at most 2.3, 3.5
    memory         of the whole tree of processes, at its highest                at most 1.5

CPU is that of the program and all that it started. Each measurement is paired with its floor, one
after the other; the floor of memory is bare_agent.py over httpx. bare_agent.py without httpx, which
no program that speaks TLS could be, is shown beside it. The server is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import (
    Figures,
    Verdict,
    find_ratio,
    parse_options,
    resident_memory,
    serve,
    show_figures,
    take_turns,
)

HERE = Path(__file__).resolve().parent
PYTHON = sys.executable
PACKAGE = find_spec("treadle")
assert PACKAGE is not None
assert PACKAGE.origin is not None
TREADLE = [PYTHON, "-I", str(Path(PACKAGE.origin).with_name("__main__.py"))]
BARE = [PYTHON, "-I", str(HERE / "bare_agent.py")]
PASS = [PYTHON, "-I", "-c", "pass"]
LIBRARIES = [PYTHON, "-I", "-c", "import asyncio, msgspec"]
FIRST_AGENT = """import treadle
from treadle.models import Scripted
@treadle.tool(effect="pure")
async def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
treadle.Agent(Scripted(["Done."]), [add])
"""
MOST_MEMORY = 1.5


class Row(NamedTuple):
    name: str
    most: float | None
    floor: list[str]
    argv: list[str]
    url: str


def measure_cpu(argv: list[str], folder: Path, env: dict[str, str]) -> float:
    """Milliseconds."""
    process = subprocess.Popen(
        argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(argv)} ended with {process.returncode}")
    return (used.ru_utime + used.ru_stime) * 1e3


def peak_memory(argv: list[str], folder: Path, env: dict[str, str]) -> float:
    """MB of the process and all below it, at the highest moment that sampling sees."""
    process = subprocess.Popen(
        argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    peak, over = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.003):
            peak = max(peak, resident_memory(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    process.wait()
    over.set()
    watcher.join()
    return peak * 1024 / 1e6


def provider(replies: list[dict[str, object]]) -> list[str]:
    script = json.dumps({"replies": replies, "by": "turn"})
    return [PYTHON, "-m", "treadle.testing.provider", "--lenient", "--script", script]


def check_work(argv: list[str], turns: int, folder: Path, env: dict[str, str]) -> None:
    """That the commands are really run, before their cost is believed."""
    told = subprocess.run(
        [*argv, "--output-format", "stream-json"],
        cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    events = [json.loads(line) for line in told.splitlines()]
    ended = [event for event in events if event["type"] == "tool_finished"]
    if [event["is_error"] for event in ended] != [False] * turns:
        raise SystemExit(f"not all of the commands were run: {ended[:1]}")


def replies(turns: int) -> list[dict[str, object]]:
    calls: list[dict[str, object]] = [
        {
            "text": "Looking at the next one. ",
            "calls": [{"name": "bash", "arguments": {"command": f"echo line {number}; ls"}}],
        }
        for number in range(turns)
    ]
    return [*calls, {"text": "That is all there is to say about it."}]


def environment(place: Path, url: str) -> dict[str, str]:
    env = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    return {**env, "HOME": str(place / "home"), "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k"}


def list_rows(turns: int, one: str, many: str) -> list[Row]:
    ask = [*TREADLE, "-p", "go"]
    shell = [*ask, "--allow", "Bash(*)", "--sandbox"]
    return [
        Row("import", 1.2, PASS, [PYTHON, "-I", "-c", "import treadle"], one),
        Row("first agent", 1.4, LIBRARIES, [PYTHON, "-I", "-c", FIRST_AGENT], one),
        Row("--version", 2.0, PASS, [*TREADLE, "--version"], one),
        Row("one reply", 1.5, [*BARE, one, "--httpx"], ask, one),
        Row("one reply, floor without httpx", None, [*BARE, one], ask, one),
        Row(f"{turns} shell turns", 2.3, [*BARE, many, "--httpx"], [*shell, "off"], many),
        Row(f"{turns} turns, sandbox", 3.5, [*BARE, many, "--httpx"], [*shell, "auto"], many),
        Row(f"{turns} turns, floor without httpx", None, [*BARE, many], [*shell, "off"], many),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Start-up and turns against bare floors.")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--turns", type=int, default=20)
    options = parse_options(parser)
    verdict, figures = Verdict(), Figures()
    with (
        tempfile.TemporaryDirectory() as name,
        serve(provider(replies(0))) as one,
        serve(provider(replies(options.turns))) as many,
    ):
        place, folder = Path(name), Path(name, "project")
        for made in (place / "home", folder):
            made.mkdir()
        (folder / "notes.txt").write_text("a line\n")

        def check(
            row: Row, unit: str, most: float | None, cost: Callable[[list[str]], float]
        ) -> None:
            cost(row.argv)  # what is made at the first start
            if options.json:
                figures[f"{row.name}, {unit}"] = (cost(row.argv), unit)
                return
            pairs = take_turns(lambda: cost(row.argv), lambda: cost(row.floor), options.pairs)
            ours, floor = (statistics.median(values) for values in zip(*pairs, strict=True))
            print(f"{row.name}: {ours:.1f} {unit}, floor {floor:.1f} {unit}")
            verdict.check("  of the floor", find_ratio(pairs), most)

        rows = list_rows(options.turns, one, many)
        for row in rows:
            env = environment(place, row.url)
            if row.url is many:
                check_work(row.argv, options.turns, folder, env)
            check(row, "ms", row.most, partial(measure_cpu, folder=folder, env=env))
        for row in (rows[3], rows[6]):
            measure = partial(peak_memory, folder=folder, env=environment(place, row.url))
            check(row, "MB", MOST_MEMORY, measure)
    if options.json:
        show_figures(figures, as_json=True)
        return 0
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())

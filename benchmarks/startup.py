"""What a start and a turn cost, against a bare interpreter and a bare script, in the same run.

    python benchmarks/startup.py [--runs 9] [--turns 20]

    import         `import treadle` against `python -c pass`                     at most 1.2
    first agent    made with a tool, against importing asyncio and msgspec       at most 1.4
    --version      against `python -c pass`                                      at most 2.0
    one reply      `treadle -p` against bare_agent.py over httpx                 at most 1.5
    shell turns    twenty of them, without the sandbox and with it               at most 2.3, 3.5
    memory         of the whole tree of processes, at its highest                under 60 MB

CPU is that of the program and all that it started. Each measurement is paired with its floor, one
after the other, and the ratio is the median over the pairs. bare_agent.py without httpx, which no
program that speaks TLS could be, is shown beside it. The server is a process of its own.
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
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
PYTHON = sys.executable
TREADLE = [PYTHON, "-I", str(HERE.parent / "src/treadle/__main__.py")]
BARE = [PYTHON, "-I", str(HERE / "bare_agent.py")]
PASS = [PYTHON, "-I", "-c", "pass"]
LIBRARIES = [PYTHON, "-I", "-c", "import asyncio, msgspec"]
IMPORT = f"import sys; sys.path.insert(0, {str(HERE.parent / 'src')!r})\nimport treadle"
FIRST_AGENT = f"""{IMPORT}
from treadle.models import Scripted
@treadle.tool(effect="pure")
async def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
treadle.Agent(Scripted(["Done."]), [add])
"""
MOST_MEMORY = 60.0


class Cost(NamedTuple):
    cpu: float
    wall: float


class Row(NamedTuple):
    name: str
    most: float | None
    floor: list[str]
    argv: list[str]


def measure(argv: list[str], folder: Path, env: dict[str, str]) -> Cost:
    began = time.perf_counter()
    process = subprocess.Popen(
        argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(argv)} ended with {process.returncode}")
    return Cost(used.ru_utime + used.ru_stime, wall)


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


def resident_memory(pid: int, parent: bytes = b"") -> int:
    """kB of a process and all below it; a page that several of them share counts once in all."""
    try:
        place = Path(f"/proc/{pid}")
        words = (place / "cmdline").read_bytes()
        if words == parent:
            return 0  # just forked: it shares all pages, which some kernels count twice
        rollup = (place / "smaps_rollup").read_text()
        children = (place / f"task/{pid}/children").read_text().split()
    except OSError:
        return 0
    share = next((line for line in rollup.splitlines() if line.startswith("Pss:")), "Pss: 0")
    return int(share.split()[1]) + sum(resident_memory(int(child), words) for child in children)


def serve(script: dict[str, object]) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [PYTHON, "-m", "treadle.testing.provider", "--lenient", "--script", json.dumps(script)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


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


def compare(row: Row, runs: int, folder: Path, env: dict[str, str]) -> float:
    """Print a row; the ratio of CPU."""
    measure(row.floor, folder, env)
    measure(row.argv, folder, env)
    pairs = [(measure(row.floor, folder, env), measure(row.argv, folder, env)) for _ in range(runs)]
    cpu = statistics.median(ours.cpu / floor.cpu for floor, ours in pairs)
    wall = statistics.median(ours.wall / floor.wall for floor, ours in pairs)
    floor_ms = statistics.median(floor.cpu for floor, _ in pairs) * 1e3
    ours_ms = statistics.median(ours.cpu for _, ours in pairs) * 1e3
    most = f"{row.most:.1f}" if row.most is not None else "-"
    print(
        f"{row.name:34} {floor_ms:9.1f} {ours_ms:9.1f} {cpu:7.2f} {wall:7.2f} {most:>6}", flush=True
    )
    return cpu


def main() -> int:
    parser = argparse.ArgumentParser(description="Start-up and turns against bare floors.")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--turns", type=int, default=20)
    given = parser.parse_args()
    one, one_url = serve({"replies": replies(0), "by": "turn"})
    many, many_url = serve({"replies": replies(given.turns), "by": "turn"})
    failed = False
    try:
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            folder = place / "project"
            for made in (place / "home", folder):
                made.mkdir()
            (folder / "notes.txt").write_text("a line\n")
            env, many_env = environment(place, one_url), environment(place, many_url)
            ask = [*TREADLE, "-p", "go"]
            shell = [*ask, "--allow", "Bash(*)", "--sandbox"]
            turns = f"{given.turns} shell turns"
            rows = [
                (Row("import", 1.2, PASS, [PYTHON, "-I", "-c", IMPORT]), env),
                (Row("first agent", 1.4, LIBRARIES, [PYTHON, "-I", "-c", FIRST_AGENT]), env),
                (Row("--version", 2.0, PASS, [*TREADLE, "--version"]), env),
                (Row("one reply", 1.5, [*BARE, one_url, "--httpx"], ask), env),
                (Row("one reply, floor without httpx", None, [*BARE, one_url], ask), env),
                (Row(turns, 2.3, [*BARE, many_url, "--httpx"], [*shell, "off"]), many_env),
                (Row(f"{turns}, sandbox", 3.5, [*BARE, many_url, "--httpx"], [*shell, "auto"]),
                 many_env),
                (Row(f"{turns}, floor without httpx", None, [*BARE, many_url], [*shell, "off"]),
                 many_env),
            ]  # fmt: skip
            for how in ("off", "auto"):
                check_work([*shell, how], given.turns, folder, many_env)
            print(f"{'':34} {'floor ms':>9} {'ours ms':>9} {'CPU x':>7} {'wall x':>7} {'most':>6}")
            for row, used in rows:
                ratio = compare(row, given.runs, folder, used)
                failed |= row.most is not None and ratio > row.most
            for label, argv, used in (("one reply", ask, env), (turns, [*shell, "auto"], many_env)):
                peak = max(peak_memory(argv, folder, used) for _ in range(3))
                print(f"peak memory, {label}: {peak:.0f} MB (less than {MOST_MEMORY:.0f})")
                failed |= peak >= MOST_MEMORY
    finally:
        for server in (one, many):
            server.terminate()
            server.wait()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

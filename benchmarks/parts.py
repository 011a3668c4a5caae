"""Where it goes: bytecodes, memory and system calls by part, a part being a folder of the code.

    python benchmarks/parts.py [round turn agents open screen] [--entries 10000]

    round    a round in process                    open     a session of many entries, for each
    turn     a turn over HTTP                      screen   the terminal, until its first screen
    agents   a turn of 200 agents at once

Bytecodes are counted one by one, so they hardly differ between two runs or machines; they say
nothing about what is written in C. Memory is what is held at the end of the work. System calls are
those of the whole process (strace, a Debian package; without it they are left out).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.http_turns import SERVER, Treadle
from benchmarks.journal import write_long
from benchmarks.loop import add, script
from benchmarks.measure import serve
from benchmarks.terminal_keys import PtyProgram

ROUNDS, TURNS, AGENTS = 200, 100, 200
FIRST_TEXT = b"/help"  # on the first screen
Work = Callable[[], Coroutine[None, None, object]]  # what it returns is held
Counts = Counter[str]


@cache
def find_part(file: str) -> str:
    _, is_ours, place = file.partition("/src/treadle/")
    if is_ours:
        return str(Path(place).parent)
    library = re.search(r"/(?:site-packages|lib/python[\d.]+)/(?!site-packages)([^/]+)", file)
    return f"({library[1].removesuffix('.py')})" if library else "(other)"


def trace_parts(parts: Counts) -> None:
    """Count the bytecodes from now on."""

    def count(frame: FrameType, event: str, argument: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        parts[find_part(frame.f_code.co_filename)] += event == "opcode"
        return count

    sys.settrace(count)


async def count_bytecodes(work: Work) -> Counts:
    parts = Counts()
    trace_parts(parts)
    try:
        await asyncio.create_task(work())
    finally:
        sys.settrace(None)
    return parts


async def count_memory(work: Work) -> Counts:
    tracemalloc.start()
    held = await work()
    parts = Counts()
    for one in tracemalloc.take_snapshot().statistics("filename"):
        parts[find_part(one.traceback[0].filename)] += one.size
    tracemalloc.stop()
    del held
    return parts


def count_system_calls(case: str, entries: int) -> str:
    if shutil.which("strace") is None:
        return "not counted, because strace is not installed"
    words = [sys.executable, __file__, case, "--plain", f"--entries={entries}"]
    strace = ["strace", "-f", "-c", "-S", "calls", "-U", "calls,name"]
    done = subprocess.run([*strace, *words], check=False, capture_output=True, text=True)
    rows = done.stderr.splitlines()[3:9]
    return ", ".join(" ".join(row.split()) for row in rows) if done.returncode == 0 else done.stderr


# --- the work ----------------------------------------------------------------------------------


async def run_rounds() -> object:
    from treadle import Agent
    from treadle.models import Scripted

    agent = Agent(Scripted(list(script(ROUNDS))), [add], max_turns=ROUNDS + 1)
    async with agent.stream("go") as events:
        async for _ in events:
            pass
    return events


def make_agents(port: str, turns: int, count: int) -> Work:
    async def run() -> object:
        engine = Treadle(f"http://127.0.0.1:{port}/{turns}/1/8/add", "add", turns + 2)
        await asyncio.gather(*(engine.run() for _ in range(count)))
        await engine.aclose()
        return engine

    return run


def make_work(case: str, port: str, options: argparse.Namespace) -> tuple[int, Work]:
    """How many units the work has, and the work."""
    if case == "round":
        return ROUNDS, run_rounds
    if case in ("turn", "agents"):
        turns, count = (TURNS, 1) if case == "turn" else (4, AGENTS)
        return turns * count, make_agents(port, turns, count)
    from treadle.sessions import resume

    folder = Path(options.folder, "session")
    write_long(folder, options.entries, options.entries * 1_000, compacts=False)

    async def open_session() -> object:
        resumed = resume(folder)
        await resumed.journal.aclose()
        return resumed

    return options.entries, open_session


def measure_screen(home: Path) -> Counts:
    """The program counts for itself until it is told that its screen is there."""
    report = home / "report"
    (home / "project").mkdir()
    trust = [sys.executable, "-m", "treadle", "trust", "--approve"]
    env = {**os.environ, "HOME": str(home), "PYTHONPATH": ""}
    subprocess.run(trust, cwd=home / "project", env=env, check=True, stdout=subprocess.DEVNULL)
    program = PtyProgram("http://127.0.0.1:9", home, program=[__file__, "--screen", str(report)])
    program.wait_for(FIRST_TEXT)
    program.settle()
    program.process.send_signal(signal.SIGUSR1)
    program.process.wait()
    program.close()
    return Counts(json.loads(report.read_text()))


def run_screen(report: str) -> None:
    from treadle.__main__ import main

    parts = Counts()

    def stop(*_: object) -> None:
        sys.settrace(None)
        Path(report).write_text(json.dumps(parts))
        os._exit(0)

    signal.signal(signal.SIGUSR1, stop)
    sys.argv = ["treadle"]
    trace_parts(parts)
    main()


async def report(case: str, port: str, options: argparse.Namespace) -> None:
    units, work = make_work(case, port, options)
    await work()  # loads what is needed
    if not options.plain:
        show(case, "bytecodes", units, await count_bytecodes(work))
        show(case, "bytes held", units, await count_memory(work))
        print(f"{case}: system calls of the process: {count_system_calls(case, options.entries)}")


def show(case: str, what: str, units: int, parts: Counts) -> None:
    total = parts.total()
    print(f"{case}: {total / units:,.0f} {what} (each of {units:,})", flush=True)
    for part, count in parts.most_common(15):
        print(f"    {count / units:10,.0f} {count / total:6.1%}  {part}")


def main() -> None:
    cases: Any = ["round", "turn", "agents", "open", "screen"]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("case", nargs="*", choices=[*cases, []], help="by default all")
    parser.add_argument("--entries", type=int, default=10_000, help="for `open`")
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--screen", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.screen:
        run_screen(options.screen)
        return
    for case in options.case or cases:
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as options.folder,
            serve([sys.executable, "-c", SERVER]) as port,
        ):
            if case == "screen":
                show(case, "bytecodes", 1, measure_screen(Path(options.folder)))
            else:
                asyncio.run(report(case, port, options))


if __name__ == "__main__":
    main()

"""Where it goes: bytecodes, memory and system calls by part, a part being a folder of the code.

    python benchmarks/parts.py [round turn agents open screen] [--top 15] [--entries 10000]

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
import shutil
import subprocess
import sys
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.http_turns import SERVER, Treadle
from benchmarks.journal import write_long
from benchmarks.loop import add, script
from benchmarks.measure import serve
from benchmarks.terminal_keys import PtyProgram

ROUNDS, TURNS, AGENTS = 200, 100, 200
FIRST_TEXT = b"sandbox"  # on the first screen
Work = Callable[[], Awaitable[object]]  # what it returns is held
Counts = Counter[str]


def find_part(file: str) -> str:
    _, is_ours, place = file.partition("/src/treadle/")
    if is_ours:
        return str(Path(place).parent)
    for library in ("asyncio", "benchmarks", "textual", "rich"):
        if f"/{library}/" in file:
            return f"({library})"
    return "(other)"


def make_tracer(seen: Counter[CodeType]) -> Callable[..., object]:
    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., object]:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        code = frame.f_code

        def count(frame: FrameType, event: str, argument: object) -> Callable[..., object]:
            if event == "opcode":
                seen[code] += 1
            return count

        return count

    return trace


def by_part(seen: Counter[CodeType]) -> Counts:
    parts = Counts()
    for code, count in seen.items():
        parts[find_part(code.co_filename)] += count
    return parts


async def count_bytecodes(work: Work) -> Counts:
    seen: Counter[CodeType] = Counter()
    sys.settrace(make_tracer(seen))
    try:
        await asyncio.create_task(work())  # type: ignore[arg-type]  # a coroutine
    finally:
        sys.settrace(None)
    return by_part(seen)


async def count_memory(work: Work) -> Counts:
    tracemalloc.start()
    held = await work()
    parts = Counts()
    for one in tracemalloc.take_snapshot().statistics("filename"):
        parts[find_part(one.traceback[0].filename)] += one.size
    tracemalloc.stop()
    del held
    return parts


def count_system_calls(case: str, options: argparse.Namespace) -> str:
    if shutil.which("strace") is None:
        return "not counted: strace is not installed"
    words = [sys.executable, __file__, case, "--plain", f"--entries={options.entries}"]
    with tempfile.NamedTemporaryFile("r") as report:
        strace = ["strace", "-f", "-c", "-U", "name,calls", "-o", report.name]
        if subprocess.run([*strace, *words], check=False, capture_output=True).returncode:
            return "not counted: strace may not trace here"
        rows = [line.split() for line in report.read().splitlines()]
    calls = [(int(row[1]), row[0]) for row in rows if len(row) == 2 and row[1].isdigit()]
    most = sorted((call for call in calls if call[1] != "total"), reverse=True)[:6]
    return ", ".join(f"{name} {count}" for count, name in most)


# --- the work ----------------------------------------------------------------------------------


async def run_rounds(rounds: int = ROUNDS) -> object:
    from treadle import Agent
    from treadle.models import Scripted

    agent = Agent(Scripted(list(script(rounds))), [add], max_turns=rounds + 1)
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


async def measure(case: str, port: str, options: argparse.Namespace) -> tuple[int, list[Work]]:
    """How many units the work has, and the work: first a small one that loads what is needed."""
    if case == "round":
        return ROUNDS, [lambda: run_rounds(10), run_rounds]
    if case in ("turn", "agents"):
        turns, count = (TURNS, 1) if case == "turn" else (20, AGENTS)
        return turns * count, [make_agents(port, 3, 1), make_agents(port, turns, count)]
    from treadle.sessions import resume

    folder = Path(options.folder)
    for name, entries in (("small", 100), ("large", options.entries)):
        write_long(folder / name, entries, entries * 1_000, compacts=False)

    async def open_session(name: str) -> object:
        resumed = resume(folder / name)
        await resumed.journal.aclose()
        return resumed

    return options.entries, [lambda: open_session("small"), lambda: open_session("large")]


def measure_screen(options: argparse.Namespace) -> Counts:
    """The program counts for itself until it ends; it is told to when its screen is there."""
    home = Path(options.folder)
    program = PtyProgram("http://127.0.0.1:9", home, program=[__file__, "--screen", options.folder])
    try:
        program.wait_for(FIRST_TEXT)
        program.settle()
    finally:
        program.write(b"\x04")
        found = home / "counts.json"
        while not found.exists():
            program.read(0.1)
        program.close()
    return Counts(json.loads(found.read_text()))


def run_screen(folder: str) -> None:
    seen: Counter[CodeType] = Counter()
    sys.argv = ["treadle"]
    sys.settrace(make_tracer(seen))
    try:
        from treadle.__main__ import main

        main()
    finally:
        sys.settrace(None)
        part = Path(folder, "counts.part")
        part.write_text(json.dumps(by_part(seen)))
        part.rename(Path(folder, "counts.json"))


async def report(case: str, port: str, options: argparse.Namespace) -> None:
    if case == "screen":
        show(case, "bytecodes", 1, measure_screen(options), options.top)
        return
    units, (small, large) = await measure(case, port, options)
    await small()
    if options.plain:
        await large()
        return
    show(case, "bytecodes", units, await count_bytecodes(large), options.top)
    show(case, "bytes held", units, await count_memory(large), options.top)
    print(f"{case}: system calls of the process: {count_system_calls(case, options)}\n", flush=True)


def show(case: str, what: str, units: int, parts: Counts, top: int) -> None:
    total = parts.total()
    print(f"{case}: {total / units:,.0f} {what} (each of {units:,})")
    for part, count in parts.most_common(top):
        print(f"    {count / units:10,.0f} {count / total:6.1%}  {part}")


def main() -> None:
    cases: Any = ["round", "turn", "agents", "open", "screen"]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("case", nargs="*", choices=[*cases, []], help="by default all")
    parser.add_argument("--top", type=int, default=15, help="how many parts are shown")
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
            asyncio.run(report(case, port, options))


if __name__ == "__main__":
    main()

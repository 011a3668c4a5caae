"""Where it goes: bytecodes, blocks, memory and system calls, by part: a folder of the code.

    python benchmarks/parts.py [round turn agents open screen] [--entries 10000] [--agents 50,200]

    round    a round in process                    open     a session of many entries, for each
    turn     a turn over HTTP                      screen   the terminal, until its first screen
    agents   a turn of many agents at once; then what another agent costs at the larger number

Bytecodes are counted one by one, so they hardly differ between two runs or machines; they say
nothing about what is written in C. Blocks are the pieces of memory that a bytecode has allocated
and not freed itself. Memory is what is held at the end of the work; of agents, when the first of
them ends. System calls belong to the part that called into C last (strace, a Debian package;
without it they are left out).
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
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.http_turns import SERVER, Treadle
from benchmarks.measure import Figures, read_memory, serve, show_figures
from benchmarks.terminal_keys import PtyProgram

ROUNDS, TURNS, AGENT_TURNS = 200, 100, 4
FIRST_TEXT = b"/help"  # on the first screen
MARK = "/part:"  # a file that is not there: looking for it is a line in the output of strace
MEGABYTE = 1 << 20
Work = Callable[[Callable[[], None]], Coroutine[None, None, None]]  # calls it when most is held
Counts = Counter[str]


@cache
def find_part(file: str) -> str:
    _, is_ours, place = file.partition("/src/treadle/")
    if is_ours:
        return str(Path(place).parent)
    if file.startswith("<frozen importlib"):
        return "(import)"
    library = re.search(r"/(?:site-packages|lib/python[\d.]+)/(?!site-packages)([^/]+)", file)
    return f"({library[1].removesuffix('.py')})" if library else "(other)"


class Tracer:
    """Counts the bytecodes of each part, and the blocks that they allocate."""

    def __init__(self) -> None:
        self.bytecodes, self.blocks = Counts(), Counts()
        self._part, self._known = "", 0  # of the last bytecode; the blocks after it

    def start(self) -> None:
        self._known = sys.getallocatedblocks()
        sys.settrace(self._count)

    def start_without_blocks(self) -> None:
        """In a quarter of the time: a program waits on the clock, too."""
        sys.settrace(self._count_bytecode)

    def _count_bytecode(self, frame: FrameType, event: str, argument: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.bytecodes[find_part(frame.f_code.co_filename)] += event == "opcode"
        return self._count_bytecode

    def _count(self, frame: FrameType, event: str, argument: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        known = sys.getallocatedblocks()
        if event == "opcode":
            if known > self._known:
                self.blocks[self._part] += known - self._known
            self._part = find_part(frame.f_code.co_filename)
            self.bytecodes[self._part] += 1
        self._known = known
        return self._count


async def count_bytecodes(work: Work, *, blocks: bool = True) -> Tracer:
    tracer = Tracer()
    start = tracer.start if blocks else tracer.start_without_blocks
    start()
    try:
        await asyncio.create_task(work(lambda: None))
    finally:
        sys.settrace(None)
    return tracer


def count_held() -> Counts:
    parts = Counts()
    for one in tracemalloc.take_snapshot().statistics("filename"):
        parts[find_part(one.traceback[0].filename)] += one.size
    return parts


async def count_memory(work: Work) -> Counts:
    parts = Counts()
    tracemalloc.start()
    await work(lambda: parts.update(count_held()))
    tracemalloc.stop()
    return parts


def mark_parts() -> None:
    """From now on each call into C of another part than the last one of its thread is marked."""
    parts: dict[int, str] = {}

    def mark(frame: FrameType, event: str, argument: object) -> None:
        part, thread = find_part(frame.f_code.co_filename), threading.get_ident()
        if event == "c_call" and parts.get(thread) != part:
            parts[thread] = part
            os.access(MARK + part, os.F_OK)

    threading.setprofile(mark)
    sys.setprofile(mark)


def trace_calls(output: Path, words: list[str]) -> list[str]:
    return ["strace", "-f", "-o", str(output), *words]


def read_calls(output: Path) -> Counts:
    """System calls by part and name, from the first mark to the mark of the end."""
    parts, current = Counts(), dict[str, str]()
    for line in output.read_text(errors="replace").splitlines():
        found = re.match(r"(\d+) +(\w+)\((?:\w+, )?(?:\"(.*?)\")?", line)
        if found is None:
            continue  # a signal, or the end of a call that was counted
        thread, name, path = found.groups(default="")
        if path.startswith(MARK):
            current[thread] = path.removeprefix(MARK)
            if current[thread] == "end":
                break
        elif thread in current:
            parts[f"{current[thread]}: {name}"] += 1
    return parts


def count_system_calls(case: str, options: argparse.Namespace) -> Counts | None:
    if shutil.which("strace") is None:
        return None
    output = Path(options.folder, "calls")
    words = [sys.executable, __file__, case, "--plain", f"--entries={options.entries}"]
    subprocess.run(trace_calls(output, [*words, f"--agents={options.agents}"]), check=True)
    return read_calls(output)


# --- the work ----------------------------------------------------------------------------------


async def run_rounds(when_done: Callable[[], None]) -> None:
    from benchmarks.loop import add, script
    from treadle import Agent
    from treadle.models import Scripted

    agent = Agent(Scripted(list(script(ROUNDS))), [add], max_turns=ROUNDS + 1)
    async with agent.stream("go") as events:
        async for _ in events:
            pass
        when_done()


def make_agents(port: str, turns: int, count: int) -> Work:
    async def run(when_done: Callable[[], None]) -> None:
        engine = Treadle(f"http://127.0.0.1:{port}/{turns}/1/8/add", "add", turns + 2)
        tasks = [asyncio.create_task(engine.run()) for _ in range(count)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        when_done()
        await asyncio.gather(*tasks)
        await engine.aclose()

    return run


def make_work(case: str, port: str, options: argparse.Namespace) -> tuple[int, Work]:
    """How many units the work has, and the work."""
    if case == "round":
        return ROUNDS, run_rounds
    if case == "turn":
        return TURNS, make_agents(port, TURNS, 1)
    if case == "agents":
        return options.count * AGENT_TURNS, make_agents(port, AGENT_TURNS, options.count)
    from benchmarks.journal import write_long
    from treadle.sessions import resume

    folder = Path(options.folder, "session")
    write_long(folder, options.entries, options.entries * 1_000, compacts=False)

    async def open_session(when_done: Callable[[], None]) -> None:
        resumed = resume(folder)
        when_done()
        await resumed.journal.aclose()

    return options.entries, open_session


async def count_case(case: str, port: str, options: argparse.Namespace, report: Report) -> None:
    units, work = make_work(case, port, options)
    await work(lambda: None)  # loads what is needed
    if options.plain:
        mark_parts()
        await work(lambda: None)
        sys.setprofile(None)
        os.access(MARK + "end", os.F_OK)
        return
    tracer = await count_bytecodes(work, blocks=case != "agents")  # which wait for each other
    report.show(case, "bytecodes", units, tracer.bytecodes)
    if tracer.blocks:
        report.show(case, "blocks allocated", units, tracer.blocks)
    report.show(case, "bytes held", units, await count_memory(work))
    if not options.json:
        report.show(case, "system calls", units, count_system_calls(case, options))


async def report_growth(port: str, options: argparse.Namespace) -> None:
    """What each agent more costs at the larger number, beside what one costs at the smaller."""
    counts = [int(number) for number in options.agents.split(",")]
    held, bytecodes = list[Counts](), list[Counts]()
    for options.count in counts:
        _, work = make_work("agents", port, options)
        await work(lambda: None)
        bytecodes.append((await count_bytecodes(work, blocks=False)).bytecodes)
        held.append(await count_memory(work))
    few, many = counts
    for what, (before, after) in (("bytecodes", bytecodes), ("bytes held", held)):
        print(f"{what} of an agent: of {few}, and of each more up to {many}")
        for part, _ in (after + Counts(all=after.total())).most_common(12):
            one = before.total() if part == "all" else before[part]
            other = after.total() if part == "all" else after[part]
            print(f"    {one / few:10,.0f} {(other - one) / (many - few):10,.0f}  {part}")


# --- the first screen --------------------------------------------------------------------------


def measure_screen(home: Path, report: Report) -> None:
    (home / "project").mkdir()
    trust = [sys.executable, "-m", "treadle", "trust", "--approve"]
    env = {**os.environ, "HOME": str(home), "PYTHONPATH": ""}
    subprocess.run(trust, cwd=home / "project", env=env, check=True, stdout=subprocess.DEVNULL)
    memory = wait_for_screen(home, ["-m", "treadle"])
    report.show("screen", "MB of memory", MEGABYTE, Counts(all=memory))
    for what in ("bytecodes", "bytes held", "system calls"):
        file = home / what
        wait_for_screen(home, [__file__, "--screen", str(file), "--what", what], file)
        if what != "system calls":
            report.show("screen", what, 1, Counts(json.loads(file.read_text())))
        elif shutil.which("strace") is not None:
            report.show("screen", what, 1, read_calls(home / "calls"))


def wait_for_screen(home: Path, words: list[str], report: Path | None = None) -> int:
    """The memory of the program when its screen is there; then it is told to report."""
    program = PtyProgram("http://127.0.0.1:9", home, program=words)
    program.wait_for(FIRST_TEXT)
    program.settle()
    memory = read_memory(program.process.pid)
    if report is not None:
        os.kill(int(report.with_name("pid").read_text()), signal.SIGUSR1)
        program.process.wait()
    program.close()
    return memory


def run_screen(report: Path, what: str) -> None:
    """The program counts for itself until it is told that its screen is there."""
    calls = report.with_name("calls")
    if what == "system calls" and shutil.which("strace") and not calls.exists():
        words = trace_calls(calls, [sys.executable, *sys.argv])
        os.execvp(words[0], words)
    report.with_name("pid").write_text(str(os.getpid()))
    tracer = Tracer()

    def stop(*_: object) -> None:
        sys.settrace(None)
        sys.setprofile(None)
        os.access(MARK + "end", os.F_OK)
        report.write_text(json.dumps(count_held() if what == "bytes held" else tracer.bytecodes))
        os._exit(0)

    signal.signal(signal.SIGUSR1, stop)
    sys.argv = ["treadle"]
    starts = {"bytecodes": tracer.start_without_blocks, "bytes held": tracemalloc.start}
    starts.get(what, mark_parts)()
    from treadle.__main__ import main

    main()


class Report:
    """Prints the parts; or keeps the totals for compare.py."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self.figures: Figures = {}

    def show(self, case: str, what: str, units: int, parts: Counts | None) -> None:
        if parts is None:
            print(f"{case}: {what} are not counted, because strace is not installed")
            return
        total = parts.total()
        self.figures[f"{case}: {what}"] = (total / units, "")
        if self._as_json:
            return
        print(f"{case}: {total / units:,.1f} {what} (each of {units:,})", flush=True)
        for part, count in parts.most_common(15):
            print(f"    {count / units:10,.1f} {count / total:6.1%}  {part}")


def main() -> None:
    cases: Any = ["round", "turn", "agents", "open", "screen"]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("case", nargs="*", choices=[*cases, []], help="by default all")
    parser.add_argument("--entries", type=int, default=10_000, help="for `open`")
    parser.add_argument("--json", action="store_true", help="only totals, for compare.py")
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--agents", default="50,200", help="a smaller and a larger number")
    parser.add_argument("--screen", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--what", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.screen:
        run_screen(options.screen, options.what)
        return
    report = Report(as_json=options.json)
    options.count = int(options.agents.split(",")[-1])
    for case in options.case or cases:
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as options.folder,
            serve([sys.executable, "-c", SERVER]) as port,
        ):
            if case == "screen":
                measure_screen(Path(options.folder), report)
                continue
            asyncio.run(count_case(case, port, options, report))
            if case == "agents" and not (options.plain or options.json):
                asyncio.run(report_growth(port, options))
    if options.json:
        show_figures(report.figures, as_json=True)


if __name__ == "__main__":
    main()

"""What the built-in tools cost beside the programs they run.

    python benchmarks/tools.py [--files 100000] [--rounds 15] [--folder DIR] [--ahead]

bash: milliseconds from call to answer, against a bare subprocess of the same shell in the same run:
5 times at most, 12 times with the sandbox. grep and glob over a tree of many files: 1.3 times of
ripgrep itself at most. Calls are interleaved with what they are compared with, and the best quarter
of each counts, because a busy machine slows both. CPU time is told beside it, of all processes that
took part; it hardly depends on what else runs. `--ahead` (root) runs before everything else that
wants the processors, and so shows what a machine without other work would. Specs have to be there
in less CPU than a bare interpreter needs to start.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import Verdict, find_ratio, parse_options, take_turns
from treadle.core.contracts.tool import ToolContext
from treadle.lib.files.ripgrep import find_ripgrep
from treadle.tools.builtin import STANDARD_TOOLS, BuiltinSource, builtin_tools
from treadle.tools.builtin.search.ripgrep import DEFAULT_OPTIONS
from treadle.workspace.local import LocalWorkspace
from treadle.workspace.options import WorkspaceOptions

MOST_BARE = {"off": 5.0, "auto": 12.0}
MOST_TIMES = 1.3
MOST_SPECS = 1.0
PAUSE = 0.03
CODE = "import os\n\n\ndef f{n}():\n    return os.name  # {n}\n"


def nothing(*_: object) -> None:
    return None


async def call(tools: BuiltinSource, name: str, **arguments: Any) -> str:
    tool = next(one for one in tools.tools() if one.spec.name == name)
    assert tool.check(arguments) is None
    context = ToolContext("s", "t", "c", "k", nothing, nothing, nothing)
    output = await tool.call(arguments, context)
    assert not output.is_error, output
    return str(output.content)


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1e3


async def program(*argv: str, cwd: Path) -> None:
    """A bare subprocess whose output is taken, as the tools have to take it."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    await process.communicate()


def cpu() -> float:
    """Milliseconds of CPU so far: ours, of children that ended, of those that live, and theirs."""
    spent = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        spent += (usage.ru_utime + usage.ru_stime) * 1e3
    tick = 1e3 / os.sysconf("SC_CLK_TCK")
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        spent += sum(map(int, fields[11:15])) * tick
    return spent


async def spent(work: Callable[[], Awaitable[object]], rounds: int) -> float:
    """CPU of one call, the mean of many."""
    began = cpu()
    for _ in range(rounds):
        await work()
    await asyncio.sleep(PAUSE)  # what is tidied up after an answer counts as well
    return (cpu() - began) / rounds


class Compared(NamedTuple):
    """Milliseconds from call to answer, the best quarter, and of CPU."""

    ours: float
    bare: float
    our_cpu: float
    bare_cpu: float


async def compared(
    ours: Callable[[], Awaitable[object]], theirs: Callable[[], Awaitable[object]], rounds: int
) -> Compared:
    """One after the other in each round; before it a pause, as a model makes one, too."""
    mine: list[float] = []
    other: list[float] = []
    await ours()
    await theirs()
    for _ in range(rounds):
        await asyncio.sleep(PAUSE)
        mine.append(await timed(ours))
        other.append(await timed(theirs))
    walls = statistics.quantiles(mine)[0], statistics.quantiles(other)[0]
    return Compared(*walls, await spent(ours, rounds), await spent(theirs, rounds))


async def commands(folder: Path, rounds: int) -> bool:
    holds = True
    shell = shutil.which("bash") or "/bin/sh"
    for sandbox, most in MOST_BARE.items():
        options = WorkspaceOptions(sandbox="off" if sandbox == "off" else "auto")
        workspace = await LocalWorkspace.open(folder, options)
        try:
            if sandbox == "auto" and not workspace.sandboxed:
                print(f"bash, sandboxed: not measured, {workspace.sandbox_problem}")
                continue
            tools = builtin_tools(workspace)
            found = await compared(
                lambda tools=tools: call(tools, "bash", command="echo hi"),  # type: ignore[misc]
                lambda: program(shell, "-c", "echo hi", cwd=folder),
                rounds * 3,
            )
        finally:
            await workspace.aclose()
        name = "bash" if sandbox == "off" else "bash, sandboxed"
        times = found.ours / found.bare
        print(
            f"{name}: {found.ours:.1f} ms, bare {found.bare:.1f} ms: {times:.1f} times, {most:g} "
            f"allowed; CPU {found.our_cpu:.1f} and {found.bare_cpu:.1f} ms"
        )
        holds = holds and times <= most
    return holds


def plant(folder: Path, count: int) -> None:
    for group in range(0, count, 200):
        place = folder / f"p{group // 20_000}" / f"d{group // 200:04}"
        place.mkdir(parents=True)
        for number in range(group, min(group + 200, count)):
            suffix = "py" if number % 4 == 0 else "txt"
            (place / f"f{number}.{suffix}").write_text(CODE.format(n=number))


async def searches(folder: Path, count: int, rounds: int) -> bool:
    plant(folder, count)
    workspace = await LocalWorkspace.open(folder, WorkspaceOptions(sandbox="off"))
    holds = True
    rg = find_ripgrep() or "rg"
    try:
        tools = builtin_tools(workspace)
        kinds: list[tuple[str, dict[str, Any], list[str]]] = [
            ("glob", {"pattern": "**/*.py"}, ["--files", "--null", "--glob=**/*.py"]),
            ("glob", {"pattern": "f777*"}, ["--files", "--null", "--glob=f777*"]),
            ("grep", {"pattern": "return"}, ["-l", "--null", "-e", "return"]),
            ("grep", {"pattern": r"f\d*99\(\)"}, ["-l", "--null", "-e", r"f\d*99\(\)"]),
            (
                "grep",
                {"pattern": "return", "output_mode": "content"},
                ["--no-heading", "-n", "--null", "-e", "return"],
            ),
        ]
        for name, arguments, options in kinds:
            seen = await compared(
                lambda n=name, a=arguments: call(tools, n, **a),  # type: ignore[misc]
                lambda o=options: program(rg, *DEFAULT_OPTIONS, *o, "--", "./", cwd=folder),  # type: ignore[misc]
                rounds,
            )
            times = seen.ours / seen.bare
            print(
                f"{name} {arguments['pattern']}: {seen.ours:.0f} ms, ripgrep {seen.bare:.0f} ms: "
                f"{times:.2f} times, {MOST_TIMES:g} allowed; "
                f"CPU {seen.our_cpu:.0f} and {seen.bare_cpu:.0f} ms"
            )
            holds = holds and times <= MOST_TIMES
    finally:
        await workspace.aclose()
    return holds


def specs() -> bool:
    code = (
        "import time, pathlib, treadle.agents.agent\n"
        "from treadle.tools.builtin import builtin_tools\n"
        "class W: root = pathlib.Path('/')\n"
        "began = time.process_time(); builtin_tools(W())\n"
        "print(time.process_time() - began)"
    )
    bare = "import time; print(time.process_time())"
    pairs = take_turns(lambda: run_code(code), lambda: run_code(bare), 5)
    verdict = Verdict()
    verdict.check(f"specs of {len(STANDARD_TOOLS)} tools", find_ratio(pairs), MOST_SPECS)
    return verdict.is_good


def run_code(code: str) -> float:
    return float(subprocess.check_output([sys.executable, "-I", "-c", code]))


async def measured(files: int, rounds: int, where: str | None) -> bool:
    with tempfile.TemporaryDirectory(prefix="treadle-tools-", dir=where) as name:
        folder = Path(name)
        (folder / "empty").mkdir()
        results = [specs(), await commands(folder / "empty", rounds)]
        (folder / "tree").mkdir()
        results.append(await searches(folder / "tree", files, rounds))
    return all(results)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", help="where the tree is planted for the while")
    given = parse_options(parser)
    holds = asyncio.run(measured(given.files, given.rounds, given.folder))
    print("holds" if holds else "DOES NOT HOLD")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())

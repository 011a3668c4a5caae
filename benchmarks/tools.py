"""What the built-in tools cost beside the programs they run.

    python benchmarks/tools.py [--files 100000] [--rounds 15] [--folder DIR]

bash: milliseconds from call to answer, against a bare subprocess of the same shell in the same run:
20 ms more at most, 40 ms with the sandbox. grep and glob over a tree of many files: 1.3 times of
ripgrep itself at most. Calls are interleaved with what they are compared with, and the best quarter
of each counts, because a busy machine slows both. Specs have to be there in a few milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from treadle.core.contracts.tool import ToolContext
from treadle.tools.builtin import STANDARD, Builtin, builtin_tools
from treadle.tools.builtin.rg import USUAL, ripgrep
from treadle.workspace.local import LocalWorkspace, Options

MOST_MORE = {"off": 20.0, "auto": 40.0}
MOST_TIMES = 1.3
MOST_SPECS = 10.0
CODE = "import os\n\n\ndef f{n}():\n    return os.name  # {n}\n"


def nothing(*_: object) -> None:
    return None


async def call(tools: Builtin, name: str, **arguments: Any) -> str:
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


async def compared(
    ours: Callable[[], Awaitable[object]], theirs: Callable[[], Awaitable[object]], rounds: int
) -> tuple[float, float]:
    """The best quarter of each in milliseconds, one after the other in each round."""
    mine: list[float] = []
    other: list[float] = []
    await ours()
    await theirs()
    for _ in range(rounds):
        mine.append(await timed(ours))
        other.append(await timed(theirs))
    return statistics.quantiles(mine)[0], statistics.quantiles(other)[0]


async def commands(folder: Path, rounds: int) -> bool:
    holds = True
    shell = shutil.which("bash") or "/bin/sh"
    for sandbox, most in MOST_MORE.items():
        options = Options(sandbox="off" if sandbox == "off" else "auto")
        workspace = await LocalWorkspace.open(folder, options)
        try:
            if sandbox == "auto" and not workspace.sandboxed:
                print(f"bash, sandboxed: not measured, {workspace.sandbox_problem}")
                continue
            tools = builtin_tools(workspace)
            ours, bare = await compared(
                lambda tools=tools: call(tools, "bash", command="echo hi"),  # type: ignore[misc]
                lambda: program(shell, "-c", "echo hi", cwd=folder),
                rounds * 3,
            )
        finally:
            await workspace.aclose()
        name = "bash" if sandbox == "off" else "bash, sandboxed"
        print(
            f"{name}: {ours:.1f} ms, bare {bare:.1f} ms: {ours - bare:.1f} more, {most:g} allowed"
        )
        holds = holds and ours - bare <= most
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
    workspace = await LocalWorkspace.open(folder, Options(sandbox="off"))
    holds = True
    rg = ripgrep()
    try:
        tools = builtin_tools(workspace)
        kinds: list[tuple[str, dict[str, Any], list[str]]] = [
            ("glob", {"pattern": "**/*.py"}, ["--files", "--null", "--glob=**/*.py"]),
            ("glob", {"pattern": "f777*"}, ["--files", "--null", "--glob=f777*"]),
            ("grep", {"pattern": r"f\d*99\(\)"}, ["-l", "--null", "-e", r"f\d*99\(\)"]),
            (
                "grep",
                {"pattern": "return", "output_mode": "content"},
                ["--no-heading", "-n", "--null", "-e", "return"],
            ),
        ]
        for name, arguments, options in kinds:
            ours, bare = await compared(
                lambda n=name, a=arguments: call(tools, n, **a),  # type: ignore[misc]
                lambda o=options: program(rg, *USUAL, *o, "--", "./", cwd=folder),  # type: ignore[misc]
                rounds,
            )
            times = ours / bare
            what = f"{name} {arguments['pattern']}"
            print(f"{what}: {ours:.0f} ms, ripgrep {bare:.0f} ms: {times:.2f} times")
            holds = holds and times <= MOST_TIMES
    finally:
        await workspace.aclose()
    return holds


def specs() -> bool:
    code = (
        "import time, pathlib, treadle.agents.agent\n"
        "from treadle.tools.builtin import STANDARD, builtin_tools\n"
        "class W: root = pathlib.Path('/')\n"
        "began = time.process_time(); builtin_tools(W(), STANDARD)\n"
        "print((time.process_time() - began) * 1e3)"
    )
    spent = min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5))
    print(f"specs of {len(STANDARD)} tools: {spent:.1f} ms of CPU, {MOST_SPECS:g} allowed")
    return spent <= MOST_SPECS


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
    given = parser.parse_args()
    holds = asyncio.run(measured(given.files, given.rounds, given.folder))
    print("holds" if holds else "DOES NOT HOLD")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())

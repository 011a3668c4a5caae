"""What it costs to open a sandbox and run the first command in it, in milliseconds.

    python benchmarks/sandbox_open.py [--times 12] [--json]

Each opening is a process of its own. The first opening of a process loads modules, which some
versions load at their import, so the imports are counted. benchmarks/tools.py has the cost of a
command in a sandbox that is open. The floor is the same without a sandbox, by turns; a sandbox may
cost three times of its CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import Verdict, find_ratio, parse_options, show_figures

ROWS = ("import, open, first command", "open, first command again", "CPU of both")
MOST_OF_FLOOR = (None, None, 3.0)  # of the CPU: other programs change it less


async def measure(folder: Path, began: float, sandbox: str) -> list[float]:
    """Milliseconds of the rows, in this process."""
    from treadle.workspace import local

    names = vars(local)  # where older versions have the options
    options = names["WorkspaceOptions"](sandbox=sandbox, state_dir=folder / "state")
    found = []
    for _ in range(2):
        workspace = await local.LocalWorkspace.open(folder / "work", options)
        assert (await workspace.run("true")).exit_code == 0
        found.append((time.perf_counter() - began) * 1e3)
        await workspace.aclose()
        began = time.perf_counter()
    return [*found, time.process_time() * 1e3]


def run_child(folder: str, sandbox: str = "required") -> list[float]:
    words = [sys.executable, __file__, "--child", folder, "--sandbox", sandbox]
    done = subprocess.check_output(words)
    return [float(value) for value in json.loads(done)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Cost of opening a sandbox.")
    parser.add_argument("--times", type=int, default=12)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sandbox", help=argparse.SUPPRESS)
    options = parse_options(parser)
    if options.child is not None:
        found = asyncio.run(measure(options.child, time.perf_counter(), options.sandbox))
        print(json.dumps(found))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "work").mkdir()
        run_child(folder)  # the first one makes copies
        runs = [(run_child(folder), run_child(folder, "off")) for _ in range(options.times)]
    verdict = Verdict()
    rows = [list(zip(*one, strict=True)) for one in zip(*runs, strict=True)]
    figures = {row: (statistics.median(one), "ms") for row, one in zip(ROWS, rows[0], strict=True)}
    show_figures(figures, as_json=options.json)
    if options.json:
        return 0
    for row, ours, floor, most in zip(ROWS, *rows, MOST_OF_FLOOR, strict=True):
        verdict.check(f"{row}, of no sandbox", find_ratio([*zip(ours, floor, strict=True)]), most)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())

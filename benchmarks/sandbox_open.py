"""What it costs to open a sandbox and run the first command in it, against another version.

    python benchmarks/sandbox_open.py [--against CHECKOUT] [--times 12]

Each opening is a process of its own, and the versions take turns: a busy machine slows both. The
first opening of a process loads modules, which some versions load at their import, so the imports
are counted. benchmarks/tools.py has the cost of a command in a sandbox that is open.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROWS = ("import, open, first command", "open, first command again", "CPU of both")


async def measure(folder: Path, began: float) -> list[float]:
    """Milliseconds of the rows, in this process."""
    from treadle.workspace import local

    names = vars(local)  # where older versions have the options
    options = names["WorkspaceOptions"](sandbox="required", state_dir=folder / "state")
    found = []
    for _ in range(2):
        workspace = await local.LocalWorkspace.open(folder / "work", options)
        assert (await workspace.run("true")).exit_code == 0
        found.append((time.perf_counter() - began) * 1e3)
        await workspace.aclose()
        began = time.perf_counter()
    return [*found, time.process_time() * 1e3]


def run_child(checkout: Path, folder: Path) -> list[float]:
    env = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    (folder / "work").mkdir(parents=True, exist_ok=True)
    words = [sys.executable, __file__, "--child", str(folder)]
    done = subprocess.run(words, env=env, capture_output=True, check=True)
    return [float(value) for value in json.loads(done.stdout)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of opening a sandbox.")
    parser.add_argument("--against", type=Path, help="a checkout of another version")
    parser.add_argument("--times", type=int, default=12)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps(asyncio.run(measure(options.child, time.perf_counter()))))
        return
    own = Path(__file__).resolve().parents[1]
    checkouts = [own] if options.against is None else [own, options.against.resolve()]
    found: dict[Path, list[list[float]]] = {checkout: [] for checkout in checkouts}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.times + 1):
            for at, checkout in enumerate(checkouts):
                times = run_child(checkout, Path(folder, str(at)))
                found[checkout] += [times] if number else []  # the first one makes copies
    for at, row in enumerate(ROWS):
        columns = [[times[at] for times in found[checkout]] for checkout in checkouts]
        texts = [f"{min(one):.1f} ms, median {statistics.median(one):.1f}" for one in columns]
        print(f"{row}: {' against '.join(texts)}")


if __name__ == "__main__":
    main()

"""All benchmarks by one command, and two versions by turns.

    python benchmarks/compare.py                       # each benchmark: its time, whether it holds
    python benchmarks/compare.py BASE HEAD [--only loop,http_turns] [--pairs 5]

BASE and HEAD are commits, or folders with a checkout and its .venv. A commit gets a checkout and an
environment (scripts/environment) once, in ~/.cache/treadle-benchmarks. The benchmarks are those of
this checkout: each runs in the environment of a version, by turns, and the table has the medians
and the ratios of the pairs with their interval. One that cannot run with a version is left out.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import Figures, find_ratio, run_json

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path.home() / ".cache/treadle-benchmarks/commits"
# What prints figures with --json, with sizes that take some seconds.
COMPARED = {
    "loop": ["--rounds", "100,1000,10000"],
    "http_turns": ["--turns", "50,200,800"],
    "startup": [],
    "journal": ["--long", "--size", "100"],
    "sandbox_open": ["--times", "3"],
    "web": ["--entries", "20000"],
    "parts": ["round", "turn", "open", "--entries", "2000"],
    "http_client": ["--pairs", "1"],
    "terminal_keys": ["--keys", "15", "--states", "empty,queue,mention"],
    "code_mode": [],
}
# What has limits, or only prints; those that search for faults for hours are started by hand.
ALL = {
    **dict.fromkeys(COMPARED, ()),
    **dict.fromkeys(("journal", "web"), ("--entries", "20000")),
    **dict.fromkeys(("memory", "tools", "verdict", "cache", "long_session"), ()),
    **dict.fromkeys(("terminal_bytes", "install"), ()),
    "fleet": ("steps",),
    "shut_down": ("--times", "5"),
}


def find_version(name: str) -> Path:
    """The checkout of a version, with its environment."""
    if Path(name, ".venv").is_dir():
        return Path(name).resolve()
    words = ["git", "-C", str(ROOT), "rev-parse", "--verify", f"{name}^{{commit}}"]
    commit = subprocess.check_output(words, text=True).strip()
    place = CACHE / commit
    if not (place / ".ready").exists():
        if not place.exists():
            subprocess.run(["git", "clone", "-q", "-n", str(ROOT), str(place)], check=True)
        subprocess.run(["git", "-C", str(place), "checkout", "-q", commit], check=True)
        subprocess.run([str(place / "scripts/environment"), "dev"], check=True)
        (place / ".ready").touch()
    return place


def run_benchmark(name: str, version: Path) -> Figures:
    words = [str(version / ".venv/bin/python"), str(ROOT / f"benchmarks/{name}.py"), "--json"]
    return run_json([*words, *COMPARED[name]])


def compare(name: str, base: Path, head: Path, pairs: int) -> None:
    try:
        runs = [(run_benchmark(name, base), run_benchmark(name, head)) for _ in range(pairs)]
    except subprocess.CalledProcessError as error:
        print(f"{name}: not measured, because {error.cmd[0]} ended with {error.returncode}")
        return
    for label, (_, unit) in runs[0][1].items():
        found = [(one[label][0], other[label][0]) for one, other in runs if label in one]
        if not found:
            print(f"{name}: {label}: only in HEAD")
            continue
        before, after = (statistics.median(values) for values in zip(*found, strict=True))
        ratio = find_ratio([(other, one) for one, other in found])
        what = f"{name}: {label}"
        print(f"{what:50} {before:9.3f} {after:9.3f} {unit:3} {ratio}", flush=True)


def run_all(only: list[str]) -> int:
    """Run each with its limits; how many do not hold."""
    failed = 0
    for name, options in ALL.items():
        if only and name not in only:
            continue
        began = time.perf_counter()
        words = [sys.executable, str(ROOT / f"benchmarks/{name}.py"), *options]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
        failed += done.returncode != 0
        state = "done" if done.returncode == 0 else f"FAILED ({done.returncode})"
        print(f"--- {name}: {state} in {time.perf_counter() - began:.0f} s")
        print(done.stdout if done.returncode == 0 else done.stdout + done.stderr, flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("version", nargs="*", metavar="COMMIT", help="BASE and HEAD")
    parser.add_argument("--only", default="", help="names of benchmarks, by commas")
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    only = [name for name in options.only.split(",") if name]
    if not options.version:
        return 1 if run_all(only) else 0
    base, head = map(find_version, options.version)
    print(f"{'':50} {'base':>9} {'head':>9}     ratio (9 in 10)")
    for name in only or COMPARED:
        compare(name, base, head, options.pairs)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What an installation costs: packages, megabytes and seconds, against other agent libraries.

    python benchmarks/install.py [--runs 3] [--peer NAME ...]

Each is installed into a new, empty environment by uv, with bytecode, from a filled cache, so that
the network is not measured. The order changes from run to run, and the seconds are the smallest of
all runs; those of the CPU depend less on what else the machine does. Megabytes are all bytes that
the environment has more than before. `import` is a process that imports the library and makes an
agent. Ours is the wheel of this checkout: the base, which has to stay within ten packages and
30 MB, and `treadle[all]`.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MAX_PACKAGES = 10
MAX_MEGABYTES = 31.0
PEERS = ("pydantic-ai-slim", "pydantic-ai-slim[anthropic]", "openai-agents")
FIRST_AGENTS = {
    "treadle": "from treadle import Agent; Agent('anthropic/claude-sonnet-5-5')",
    # Without an extra it has no provider: it can make an agent, and call no model.
    "pydantic-ai-slim": "from pydantic_ai import Agent; Agent('test')",
    "pydantic-ai-slim[anthropic]": (
        "from pydantic_ai import Agent; Agent('anthropic:claude-sonnet-5-5')"
    ),
    "openai-agents": "from agents import Agent; Agent(name='a', model='gpt-5')",
}
KEYS = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}
LIST_PACKAGES = (
    "from importlib.metadata import distributions;"
    "print(*sorted(one.name.lower() for one in distributions()))"
)


class CannotInstall(Exception):
    """Why something could not be installed."""


class Seconds(NamedTuple):
    """The time of a process and of those that it started."""

    wall: float
    cpu: float


class Installation(NamedTuple):
    """A new environment with one requirement and what it needs."""

    python: Path
    packages: tuple[str, ...]
    megabytes: float
    seconds: Seconds

    @property
    def program(self) -> Path:
        return self.python.with_name("treadle")


def find_uv() -> str:
    own = ROOT / ".tools" / "bin" / "uv"
    uv = str(own) if own.exists() else shutil.which("uv")
    if uv is None:
        raise CannotInstall("there is no uv: run scripts/environment dev")
    return uv


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout, built by the hatchling of this environment."""
    argv = [sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotInstall(f"the wheel could not be built: {done.stderr[-2_000:]}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(
    folder: Path,
    requirement: str,
    *,
    locked: bool,
    compiled: bool = True,
    env: Mapping[str, str] = os.environ,
) -> Installation:
    """Install into a new environment: from uv's cache if it has everything, else from the index.

    `locked`: in the versions of requirements.lock. `compiled`: with bytecode, as pip does.
    """
    venv = [sys.executable, "-I", "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(venv, check=True)
    python = folder / "bin" / "python"
    before = count_bytes(folder)
    argv = [find_uv(), "pip", "install", "--python", str(python)]
    argv += ["--compile-bytecode"] if compiled else []
    if locked:
        argv += ["--constraint", str(ROOT / "requirements.lock")]
    began = read_clock()
    done = _run_uv([*argv, "--offline", requirement], env)
    if done.returncode != 0:
        began = read_clock()
        done = _run_uv([*argv, requirement], env)
    seconds = measure_since(began)
    if done.returncode != 0:
        raise CannotInstall(f"{requirement} could not be installed: {done.stderr[-2_000:]}")
    listed = subprocess.run(
        [str(python), "-I", "-c", LIST_PACKAGES], capture_output=True, text=True, check=True
    )
    megabytes = (count_bytes(folder) - before) / 1e6
    return Installation(python, tuple(listed.stdout.split()), megabytes, seconds)


def _run_uv(argv: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    # System certificates: they include that of a company's proxy, uv's own list does not.
    settings = {"UV_SYSTEM_CERTS": "1", **env}
    return subprocess.run(argv, cwd=ROOT, env=settings, capture_output=True, text=True, check=False)


def read_clock() -> Seconds:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Seconds(time.perf_counter(), used.ru_utime + used.ru_stime)


def measure_since(began: Seconds) -> Seconds:
    now = read_clock()
    return Seconds(now.wall - began.wall, now.cpu - began.cpu)


def find_least(times: Iterable[Seconds]) -> Seconds:
    walls, cpus = zip(*times, strict=True)
    return Seconds(min(walls), min(cpus))


def count_bytes(folder: Path) -> int:
    files = (Path(place, name) for place, _, names in os.walk(folder) for name in names)
    return sum(file.lstat().st_size for file in files)


# ------------------------------------------------------------------ the comparison


class Candidate(NamedTuple):
    """`name` for the table, `requirement` for uv."""

    name: str
    requirement: str
    first_agent: str
    locked: bool = False


def main() -> int:
    parser = argparse.ArgumentParser(description="Packages, megabytes and seconds of a base.")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--peer", action="append", default=[], help="a requirement; may be repeated"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="treadle-install-") as name:
        place = Path(name)
        try:
            candidates = list_candidates(build_wheel(place), given.peer or PEERS)
            return compare(candidates, place, given.runs)
        except CannotInstall as problem:
            print(problem, file=sys.stderr)
            return 2


def list_candidates(wheel: Path, peers: Sequence[str]) -> list[Candidate]:
    ours = FIRST_AGENTS["treadle"]
    return [
        Candidate("treadle", f"treadle @ {wheel.as_uri()}", ours, locked=True),
        Candidate("treadle[all]", f"treadle[all] @ {wheel.as_uri()}", ours, locked=True),
        *(Candidate(peer, peer, FIRST_AGENTS.get(peer, "pass")) for peer in peers),
    ]


def compare(candidates: Sequence[Candidate], place: Path, runs: int) -> int:
    """Print a row for each; 1 if our base is larger than it may be."""
    installed: dict[str, list[Installation]] = {one.name: [] for one in candidates}
    imports: dict[str, list[Seconds]] = {one.name: [] for one in candidates}
    for one in candidates:  # fills the cache
        install(place / "warm", one.requirement, locked=one.locked)
        shutil.rmtree(place / "warm")
    for run in range(runs):
        for one in rotate(candidates, run):
            folder = place / f"{run}"
            done = install(folder, one.requirement, locked=one.locked)
            installed[one.name].append(done)
            imports[one.name].append(time_first_agent(done.python, one.first_agent))
            shutil.rmtree(folder)
    print(
        f"{'':30} {'packages':>8} {'MB':>7} {'install s':>10} {'CPU':>6} {'import s':>9} {'CPU':>6}"
    )
    for name, every in installed.items():
        took, imported = find_least(done.seconds for done in every), find_least(imports[name])
        count, size = len(every[0].packages), every[0].megabytes
        times = f"{took.wall:10.2f} {took.cpu:6.2f} {imported.wall:9.2f} {imported.cpu:6.2f}"
        print(f"{name:30} {count:8} {size:7.1f} {times}")
    base = installed["treadle"][0]
    is_small = len(base.packages) <= MAX_PACKAGES and base.megabytes <= MAX_MEGABYTES
    print(f"the base may have {MAX_PACKAGES} packages and {MAX_MEGABYTES:.0f} MB")
    return 0 if is_small else 1


def rotate(candidates: Sequence[Candidate], run: int) -> list[Candidate]:
    start = run % len(candidates)
    return [*candidates[start:], *candidates[:start]]


def time_first_agent(python: Path, program: str) -> Seconds:
    times = []
    for _ in range(3):
        began = read_clock()
        subprocess.run([str(python), "-I", "-c", program], env={**os.environ, **KEYS}, check=True)
        times.append(measure_since(began))
    return find_least(times)


if __name__ == "__main__":
    sys.exit(main())

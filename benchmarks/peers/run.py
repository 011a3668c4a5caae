"""Compares Treadle with other libraries and programs, and writes docs/benchmarks.md.

    python benchmarks/peers/run.py                       everything: about 25 minutes
    python benchmarks/peers/run.py --quick               small sizes, one repeat: some minutes
    python benchmarks/peers/run.py --only treadle,codex --measures turns,programs
    python benchmarks/peers/run.py --from docs/benchmarks/figures.json    the page again

Needs Python 3.11 or newer and the network for the first run: the environments are made from PyPI
and npm, with the versions of the lock files, in a cache folder. Only a whole run and --from write
the page and the plots; any other run prints its tables and keeps its figures in the cache folder.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.peers import page  # noqa: E402
from benchmarks.peers.contenders import BASELINE, FLOOR, LIBRARIES, OURS  # noqa: E402
from benchmarks.peers.environments import PROGRAMS as NPM_FOLDERS  # noqa: E402
from benchmarks.peers.environments import Environments, NotInstalled  # noqa: E402
from benchmarks.peers.install_size import measure_import  # noqa: E402
from benchmarks.peers.program_runs import measure_programs  # noqa: E402
from benchmarks.peers.programs import PROGRAMS  # noqa: E402
from benchmarks.peers.results import Results, describe_machine  # noqa: E402
from benchmarks.peers.tables import render_tables  # noqa: E402

# The page lists them in the same words.
MEASURES = {
    "turns": "one conversation of so many tool turns over HTTP",
    "deltas": "one reply of many small texts, counted by a consumer of the library's stream",
    "agents": "many conversations of five turns each, at once in one process",
    "parallel": "sixteen calls of a tool that sleeps for 50 ms, in one turn",
    "in_process": "the library's own fake model in place of HTTP",
    "fails": "the first two requests are refused with the status 529 or 429",
    "import": "the import of a library, its packages and its size",
    "programs": "--version, one reply, shell turns, and resume: one more reply in a long session",
    "growth": "the same work of Treadle alone at growing sizes",
}
SLOW_SECONDS = 2.0  # a measurement above it is not repeated
CELL_SECONDS = 4.0  # nor is one whose processes, with their imports, have taken longer together


class Sizes(NamedTuple):
    """How much is done of each measure. A measurement above `limit` seconds is not made."""

    turns: tuple[int, ...] = (50, 200, 800)
    deltas: int = 20_000
    agents: int = 200
    in_process: tuple[int, ...] = (50, 200, 800)
    shell_turns: int = 20
    session_turns: int = 100
    repeat: int = 3
    program_repeat: int = 5
    limit: float = 45.0
    growth_turns: tuple[int, ...] = (10, 100, 1_000, 10_000)
    growth_agents: tuple[int, ...] = (1, 10, 100, 1_000, 2_000)
    growth_entries: tuple[int, ...] = (1, 10, 100, 1_000, 10_000, 100_000)


QUICK = Sizes(
    turns=(50,), deltas=2_000, agents=20, in_process=(50,), shell_turns=5, session_turns=10,
    repeat=1, program_repeat=1, limit=20.0, growth_turns=(10, 100), growth_agents=(1, 10),
    growth_entries=(1, 1_000),
)  # fmt: skip


class LibraryRuns:
    """Measures libraries, each next to the loop over aiohttp, which shows the noise."""

    def __init__(self, made: Environments, sizes: Sizes, results: Results, port: int) -> None:
        self._made = made
        self._sizes = sizes
        self._results = results
        self._port = port

    def measure(self, name: str, measure: str) -> None:
        sizes: tuple[int, ...] = {
            "turns": self._sizes.turns,
            "deltas": (self._sizes.deltas,),
            "agents": (self._sizes.agents,),
            "parallel": (16,),
            "in_process": self._sizes.in_process,
            "plain_tool": self._sizes.in_process,
            "fails": (529, 429),
        }[measure]
        before: tuple[int, float] | None = None
        for size in sizes:
            # The cost of a turn may grow with the turns: the next size may take its square.
            if before and before[1] * (size / before[0]) ** 2 > 2 * self._sizes.limit:
                self._results.add(
                    name, measure, size, {"failed": "not run: it would take too long"}
                )
                continue
            rows = list(self._repeat(name, measure, size))
            if measure in ("turns", "in_process"):
                if "failed" in rows[-1]:
                    return
                before = (size, min(row["wall"] for row in rows))

    def _repeat(self, name: str, measure: str, size: int) -> Iterator[dict[str, Any]]:
        is_pair = measure != "fails" and name != BASELINE
        repeat = 1 if measure == "fails" else self._sizes.repeat
        began = time.monotonic()
        for _ in range(repeat):
            base = self._run(BASELINE, measure, size) if is_pair and has(BASELINE, measure) else {}
            row = self._run(name, measure, size)
            row |= {f"base_{key}": base[key] for key in ("wall", "cpu") if key in base}
            self._results.add(name, measure, size, row)
            yield row
            is_slow = row.get("wall", 0.0) > SLOW_SECONDS
            if "failed" in row or is_slow or time.monotonic() - began > CELL_SECONDS:
                return

    def _run(self, name: str, measure: str, size: int) -> dict[str, Any]:
        library = LIBRARIES[name]
        python = self._made.python(library.lock)
        worker = [str(HERE / "worker.py"), library.adapter, library.variant, measure]
        environment = {**os.environ, "DO_NOT_TRACK": "1", "OTEL_SDK_DISABLED": "true"}
        environment |= {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}
        try:
            done = subprocess.run(
                [str(python), "-P", *worker, str(size), str(self._port)],
                env=environment, capture_output=True, text=True, timeout=2 * self._sizes.limit,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"failed": f"longer than {2 * self._sizes.limit:.0f} s"}
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no message"]
            return {"failed": lines[-1][:200]}
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return found


def has(name: str, measure: str) -> bool:
    if measure == "plain_tool":
        return name == OURS
    return measure != "in_process" or LIBRARIES[name].has_in_process


def measure_libraries(
    made: Environments, names: list[str], measures: list[str], sizes: Sizes, results: Results,
    port: int,
) -> None:  # fmt: skip
    runs = LibraryRuns(made, sizes, results, port)
    wanted = [*measures, "plain_tool"] if "in_process" in measures else measures
    for measure in wanted:
        if measure == "fails":  # they only wait: several at a time
            with ThreadPoolExecutor(4) as threads:
                list(threads.map(lambda name: runs.measure(name, "fails"), names))
            continue
        for name in names:
            if measure == "import":
                if LIBRARIES[name].imports:
                    python = made.python(LIBRARIES[name].lock)
                    results.add(name, "import", 0, measure_import(python, LIBRARIES[name].imports))
            elif measure not in ("programs", "growth") and has(name, measure):
                runs.measure(name, measure)


def measure_growth(made: Environments, sizes: Sizes, results: Results, port: int) -> None:
    once = sizes._replace(repeat=1, in_process=sizes.growth_turns, limit=max(sizes.limit, 60.0))
    runs = LibraryRuns(made, once, results.part("growth"), port)
    runs.measure(OURS, "in_process")
    for count in sizes.growth_agents:
        runs = LibraryRuns(made, once._replace(agents=count), results.part("growth"), port)
        for name in (FLOOR, OURS):
            runs.measure(name, "agents")
    python = str(made.python("treadle"))
    for kind in ("entries", "compacted"):
        options = ["--compacted"] if kind == "compacted" else []
        for count in sizes.growth_entries:
            command = [python, str(HERE / "session_growth.py"), str(count), *options]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            results.part("growth").add(OURS, kind, count, json.loads(done.stdout))


@contextlib.contextmanager
def serve(python: Path) -> Iterator[tuple[int, int]]:
    """The server in a process of its own: its port and its process id."""
    command = [str(python), "-P", str(HERE / "server.py")]
    pipe = subprocess.PIPE  # the server ends when this process does, however it ends
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield int(server.stdout.readline()), server.pid
        server.stdin.close()


def separate_cores() -> set[int]:
    """Leave one core to the server and its kernel; all that is measured runs on the other one."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(0, {cores[1]})
    return {cores[0]}


def install_all(
    made: Environments, names: list[str], programs: list[str], results: Results
) -> None:
    """Before anything is measured; what cannot be installed is left out, with the reason."""
    for name in [OURS, BASELINE, *names, *programs]:
        try:
            if name in LIBRARIES:
                package = LIBRARIES[name].package
                python = made.python(LIBRARIES[name].lock)
                results.versions[package] = find_version(python, package)
            elif name == "aider":
                results.versions[name] = find_version(made.python(name), "aider-chat")
            elif (NPM_FOLDERS / name).exists():
                manifest = json.loads((made.program(name) / "package.json").read_text())
                results.versions[name] = next(iter(manifest["dependencies"].values()))
        except NotInstalled as problem:
            if name in (OURS, BASELINE):
                raise SystemExit(str(problem)) from problem
            results.missing[name] = str(problem)


def find_version(python: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.check_output([str(python), "-c", code], text=True).strip()


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="measures:\n" + "\n".join(f"  {name:<12}{text}" for name, text in MEASURES.items()),
    )  # fmt: skip
    known = [*LIBRARIES, *(name for name in PROGRAMS if name not in LIBRARIES)]
    parser.add_argument("--quick", action="store_true", help="small sizes, one repeat")
    names = f"names, by commas: {', '.join(known)}"
    parser.add_argument(
        "--only", type=split_names(known), default=known, metavar="NAMES", help=names
    )
    parser.add_argument(
        "--measures", type=split_names([*MEASURES]), default=[*MEASURES], metavar="NAMES",
        help=f"by commas: {', '.join(MEASURES)}; see below",
    )  # fmt: skip
    parser.add_argument("--cache", type=Path, default=default_cache(), help="default: %(default)s")
    parser.add_argument(
        "--from", type=Path, dest="figures", metavar="FILE",
        help="measure nothing; write the page from the figures of this file",
    )  # fmt: skip
    return parser.parse_args(arguments)


def split_names(known: list[str]) -> Any:
    def split(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"no {name!r}; there are: {', '.join(known)}")
        return names

    return split


def default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "treadle-benchmarks"


def read_figures(path: Path) -> dict[str, Any]:
    try:
        figures: Any = json.loads(path.read_text())
    except OSError as error:
        raise NoFigures(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise NoFigures(f"{path} is not a file of figures: it is not JSON") from error
    for name in ("machine", "versions", "missing", "libraries"):
        if not isinstance(figures, dict) or name not in figures:
            raise NoFigures(f"{path} is not a file of figures: it has no {name!r}")
    found: dict[str, Any] = figures
    return found


class NoFigures(Exception):
    """The file of --from cannot be read, or is another one."""


def main(arguments: list[str]) -> int:
    given = parse_arguments(arguments)
    if given.figures:
        try:
            page.write(read_figures(given.figures), ROOT / "docs")
        except NoFigures as problem:
            print(problem, file=sys.stderr)
            return 2
        return 0
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.monotonic()
    is_whole = not given.quick and given.only is not None and set(given.measures) == set(MEASURES)
    is_whole = is_whole and set(given.only) >= {*LIBRARIES, *PROGRAMS}
    sizes = QUICK if given.quick else Sizes()
    made = Environments(given.cache)
    results = Results(describe_machine())
    libraries = [name for name in given.only if name in LIBRARIES]
    programs = [name for name in given.only if name in PROGRAMS]
    has_programs = "programs" in given.measures
    install_all(made, libraries, programs if has_programs else [], results)
    libraries = [name for name in libraries if name not in results.missing]
    cores = separate_cores()
    with serve(made.python("treadle")) as (port, server):
        os.sched_setaffinity(server, cores)
        measure_libraries(made, libraries, given.measures, sizes, results, port)
        if has_programs:
            url = f"http://127.0.0.1:{port}"
            measure_programs(made, programs, sizes, results, url)
        if "growth" in given.measures and OURS in libraries:
            measure_growth(made, sizes, results, port)
    results.machine["minutes"] = round((time.monotonic() - began) / 60, 1)
    figures = results.as_json()
    (given.cache / "figures.json").write_text(json.dumps(figures, indent=1))
    print(render_tables(figures))
    if is_whole:
        page.write(figures, ROOT / "docs")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that folders are removed
    sys.exit(main(sys.argv[1:]))

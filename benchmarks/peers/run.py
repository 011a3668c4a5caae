"""Compares Treadle with other libraries and programs, and writes docs/benchmarks.md.

    python benchmarks/peers/run.py                       everything: about 35 minutes
    python benchmarks/peers/run.py --quick               small sizes, one round: some minutes
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
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
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
from benchmarks.peers.programs import ALL_EXTRAS, PROGRAMS  # noqa: E402
from benchmarks.peers.repository_runs import measure_repository  # noqa: E402
from benchmarks.peers.results import Results, describe_machine  # noqa: E402
from benchmarks.peers.rounds import run_rounds  # noqa: E402
from benchmarks.peers.tables import render_tables  # noqa: E402

# The page lists them in the same words.
MEASURES = {
    "turns": "one conversation of so many tool turns over HTTP, also with a store of sessions",
    "deltas": "one reply of many small texts, counted by a consumer of the library's stream",
    "agents": "many conversations of five turns each, at once in one process",
    "parallel": "sixteen calls of a tool that sleeps for 50 ms, in one turn",
    "in_process": "the library's own fake model in place of HTTP",
    "fails": "the first two requests are refused with the status 529 or 429",
    "import": "the import of a library, its packages and its size",
    "programs": "--version, one reply, shell turns, and resume: one more reply in a long session",
    "growth": "the same work of Treadle alone at growing sizes",
    "repository": "terminal, cache, PostgreSQL and fleet: other benchmarks of this repository",
}
Work = Mapping[str, tuple[int, ...]]


class Sizes(NamedTuple):
    """How much is done of each measure, and how often. What is expected to take longer than
    `limit` seconds is not begun, and what takes three times as long is ended."""

    work: Work = MappingProxyType({
        "turns": (50, 200, 800), "deltas": (5_000,), "agents": (50,), "parallel": (16,),
        "in_process": (50, 200, 800), "fails": (429, 529), "import": (0,),
    })  # fmt: skip
    growth: Work = MappingProxyType({
        "in_process": (10, 100, 1_000, 10_000), "agents": (1, 10, 100, 1_000),
        "entries": (1, 10, 100, 1_000, 10_000, 100_000),
    })  # fmt: skip
    shell_turns: int = 20
    session_turns: int = 100
    rounds: int = 5
    limit: float = 24.0


QUICK = Sizes(
    work={
        "turns": (10,), "deltas": (1_000,), "agents": (10,), "parallel": (16,),
        "in_process": (10,), "fails": (429, 529), "import": (0,),
    },
    growth={"in_process": (10, 100), "agents": (1, 10), "entries": (1, 1_000)},
    shell_turns=5, session_turns=10, rounds=1,
)  # fmt: skip


class LibraryRuns:
    """Measures libraries in rounds; the loop over aiohttp is one of them, and their reference."""

    def __init__(
        self, made: Environments, work: Work, sizes: Sizes, results: Results, port: int
    ) -> None:
        self._made = made
        self._work = work
        self._rounds = sizes.rounds
        self._limit = sizes.limit
        self._results = results
        self._port = port

    def measure(self, measure: str, names: list[str]) -> None:
        names = [name for name in names if measure in LIBRARIES[name].measures]
        if measure == "import":
            names = [name for name in names if LIBRARIES[name].imports]
        if measure == "fails":
            self._measure_failures(names)
            return
        spent: dict[str, tuple[int, float]] = {}
        for size in self._work[measure]:

            def run(name: str, size: int = size) -> dict[str, Any]:
                row = self._run(name, measure, size)
                spent[name] = (size, row["wall"] if "failed" not in row else float("inf"))
                self._results.add(name, measure, size, row)
                return row

            ready = []
            for name in names:
                # The cost of a turn may grow with the turns: the next size may take its square.
                before, seconds = spent.get(name, (1, 0.0))
                if seconds * (size / before) ** 2 > self._limit:
                    why = "not run: too long, or a smaller size failed"
                    spent[name] = (size, float("inf"))
                    self._results.add(name, measure, size, {"failed": why})
                else:
                    ready.append(name)
            run_rounds(f"{measure} {size or ''}".strip(), ready, self._rounds, run)

    def _measure_failures(self, names: list[str]) -> None:
        """They only wait: several at a time."""

        def run(job: tuple[str, int]) -> None:
            self._results.add(job[0], "fails", job[1], self._run(job[0], "fails", job[1]))

        jobs = [(name, code) for name in names for code in self._work["fails"]]
        for _ in range(self._rounds):
            with ThreadPoolExecutor(4) as threads:
                list(threads.map(run, jobs))

    def _run(self, name: str, measure: str, size: int) -> dict[str, Any]:
        library = LIBRARIES[name]
        python = self._made.python(library.lock)
        if measure == "import":
            try:
                return measure_import(python, library.imports)
            except subprocess.CalledProcessError as error:
                return {"failed": str(error)[:200]}
        worker = [str(HERE / "worker.py"), library.adapter, library.variant, measure]
        command = [str(python), "-P", *worker, str(size), str(self._port)]
        return run_json(command, 3 * self._limit)


def run_json(command: list[str], limit: float) -> dict[str, Any]:
    """What a process prints as its last line, or why it failed."""
    environment = {**os.environ, "DO_NOT_TRACK": "1", "OTEL_SDK_DISABLED": "true"}
    environment |= {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}
    with tempfile.TemporaryDirectory(prefix="treadle-peers-") as folder:
        environment["TMPDIR"] = folder
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"longer than {limit:.0f} s"}
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        return {"failed": lines[-1][:200]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def measure_growth(made: Environments, sizes: Sizes, results: Results, port: int) -> None:
    sizes = sizes._replace(limit=60.0)
    runs = LibraryRuns(made, sizes.growth, sizes, results, port)
    runs.measure("in_process", [OURS])
    runs.measure("agents", [FLOOR, OURS])
    python = str(made.python("treadle"))
    for count in sizes.growth["entries"]:

        def run(kind: str, count: int = count) -> dict[str, Any]:
            options = ["--compacted"] if kind == "compacted" else []
            script = str(HERE / "session_growth.py")
            row = run_json([python, script, str(count), *options], 3 * sizes.limit)
            results.add(OURS, kind, count, row)
            return row

        run_rounds(f"entries {count}", ("entries", "compacted"), sizes.rounds, run)


@contextlib.contextmanager
def serve(python: Path) -> Iterator[int]:
    """The server in a process of its own: its port."""
    command = [str(python), "-P", str(HERE / "server.py")]
    pipe = subprocess.PIPE  # the server ends when this process does, however it ends
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield int(server.stdout.readline())
        server.stdin.close()


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
            elif name == ALL_EXTRAS:
                made.python(name)
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
    """Of Treadle with the commit that it was built from."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    if package == OURS:
        code = "from treadle import _version as own; print(own.__version__, own.read_commit())"
    version, *commit = subprocess.check_output([str(python), "-c", code], text=True).split()
    return f"{version} (commit {commit[0]})" if commit else version


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="measures:\n" + "\n".join(f"  {name:<12}{text}" for name, text in MEASURES.items()),
    )  # fmt: skip
    known = [*LIBRARIES, *(name for name in PROGRAMS if name not in LIBRARIES)]
    parser.add_argument("--quick", action="store_true", help="small sizes, one round")
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
    libraries = list(dict.fromkeys([BASELINE, *(name for name in given.only if name in LIBRARIES)]))
    programs = [name for name in given.only if name in PROGRAMS]
    has_programs = "programs" in given.measures
    install_all(made, libraries, [ALL_EXTRAS, *programs] if has_programs else [], results)
    libraries = [name for name in libraries if name not in results.missing]
    with serve(made.python("treadle")) as port:
        runs = LibraryRuns(made, sizes.work, sizes, results, port)
        for measure in given.measures:
            match measure:
                case "programs":
                    url = f"http://127.0.0.1:{port}"
                    measure_programs(made, programs, sizes, results, url)
                case "growth":
                    measure_growth(made, sizes, results.part("growth"), port)
                case "repository":
                    measure_repository(results.part("repository"), sizes.rounds)
                case _:
                    runs.measure(measure, libraries)
            # After each measure: what has been measured can be read even if the next one breaks.
            results.machine["minutes"] = round((time.monotonic() - began) / 60, 1)
            (given.cache / "figures.json").write_text(json.dumps(results.as_json(), indent=1))
    figures = results.as_json()
    print("\n\n".join(render_tables(figures)))
    if is_whole:
        page.write(figures, ROOT / "docs")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that folders are removed
    sys.exit(main(sys.argv[1:]))

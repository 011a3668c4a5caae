"""Runs the stages of ./check, each with a heading and its time; stops at a failure.

Two stages run at a time. Each prints what it has to say when it has ended, except for the tests,
which are the longest and print as they run.

Run by ./check with the environment's interpreter. The rules of most stages are in pyproject.toml,
those of names and texts in scripts/check_names.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CODE = ("src", "tests", "benchmarks", "examples", "scripts")
EXAMPLE_LIMIT = 120.0
# Unset for the stages: tests start many interpreters, and each would compile the package again.
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
STAGES_AT_ONCE = 2
MOUNT_AND_RUN = 'mount -t tmpfs -o mode=1777 tmpfs "$1" && export TMPDIR="$1" && shift && exec "$@"'
SMALLEST_MEMORY = 6 << 30  # bytes; the files of the tests take less than 1 GB


class Stage(NamedTuple):
    title: str
    command: Sequence[str]
    home: Path | None = None
    limit: float | None = None
    after: Sequence[Stage] = ()  # stages that have to end before this one begins
    prints: bool = False  # at once, and not when it has ended


class Report(NamedTuple):
    stage: Stage
    exit_code: int
    output: str  # what was not yet printed


def main(arguments: Sequence[str]) -> int:
    fast = "--fast" in arguments
    order = [argument for argument in arguments if argument.startswith("--random-order=")]
    for_pytest = [argument for argument in arguments if argument not in ("--fast", *order)]
    with tempfile.TemporaryDirectory(prefix="treadle-") as scratch:
        chosen = choose_stages(fast, for_pytest, Path(scratch), order)
        began = time.monotonic()
        with closing(run_stages(chosen)) as reports:
            for report in reports:
                print(report.output, end="", flush=True)
                if report.exit_code != 0:
                    print(f"\ncheck: FAILED at {report.stage.title}", flush=True)
                    return report.exit_code
    print(f"\ncheck: all green in {time.monotonic() - began:.0f} s", flush=True)
    return 0


# What --fast runs: values, rules, the loop and the stores. No test there starts a process.
UNIT_TESTS = (
    "agents budgets context core hooks lib/files lib/git lib/shell lib/text observe permissions "
    "sessions stories"
)


def choose_stages(
    fast: bool, for_pytest: Sequence[str], scratch: Path, order: Sequence[str] = ()
) -> Sequence[Stage]:
    if for_pytest == ["docs"]:
        return [docs_stage()]
    if for_pytest:
        return [pytest_stage(fast, [*for_pytest, *order], scratch)]
    return every_stage(fast, scratch, order)


def every_stage(fast: bool, scratch: Path, order: Sequence[str] = ()) -> Sequence[Stage]:
    """The type checker takes longest of what comes before the tests, so it begins first; the
    packages that tests need are downloaded beside it."""
    types, *reading = reading_stages()
    if fast:
        return [types, *reading[:2], *layer_stages(), pytest_stage(True, [], scratch, order)]
    downloads = list(download_stages())
    tests = pytest_stage(fast, [], scratch, order)._replace(after=downloads)
    scripts = Stage("scripts of the pages", [str(ROOT / "scripts" / "page-scripts")])
    scripts = scripts._replace(after=downloads)
    return [types, *downloads, *reading, scripts, tests, *example_stages(scratch)]


def download_stages() -> Iterator[Stage]:
    yield Stage("Debian packages", [str(ROOT / "scripts" / "debian-packages")])
    yield Stage("npm packages", [str(ROOT / "scripts" / "node-packages")])
    yield Stage("messages of ACP", [str(ROOT / "scripts" / "acp-messages")])
    yield Stage("Pythons", [str(ROOT / "scripts" / "pythons")])


def example_stages(scratch: Path) -> Iterator[Stage]:
    examples = ROOT / "examples"
    for example in (*sorted(examples.glob("*.py")), *sorted(examples.glob("extending/*.py"))):
        name = example.relative_to(examples).with_suffix("")
        yield Stage(f"example {name}", python(str(example)), scratch / name, EXAMPLE_LIMIT)


def reading_stages() -> Iterator[Stage]:
    folders = [name for name in CODE if has_python(ROOT / name)]
    yield Stage("types", python("-m", "mypy", *folders))
    yield Stage("format", python("-m", "ruff", "format", "--check", *folders))
    yield Stage("lint", python("-m", "ruff", "check", *folders))
    own_settings = ["--project", str(ROOT / "pyproject.toml"), "--pythonpath", sys.executable]
    pyright = python("-m", "pyright", *own_settings)
    yield Stage("types of programs that use the package", pyright)
    yield from layer_stages()
    yield docs_stage()


def layer_stages() -> Iterator[Stage]:
    linter = "import sys; from importlinter.cli import lint_imports_command as c; sys.exit(c())"
    yield Stage("layers", python("-c", linter, "--no-logo"))
    yield Stage("names and texts", python(str(ROOT / "scripts" / "check_names.py")))


def pytest_stage(
    fast: bool, arguments: Sequence[str], scratch: Path, order: Sequence[str] = ()
) -> Stage:
    # Starting workers takes a second or two: worth it only for the whole suite. Tests often wait
    # for a process, so there are two workers more than cores.
    workers = str(min((os.cpu_count() or 1) + 2, 8))
    spread = [] if arguments else ["-n", workers, "--dist", "loadgroup"]
    chosen = ["-m", "not slow"] if fast else []
    if fast and not arguments:
        chosen += [f"tests/{folder}" for folder in UNIT_TESTS.split()]
    command = python("-m", "pytest", *spread, *chosen, *order, *arguments)
    return Stage("tests", with_files_in_memory(command, scratch), prints=True)


def with_files_in_memory(command: Sequence[str], folder: Path) -> Sequence[str]:
    """The command with a file system of its own as its folder for temporary files, where this user
    may mount one: on some disks a tenth of the tests' time goes into making files and folders."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if shutil.which("unshare") is None or memory < SMALLEST_MEMORY:
        return command
    mount = ["unshare", "--mount", "sh", "-c", MOUNT_AND_RUN, "sh", str(folder)]
    can_mount = subprocess.run([*mount, "true"], capture_output=True, check=False)
    return [*mount, *command] if can_mount.returncode == 0 else command


def docs_stage() -> Stage:
    return Stage("documentation", python(str(ROOT / "scripts" / "build_docs.py")))


def python(*arguments: str) -> list[str]:
    # -P: nothing is imported from the current folder.
    return [sys.executable, "-P", *arguments]


def has_python(folder: Path) -> bool:
    return any(folder.rglob("*.py"))


def run_stages(chosen: Sequence[Stage]) -> Generator[Report, None, None]:
    """What the stages report, in the order of their ends. Closing it ends the stages that run."""
    stopped = Event()
    processes: list[subprocess.Popen[str]] = []
    started: dict[str, Future[Report]] = {}

    def run_in_turn(stage: Stage) -> Report:
        wait([started[earlier.title] for earlier in stage.after])
        if stopped.is_set():
            return Report(stage, 1, "")
        began = time.monotonic()
        process = start(stage)
        processes.append(process)
        if stopped.is_set():  # while it was started
            process.terminate()
        return report_end(stage, process, began)

    with ThreadPoolExecutor(STAGES_AT_ONCE) as threads:
        for stage in chosen:
            started[stage.title] = threads.submit(run_in_turn, stage)
        try:
            for done in as_completed(started.values()):
                yield done.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            stopped.set()
            for process in processes:
                process.terminate()  # does nothing to one that has ended


def start(stage: Stage) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    if stage.home:
        stage.home.mkdir(parents=True)
        environment["HOME"] = str(stage.home)
    if stage.prints:
        print(heading(stage), end="", flush=True)
    return subprocess.Popen(
        stage.command,
        cwd=stage.home or ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=None if stage.prints else subprocess.PIPE,
        stderr=None if stage.prints else subprocess.STDOUT,
        text=True,
    )


def report_end(stage: Stage, process: subprocess.Popen[str], began: float) -> Report:
    output = "" if stage.prints else heading(stage)
    try:
        output += process.communicate(timeout=stage.limit)[0] or ""
        exit_code = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        output += process.communicate()[0] or ""
        output += f"stopped after {stage.limit:.0f} s, the limit of this stage\n"
        exit_code = 1
    output += f"   {stage.title}: {time.monotonic() - began:.1f} s\n"
    return Report(stage, exit_code, output)


def heading(stage: Stage) -> str:
    return f"\n== {stage.title}\n"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\ncheck: interrupted", flush=True)
        sys.exit(130)

"""Runs the stages of ./check, each with a heading and its time; stops at a failure.

Stages that only read the sources run two at a time, the others one after the other.

Run by ./check with the environment's interpreter. The rules of most stages are in pyproject.toml,
those of names and texts in scripts/check_names.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CODE = ("src", "tests", "benchmarks", "examples", "scripts")
EXAMPLE_LIMIT = 120.0
# Unset for the stages: tests start many interpreters, and each would compile the package again.
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"


STAGES_AT_ONCE = 2


class Stage(NamedTuple):
    title: str
    command: Sequence[str]
    home: Path | None = None
    limit: float | None = None


class Report(NamedTuple):
    stage: Stage
    exit_code: int
    output: str  # what was not yet printed


def main(arguments: Sequence[str]) -> int:
    fast = "--fast" in arguments
    for_pytest = [argument for argument in arguments if argument != "--fast"]
    with tempfile.TemporaryDirectory(prefix="treadle-check-") as scratch:
        chosen = choose_stages(fast, for_pytest, Path(scratch))
        began = time.monotonic()
        for report in run_stages(chosen):
            print(report.output, end="", flush=True)
            if report.exit_code != 0:
                print(f"\ncheck: FAILED at {report.stage.title}", flush=True)
                return report.exit_code
    print(f"\ncheck: all green in {time.monotonic() - began:.0f} s", flush=True)
    return 0


def choose_stages(
    fast: bool, for_pytest: Sequence[str], scratch: Path
) -> Iterable[Stage | list[Stage]]:
    if for_pytest == ["docs"]:
        return [docs_stage()]
    return [pytest_stage(fast, for_pytest)] if for_pytest else every_stage(fast, scratch)


def every_stage(fast: bool, scratch: Path) -> Iterator[Stage | list[Stage]]:
    """A list: these may run at the same time."""
    yield Stage("Debian packages", [str(ROOT / "scripts" / "debian-packages")])
    yield Stage("npm packages", [str(ROOT / "scripts" / "node-packages")])
    yield Stage("messages of ACP", [str(ROOT / "scripts" / "acp-messages")])
    yield Stage("Pythons", [str(ROOT / "scripts" / "pythons")])
    yield list(reading_stages())
    yield pytest_stage(fast, [])
    examples = ROOT / "examples"
    for example in (*sorted(examples.glob("*.py")), *sorted(examples.glob("extending/*.py"))):
        title = f"example {example.relative_to(examples).with_suffix('')}"
        yield Stage(title, python(str(example)), scratch, EXAMPLE_LIMIT)


def reading_stages() -> Iterator[Stage]:
    folders = [name for name in CODE if has_python(ROOT / name)]
    yield Stage("types", python("-m", "mypy", *folders))  # takes longest, so it begins first
    yield Stage("format", python("-m", "ruff", "format", "--check", *folders))
    yield Stage("lint", python("-m", "ruff", "check", *folders))
    own_settings = ["--project", str(ROOT / "pyproject.toml"), "--pythonpath", sys.executable]
    pyright = python("-m", "pyright", *own_settings)
    yield Stage("types of programs that use the package", pyright)
    linter = "import sys; from importlinter.cli import lint_imports_command as c; sys.exit(c())"
    yield Stage("layers", python("-c", linter, "--no-logo"))
    yield Stage("names and texts", python(str(ROOT / "scripts" / "check_names.py")))
    yield docs_stage()


def pytest_stage(fast: bool, arguments: Sequence[str]) -> Stage:
    # Starting workers takes a second or two: worth it only for the whole suite. Tests often wait
    # for a process, so there is one worker more than cores.
    workers = str(min((os.cpu_count() or 1) + 1, 8))
    spread = [] if arguments else ["-n", workers, "--dist", "worksteal"]
    chosen = ["-m", "not slow"] if fast else []
    return Stage("tests", python("-m", "pytest", *spread, *chosen, *arguments))


def docs_stage() -> Stage:
    return Stage("documentation", python(str(ROOT / "scripts" / "build_docs.py")))


def python(*arguments: str) -> list[str]:
    # -P: nothing is imported from the current folder.
    return [sys.executable, "-P", *arguments]


def has_python(folder: Path) -> bool:
    return any(folder.rglob("*.py"))


def run_stages(chosen: Iterable[Stage | list[Stage]]) -> Iterator[Report]:
    for stages in chosen:
        if isinstance(stages, Stage):
            print(f"\n== {stages.title}", flush=True)
            yield run(stages)
            continue
        with ThreadPoolExecutor(STAGES_AT_ONCE) as threads:
            running = [threads.submit(run, stage, subprocess.PIPE) for stage in stages]
            for done in as_completed(running):
                report = done.result()
                yield report._replace(output=f"\n== {report.stage.title}\n{report.output}")


def run(stage: Stage, stdout: int | None = None) -> Report:
    environment = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    if stage.home:
        environment["HOME"] = str(stage.home)
    began = time.monotonic()
    try:
        ran = subprocess.run(
            stage.command,
            cwd=stage.home or ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stdout and subprocess.STDOUT,
            text=True,
            timeout=stage.limit,
            check=False,
        )
        exit_code, output = ran.returncode, ran.stdout or ""
    except subprocess.TimeoutExpired:
        exit_code, output = 1, f"stopped after {stage.limit:.0f} s, the limit of this stage\n"
    output += f"   {stage.title}: {time.monotonic() - began:.1f} s\n"
    return Report(stage, exit_code, output)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\ncheck: interrupted", flush=True)
        sys.exit(130)

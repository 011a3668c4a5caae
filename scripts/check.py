"""Runs the stages of ./check in order, each with a heading and its time; stops at a failure.

Run by ./check with the environment's interpreter. The rules of most stages are in pyproject.toml,
those of names and texts in scripts/check_names.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CODE = ("src", "tests", "benchmarks", "examples", "scripts")
EXAMPLE_LIMIT = 120.0
# Unset for the stages: tests start many interpreters, and each would compile the package again.
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"


class Stage(NamedTuple):
    title: str
    command: Sequence[str]
    home: Path | None = None
    limit: float | None = None


def main(arguments: Sequence[str]) -> int:
    fast = "--fast" in arguments
    for_pytest = [argument for argument in arguments if argument != "--fast"]
    with tempfile.TemporaryDirectory(prefix="treadle-check-") as scratch:
        chosen = (
            [pytest_stage(fast, for_pytest)] if for_pytest else every_stage(fast, Path(scratch))
        )
        began = time.monotonic()
        for stage in chosen:
            if (status := run(stage)) != 0:
                print(f"\ncheck: FAILED at {stage.title}", flush=True)
                return status
    print(f"\ncheck: all green in {time.monotonic() - began:.0f} s", flush=True)
    return 0


def every_stage(fast: bool, scratch: Path) -> Iterator[Stage]:
    folders = [name for name in CODE if has_python(ROOT / name)]
    yield Stage("Debian packages", [str(ROOT / "scripts" / "debian-packages")])
    yield Stage("npm packages", [str(ROOT / "scripts" / "node-packages")])
    yield Stage("messages of ACP", [str(ROOT / "scripts" / "acp-messages")])
    yield Stage("Pythons", [str(ROOT / "scripts" / "pythons")])
    yield Stage("format", python("-m", "ruff", "format", "--check", *folders))
    yield Stage("lint", python("-m", "ruff", "check", *folders))
    yield Stage("types", python("-m", "mypy", *folders))
    own_settings = ["--project", str(ROOT / "pyproject.toml"), "--pythonpath", sys.executable]
    pyright = python("-m", "pyright", *own_settings)
    yield Stage("types of programs that use the package", pyright)
    linter = "import sys; from importlinter.cli import lint_imports_command as c; sys.exit(c())"
    yield Stage("layers", python("-c", linter, "--no-logo"))
    yield Stage("names and texts", python(str(ROOT / "scripts" / "check_names.py")))
    yield pytest_stage(fast, [])
    examples = ROOT / "examples"
    for example in (*sorted(examples.glob("*.py")), *sorted(examples.glob("extending/*.py"))):
        title = f"example {example.relative_to(examples).with_suffix('')}"
        yield Stage(title, python(str(example)), scratch, EXAMPLE_LIMIT)


def pytest_stage(fast: bool, arguments: Sequence[str]) -> Stage:
    # Starting workers takes a second or two: worth it only for the whole suite. Tests often wait
    # for a process, so there is one worker more than cores.
    workers = str(min((os.cpu_count() or 1) + 1, 8))
    spread = [] if arguments else ["-n", workers, "--dist", "worksteal"]
    chosen = ["-m", "not slow"] if fast else []
    return Stage("tests", python("-m", "pytest", *spread, *chosen, *arguments))


def python(*arguments: str) -> list[str]:
    # -P: nothing is imported from the current folder.
    return [sys.executable, "-P", *arguments]


def has_python(folder: Path) -> bool:
    return any(folder.rglob("*.py"))


def run(stage: Stage) -> int:
    print(f"\n== {stage.title}", flush=True)
    environment = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    if stage.home:
        environment["HOME"] = str(stage.home)
    began = time.monotonic()
    try:
        status = subprocess.run(
            stage.command,
            cwd=stage.home or ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            timeout=stage.limit,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        print(f"stopped after {stage.limit:.0f} s, the limit of this stage")
        status = 1
    print(f"   {stage.title}: {time.monotonic() - began:.1f} s", flush=True)
    return status


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\ncheck: interrupted", flush=True)
        sys.exit(130)

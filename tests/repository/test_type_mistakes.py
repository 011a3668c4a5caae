"""Type checkers find the mistakes of tests/typing/mistakes, as docs/coming-from.md says, and none
in the programs of docs/tutorial.md.

A line with a mistake ends with `# mistake: …`. It is found if the checker reports an error there.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.repository.test_tutorial import STEPS

ROOT = Path(__file__).resolve().parents[2]
MISTAKES = ROOT / "tests" / "typing" / "mistakes"
PAGE = ROOT / "docs" / "coming-from.md"
LIBRARIES = {"Treadle": "with_treadle.py", "pydantic-ai": "with_pydantic_ai.py"}

pytestmark = [pytest.mark.slow]


def list_mypy_errors(program: Path, scratch: Path) -> set[int]:
    return {one["line"] for one in run_mypy([program], scratch) if one["severity"] == "error"}


def run_mypy(programs: Sequence[Path], scratch: Path) -> list[dict[str, Any]]:
    cache = f"--cache-dir={ROOT / '.mypy_cache' / 'mistakes'}"
    options = ["--strict", "--config-file=", "--output=json", "--no-error-summary", cache]
    done = run_checker("mypy", *options, *map(str, programs), cwd=scratch)
    return [json.loads(line) for line in done.splitlines()]


def list_pyright_errors(program: Path, scratch: Path) -> set[int]:
    shutil.copy(program, scratch)
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")]}
    (scratch / "pyrightconfig.json").write_text(json.dumps(settings))
    options = ["--outputjson", "--pythonpath", sys.executable, "--project", str(scratch)]
    found = json.loads(run_checker("pyright", *options, cwd=scratch))["generalDiagnostics"]
    errors = [one["range"]["start"]["line"] for one in found if one["severity"] == "error"]
    return {line + 1 for line in errors}


def run_checker(name: str, *arguments: str, cwd: Path) -> str:
    command = [sys.executable, "-P", "-m", name, *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    return done.stdout


CHECKERS: dict[str, Callable[[Path, Path], set[int]]] = {
    "mypy": list_mypy_errors,
    "pyright": list_pyright_errors,
}


def list_mistakes(program: Path) -> dict[int, str]:
    lines = enumerate(program.read_text().splitlines(), 1)
    return {number: line.split("# mistake: ")[1] for number, line in lines if "# mistake:" in line}


def read_table() -> dict[str, list[str]]:
    """The rows of the page: a mistake, and what each checker says with each library."""
    section = PAGE.read_text().split("\n## Mistakes that a type checker finds\n")[1]
    rows = [re.split(r"\s*\|\s*", line)[1:-1] for line in section.splitlines() if line[:1] == "|"]
    return {cells[0]: cells[1:] for cells in rows}


def test_the_programs_have_the_same_twenty_mistakes():
    treadle, other = (list_mistakes(MISTAKES / name) for name in LIBRARIES.values())
    assert list(treadle.values()) == list(other.values())
    assert len(set(treadle.values())) == 20


# mypy needs minutes to read pydantic-ai: its column was measured by hand, with the same options.
@pytest.mark.parametrize(
    ("library", "checker"),
    [("Treadle", "mypy"), ("Treadle", "pyright"), ("pydantic-ai", "pyright")],
)
def test_a_checker_finds_the_mistakes_that_the_page_says(
    library: str, checker: str, tmp_path: Path
):
    program = MISTAKES / LIBRARIES[library]
    mistakes, errors = list_mistakes(program), CHECKERS[checker](program, tmp_path)
    found = {name: "yes" if line in errors else "no" for line, name in mistakes.items()}
    table = read_table()
    column = table["mistake"].index(f"{library}, {checker}")
    told = {name: cells[column] for name, cells in table.items() if name in found}
    assert told == found
    count = [*found.values()].count("yes")
    assert table["found, of 20"][column] == str(count)
    if library == "Treadle":
        assert count >= 18
        assert errors <= set(mistakes), "a line that is right is refused"


def test_the_programs_of_the_tutorial_have_no_mistake(tmp_path: Path):
    for _, name, code, _ in STEPS:
        (tmp_path / name).write_text(code)
    assert run_mypy([tmp_path / name for _, name, _, _ in STEPS], tmp_path) == []

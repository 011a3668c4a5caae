"""docs/faults.md lists every fault, and names exactly the files that test it."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/faults.md").read_text()


LAST_CELLS = {
    int(number): cell
    for number, cell in re.findall(r"^\| (\d+) \|.*\| (.*) \|$", PAGE, re.MULTILINE)
}


def files_on_the_page() -> dict[int, set[str]]:
    files = {number: set(re.findall(r"`([^`]+)`", cell)) for number, cell in LAST_CELLS.items()}
    return {number: names for number, names in files.items() if names}


def files_with_tests() -> dict[int, set[str]]:
    found: defaultdict[int, set[str]] = defaultdict(set)
    for file in (ROOT / "tests").rglob("test_*.py"):
        for numbers in re.findall(r"def test_fault_((?:\d+_)+)", file.read_text()):
            for number in numbers.strip("_").split("_"):
                found[int(number)].add(file.relative_to(ROOT / "tests").as_posix())
    return found


def test_every_fault_has_a_row():
    assert list(LAST_CELLS) == list(range(1, 105))


def test_every_row_names_the_files_that_test_its_fault():
    assert files_on_the_page() == files_with_tests()


def test_a_fault_without_a_test_is_marked():
    assert {cell for cell in LAST_CELLS.values() if "`" not in cell} <= {"not built yet"}

"""docs/loop.md and loop-elsewhere.md name tests, rules, errors and classes that exist; the diagrams
are as drawn."""

from __future__ import annotations

import re

import pytest

from scripts.diagrams import DIAGRAMS, FOLDER, draw
from tests.repository.named_tests import ROOT, exists, list_named_tests
from treadle.core import errors
from treadle.core.retry import RETRIES
from treadle.core.transcript.integrity import LAWS

PAGE = (ROOT / "docs/loop.md").read_text()
ELSEWHERE = (ROOT / "docs/loop-elsewhere.md").read_text()
NAMES_HERE = re.findall(r"^\| .+? \| (.+?) \| \[test\]", ELSEWHERE, re.MULTILINE)


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_named_test_exists():
    named = list_named_tests(PAGE + ELSEWHERE)
    assert len(named) > 100
    assert [one for one in named if not exists(one)] == []


def test_every_concept_has_a_name_here_and_a_test():
    rows = re.findall(r"^\| .* \|$", ELSEWHERE, re.MULTILINE)
    proven = [row for row in rows if "#test_" in row]
    assert len(proven) == len(NAMES_HERE) > 90


def test_every_class_that_is_named_exists():
    sources = "".join(path.read_text() for path in (ROOT / "src/treadle").rglob("*.py"))
    known = {*re.findall(r"^class (\w+)|^([A-Z]\w+)\b.* = ", sources, re.MULTILINE)}
    names = {name for found in known for name in found}
    for cell in NAMES_HERE:
        for name in re.findall(r"`(?:treadle\.\w+\.)?([A-Z]\w+)", cell):
            assert name in names, name


def test_the_rules_of_the_page_are_the_laws_of_the_code():
    laws = re.findall(r"^\| `(\w+)` \|", section("The transcript and its rules"), re.MULTILINE)
    assert sorted(laws) == sorted(law.name for law in LAWS)


def test_the_recovery_table_has_the_numbers_of_the_code():
    told: dict[str, int] = {}
    for cells, number in re.findall(
        r"^\| (`.+?) \| (\d) retr", section("The recovery table"), re.MULTILINE
    ):
        told.update({name: int(number) for name in re.findall(r"`(\w+)`", cells)})
    assert told == {error.__name__: number for error, number in RETRIES.items()}
    assert all(hasattr(errors, name) for name in told)


@pytest.mark.parametrize("name", DIAGRAMS)
def test_every_diagram_is_as_it_is_drawn_and_on_the_page(name: str):
    """`python scripts/diagrams.py` draws them again."""
    assert (FOLDER / f"loop-{name}.svg").read_text() == draw(DIAGRAMS[name])
    assert f"](images/loop-{name}.svg)" in PAGE

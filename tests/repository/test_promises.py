"""docs/promises.md names only tests, programs and commands that exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.repository.named_tests import exists, list_named_tests
from treadle.apps.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/promises.md").read_text()
CODE = re.findall(r"`([^`\n]+)`", PAGE)
PROGRAMS = sorted({span for span in CODE if span.startswith("python ")})
COMMANDS = sorted({span for span in CODE if span.startswith("treadle ")})
CLI = ROOT / "src/treadle/apps/cli"


@cache
def commands() -> dict[str, Path]:
    """The file of each command, from the table in main.py."""
    modules = {name: target.partition(":")[0] for name, (target, _) in main.COMMANDS.items()}
    return {
        name: CLI / "commands" / f"{module.rpartition('.')[2]}.py"
        for name, module in modules.items()
    }


@cache
def options() -> str:
    return "".join(path.read_text() for path in (ROOT / "src/treadle/apps").rglob("*.py"))


def promises(heading: str) -> dict[int, str]:
    [section] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    parts = re.split(r"^(\d+)\. \*\*", section, flags=re.MULTILINE)
    return {int(number): text for number, text in zip(parts[1::2], parts[2::2], strict=True)}


@pytest.mark.parametrize(
    ("heading", "count"), [("Twenty-five complaints", 25), ("Ten things that are rare", 10)]
)
def test_every_promise_is_there_with_its_proof(heading: str, count: int):
    found = promises(heading)
    assert list(found) == list(range(1, count + 1))
    assert [number for number, text in found.items() if not list_named_tests(text)] == []


def test_every_named_test_exists():
    assert [proof for proof in list_named_tests(PAGE) if not exists(proof)] == []


@pytest.mark.parametrize("line", PROGRAMS)
def test_every_named_program_exists_and_knows_its_options(line: str):
    _, path, *words = line.split()
    assert path.startswith(("benchmarks/", "examples/"))
    source = (ROOT / path).read_text()
    for word in words:
        assert not word.startswith("--") or f'"{word}"' in source


@pytest.mark.parametrize("line", COMMANDS)
def test_every_named_command_exists_and_knows_its_options(line: str):
    _, first, *words = line.split()
    for word in re.findall(r"(?<!\w)--([\w-]+)", line):
        assert re.search(rf'"(--)?{word}"|\b{word.replace("-", "_")}\b', options()), word
    if first == "-p":
        return
    source = commands()[first].read_text()
    if words and words[0].isalpha():
        assert f'"{words[0]}"' in source, f"{first} has no {words[0]}"


def test_the_readme_links_to_the_page():
    assert "docs/promises.md" in (ROOT / "README.md").read_text()

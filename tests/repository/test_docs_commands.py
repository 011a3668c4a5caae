"""Command lines in the docs: every command and every option that they show exists."""

from __future__ import annotations

import re

import pytest

from scripts.docs_site.hooks import list_pages
from scripts.docs_site.repository_links import ROOT
from scripts.reference import FOLDER
from treadle.apps.cli.main import COMMANDS
from treadle.apps.cli.options import OPTIONS_BY_NAME

PAGES = ["README.md", *(f"docs/{page}" for page in list_pages())]
# In a block: after a prompt, a pipe or a variable. In text: code that begins with the name.
LINE = re.compile(
    r"^    (?:\$ |[A-Z_]+=\S+ |[^#\n]*\| )?treadle( .*)?$|`treadle( [^`]+)`", re.MULTILINE
)
SECTION = re.compile(r"^## treadle ([\w-]+)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
TOP_LEVEL = {"help", "version", "plain"}
ONE_WORD_PROMPTS = {"fix", "sesions"}  # with which docs/cli.md explains them


def list_lines(page: str) -> list[str]:
    text = (ROOT / page).read_text()
    return sorted({(block or span).strip() for block, span in LINE.findall(text)})


def find_unknown(line: str, helps: dict[str, str]) -> list[str]:
    """Words of a command line that the program does not know."""
    command = re.sub(r" {3,}.*| #.*", "", line)  # without what a list says about it
    command = re.sub(r"^(mcp add \w+).*", r"\1", command)  # what follows is the server's
    first = command.partition(" ")[0]
    options = re.findall(r"(?<![\w'\"-])--([\w-]+)", re.sub(r"'[^']*'|\"[^\"]*\"", "", command))
    if first in helps:
        return [f"--{name}" for name in options if f"--{name}" not in helps[first]]
    if re.fullmatch(r"[a-z]+", first) and first != "help":
        return [first]
    return [f"--{name}" for name in options if name not in {*OPTIONS_BY_NAME, *TOP_LEVEL}]


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    return dict(SECTION.findall((FOLDER / "command-line.md").read_text()))


def test_a_wrong_line_is_found(helps: dict[str, str]):
    assert set(helps) - {"help"} == set(COMMANDS)
    assert find_unknown("sessions list --all    every one, --nonsense", helps) == []
    assert find_unknown("-p 'a --b' --max-cost 2 --maxcost 2", helps) == ["--maxcost"]
    assert find_unknown("sesions list", helps) == ["sesions"]
    assert find_unknown("undo --nothing", helps) == ["--nothing"]


def test_every_command_line_of_a_page_is_one_that_the_program_takes(helps: dict[str, str]):
    lines = [(page, line) for page in PAGES for line in list_lines(page)]
    assert len(lines) > 300
    unknown = {
        (page, line): find_unknown(line, helps)
        for page, line in lines
        if line not in ONE_WORD_PROMPTS
    }
    assert {line: words for line, words in unknown.items() if words} == {}

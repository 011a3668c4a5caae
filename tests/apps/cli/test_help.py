"""`treadle NAME --help`: every command has the same ways to ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.apps.cli import main
from treadle.apps.cli.commands.mcp import USAGE as MCP_USAGE
from treadle.apps.console.help_option import wants_help

WAYS = (["{}", "--help"], ["{}", "-h"], ["help", "{}"], ["{}", "help"])


def run(words: list[str]) -> int | str | None:
    try:
        return main.run(words)
    except SystemExit as stopped:  # argparse
        return stopped.code


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_command_prints_its_usage(name: str, capsys: pytest.CaptureFixture[str]):
    for way in WAYS:
        assert run([word.format(name) for word in way]) == 0, way
        printed = capsys.readouterr()
        assert printed.out.startswith(f"usage: treadle {name}"), way
        assert not printed.err, way


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (["help", "help"], "usage: treadle [PROMPT]"),
        (["help", "--help"], "usage: treadle [PROMPT]"),
        (["help", "-h"], "usage: treadle [PROMPT]"),
        (["help", "sessions", "show"], "usage: treadle sessions show"),
        (["sessions", "help", "show"], "usage: treadle sessions show"),
        (["help", "mcp", "serve"], "usage: treadle mcp serve"),
        (["help", "config", "model"], "usage: treadle config"),
    ],
)
def test_help_takes_the_words_of_a_command(
    words: list[str], start: str, capsys: pytest.CaptureFixture[str]
):
    assert run(words) == 0
    assert capsys.readouterr().out.startswith(start)


def test_the_page_of_the_command_line_names_every_command():
    page = Path(__file__, "../../../../docs/cli.md").resolve().read_text()
    _, _, listed = page.partition("treadle COMMAND [ARGUMENTS]")
    assert listed.partition("\n\n")[0].replace("·", " ").split() == list(main.COMMANDS)


@pytest.mark.parametrize(
    ("words", "is_help"),
    [
        ([], False),
        (["help", "me"], True),
        (["list", "--help"], True),
        (["list", "-h", "--", "x"], True),
        (["list", "help"], False),
        (["list", "--", "--help"], False),
    ],
)
def test_help_is_the_first_word_or_an_option_before_two_dashes(words: list[str], is_help: bool):
    assert wants_help(words) is is_help


def test_h_after_the_command_of_a_server_is_an_argument_of_that_command(
    own_place: object, capsys: pytest.CaptureFixture[str]
):
    assert run(["mcp", "add", "db", "--help"]) == 0
    assert capsys.readouterr().out == f"{MCP_USAGE}\n"
    assert run(["mcp", "add", "db", "db-server", "-h", "localhost"]) == 0
    assert "db is added to" in capsys.readouterr().out


def test_the_help_of_the_settings_needs_no_settings(
    own_place: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("TREADLE_MAX_COST", "much")
    assert run(["config"]) == 2
    assert run(["config", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: treadle config")

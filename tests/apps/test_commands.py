# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.apps.program import PROGRAM, run
from treadle.apps.cli import exit_codes
from treadle.apps.cli.commands import completions, config
from treadle.apps.cli.console import UsageError
from treadle.apps.cli.main import COMMANDS, format_help
from treadle.apps.cli.options import OPTIONS, parse_command_line
from treadle.apps.services.attachments import find_mentions


def test_help_fits_a_screen():
    lines = format_help(COMMANDS).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100


def test_version_loads_no_engine():
    code = (
        "import sys; from treadle.apps.cli.main import run; run(['--version']); "
        "print(sorted(m for m in sys.modules if m in ('asyncio', 'typing', 'msgspec')))"
    )
    out = subprocess.run([PROGRAM[0], "-I", "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[1] == "[]"


async def test_doctor_checks_everything_and_says_what_to_do():
    ran = await run(None, "doctor")
    assert "! terminal  stdout is not a terminal" in ran.out
    for name in ("python", "terminal", "git", "ripgrep", "sandbox", "model", "keys", "sessions"):
        assert name in ran.out
    assert ran.code in (0, 1)
    assert "->" in ran.out
    assert "the check failed" not in ran.out


def test_config_shows_each_value_with_its_origin(own_place: Path, capsys, monkeypatch):
    file = own_place / "home/.treadle/config.toml"
    file.parent.mkdir()
    file.write_text("max_turns = 7\n")
    monkeypatch.setenv("TREADLE_SANDBOX", "off")
    assert config.run([]) == 0
    rows = {
        line.split()[0]: line.split()[1:3] for line in capsys.readouterr().out.splitlines() if line
    }
    assert rows["max_turns"] == ["7", f"{file}:1"]
    assert rows["sandbox"] == ["off", "TREADLE_SANDBOX"]
    assert rows["max_cost"] == ["5", "default"]
    assert config.run(["--json"]) == 0
    values = json.loads(capsys.readouterr().out)["settings"]
    assert values["max_turns"] == {"value": 7, "origin": f"{file}:1"}


def test_config_of_a_broken_file_is_2_with_its_line(own_place: Path, capsys):
    file = own_place / "home/.treadle/config.toml"
    file.parent.mkdir()
    file.write_text("sandbx = 'off'")
    assert config.run([]) == exit_codes.USAGE_ERROR
    assert "did you mean 'sandbox'?" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_name_every_command_and_option(shell, capsys):
    assert completions.run([shell]) == 0
    script = capsys.readouterr().out
    for name in COMMANDS:
        assert name in script
    for option in OPTIONS:
        assert option.name in script
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=script, text=True, check=True)


async def test_trust_lets_a_folders_files_count():
    Path("AGENTS.md").write_text("Always whistle.")
    Path(".treadle").mkdir()
    Path(".treadle/settings.json").write_text('{"permissions": {"allow": ["Bash(make:*)"]}}')
    before = await run(None, "permissions")
    ran = await run(None, "trust")
    assert ran.code == 0
    assert "AGENTS.md" in ran.out
    assert "Bash(make:*)" in ran.out
    after = await run(None, "permissions")
    assert "Bash(make:*)" not in before.out
    assert "Bash(make:*)" in after.out
    await run(None, "trust", "--remove")
    assert "Bash(make:*)" not in (await run(None, "permissions")).out


# ------------------------------------------------------------------ the command line


def test_options_are_read_in_any_order_and_form():
    line = parse_command_line(
        ["--model=x", "-p", "do it", "--allow", "A", "--allow", "B", "--max-turns", "3"]
    )
    assert line.prompt == "do it"
    assert line.texts("allow") == ("A", "B")
    assert line.settings() == {"model": "x", "max_turns": "3"}


def test_short_switches_may_stand_together():
    line = parse_command_line(["-pqc", "go"])
    assert line.has("print")
    assert line.has("quiet")
    assert line.has("continue")


@pytest.mark.parametrize("prompt", ["- a list item", "-", "--- a/file", "-> here"])
def test_a_prompt_that_begins_with_a_dash_is_no_option(prompt):
    assert parse_command_line(["-p", prompt]).prompt == prompt


def test_after_two_dashes_all_is_prompt():
    assert parse_command_line(["-p", "--", "--model"]).prompt == "--model"


@pytest.mark.parametrize("words", [["--model"], ["-r"], ["-rp"], ["--print=x"], ["-z"]])
def test_what_cannot_be_read_is_a_usage_error(words):
    with pytest.raises(UsageError):
        parse_command_line(words)


def test_paths_in_a_prompt_are_found_and_addresses_are_not():
    text = 'see @a.py, (@"b c.txt") and @src/d.py. Mail me@example.org or @@x'
    assert find_mentions(text) == ["a.py", "b c.txt", "src/d.py"]


def test_the_old_name_of_suspend_is_accepted_and_not_listed(capsys):
    assert parse_command_line(["-p", "--park"]).has("suspend")
    assert completions.run(["options"]) == 0
    assert "--park" not in capsys.readouterr().out

"""The status line as a command of the user writes it: real commands, on the full screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.apps.tui.harness import SIZES, RunningApp, exists, read_file, running_app, write_file
from tests.sessions.past_tasks import past
from treadle.apps.settings.extensions import approve_extensions
from treadle.apps.tui.render.status_command import parse_colours

SCRIPT = """cat > seen.json; printf 'my line \\033[31mred\\033[0m\\n'"""


def set_command(command: str) -> None:
    write_file(str(Path.home() / ".treadle/config.toml"), f"status_line = {json.dumps(command)}\n")


def set_claude_command(file: str, command: str) -> None:
    status_line = {"type": "command", "command": command, "padding": 0}
    write_file(file, json.dumps({"statusLine": status_line}))


def last_line(on: RunningApp) -> str:
    return on.screen().split("\n")[-1]


@pytest.mark.parametrize("size", SIZES)
async def test_it_is_the_output_of_the_command_which_reads_the_state(monkeypatch, size):
    set_command(SCRIPT)
    async with running_app(monkeypatch, size=size) as on:
        await on.sees("my line red")
        assert "my line red" in last_line(on)
        seen = json.loads(read_file("seen.json"))
        assert seen["model"] == {"id": "scripted", "display_name": "scripted"}
        assert seen["workspace"]["current_dir"] == str(Path.cwd())
        assert seen["session_id"] == on.app.session.driver.session_id
        assert seen["context_window"]["context_window_size"] == 200_000
        assert seen["cost"]["total_cost_usd"] == 0


async def test_it_runs_again_when_something_has_changed_and_shows_dangers(monkeypatch):
    set_command('jq() { :; }; sed \'s/.*permission_mode": "\\([a-z-]*\\)".*/mode=\\1/\'')
    async with running_app(monkeypatch) as on:
        await on.sees("mode=ask")
        for mode in ("accept-edits", "plan", "auto"):
            await on.press("shift+tab")
            await on.sees(f"mode={mode}")
            assert last_line(on).rstrip().endswith(mode)


async def test_several_lines_are_shown_where_there_is_room(monkeypatch):
    set_command("printf 'one\\ntwo\\nthree\\nfour\\n'")
    async with running_app(monkeypatch, size=(80, 24)) as on:
        await on.sees("three")
        assert [line.rstrip() for line in on.screen().split("\n")[-3:]] == ["one", "two", "three"]
    async with running_app(monkeypatch, size=(40, 15)) as on:
        await on.until(lambda: last_line(on).rstrip() == "one")


@pytest.mark.parametrize(
    ("command", "problem"),
    [("echo no >&2; exit 3", "the status line: no"), ("exit 4", "ended with the exit code 4")],
)
async def test_a_command_that_fails_leaves_the_line_of_the_program(monkeypatch, command, problem):
    set_command(command)
    async with running_app(monkeypatch) as on:
        await on.sees(problem)
        assert "ask · scripted" in last_line(on)


async def test_one_that_hangs_does_not_stop_the_screen(monkeypatch):
    set_command("sleep 1000")
    async with running_app(monkeypatch) as on:
        await on.send("hello")
        await on.sees("Hello.")
        assert "ask · scripted" in last_line(on)


async def test_the_command_shows_changes_and_switches_it_off(monkeypatch):
    async with running_app(monkeypatch) as on:
        await on.send("/statusline")
        await on.sees("the status line is that of the program")
        await on.send("/statusline echo here I am")
        await on.sees("status_line = echo here I am is written")
        await on.until(lambda: last_line(on).startswith("here I am"))
        await on.send("/statusline")
        await on.sees("it prints: here I am")
        await on.send("/statusline off")
        await on.until(lambda: "ask · scripted" in last_line(on))


async def test_that_of_claude_code_is_used_and_can_be_switched_off(monkeypatch):
    set_claude_command(str(Path.home() / ".claude/settings.json"), "echo as before")
    async with running_app(monkeypatch) as on:
        await on.until(lambda: last_line(on).startswith("as before"))
        await on.send("/statusline off")
        await on.until(lambda: "ask · scripted" in last_line(on))


async def test_that_of_a_project_runs_only_as_it_was_approved(monkeypatch):
    write_file("status.sh", "touch ran; echo of the project")
    set_claude_command(".claude/settings.json", "sh status.sh")
    async with running_app(monkeypatch) as on:
        await on.sees("settings .claude/settings.json is new and waits for your approval")
        assert not exists("ran")
    approve_extensions(Path.cwd())
    async with running_app(monkeypatch) as on:
        await on.until(lambda: last_line(on).startswith("of the project"))
        write_file("status.sh", "touch changed; echo changed text")
        await on.press("shift+tab")
        await on.until(lambda: "accept-edits · scripted" in last_line(on))
        assert not exists("changed")


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("\x1b[1;32mgreen\x1b[0m", "green"),
        ("a\x1b[2Jb\x1b]0;title\x07c\x1b[10;10Hd", "abcd"),
        ("\x1b]52;c;aGk=\x07x\x1b[?1049l", "x"),
        ("\x1b[31\x1b[m2J", "2J"),
        ("a\tb\rc\u202e", "a b␍c\\u202e"),
        ("\ue0b0 main \U0001f33f", "\ue0b0 main \U0001f33f"),
    ],
)
def test_of_escape_sequences_only_colours_are_kept(line: str, plain: str):
    parsed = parse_colours(line)
    assert "\x1b" not in parsed.plain
    assert parsed.plain == plain


async def test_a_first_message_has_a_forecast_until_it_is_sent(monkeypatch):
    for cost in (0.10, 0.20, 0.30):
        await past("Fix the parser", cost, cost * 100, "scripted")
    forecast = "about $0.20 ($0.10–$0.30), 20 s, a guess from 3 tasks"
    async with running_app(monkeypatch, size=(110, 24)) as on:
        await on.sees("ask · scripted")
        assert "about $" not in on.screen()
        await on.type("/fore")  # a command costs nothing
        await on.press("ctrl+u")
        await on.type("fix the parser")
        await on.until(lambda: last_line(on).rstrip().endswith(forecast))
        await on.press("enter")
        await on.until(lambda: "a guess" not in last_line(on))
        await on.idle()
        await on.send("/cost")
        await on.sees("a message here")
        await on.type("and once more")
        assert not on.app.session.forecast.text

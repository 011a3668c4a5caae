"""The trust dialog and the effects of its answers."""

import json
from pathlib import Path

import pytest

from tests.apps.tui.harness import RunningApp, exists, read_file, running_app, scripted, write_file
from treadle.apps.conversation.commands.trust import describe_allow_rules
from treadle.apps.settings.extensions import discover_extensions
from treadle.apps.settings.folder_rules import is_trust_declined, is_trusted

HOOK = """{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "echo hi"}]}]}}"""


def folder() -> Path:
    return Path.cwd()


async def begun(on: RunningApp) -> None:
    await on.until(lambda: on.app._conversation is not None, "the session")
    await on.idle()


async def test_what_the_folder_brings_is_named_and_counts_after_a_yes(monkeypatch):
    write_file("AGENTS.md", "- be brief")
    write_file(".treadle/commands/fix.md", "Mend it.")
    model = scripted(["Hello."])
    async with running_app(monkeypatch, model, trusted=False) as on:
        await on.sees("AGENTS.md, .treadle/commands")
        await on.press("y", "enter")
        await begun(on)
        assert [one.name for one in on.app.session.custom_commands] == ["fix"]
        await on.send("hi")
        await on.sees("Hello.")
        assert "- be brief" in str(model.requests[-1].system)
    assert is_trusted(folder())


async def test_the_allow_rules_that_a_yes_accepts_are_shown_the_widest_first(monkeypatch):
    allow = [*(f"Bash(make a{n})" for n in range(8)), "Edit(src/*)", "Sandbox(off)", "Bash"]
    write_file(".claude/settings.json", json.dumps({"permissions": {"allow": allow}}))
    async with running_app(monkeypatch, trusted=False) as on:
        await on.sees("Do you trust")
        screen = on.screen()
        assert "Sandbox(off)" not in screen
        assert "Bash: this allows every command" in screen
        assert screen.index("Bash: this") < screen.index("Edit(src/*)") < screen.index("make a0")
        rules = on.app.session.trust.list_rules()
        assert "and 2 more, which are in the settings files" in describe_allow_rules(rules)
        await on.press("n", "enter")
        await begun(on)


async def test_a_no_holds_for_this_time_only(monkeypatch):
    write_file("AGENTS.md", "- be brief")
    for _ in range(2):
        async with running_app(monkeypatch, trusted=False) as on:
            await on.sees("Do you trust")
            await on.press("n", "enter")
            await begun(on)
            assert not exists(str(Path.home() / ".treadle/trust.json"))


async def test_a_no_for_good_is_remembered_and_trust_takes_it_back(monkeypatch):
    write_file(".treadle/commands/fix.md", "Mend it.")
    async with running_app(monkeypatch, trusted=False) as on:
        await on.sees("do not ask again")
        await on.press("d", "enter")
        await begun(on)
    assert is_trust_declined(folder())
    async with running_app(monkeypatch, trusted=False) as on:
        await begun(on)
        await on.sees("/trust changes that")
        assert not on.app.session.custom_commands
        await on.send("/trust")
        await on.sees("Do you trust")
        await on.press("y", "enter")
        await on.sees("take effect now")
        assert [one.name for one in on.app.session.custom_commands] == ["fix"]
    assert is_trusted(folder())
    assert not is_trust_declined(folder())


async def test_programs_of_the_folder_are_shown_and_run_only_after_a_yes(monkeypatch):
    write_file(".treadle/settings.json", HOOK)
    async with running_app(monkeypatch, trusted=False) as on:
        await on.sees("Do you trust")
        await on.press("y", "enter")
        await on.sees("Allow these programs of the folder to run?")
        await on.sees("runs echo hi")
        await on.press("n", "enter")
        await begun(on)
        assert not discover_extensions(folder()).hooks
        await on.send("/trust")
        await on.sees("runs echo hi")
        await on.press("y", "enter")
        await on.sees("the programs are approved")
        assert [hook.command for hook in discover_extensions(folder()).hooks] == ["echo hi"]
        await on.send("/trust")
        await on.sees("this folder is trusted")
    assert "echo hi" not in read_file(str(Path.home() / ".treadle/trust.json"))


async def test_leaving_says_nothing_about_the_folder(monkeypatch):
    async with running_app(monkeypatch, trusted=False) as on:
        await on.sees("Do you trust")
        await on.press("escape")
        await on.until(lambda: on.app._exit, "the end")
    assert not exists(str(Path.home() / ".treadle/trust.json"))


async def test_what_is_typed_at_the_question_stays_a_draft_of_this_folder_alone(
    monkeypatch, tmp_path
):
    drafts, history = tmp_path / "drafts", tmp_path / "history.jsonl"
    here, kept = folder(), {"drafts_dir": drafts, "history_file": history}
    async with running_app(monkeypatch, trusted=False, **kept) as on:
        await on.sees("Do you trust")
        await on.type("cleared")
        await on.press("ctrl+c")
        assert on.app.prompt.text == ""
        assert not on.app._exit
        await on.type("y")
        await on.press("enter")
        await on.type("es please")
        assert on.app.prompt.text == "yes please"
        await on.press("down", "end", "enter")
        await on.until(lambda: on.app._exit, "the end")
    assert "y" not in map(json.loads, read_file(str(history)).splitlines())
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    async with running_app(monkeypatch, **kept) as on:
        assert on.app.prompt.text == ""
    monkeypatch.chdir(here)
    async with running_app(monkeypatch, **kept) as on:
        assert on.app.prompt.text == "yes please"


@pytest.mark.parametrize(
    ("mode", "promise"),
    [
        ("ask", "ask, which asks before every action"),
        ("auto", "auto, which changes files of this folder"),
    ],
)
async def test_the_question_promises_what_the_mode_does(monkeypatch, mode, promise):
    flags: dict[str, object] = {"permission_mode": mode}
    async with running_app(monkeypatch, trusted=False, flags=flags, size=(120, 40)) as on:
        await on.sees("Do you trust")
        await on.sees(promise)
        assert "need your approval in either case" not in on.screen()

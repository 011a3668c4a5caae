"""`treadle -p "/name"`: which prompts start a command, and what is said about the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.apps.program import run
from treadle.apps.cli.custom_command import find_command
from treadle.apps.console.console import UsageError
from treadle.apps.settings.extensions import discover_extensions
from treadle.apps.settings.folder_rules import open_trust_store
from treadle.testing.provider import FakeReply, ProviderServer


@pytest.fixture
def folder(own_place: Path) -> Path:
    place = own_place / "cwd"
    (place / ".claude/commands").mkdir(parents=True, exist_ok=True)
    (place / ".claude/commands/fix.md").write_text("Fix issue $1.")
    return place


def test_a_misspelt_command_is_an_error_that_names_the_right_one(folder: Path):
    open_trust_store().trust(folder)
    found = find_command("/fix 12\nand more", folder)
    assert found is not None
    assert (found.command.name, found.arguments) == ("fix", "12\nand more")
    with pytest.raises(UsageError, match="there is no command /fxi; did you mean /fix"):
        find_command("/fxi 12", folder)


@pytest.mark.parametrize("name", ["fix", "fix.all"])
def test_a_command_of_a_folder_that_is_not_trusted_is_an_error(folder: Path, name: str):
    (folder / f".claude/commands/{name}.md").write_text("Fix issue $1.")
    with pytest.raises(UsageError, match="folder, which is not trusted: run `treadle trust`"):
        find_command(f"/{name} 12", folder)


TEXTS = ("/tmp is full", "/usr/lib: why?", "/nosuch.md", "// a comment", "/ a blank", "/no, stop")


@pytest.mark.parametrize("prompt", TEXTS)
def test_a_prompt_that_begins_with_a_path_is_text(folder: Path, prompt: str):
    open_trust_store().trust(folder)
    assert find_command(prompt, folder) is None


async def test_an_unknown_command_is_an_error_and_no_model_is_asked(folder: Path):
    open_trust_store().trust(folder)
    async with ProviderServer([FakeReply("Done.")]) as server:
        for name in ("quarterly", "noserver:poem"):
            ran = await run(server, "-p", f"/{name} numbers")
            assert ran.code == 2
            assert f"there is no command /{name}; -p runs custom commands" in ran.err
            assert "To send it as text, begin the prompt with a blank" in ran.err
        assert not server.requests
        assert (await run(server, "-p", " /quarterly numbers")).out == "Done.\n"


async def test_a_script_learns_that_the_files_of_an_untrusted_folder_are_not_used(folder: Path):
    (folder / "CLAUDE.md").write_text("Whistle.")
    hooks = {"TeammateIdle": [{"hooks": [{"type": "command", "command": "true"}]}]}
    (folder / ".claude/settings.json").write_text(json.dumps({"hooks": hooks}))
    async with ProviderServer([FakeReply("Done.")] * 2) as server:
        ran = await run(server, "-p", "go")
        quiet = await run(server, "-p", "go", "--quiet")
    assert ran.err.splitlines() == [
        "treadle: this folder is not trusted; not used, except for deny and ask rules: CLAUDE.md, "
        ".claude/settings.json, .claude/commands (run `treadle trust`)"
    ]
    assert not quiet.err


@pytest.mark.parametrize(
    "event",
    ["TeammateIdle", "PostToolBatch", "UserPromptExpansion", "PreModelSwitch", "PostModelSwitch",
     "MessageDisplay", "DirectoryAdded"],
)  # fmt: skip
def test_an_event_that_only_claude_code_has_is_told_with_verbose_and_a_misspelt_one_always(
    folder: Path, event: str
):
    hooks: dict[str, list[object]] = {event: [], "PreToolUze": []}
    (folder / ".claude/settings.json").write_text(json.dumps({"hooks": hooks}))
    found = discover_extensions(folder)
    assert [one.rpartition(": ")[2] for one in found.unsupported] == [
        f"hooks for {event} are not run here"
    ]
    assert ["PreToolUze" in one for one in found.notes] == [True]

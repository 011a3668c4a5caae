"""The real program in a real terminal: untrusted folders, signals, a missing sandbox, plain lines.

The story of a user is in test_end_to_end.py.
"""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.tui.harness import exists
from tests.apps.tui.tmux import Terminal, needs_tmux
from tests.patience import SOON
from treadle.testing.provider.answers import ProviderFault
from treadle.testing.provider.script import FakeCall, FakeReply
from treadle.testing.provider.server import ProviderServer

pytestmark = [needs_tmux, pytest.mark.slow]

LONG = "And then there was more to say about it. " * 200


@pytest.fixture
def terminal(own_place: Path) -> Iterator[Terminal]:
    made = Terminal(own_place)
    yield made
    made.close()


def environment(server: ProviderServer) -> dict[str, str]:
    return {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}


GIVEN = ("--model=claude-sonnet-4-5", "--sandbox=off", "--theme=dark")


def _git_that_runs(spy: Path) -> None:
    """A repository whose configuration makes git run a program that writes a file."""
    spy.write_text(f"#!/bin/sh\nenv > {Path.cwd()}/ran\nfalse\n")
    spy.chmod(0o755)
    for words in (
        "init -q .", "add spy.sh", "update-index --untracked-cache",
        "config core.untrackedCache true", f"config core.fsmonitor {spy}",
    ):  # fmt: skip
        subprocess.run(["git", *words.split()], check=True)
    subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], capture_output=True)
    Path("ran").unlink()


async def test_an_untrusted_folders_git_runs_nothing_while_one_types_a_file_name(terminal):
    """Git would run the program of its configuration, with our environment."""
    _git_that_runs(Path.cwd() / "spy.sh")

    def story(server: ProviderServer) -> None:
        terminal.run(*GIVEN, env=environment(server))
        terminal.sees("Do you trust")
        terminal.answer("n", "Enter")
        terminal.sees("/help lists")
        terminal.type("look @sp")
        terminal.sees("@spy.sh")
        terminal.press("C-c")
        terminal.type("/doctor")
        terminal.press("Enter")
        terminal.sees("git version")

    async with ProviderServer([FakeReply("Hello.")], strict=False) as server:
        await asyncio.to_thread(story, server)
    assert not exists("ran")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_fault_82_83_a_signal_ends_it_at_once_and_the_turn_is_interrupted(terminal, number):
    slow = ProviderFault("paced", at=0, times=1, seconds=0.02)

    def story(server: ProviderServer) -> None:
        terminal.run(*GIVEN, env=environment(server))
        terminal.sees("Do you trust")
        terminal.answer("n", "Enter")
        terminal.sees("/help lists")
        terminal.send("talk")
        terminal.sees("And then there was more")
        began = time.monotonic()
        terminal.kill(number)
        terminal.sees("ended with 143")
        assert time.monotonic() - began < SOON
        terminal.run(*GIVEN, "--continue", env=environment(server))
        terminal.sees("Do you trust")
        terminal.answer("n", "Enter")
        terminal.sees("interrupted", "the last turn is not finished; press enter to continue it")
        terminal.press("Enter")
        terminal.sees("I go on.")

    replies = [FakeReply(LONG), FakeReply("I go on.")]
    async with ProviderServer(replies, faults=[slow], strict=False) as server:
        await asyncio.to_thread(story, server)


async def test_fault_86_resized_suspended_and_continued(terminal):
    def story(server: ProviderServer) -> None:
        stale = {"COLUMNS": "80", "LINES": "24"}
        terminal.run(*GIVEN, env={**environment(server), **stale})
        terminal.sees("Do you trust")
        terminal.answer("y", "Enter")
        terminal.sees("/help lists")
        terminal._tmux("resize-window", "-x", "40", "-y", "15")
        terminal.type("hello")
        terminal.press("Enter")
        terminal.sees("Hello.")
        terminal._tmux("resize-window", "-x", "90", "-y", "25")
        terminal.press("C-z")
        terminal.sees("topped", gone=False)
        terminal.type("fg")
        terminal.press("Enter")
        terminal.sees("› hello")
        terminal.type("again")
        terminal.press("Enter")
        terminal.sees("Still here.")

    async with ProviderServer(
        [FakeReply("Hello."), FakeReply("Still here.")], strict=False
    ) as server:
        await asyncio.to_thread(story, server)


@pytest.fixture
def path_without_bubblewrap(tmp_path: Path) -> str:
    folder = tmp_path / "programs"
    folder.mkdir()
    for place in reversed(os.get_exec_path()):
        for program in Path(place).glob("*"):
            (folder / program.name).unlink(missing_ok=True)
            (folder / program.name).symlink_to(program)
    (folder / "bwrap").unlink(missing_ok=True)
    return str(folder)


@pytest.mark.parametrize("how", ["drawn", "plain"])
async def test_a_missing_sandbox_is_shown_at_the_start_once(terminal, how, path_without_bubblewrap):
    def story(server: ProviderServer) -> None:
        given = ("--model=claude-sonnet-4-5", "--theme=dark", "--permission-mode=auto")
        plain = ("--plain",) if how == "plain" else ()
        terminal.run(*given, *plain, env={**environment(server), "PATH": path_without_bubblewrap})
        asked = terminal.sees("Do you trust the files in this folder?")
        assert "Where there is no sandbox" in " ".join(asked.split())
        if plain:
            terminal.type("1")
            terminal.press("Enter")
        else:
            terminal.answer("y", "Enter")
        terminal.sees("commands run without a sandbox: bubblewrap is not installed")
        if not plain:
            terminal.sees("auto · no sandbox")
        terminal.type("/goal true")
        terminal.press("Enter")
        screen = terminal.sees("goal set")
        assert screen.count("commands run without a sandbox") == 1

    async with ProviderServer([], strict=False) as server:
        await asyncio.to_thread(story, server)


async def test_line_by_line(terminal):
    script = [
        FakeReply("I make it.", calls=(FakeCall("bash", {"command": "touch made.txt"}),)),
        FakeReply("It is made."),
    ]

    def story(server: ProviderServer) -> None:
        terminal.run(*GIVEN, "--plain", env=environment(server))
        terminal.sees("Do you trust the files in this folder? 1 to 4:")
        terminal.type("1")
        terminal.press("Enter")
        terminal.sees("[ask] >")
        terminal.type("make it")
        terminal.press("Enter")
        terminal.sees("Allow, 1 to 6:")
        terminal.type("1")
        terminal.press("Enter")
        screen = terminal.sees("It is made.")
        assert "Tool bash touch made.txt: done" in screen.replace("bash: ", "bash ")
        assert exists("made.txt")
        terminal.type("/cost")
        terminal.press("Enter")
        terminal.sees("requests")
        terminal.type("/quit")
        terminal.press("Enter")
        terminal.sees("ended with 0")

    async with ProviderServer(script, strict=False) as server:
        await asyncio.to_thread(story, server)

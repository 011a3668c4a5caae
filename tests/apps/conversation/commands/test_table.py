"""Every slash command in every host: the same answers, and exceptions with their reason."""

# ruff: noqa: ASYNC240 (files are what the commands change)

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

import pytest

from tests.apps.tui.harness import make_usage, scripted, use
from tests.patience import until
from treadle.apps.acp.session import EditorSession
from treadle.apps.conversation.commands.answers import CommandAnswer
from treadle.apps.conversation.commands.table import (
    ALIASES,
    COMMANDS,
    COMMANDS_BY_NAME,
    EXCEPTIONS,
    list_commands,
    run_command,
)
from treadle.apps.conversation.session.callbacks import HostCallbacks, HostKind
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.tui.plain import PlainFrontend
from treadle.apps.tui.screen import FullScreen
from treadle.apps.web.live_session import LiveSession
from treadle.models.scripted import Pause, Say
from treadle.sessions.detached.background import BackgroundChoices, save_choices
from treadle.sessions.library import default_root

HOSTS: tuple[HostKind, ...] = get_args(HostKind)
# What is typed after the name, if the command has something to say about it.
ARGUMENTS = {
    "goal": "true",
    "budget": "2",
    "remember": "tests need a database",
    "memory": "add tests need a database",
    "config": "max_turns 9",
    "permissions": "add Bash(true:*)",
    "mode": "plan",
    "undo": "./w.txt",
    "theme": "light",
    "btw": "why?",
    "export": "out.md",
    "tasks": "t9",
    "mcp": "no-such-server",
    "agents": "stop 7",
}
# Their answers hold times and ages, or the commands of the host.
NOT_COMPARED = {"doctor", "sessions", "resume", "rewind", "help"}


class Callbacks(HostCallbacks):
    def __init__(self, kind: HostKind) -> None:
        self.kind = kind


@asynccontextmanager
async def opened(kind: HostKind, resume: str | None = None) -> AsyncIterator[HostedSession]:
    """A session as a host of this kind has it."""
    session = HostedSession(Path.cwd(), {"sandbox": "off", "permission_mode": "accept-edits"})
    session.trust.give()
    await session.open(Callbacks(kind), resume=resume)
    try:
        yield session
    finally:
        await session.aclose()


async def send(session: HostedSession, text: str) -> None:
    conversation = session.require_conversation()
    session.driver.submit(text)
    conversation.resume()
    await until(lambda: conversation.is_idle and not conversation.view.is_busy)


def describe(answer: CommandAnswer) -> str:
    """What a host shows of an answer, without what differs from session to session."""
    parts = [answer.tone, answer.note, str(answer.screen)]
    if answer.message is not None:
        parts.append(answer.message.text)
    if answer.question is not None:
        parts += [answer.question.title, answer.question.message, str(answer.question.options)]
        parts += [f"{one.path}{one.note}" for one in answer.question.changes]
    return re.sub(r"\d{8}-\w+-\w+|[0-9a-f]{8,}|\d+-\w{4,}", "ID", "\n".join(parts))


def test_every_command_says_what_it_does_and_an_exception_names_a_command_and_a_reason():
    names = [command.name for command in COMMANDS]
    assert len(names) == len(set(names))
    assert all(command.summary for command in COMMANDS)
    assert set(ALIASES.values()) <= set(names)
    assert not set(ALIASES) & set(names)
    for missing in EXCEPTIONS.values():
        assert set(missing) <= set(names)
        assert all(len(reason.split()) > 3 for reason in missing.values())


def test_what_a_host_does_not_have_is_listed_here():
    assert {kind: sorted(missing) for kind, missing in EXCEPTIONS.items()} == {
        "plain": ["statusline", "vim"],
        "page": ["detach", "quit", "statusline", "theme", "tour", "vim"],
        "editor": [
            *("clear", "detach", "fork", "queue", "quit", "resume"),
            *("rewind", "sessions", "statusline", "theme", "tour", "vim"),
        ],
    }
    assert {FullScreen.kind, PlainFrontend.kind, LiveSession.kind, EditorSession.kind} == {*HOSTS}


@pytest.mark.parametrize("name", [command.name for command in COMMANDS])
async def test_a_command_answers_the_same_in_every_host(monkeypatch, name: str):
    answers: dict[HostKind, str] = {}
    for kind in HOSTS:
        Path("w.txt").unlink(missing_ok=True)
        for made in ("AGENTS.md", ".treadle/settings.local.json"):
            Path(made).unlink(missing_ok=True)
        (Path.home() / ".treadle/config.toml").unlink(missing_ok=True)
        shutil.rmtree(default_root(), ignore_errors=True)  # forecasts know no earlier tasks
        write = Say(calls=[("write", {"file_path": "w.txt", "content": "new\n"})])
        use(monkeypatch, scripted([write, Say("done", usage=make_usage(50)), "an answer"]))
        async with opened(kind) as session:
            await send(session, "make it")
            Path("w.txt").write_text("new\nand mine\n")
            answer = await run_command(session, f"/{name} {ARGUMENTS.get(name, '')}")
        if name in EXCEPTIONS.get(kind, {}):
            assert answer.note == f"/{name} is not available here: {EXCEPTIONS[kind][name]}"
        else:
            assert "failed:" not in answer.note
            answers[kind] = describe(answer)
    if name not in NOT_COMPARED:
        assert len(set(answers.values())) == 1, answers


@pytest.mark.parametrize("path", ["w.txt", "./w.txt", "x/../w.txt"])
@pytest.mark.parametrize("kind", HOSTS)
async def test_a_file_is_undone_by_any_of_its_paths(monkeypatch, kind: HostKind, path: str):
    write = Say(calls=[("write", {"file_path": "w.txt", "content": "new\n"})])
    use(monkeypatch, scripted([write, "done"]))
    async with opened(kind) as session:
        await send(session, "make it")
        Path("w.txt").write_text("new\nand mine\n")
        answer = await run_command(session, f"/undo {path}")
        assert answer.question is not None
        done = await answer.question.then(answer.question.default)
        assert "removed w.txt" in done.note
    assert not Path("w.txt").exists()


@pytest.mark.parametrize("kind", HOSTS)
async def test_while_a_turn_runs_the_session_refuses_what_would_disturb_it(monkeypatch, kind):
    pause = Pause()
    use(monkeypatch, scripted([["x", pause], "Hello."]))
    async with opened(kind) as session:
        conversation = session.require_conversation()
        session.driver.submit("go")
        conversation.resume()
        await pause.reached.wait()
        missing = EXCEPTIONS.get(kind, {})
        refused = [one for one in COMMANDS if not one.while_busy and one.name not in missing]
        lines = [f"/{one.name}" for one in refused] + ["/config max_turns 9", "/budget 2"]
        for line in [*lines, "/permissions add Bash(true:*)"]:
            answer = await run_command(session, line)
            assert answer.tone == "error"
            assert "not available while a turn runs" in answer.note
        assert (await run_command(session, "/cost")).tone == "plain"
        conversation.interrupt()


async def test_a_host_lists_its_commands_with_their_arguments(monkeypatch):
    use(monkeypatch, scripted([]))
    Path.home().joinpath(".treadle/commands").mkdir(parents=True)
    Path.home().joinpath(".treadle/commands/greet.md").write_text("Greet $1.")
    async with opened("editor") as session:
        listed = {name: hint for name, _, hint in list_commands(session)}
        assert set(listed) == set(COMMANDS_BY_NAME) - set(EXCEPTIONS["editor"]) | {"greet"}
        assert listed["compact"] == "what to keep"
        answer = await run_command(session, "/greet Ada")
        assert answer.message is not None
        assert answer.message.text == "Greet Ada."


async def test_the_rules_of_a_session_that_was_in_the_background_are_listed(
    monkeypatch: pytest.MonkeyPatch,
):
    use(monkeypatch, scripted(["Done."]))
    async with opened("screen") as session:
        await send(session, "tidy up")
        session_dir = session.session_dir
    os.close(save_choices(session_dir, BackgroundChoices(deny=("Bash(rm:*)",))))
    async with opened("screen", resume="") as session:
        answer = await run_command(session, "/permissions")
        assert "deny Bash(rm:*)  --deny" in answer.note

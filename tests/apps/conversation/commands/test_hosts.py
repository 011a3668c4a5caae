"""The real hosts show the answers of commands: full screen, plain mode, page and editor."""

from __future__ import annotations

import html
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from acp.schema import ClientCapabilities

from tests.apps.acp.editor import Editor, say
from tests.apps.tui.harness import running_app, scripted, use
from tests.apps.tui.test_plain_commands import running_plain
from treadle.apps.acp.session import EditorSession
from treadle.apps.assembly import SessionOptions
from treadle.apps.conversation.commands.table import COMMANDS, EXCEPTIONS
from treadle.apps.conversation.session.callbacks import HostKind
from treadle.apps.web.actions import run_request
from treadle.apps.web.hub import Hub
from treadle.apps.web.messages import RunCommand
from treadle.apps.web.uploads import Uploads

FLAGS: dict[str, object] = {"sandbox": "off"}
# A line, and what every host that has the command shows of its answer in a new session.
ANSWERS = {
    "/cost": "requests",
    "/cost everything": "/cost takes no arguments: show tokens and cost of this session",
    "/export": "this session is empty: there is nothing to export",
    "/context": "free",
    "/effects": "no turn had effects beyond files",
    "/effects often": "usage: /effects lists them",
    "/apply": "no recorded calls wait",
    "/dry-run": "no dry run",
    "/dry-run often": "usage: /dry-run on",
    "/forecast fix it": "no forecast: only ",
    "/forecast": "usage: /forecast TEXT",
    "/permissions": "there are no rules",
    "/permissions add Bash(": "is not a rule",
    "/config max_turns": "limit of tool rounds per turn",
    "/config max_turns many": "max_turns cannot be 'many'",
    "/config max_turns 12": "max_turns = 12 is written",
    "/todo": "there is no todo list",
    "/plan": "no plan was accepted in this session",
    "/tasks": "there are no background tasks",
    "/tasks t9": "no task 't9' is running",
    "/agents": "no agent is at work",
    "/agents stop 7": "there is no agent or task '7'",
    "/skills": "there are no skills",
    "/mcp": "no MCP server is configured",
    "/mcp raw": "there is no MCP server 'raw'",
    "/goal": "no goal is set",
    "/goal true": "goal set: every turn continues until this succeeds: true",
    "/budget 2": "max_cost: $0.00 of $2.00 spent, set by /budget",
    "/remember tests need a database": "AGENTS.md",
    "/memory": "the agent keeps no line for this project or for you",
    "/memory add use uv": "added for this project, used from the next session on: use uv",
    "/memory forget 7": "no line of memory has the number 7",
    "/trust": "this folder is trusted",
    "/undo ./w.txt": "nothing to undo yet: this session is new",
    "/redo": "nothing to redo yet: this session is new",
    "/rewind": "nothing to rewind yet: this session is new",
    "/fork": "this session is empty",
    "/resume": "there is no other session in this folder",
    "/resume no such words": "no other session of this folder has",
    "/rename my work": "this session is named 'my work'",
    "/queue": "no message is queued",
    "/btw why?": "this session is empty",
    "/compact": "nothing was compacted",
    "/uncompact": "the model sees the whole history already",
    "/diff": "this folder is not in a git repository",
    "/review": "this folder is not in a git repository",
    "/mode sideways": "unknown mode 'sideways'",
    "/model nothing/none": "no model or provider is called",
    "/output-style loud": "there is no output style 'loud'; there are: default",
    "/output-style default": "output_style = default is written",
    "/theme pink": "unknown theme 'pink'",
    "/help": "list commands and keys",
    "/detach": "nothing is left to do here",
    "/hlep": "did you mean /help?",
}
# Each changes the screen, opens a list or starts a turn; tests of the hosts have them.
NOT_HERE = {"sessions", "clear", "quit", "statusline", "tour", "vim", "init", "doctor"}

Run = Callable[[str, str], Awaitable[str]]


def test_every_command_is_tried_here_or_named_as_an_exception():
    tried = {line[1:].split()[0] for line in ANSWERS} - {"hlep"}
    assert tried | NOT_HERE == {command.name for command in COMMANDS}


@asynccontextmanager
async def screen(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Run]:
    async with running_app(monkeypatch, scripted([]), size=(160, 90)) as on:

        async def run(line: str, answer: str) -> str:
            await on.send(line)
            await on.sees(answer)
            return on.screen()

        yield run


@asynccontextmanager
async def plain(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Run]:
    async with running_plain(monkeypatch, scripted([])) as on:
        yield on.type


@asynccontextmanager
async def page(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Run]:
    use(monkeypatch, scripted([]))
    hub = Hub(Path.cwd(), FLAGS)
    session = await hub.create()
    session.opened.trust.give()

    async def run(line: str, answer: str) -> str:
        reply = await run_request(RunCommand(line), hub, session, Uploads())
        update = session.feed.make_update(None)
        blocks = "".join(text for _, text in update.blocks) if update is not None else ""
        return html.unescape(f"{getattr(reply, 'text', '')}{getattr(reply, 'html', '')}{blocks}")

    try:
        yield run
    finally:
        await hub.aclose()


@asynccontextmanager
async def editor(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Run]:
    use(monkeypatch, scripted([]))
    client = Editor()
    session = EditorSession(client, ClientCapabilities(), Path.cwd(), FLAGS, SessionOptions())
    session.session.trust.give()
    await session.open()

    async def run(line: str, answer: str) -> str:
        await session.prompt(say(line))
        return client.text

    try:
        yield run
    finally:
        await session.aclose()


@pytest.mark.parametrize(
    ("kind", "host"),
    [("screen", screen), ("plain", plain), ("page", page), ("editor", editor)],
    ids=["screen", "plain", "page", "editor"],
)
async def test_a_host_shows_what_each_command_answers(monkeypatch, kind: HostKind, host):
    async with host(monkeypatch) as run:
        for line, answer in ANSWERS.items():
            reason = EXCEPTIONS.get(kind, {}).get(line[1:].split()[0])
            wanted = f"is not available here: {reason}" if reason else answer
            assert wanted in await run(line, wanted), line

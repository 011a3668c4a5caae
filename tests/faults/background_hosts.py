"""One session in terminal, background, page and editor in turn, with processes killed: SIGKILL.

    python -m tests.faults.background_hosts 100 [SEED]

The terminal starts it and answers its first question, `/detach` moves it to the background, the
page answers the second question, and the editor the third. Meanwhile the supervisor, the run, or
both are killed at random moments. What has to hold is `check` of background_kills.py.
"""

from __future__ import annotations

import asyncio
import html
import json
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.apps.acp.editor import Editor, connect
from tests.apps.tui.tmux import AsyncTerminal, terminal_at
from tests.apps.web.server import TabClient, open_tab, web_server
from tests.faults.background_kills import (
    TARGETS,
    check,
    count_lines,
    find_supervisor,
    kill,
    kill_target,
)
from tests.faults.own_home import own_home
from tests.patience import until
from treadle.apps.settings.folder_rules import open_trust_store
from treadle.sessions import Library
from treadle.sessions.detached.background import find_run, is_starting
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer, ReceivedRequest

COMMANDS = 9
QUESTIONS = (0, 6, 8)  # the calls that no rule allows
EDITOR_MESSAGE = "Go on."
MOMENTS = 32  # lines of the log from `/detach` to the question for the page
KILLS = 3  # at most, of one session


class Kill(NamedTuple):
    """`line`: of the log from `/detach` on; `seconds`: how long after it."""

    line: int
    seconds: float
    target: str


def prepare_folder() -> None:
    """The folder is trusted: no host asks. And the command that a rule allows."""
    open_trust_store().trust(Path.cwd())
    Path("note").write_text('echo "$1" >> "effects-$2"\n')


def count_effects(number: int) -> int:
    file = Path(f"effects-{number}")
    return len(file.read_text().split()) if file.exists() else 0


def is_at_work(session_dir: Path) -> bool:
    return find_run(session_dir) is not None or is_starting(session_dir)


def draw_kills(dice: random.Random) -> list[Kill]:
    drawn = [
        (dice.randrange(MOMENTS), dice.random() / 5, dice.choice(TARGETS)) for _ in range(KILLS)
    ]
    return sorted(Kill(*one) for one in drawn)


def reply(request: ReceivedRequest) -> FakeReply:
    text = json.dumps(request.json["messages"])
    number, results = re.findall(r"task (\d+)\.", text)[0], text.count('"tool_result"')
    if results == COMMANDS:
        return FakeReply(text=f"done {number}")
    command = f"sh note {results} {number}"
    if results in QUESTIONS:
        command = f"echo {results} >> effects-{number}"
    if not results:  # it ends when the user has typed `/detach`
        command += f"; until [ -e gate-{number} ]; do sleep 0.05; done"
    return FakeReply(calls=(FakeCall("bash", {"command": command}),))


async def visit_hosts(
    server: ProviderServer, terminal: AsyncTerminal, number: int, stay: int, kills: Sequence[Kill]
) -> int:
    """One session, which the page takes over after `stay` commands in the background; how many
    processes were killed."""
    known = set(Library().list_session_dirs())
    await terminal.run(f"task {number}.", "--allow", "Bash(sh note:*)", "--sandbox", "off")
    await terminal.answer("y", "Enter")
    await until(lambda: count_effects(number))
    [session_dir] = set(Library().list_session_dirs()) - known
    killed: list[Kill] = []
    killing = asyncio.create_task(_kill_at(session_dir, kills, killed))
    try:
        await terminal.send("/detach")
        await terminal.sees("it goes to the background after this round")
        await asyncio.to_thread(Path(f"gate-{number}").touch)
        await terminal.sees("it works in the background", "ended with 0")
        await until(lambda: count_effects(number) > stay or not is_at_work(session_dir))
        async with web_server(server, Path.cwd()) as page:
            async with open_tab(page, session_dir.name) as tab:
                await _continue_on_page(tab)
            await page.kill()
        editor = Editor(lambda question, options: options[0].option_id)
        async with connect(server, editor=editor) as on:
            await on.agent.load_session(
                cwd=str(Path.cwd()), session_id=session_dir.name, mcp_servers=[]
            )
            await on.prompt(session_dir.name, EDITOR_MESSAGE)
    finally:
        killing.cancel()
        await asyncio.gather(killing, return_exceptions=True)
    check(session_dir, number, (f"task {number}.", EDITOR_MESSAGE), COMMANDS)
    return len(killed)


async def _kill_at(session_dir: Path, kills: Sequence[Kill], killed: list[Kill]) -> None:
    began = count_lines(session_dir)
    for one in kills:
        line = began + one.line
        await until(lambda: count_lines(session_dir) >= line)  # noqa: B023 (called at once)
        await asyncio.sleep(one.seconds)
        killed += [one] * kill_target(session_dir, one.target)


async def _continue_on_page(tab: TabClient) -> None:
    """Answer the question that waits, and return at the next one."""
    answered = ""
    while True:
        await tab.receive()
        question = html.unescape(tab.regions.get("questions", ""))
        asked = re.search(r'data-question="(\d+)".*?echo (\d) >>', question, re.DOTALL)
        if asked and int(asked[2]) == QUESTIONS[2]:
            return
        if asked and asked[1] != answered:
            assert int(asked[2]) == QUESTIONS[1], asked[2]
            answered = asked[1]
            await tab.send(do="answer", question=int(answered), answer="once")
        elif "Continue it" in tab.regions.get("banner", ""):
            await tab.send(do="resume", id=f"resume-{len(tab.versions)}")


async def kill_many(seed: int, count: int, place: Path) -> int:
    """`count` sessions in the current folder; how many processes were killed."""
    dice, killed = random.Random(seed), 0
    prepare_folder()
    async with ProviderServer(reply) as server:
        with terminal_at(server, place) as terminal:
            for number in range(count):
                kills, stay = draw_kills(dice), dice.randrange(1, QUESTIONS[1] + 1)
                try:
                    killed += await visit_hosts(server, terminal, number, stay, kills)
                except BaseException:
                    print(f"FAILED: seed {seed}, {number}: {stay}, {kills}", flush=True)
                    raise
        kill(find_supervisor())
        assert server.violations == []
    return killed


def main(arguments: list[str]) -> int:
    count, seed = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 1
    with own_home("background-hosts") as place:
        killed = asyncio.run(kill_many(seed, count, place))
    print(f"{count} sessions with seed {seed}, {killed} processes killed: nothing lost or twice")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

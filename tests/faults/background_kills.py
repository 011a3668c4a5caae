"""Kill the supervisor, the run, or both, at random moments of a background session: SIGKILL.

    python -m tests.faults.background_kills 100 [SEED]

Each session runs three commands and answers. After the kill it is continued until it is done. What
has to hold is in `check`. A moment is a number of lines of the log. A failure names its seed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.apps.program import run
from tests.faults.own_home import own_home
from tests.patience import INTERVAL, until
from treadle.apps.console import exit_codes
from treadle.core.transcript.items import AssistantItem, ToolResultItem, UserItem
from treadle.sessions import Library
from treadle.sessions.detached.background import find_run
from treadle.sessions.history import read_state
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer, ReceivedRequest

FREELY = ("--permission-mode", "bypass", "--sandbox", "off")
COMMANDS = 3
MOMENTS = 48  # lines of the log of a session that nobody kills
TARGETS = ("supervisor", "run", "both")


def reply(request: ReceivedRequest) -> FakeReply:
    messages: Any = request.json["messages"]
    text = json.dumps(messages)
    name, results = re.findall(r"task (\d+)\.", text)[0], text.count('"tool_result"')
    if results == COMMANDS:
        return FakeReply(text=f"done {name}")
    command = f"echo {results} >> effects-{name}"
    return FakeReply(calls=(FakeCall("bash", {"command": command}),))


def find_supervisor() -> int | None:
    """The process of the supervisor, if it is alive."""
    lock = Path.home() / ".treadle/supervisor/lock"
    pid = lock.read_text().strip() if lock.exists() else ""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") if pid else []
        return int(pid) if b"supervisor" in words and b"run" not in words else None
    return None


def kill(pid: int | None) -> bool:
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def kill_target(session_dir: Path | None, target: str) -> int:
    """How many processes were killed: the supervisor, the run of the session, or both."""
    killed = 0
    if target != "run":
        killed += kill(find_supervisor())
    if target != "supervisor" and session_dir is not None:
        holder = find_run(session_dir)
        killed += kill(holder.pid if holder is not None else None)
    return killed


def count_lines(session_dir: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in session_dir.glob("journal*.jsonl"))


def is_done(session_dir: Path) -> bool:
    state = read_state(session_dir)
    return state.turn is None and not state.queued and bool(state.full_history)


async def kill_session(server: ProviderServer, number: int, moment: int, target: str) -> int:
    """One session; how many processes were killed."""
    known = set(Library().list_session_dirs())
    starting = asyncio.create_task(run(server, "--bg", f"task {number}.", *FREELY))
    session_dir: Path | None = None
    while session_dir is None or count_lines(session_dir) < moment:
        session_dir = next(iter(set(Library().list_session_dirs()) - known), None)
        is_over = session_dir is not None and starting.done() and is_done(session_dir)
        if is_over or (starting.done() and starting.result().code):
            break
        await asyncio.sleep(INTERVAL)
    killed = kill_target(session_dir, target)
    started = await starting
    assert started.code == 0, started.err
    session_dir = Library().find(started.out.strip())
    while not is_done(session_dir):
        again = await run(server, "--bg", "--resume", session_dir.name, *FREELY)
        expected = (0, exit_codes.USAGE_ERROR, exit_codes.SESSION_BUSY)  # done, or at work
        assert again.code in expected, again.err
        await until(lambda: find_run(session_dir) is None)
    check(session_dir, number, (f"task {number}.",), COMMANDS)
    return killed


def check(session_dir: Path, number: int, messages: tuple[str, ...], commands: int) -> None:
    """Nothing is lost and nothing is done twice; what is not known is said."""
    items = read_state(session_dir).full_history
    assert tuple(one.text for one in items if isinstance(one, UserItem)) == messages
    answers = [one.text for one in items if isinstance(one, AssistantItem) and not one.calls]
    assert answers == [f"done {number}"]
    results = [one for one in items if isinstance(one, ToolResultItem)]
    assert len(results) == commands
    file = Path(f"effects-{number}")
    effects = Counter(file.read_text().split() if file.exists() else [])
    for index, result in enumerate(results):
        known = (1,) if result.outcome == "finished" else (0, 1)
        assert effects[str(index)] in known, (index, result)


async def kill_many(seed: int, count: int) -> int:
    """`count` sessions in the current folder; how many processes were killed."""
    dice, killed = random.Random(seed), 0
    async with ProviderServer(reply) as server:
        for number in range(count):
            moment, target = dice.randrange(MOMENTS), dice.choice(TARGETS)
            try:
                killed += await kill_session(server, number, moment, target)
            except BaseException:
                print(f"FAILED: seed {seed}, {number}: {target} at line {moment}", flush=True)
                raise
        kill(find_supervisor())
        assert server.violations == []
    return killed


def main(arguments: list[str]) -> int:
    count, seed = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 1
    with own_home("background-kills"):
        killed = asyncio.run(kill_many(seed, count))
    print(f"{count} sessions with seed {seed}, {killed} processes killed: nothing lost or twice")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

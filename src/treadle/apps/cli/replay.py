"""`treadle replay` and `treadle diff`: a session run again, and where two sessions part.

The loop runs for real; the model and the tools are the recording's. With --live-tools those of
today that have no effect are asked as well. Above: `main.py`. Below: `sessions/replay.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.cli.printing import say
from treadle.apps.cli.sessions import DONE, ERROR, answered
from treadle.core.terminal import visible
from treadle.sessions.library import Library

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treadle.apps.wiring.late import LateWorkspace
    from treadle.core.contracts.source import ToolSource
    from treadle.core.contracts.workspace import Workspace
    from treadle.core.transcript.entries import Entry
    from treadle.sessions.comparing import Difference
    from treadle.sessions.replay import Drift, Recording

MOST_LINES = 30
LOOKING = frozenset({"read", "glob", "grep", "ls"})


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="treadle replay",
        description="Run a session again without a network: it has to give the same transcript.",
    )
    parser.add_argument("id")
    parser.add_argument(
        "--live-tools",
        action="store_true",
        help="ask the tools of today that have no effect, and show where they answer otherwise",
    )
    parser.add_argument("--from", dest="turn", metavar="TURN", help="fork before this turn")
    parser.add_argument("--model", help="who goes on with the fork")
    options = parser.parse_args(arguments)
    if options.model and not options.turn:
        parser.error("--model needs --from TURN: the session itself is replayed as it was")
    if options.turn:
        return answered("replay", lambda: _fork(options))
    return answered("replay", lambda: asyncio.run(_replay(options)))


def run_diff(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="treadle diff", description="Show the first place where two sessions differ."
    )
    parser.add_argument("left")
    parser.add_argument("right")
    options = parser.parse_args(arguments)
    return answered("diff", lambda: _diff(options))


# --- replay --------------------------------------------------------------------------------


async def _replay(options: argparse.Namespace) -> int:
    from treadle.sessions.journal import read

    library = Library()
    place = library.find(options.id)
    folder = Path(library.summary(place).folder)
    workspace = _workspace(folder, place) if options.live_tools else None
    try:
        return await _run_all(place, read(place), workspace)
    finally:
        if workspace is not None:
            await workspace.aclose()


async def _run_all(place: Path, entries: Sequence[Entry], workspace: LateWorkspace | None) -> int:
    from treadle.sessions.replay import recordings

    live = _today(workspace) if workspace is not None else None
    drifts: list[Drift] = []
    names: set[str] = set()
    replies = 0
    for recording in recordings(entries):
        difference = await run_again(recording, live, workspace)
        drifts += recording.drifts
        names |= recording.names
        replies += recording.asked
        if difference is not None:
            print(f"{place.name} went another way at item {difference.position}:")
            _side_by_side(difference, "recorded", "now")
            return ERROR
    if workspace is not None:
        not_asked = ", ".join(sorted(names - LOOKING))
        if not_asked:
            print(f"not asked, because they do more than look: {not_asked}", file=sys.stderr)
    for drift in drifts:
        call = visible(f"{drift.name} {drift.arguments} ({drift.call_id})")
        say(f"{call} answers otherwise today:")
        print(_columns(drift.then, drift.now, "recorded", "today"))
    if drifts:
        return ERROR
    print(f"{place.name}: {replies} replies, the same transcript")
    return DONE


async def run_again(
    recording: Recording, live: ToolSource | None = None, workspace: Workspace | None = None
) -> Difference | None:
    """Run a stretch of a session through the loop; where it went another way, if it did."""
    from treadle.agents.agent import Agent
    from treadle.core.loop.steps import AwaitingInput
    from treadle.sessions.replay import NO_LIMIT

    agent = Agent(
        recording.model,
        [recording.source(live)],
        mutators=[recording.mutator],
        max_turns=NO_LIMIT,
        max_result_chars=NO_LIMIT,
        workspace=workspace,
    )
    driver = agent.start(view=recording.start)
    told = -1
    try:
        while recording.mutator.difference is None:
            if told < recording.asked:
                told = recording.asked
                for opener in recording.openers():
                    driver.submit(opener)
            was_over = recording.is_over
            step = await driver.next()
            if was_over or (recording.is_over and not recording.replies[-1].calls):
                break
            if isinstance(step, AwaitingInput) and not recording.openers():
                await driver.aclose()
                driver = agent.start(view=recording.mutator.jump())
        return recording.difference(driver.transcript)
    finally:
        await driver.aclose()
        await agent.aclose()


def _today(workspace: Workspace) -> ToolSource:
    """The tools of today that only look at files: a replay has no effects and no network."""
    from treadle.tools.builtin import builtin_tools
    from treadle.tools.federation import Registry

    looking = [tool for tool in builtin_tools(workspace).tools() if tool.spec.name in LOOKING]
    return Registry(tuple(looking))


def _workspace(folder: Path, place: Path) -> LateWorkspace:
    """The files that the session worked on, as they are today, and its own long outputs."""
    from treadle.apps.wiring.late import LateWorkspace
    from treadle.workspace.local import Options

    return LateWorkspace(folder, lambda: Options(readable=(place / "outputs",)))


def _fork(options: argparse.Namespace) -> int:
    from treadle.core.transcript.entries import Told
    from treadle.sessions.travel import fork, turn

    library = Library()
    place = library.find(options.id)
    mark = turn(place, options.turn)

    async def work() -> str:
        journal, _ = fork(library, place, folder=Path.cwd(), before=mark.turn_id)
        journal.append(Told(f"a fork of {place.name} before turn {mark.number}"))
        await journal.aclose()
        return journal.session_id

    session_id = asyncio.run(work())
    print(f"{place.name} forked before turn {mark.number} as {session_id}", file=sys.stderr)
    if not options.model:
        print(session_id)
        return DONE
    from treadle.apps.cli.main import AGENT, call

    return call(AGENT, ["-p", "--resume", session_id, "--model", options.model, "--", mark.text])


# --- diff ----------------------------------------------------------------------------------


def _diff(options: argparse.Namespace) -> int:
    from treadle.sessions.comparing import first_difference
    from treadle.sessions.travel import view_of

    library = Library()
    left, right = library.find(options.left), library.find(options.right)
    difference = first_difference(view_of(left).transcript, view_of(right).transcript)
    if difference is None:
        print(f"{left.name} and {right.name} are the same")
        return DONE
    print(f"the same up to item {difference.position}; then:")
    _side_by_side(difference, left.name, right.name)
    return ERROR


def _side_by_side(difference: Difference, left: str, right: str) -> None:
    from treadle.sessions.comparing import words

    print(_columns(words(difference.left), words(difference.right), left, right))


def _columns(left: str, right: str, left_title: str, right_title: str) -> str:
    """Two texts beside each other, from a little before the first line that differs."""
    width = max(20, (shutil.get_terminal_size().columns - 3) // 2)
    one, two = _wrapped(left, width), _wrapped(right, width)
    same = 0
    while same < min(len(one), len(two)) and one[same] == two[same]:
        same += 1
    start = max(0, same - 2) if same > MOST_LINES // 2 else 0
    rows = [(left_title, right_title), ("-" * width, "-" * width)]
    for number in range(start, min(max(len(one), len(two)), start + MOST_LINES)):
        cells = [text[number] if number < len(text) else "" for text in (one, two)]
        rows.append((cells[0], cells[1]))
    return "\n".join(f"{a:{width}} | {b}".rstrip() for a, b in rows)


def _wrapped(text: str, width: int) -> list[str]:
    lines: list[str] = []
    for line in text.split("\n"):
        clean = visible(line.expandtabs(4))
        lines += textwrap.wrap(clean, width) or [""]
    return lines

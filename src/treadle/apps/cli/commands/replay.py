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

from treadle.apps.cli.commands.sessions import ERROR, SUCCESS, report_errors
from treadle.apps.cli.console import print_line
from treadle.core.sanitize import escape_invisible
from treadle.sessions.library import Library

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treadle.apps.assembly.lazy import LazyWorkspace
    from treadle.core.contracts.source import ToolSource
    from treadle.core.contracts.workspace import Workspace
    from treadle.core.transcript.entries import Entry
    from treadle.sessions.diff import Difference
    from treadle.sessions.replay import Recording, ToolMismatch

MAX_LINES = 30
READ_ONLY_TOOLS = frozenset({"read", "glob", "grep", "ls"})


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
        return report_errors("replay", lambda: _fork(options))
    return report_errors("replay", lambda: asyncio.run(_replay(options)))


def run_diff(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="treadle diff", description="Show the first place where two sessions differ."
    )
    parser.add_argument("left")
    parser.add_argument("right")
    options = parser.parse_args(arguments)
    return report_errors("diff", lambda: _diff(options))


# --- replay --------------------------------------------------------------------------------


async def _replay(options: argparse.Namespace) -> int:
    from treadle.sessions.log.journal import read_entries

    library = Library()
    place = library.find(options.id)
    folder = Path(library.get_summary(place).folder)
    workspace = _make_workspace(folder, place) if options.live_tools else None
    try:
        return await _replay_all(place, read_entries(place), workspace)
    finally:
        if workspace is not None:
            await workspace.aclose()


async def _replay_all(
    session_dir: Path, entries: Sequence[Entry], workspace: LazyWorkspace | None
) -> int:
    from treadle.sessions.replay import split_recordings

    live = _make_live_tools(workspace) if workspace is not None else None
    drifts: list[ToolMismatch] = []
    names: set[str] = set()
    replies = 0
    for recording in split_recordings(entries):
        difference = await replay_recording(recording, live, workspace)
        drifts += recording.mismatches
        names |= recording.tool_names
        replies += recording.reply_count
        if difference is not None:
            print(f"{session_dir.name} went another way at item {difference.position}:")
            _print_side_by_side(difference, "recorded", "now")
            return ERROR
    if workspace is not None:
        not_asked = ", ".join(sorted(names - READ_ONLY_TOOLS))
        if not_asked:
            print(f"not asked, because they do more than look: {not_asked}", file=sys.stderr)
    for drift in drifts:
        call = escape_invisible(f"{drift.name} {drift.arguments} ({drift.call_id})")
        print_line(f"{call} answers otherwise today:")
        print(_format_columns(drift.recorded, drift.actual, "recorded", "today"))
    if drifts:
        return ERROR
    print(f"{session_dir.name}: {replies} replies, the same transcript")
    return SUCCESS


async def replay_recording(
    recording: Recording, live: ToolSource | None = None, workspace: Workspace | None = None
) -> Difference | None:
    """Run a stretch of a session through the loop; where it went another way, if it did."""
    from treadle.agents.agent import Agent
    from treadle.core.steps import AwaitingInput
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
            if told < recording.reply_count:
                told = recording.reply_count
                for opener in recording.next_user_items():
                    driver.submit(opener)
            was_over = recording.is_finished
            step = await driver.next()
            if was_over or (recording.is_finished and not recording.replies[-1].calls):
                break
            if isinstance(step, AwaitingInput) and not recording.next_user_items():
                await driver.aclose()
                driver = agent.start(view=recording.mutator.skip_to_next_reply())
        return recording.difference(driver.transcript)
    finally:
        await driver.aclose()
        await agent.aclose()


def _make_live_tools(workspace: Workspace) -> ToolSource:
    """The tools of today that only look at files: a replay has no effects and no network."""
    from treadle.tools.builtin import builtin_tools
    from treadle.tools.federation import StaticSource

    looking = [
        tool for tool in builtin_tools(workspace).tools() if tool.spec.name in READ_ONLY_TOOLS
    ]
    return StaticSource(tuple(looking))


def _make_workspace(folder: Path, session_dir: Path) -> LazyWorkspace:
    """The files that the session worked on, as they are today, and its own long outputs."""
    from treadle.apps.assembly.lazy import LazyWorkspace
    from treadle.workspace.local import WorkspaceOptions

    return LazyWorkspace(folder, lambda: WorkspaceOptions(readable=(session_dir / "outputs",)))


def _fork(options: argparse.Namespace) -> int:
    from treadle.core.transcript.entries import NoticeShown
    from treadle.sessions.history import find_turn, fork

    library = Library()
    place = library.find(options.id)
    mark = find_turn(place, options.turn)

    async def work() -> str:
        journal, _ = fork(library, place, folder=Path.cwd(), before_turn=mark.turn_id)
        journal.append(NoticeShown(f"a fork of {place.name} before turn {mark.number}"))
        await journal.aclose()
        return journal.session_id

    session_id = asyncio.run(work())
    print(f"{place.name} forked before turn {mark.number} as {session_id}", file=sys.stderr)
    if not options.model:
        print(session_id)
        return SUCCESS
    from treadle.apps.cli.main import AGENT_MODULE, run_module

    return run_module(
        AGENT_MODULE, ["-p", "--resume", session_id, "--model", options.model, "--", mark.text]
    )


# --- diff ----------------------------------------------------------------------------------


def _diff(options: argparse.Namespace) -> int:
    from treadle.sessions.diff import find_first_difference
    from treadle.sessions.history import load_view

    library = Library()
    left, right = library.find(options.left), library.find(options.right)
    difference = find_first_difference(load_view(left).transcript, load_view(right).transcript)
    if difference is None:
        print(f"{left.name} and {right.name} are the same")
        return SUCCESS
    print(f"the same up to item {difference.position}; then:")
    _print_side_by_side(difference, left.name, right.name)
    return ERROR


def _print_side_by_side(difference: Difference, left: str, right: str) -> None:
    from treadle.sessions.diff import format_item

    print(_format_columns(format_item(difference.left), format_item(difference.right), left, right))


def _format_columns(left: str, right: str, left_title: str, right_title: str) -> str:
    """Two texts beside each other, from a little before the first line that differs."""
    width = max(20, (shutil.get_terminal_size().columns - 3) // 2)
    one, two = _wrap_lines(left, width), _wrap_lines(right, width)
    same = 0
    while same < min(len(one), len(two)) and one[same] == two[same]:
        same += 1
    start = max(0, same - 2) if same > MAX_LINES // 2 else 0
    rows = [(left_title, right_title), ("-" * width, "-" * width)]
    for number in range(start, min(max(len(one), len(two)), start + MAX_LINES)):
        cells = [text[number] if number < len(text) else "" for text in (one, two)]
        rows.append((cells[0], cells[1]))
    return "\n".join(f"{a:{width}} | {b}".rstrip() for a, b in rows)


def _wrap_lines(text: str, width: int) -> list[str]:
    lines: list[str] = []
    for line in text.split("\n"):
        clean = escape_invisible(line.expandtabs(4))
        lines += textwrap.wrap(clean, width) or [""]
    return lines

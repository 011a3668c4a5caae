"""`treadle replay` runs a session again; `treadle diff` compares two sessions.

The loop is the real one; replies and tool results come from the recording. With --live-tools the
current read-only tools are called, too, and compared. Uses sessions/replay.py.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import textwrap
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.console.console import print_line, report_errors
from treadle.apps.console.exit_codes import ERROR, SUCCESS
from treadle.core.transcript.items import (
    AssistantItem,
    Item,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
)
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import plural
from treadle.sessions.library import Library

if TYPE_CHECKING:
    from treadle.apps.assembly.lazy import LazyWorkspace
    from treadle.core.contracts.source import ToolSource
    from treadle.core.contracts.workspace import Workspace
    from treadle.sessions.replay import Difference, Recording, ToolMismatch

MAX_LINES = 30


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="treadle replay",
        description="Replay a session offline and check that the transcript is the same.",
    )
    parser.add_argument("id")
    live_help = "also call the current read-only tools, and show different results"
    parser.add_argument("--live-tools", action="store_true", help=live_help)
    parser.add_argument("--from", dest="turn", metavar="TURN", help="fork before this turn")
    parser.add_argument("--model", help="run that turn again with this model, in the fork")
    options = parser.parse_args(arguments)
    if options.model and not options.turn:
        parser.error("--model needs --from TURN")
    if options.turn:
        return report_errors("treadle replay", lambda: _fork(options))
    return report_errors("treadle replay", lambda: asyncio.run(_replay(options)))


def run_diff(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="treadle diff", description="Show the first difference between two sessions."
    )
    parser.add_argument("left")
    parser.add_argument("right")
    options = parser.parse_args(arguments)
    return report_errors("treadle diff", lambda: _diff(options))


# --- replay --------------------------------------------------------------------------------


async def _replay(options: argparse.Namespace) -> int:
    library = Library()
    session_dir = library.find(options.id)
    folder = Path(library.get_summary(session_dir).folder)
    return await replay_session(session_dir, folder if options.live_tools else None)


async def replay_session(session_dir: Path, live_folder: Path | None) -> int:
    """With `live_folder` the tools that read files are called there, and compared."""
    workspace = None if live_folder is None else _make_workspace(live_folder, session_dir)
    try:
        return await _replay_all(session_dir, workspace)
    finally:
        if workspace is not None:
            await workspace.aclose()


async def _replay_all(session_dir: Path, workspace: LazyWorkspace | None) -> int:
    from treadle.sessions.log.journal import read_entries
    from treadle.sessions.replay import split_recordings

    live = _make_live_tools(workspace) if workspace is not None else None
    mismatches: list[ToolMismatch] = []
    names: set[str] = set()
    replies = 0
    for recording in split_recordings(read_entries(session_dir)):
        difference = await replay_recording(recording, live, workspace)
        mismatches += recording.mismatches
        names |= recording.tool_names
        replies += recording.reply_count
        if difference is not None:
            print(f"{session_dir.name} differs at item {difference.position}:")
            _print_side_by_side(difference, "recorded", "replayed")
            return ERROR
    if workspace is not None:
        from treadle.tools.builtin import READ_ONLY_TOOLS

        skipped = ", ".join(sorted(names.difference(READ_ONLY_TOOLS)))
        if skipped:
            print(f"not called, because they are not read-only: {skipped}", file=sys.stderr)
    for mismatch in mismatches:
        call = escape_invisible(f"{mismatch.name} {mismatch.arguments} ({mismatch.call_id})")
        print_line(f"{call} has a different result now:")
        print(_format_columns(mismatch.recorded, mismatch.actual, "recorded", "now"))
    if mismatches:
        return ERROR
    print(f"{session_dir.name}: {plural(replies, 'reply', 'replies')}, the same transcript")
    return SUCCESS


async def replay_recording(
    recording: Recording, live: ToolSource | None = None, workspace: Workspace | None = None
) -> Difference | None:
    """Run a part of a session through the loop; returns the first difference, if any."""
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
    driver = agent.start(state=recording.start)
    submitted_at = -1
    try:
        while recording.mutator.difference is None:
            if submitted_at < recording.reply_count:
                submitted_at = recording.reply_count
                for item in recording.next_user_items():
                    driver.submit(item)
            was_over = recording.is_finished
            step = await driver.next()
            if was_over or (recording.is_finished and not recording.replies[-1].calls):
                break
            if isinstance(step, AwaitingInput) and not recording.next_user_items():
                await driver.aclose()
                driver = agent.start(state=recording.mutator.skip_to_next_reply())
        return recording.difference(driver.transcript)
    finally:
        await driver.aclose()
        await agent.aclose()


def _make_live_tools(workspace: Workspace) -> ToolSource:
    """The current tools that only read files: a replay has no effects and no network."""
    from treadle.tools.builtin import READ_ONLY_TOOLS, builtin_tools

    return builtin_tools(workspace, READ_ONLY_TOOLS)


def _make_workspace(folder: Path, session_dir: Path) -> LazyWorkspace:
    """The folder of the session as it is now, and the long outputs of the session."""
    from treadle.apps.assembly.lazy import LazyWorkspace
    from treadle.workspace.options import WorkspaceOptions

    return LazyWorkspace(folder, lambda: WorkspaceOptions(readable=(session_dir / "outputs",)))


def _fork(options: argparse.Namespace) -> int:
    from treadle.apps.conversation.undo import fork_session
    from treadle.sessions.history import find_turn

    library = Library()
    session_dir = library.find(options.id)
    turn = find_turn(session_dir, options.turn)
    session_id = asyncio.run(fork_session(library, session_dir, Path.cwd(), turn.turn_id))
    print(f"{session_dir.name} forked before turn {turn.number} as {session_id}", file=sys.stderr)
    if not options.model:
        print(session_id)
        return SUCCESS
    from treadle.apps.cli.main import AGENT_MODULE, run_module

    arguments = ["-p", "--resume", session_id, "--model", options.model, "--", turn.text]
    return run_module(AGENT_MODULE, arguments)


# --- diff ----------------------------------------------------------------------------------


def _diff(options: argparse.Namespace) -> int:
    from treadle.sessions.history import read_state
    from treadle.sessions.replay import find_first_difference

    library = Library()
    left, right = library.find(options.left), library.find(options.right)
    difference = find_first_difference(read_state(left).transcript, read_state(right).transcript)
    if difference is None:
        print(f"{left.name} and {right.name} are the same")
        return SUCCESS
    print(f"the first difference is at item {difference.position}:")
    _print_side_by_side(difference, left.name, right.name)
    return ERROR


def _print_side_by_side(difference: Difference, left: str, right: str) -> None:
    print(
        _format_columns(_format_item(difference.left), _format_item(difference.right), left, right)
    )


def _format_columns(left: str, right: str, left_title: str, right_title: str) -> str:
    """Two texts side by side, from shortly before the first line that differs."""
    width = max(20, (shutil.get_terminal_size().columns - 3) // 2)
    pairs = list(zip_longest(_wrap_lines(left, width), _wrap_lines(right, width), fillvalue=""))
    same = next((number for number, (a, b) in enumerate(pairs) if a != b), len(pairs))
    start = max(0, same - 2) if same > MAX_LINES // 2 else 0
    rows = [(left_title, right_title), ("-" * width, "-" * width)]
    rows += pairs[start : start + MAX_LINES]
    return "\n".join(f"{a:{width}} | {b}".rstrip() for a, b in rows)


def _wrap_lines(text: str, width: int) -> list[str]:
    clean = (escape_invisible(line.expandtabs(4)) for line in text.split("\n"))
    return [part for line in clean for part in textwrap.wrap(line, width) or [""]]


def _format_item(item: Item | None) -> str:
    """An item as text for the user."""
    if item is None:
        return "(the history ends here)"
    if isinstance(item, (NoticeItem, SummaryItem)):
        return f"{type(item).__name__.removesuffix('Item').lower()}:\n{item.text}"
    if isinstance(item, ToolResultItem):
        kind = "error of" if item.is_error else "result of"
        return f"{kind} {item.name} ({item.call_id}):\n{item.text}"
    if isinstance(item, AssistantItem):
        calls = "".join(f"\ncall {call.name} ({call.id}): {call.raw}" for call in item.calls)
        return f"assistant:\n{item.text}{calls}"
    return f"user:\n{item.text}"

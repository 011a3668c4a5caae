"""`treadle apply`: carry out what a dry run recorded.

The calls are shown together, and approved, edited or left out at once. Then they are made in order
in a turn of the same session (assembly/dry_run/recorded_calls.py). `/apply` is the same in a
session that is open.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.assembly.dry_run.recorded_calls import (
    CallPlayer,
    Effect,
    edit_effect,
    find_cut_off,
    format_effects,
    format_message,
    list_effects,
    select_effects,
)
from treadle.apps.assembly.model_choice import PLAYER_MODEL
from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.cli.options import add_sandbox_options, read_sandbox_options
from treadle.apps.console.console import (
    UsageError,
    ask_line,
    print_error,
    print_line,
    report_errors,
)
from treadle.apps.console.exit_codes import ERROR, SUCCESS
from treadle.apps.settings.folder_rules import is_trusted
from treadle.apps.settings.load import load_settings
from treadle.apps.settings.settings import Settings
from treadle.core.contracts.model import ModelCard
from treadle.core.errors import ConfigError, WorkspaceError
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import plural
from treadle.sessions.library import Library

if TYPE_CHECKING:
    from treadle.apps.assembly import AgentSession

Choice = tuple[Sequence[Effect], str]  # calls, and the message of the turn that makes them


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="treadle apply",
        description="Show what a dry run (`treadle -p --dry-run`) recorded, and carry it out. At a "
        "terminal you are asked which; else name them.",
    )
    about = "the session of the dry run; the last one of this folder"
    parser.add_argument("id", nargs="?", default="", metavar="ID", help=about)
    parser.add_argument("--only", metavar="1,3", help="these calls, in their order; or `all`")
    parser.add_argument("--drop", default="", metavar="2,4", help="all but these")
    about = "carry out call N with these arguments, as JSON"
    parser.add_argument(
        "--edit", nargs=2, action="append", default=[], metavar=("N", "JSON"), help=about
    )
    add_sandbox_options(parser)
    options = parser.parse_args(arguments)
    return report_errors("treadle apply", lambda: asyncio.run(_apply(options)))


async def _apply(options: argparse.Namespace) -> int:
    library = Library()
    session_dir = _find_session(library, options.id)
    folder = Path(library.get_summary(session_dir).folder)
    left = 0

    async def choose(session: AgentSession) -> Choice:
        nonlocal left
        effects = list_effects(session.state.full_history if session.state is not None else ())
        if not effects:
            print_line(f"session {session_dir.name} has no recorded calls that wait")
            return (), ""
        for number, text in options.edit:
            edit_effect(effects, number, text)
        print_line(format_effects(effects))
        chosen = choose_effects(effects, options.only, options.drop)
        if not chosen:
            print_line("nothing is carried out")
        left = len(effects) - len(chosen)
        return chosen, format_message(effects, chosen)

    code = await carry_out(session_dir.name, folder, choose, read_sandbox_options(options))
    if left and code == SUCCESS:
        print_line(f"not carried out, and kept for another `treadle apply`: {plural(left, 'call')}")
    return code


def _find_session(library: Library, name: str) -> Path:
    if name:
        return library.find(name, by_words=True)
    latest = library.find_latest(Path.cwd())
    if latest is None:
        raise UsageError("there is no session in this folder; name one")
    return latest


def choose_effects(effects: list[Effect], only: str | None, drop: str = "") -> list[Effect]:
    if only is None and not drop:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise UsageError("name the calls to carry out: --only all, --only 1,3 or --drop 2")
        return _ask_effects(effects)
    return select_effects(effects, "all" if only is None else only, drop)


def _ask_effects(effects: Sequence[Effect]) -> list[Effect]:
    """A wrong answer is asked again; the end of the input names none."""
    while True:
        which = ask_line(f"carry out which? [all, none, numbers such as 1,{len(effects)}] ")
        try:
            return select_effects(effects, which)
        except ConfigError as error:
            print_error(str(error))


async def carry_out(
    session_id: str,
    folder: Path,
    choose: Callable[[AgentSession], Awaitable[Choice]],
    flags: Mapping[str, object],
) -> int:
    """Make the calls that are chosen, in a turn of the session; returns the exit code. The session
    is locked from before the choice: no other program makes them, too."""
    player, message = CallPlayer(), ""
    settings = load_settings(folder, flags, is_trusted=lambda: is_trusted(folder))
    session = await _open_session(session_id, folder, player, settings)
    if session.state is not None and find_cut_off(session.state.transcript):
        await _finish_cut_off(session)
        session = await _open_session(session_id, folder, player, settings)
    try:
        player.effects, message = await choose(session)
    finally:
        if not player.effects:
            await session.abandon()
    if not player.effects:
        return SUCCESS
    await _record_seen(session, player.effects)
    async with session.open_driver(message) as driver:
        turn = await session.agent.finish_turn(driver)
    text = turn.text or f"{turn.reason}: {turn.error or ''}"
    print_line(escape_invisible(text, keep="\n\t"))
    return SUCCESS if player.done == len(player.effects) else ERROR


async def _open_session(
    session_id: str, folder: Path, player: CallPlayer, settings: Settings
) -> AgentSession:
    from treadle.apps.assembly import SessionOptions, build_agent
    from treadle.models.scripted import Scripted

    card = ModelCard(PLAYER_MODEL, input_price=0, output_price=0)
    model = Scripted(player.reply, name=PLAYER_MODEL, card=card)
    options = SessionOptions(resume=session_id, model=model, checkpoints=True)
    return await build_agent(settings, folder, options, approve=player.approve, warn=print_error)


async def _finish_cut_off(session: AgentSession) -> None:
    """Finish the turn of an `apply` that was killed: its call gets a result, and is not approved
    again. So the user chooses by what is known of it."""
    from treadle.apps.conversation.crash_report import CrashReport

    assert session.state is not None
    tell = lambda text: print_error(f"treadle: {redact_for_display(text)}")  # noqa: E731
    async with session.open_driver() as driver:
        driver.watch(CrashReport(session.state, tell))
        await session.agent.finish_turn(driver)


async def _record_seen(session: AgentSession, effects: Sequence[Effect]) -> None:
    """The user has seen what becomes of these files, so the tools may replace them."""
    from treadle.tools.builtin.session_memory import SeenFile

    memory = session.parts.builtin.sessions.get(session.store.session_id)
    for path in {path for effect in effects for path in effect.recorded.before}:
        with contextlib.suppress(WorkspaceError):  # it is not there yet
            content = await session.parts.tool_workspace.read(path)
            memory.record_seen(Path(path), SeenFile(content.digest, is_complete=True))

"""`treadle apply`: carry out what a dry run recorded.

The calls are shown together, and approved, edited or left out at once. Then they are made in order
in a turn of the same session: the policy, hooks, checkpoints and the log are those of any call.
Before each one its files have to be as the dry run left them; the first that fails ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.apps.assembly.dry_run import DRY_RUN_KEY, RecordedEffect, hash_file, read_file
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
from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.core.errors import WorkspaceError
from treadle.core.steps import Denial, PendingApproval
from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import plural
from treadle.sessions.library import Library

if TYPE_CHECKING:
    from treadle.apps.assembly import AgentSession

CALL_PREFIX = "apply-"  # before the id of the recorded call
MESSAGE = "Carry out these calls of the dry run: {calls}"
MODEL = "apply/recorded-calls"


class Effect(msgspec.Struct):
    """A call to make, and the state of files that it needs. `title` is for the user and the log."""

    call: ToolCall
    title: str
    recorded: RecordedEffect = RecordedEffect("")


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
    options = parser.parse_args(arguments)
    return report_errors("treadle apply", lambda: asyncio.run(_apply(options)))


def list_effects(items: Sequence[Item]) -> list[Effect]:
    """What was recorded and not carried out since, in order."""
    calls = {
        call.id: call for item in items if isinstance(item, AssistantItem) for call in item.calls
    }
    return [
        Effect(
            msgspec.structs.replace(calls[item.call_id], id=f"{CALL_PREFIX}{item.call_id}"),
            calls[item.call_id].name,
            msgspec.convert(item.data[DRY_RUN_KEY], RecordedEffect),
        )
        for item in items
        if isinstance(item, ToolResultItem) and item.data and DRY_RUN_KEY in item.data
        if item.call_id in calls and f"{CALL_PREFIX}{item.call_id}" not in calls
    ]


async def _apply(options: argparse.Namespace) -> int:
    library = Library()
    session_dir = _find_session(library, options.id)
    folder = Path(library.get_summary(session_dir).folder)

    async def choose(session: AgentSession) -> list[Effect]:
        effects = list_effects(session.state.full_history if session.state is not None else ())
        if not effects:
            print_line(f"session {session_dir.name} has no recorded calls that wait")
            return []
        for number, text in options.edit:
            _edit(effects, number, text)
        for at, effect in enumerate(effects, 1):
            print_line(f"{at}. {escape_invisible(effect.title)}")
            shown = map(escape_invisible, effect.recorded.preview.rstrip().splitlines())
            print_line("\n".join(f"   {line}" for line in shown))
        chosen = choose_effects(effects, options.only, options.drop)
        if not chosen:
            print_line("nothing is carried out")
        return chosen

    return await carry_out(session_dir.name, folder, choose, MESSAGE)


def _find_session(library: Library, name: str) -> Path:
    if name:
        return library.find(name, by_words=True)
    latest = library.find_latest(Path.cwd())
    if latest is None:
        raise UsageError("there is no session in this folder; name one")
    return latest


def _edit(effects: list[Effect], number: str, text: str) -> None:
    numbers = _parse_numbers(number, effects)
    if len(numbers) != 1:
        raise UsageError(f"--edit {number!r}: name one call")
    [at] = numbers
    try:
        is_object = isinstance(json.loads(text), dict)
    except ValueError:
        is_object = False
    if not is_object:
        raise UsageError(f"--edit {number}: the arguments must be a JSON object")
    old = effects[at - 1]
    call = msgspec.structs.replace(old.call, raw=text)
    recorded = RecordedEffect(f"edited: {text}", old.recorded.before)
    effects[at - 1] = Effect(call, old.title, recorded)


def choose_effects(effects: list[Effect], only: str | None, drop: str = "") -> list[Effect]:
    if only is None and not drop:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise UsageError("name the calls to carry out: --only all, --only 1,3 or --drop 2")
        only = ask_line(f"carry out which? [all, none, numbers such as 1,{len(effects)}] ")
    if only in ("none", ""):
        return []
    wanted = set(range(1, len(effects) + 1)) if only in ("all", None) else None
    numbers = (wanted or _parse_numbers(only or "", effects)) - _parse_numbers(drop, effects)
    return [effect for at, effect in enumerate(effects, 1) if at in numbers]


def _parse_numbers(text: str, effects: Sequence[Effect]) -> set[int]:
    words = [one.strip() for one in text.split(",") if one.strip()]
    if any(not one.isdigit() or not 0 < int(one) <= len(effects) for one in words):
        raise UsageError(f"{text!r} names no calls: their numbers are 1 to {len(effects)}")
    return {int(one) for one in words}


async def carry_out(
    session_id: str,
    folder: Path,
    choose: Callable[[AgentSession], Awaitable[Sequence[Effect]]],
    message: str,
) -> int:
    """Make the calls that `choose` returns, in a turn of the session; returns the exit code. The
    session is locked from before the choice: no other program makes them, too."""
    from treadle.apps.assembly import SessionOptions, build_agent
    from treadle.models.scripted import Scripted

    player = CallPlayer()
    model = Scripted(player.reply, name=MODEL, card=ModelCard(MODEL, input_price=0, output_price=0))
    settings = load_settings(folder, {}, is_trusted=lambda: is_trusted(folder))
    options = SessionOptions(resume=session_id, model=model, checkpoints=True)
    session = await build_agent(settings, folder, options, approve=player.approve, warn=print_error)
    try:
        player.effects = await choose(session)
    finally:
        if not player.effects:
            await session.abandon()
    if not player.effects:
        return SUCCESS
    await _record_seen(session, player.effects)
    titles = ", ".join(effect.title for effect in player.effects)
    async with session.open_driver(message.format(calls=titles)) as driver:
        turn = await session.agent.finish_turn(driver)
    print_line(escape_invisible(turn.text or f"{turn.reason}: {turn.error or ''}"))
    return SUCCESS if player.done == len(player.effects) else ERROR


async def _record_seen(session: AgentSession, effects: Sequence[Effect]) -> None:
    """The user has seen what becomes of these files, so the tools may replace them."""
    from treadle.tools.builtin.session_memory import SeenFile

    memory = session.parts.builtin.sessions.get(session.store.session_id)
    for path in {path for effect in effects for path in effect.recorded.before}:
        with contextlib.suppress(WorkspaceError):  # it is not there yet
            content = await session.parts.tool_workspace.read(path)
            memory.record_seen(Path(path), SeenFile(content.digest, is_complete=True))


class CallPlayer:
    """Makes calls in a turn of a session: one each round, while all is as expected. The user has
    approved these calls, and no other one."""

    def __init__(self) -> None:
        self.effects: Sequence[Effect] = ()
        self.done = 0
        self.problem = ""

    def approve(self, approval: PendingApproval) -> bool | Denial:
        is_known = any(one.call.id == approval.call.id for one in self.effects)
        return (is_known and approval.kind == "approval") or Denial("this call was not approved")

    def reply(self, request: ModelRequest) -> AssistantItem:
        last = request.transcript[-1]
        if isinstance(last, ToolResultItem):
            if last.is_error:
                self.problem = f"{last.name}: {last.text.strip()}"
            else:
                self.done += 1
        if not self.problem and self.done < len(self.effects):
            effect = self.effects[self.done]
            changed = _find_changed(effect.recorded)
            if not changed:
                return AssistantItem((effect.call,), "tool_use")
            self.problem = f"{effect.call.name}: changed since the dry run: {changed}"
        text = f"{plural(self.done, 'call')} of {len(self.effects)} carried out."
        return AssistantItem((Text(f"{text} {self.problem}".strip()),))


def _find_changed(recorded: RecordedEffect) -> str:
    changed = [
        path for path, before in recorded.before.items() if hash_file(read_file(path)) != before
    ]
    return ", ".join(changed)

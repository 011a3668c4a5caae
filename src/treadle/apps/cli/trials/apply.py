"""`treadle apply`: carry out what a dry run recorded.

The calls are shown together, and approved, edited or left out at once. Then they are made in order
in a turn of the same session: the policy, hooks, checkpoints and the log are those of any call.
Before each one its files have to be as the dry run left them; the first that fails ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
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
from treadle.core.steps import Denial, PendingApproval
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import plural
from treadle.sessions.history import read_state
from treadle.sessions.library import Library

if TYPE_CHECKING:
    from treadle.apps.assembly import AgentSession

CALL_PREFIX = "apply-"  # before the id of the recorded call
MESSAGE = "Carry out these calls of the dry run: {calls}"
MODEL = "apply/recorded-calls"


class Effect(msgspec.Struct):
    """A recorded call, which is made with this id, and the state of files that it needs."""

    call: ToolCall
    recorded: RecordedEffect = RecordedEffect("")
    new_id: str = ""


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
            calls[item.call_id],
            msgspec.convert(item.data[DRY_RUN_KEY], RecordedEffect),
            f"{CALL_PREFIX}{item.call_id}",
        )
        for item in items
        if isinstance(item, ToolResultItem) and item.data and DRY_RUN_KEY in item.data
        if item.call_id in calls and f"{CALL_PREFIX}{item.call_id}" not in calls
    ]


async def _apply(options: argparse.Namespace) -> int:
    library = Library()
    session_dir = _find_session(library, options.id)
    effects = list_effects(read_state(session_dir).full_history)
    if not effects:
        print_line(f"session {session_dir.name} has no recorded calls that wait")
        return SUCCESS
    for number, text in options.edit:
        _edit(effects, number, text)
    for at, effect in enumerate(effects, 1):
        print_line(f"{at}. {escape_invisible(effect.call.name)}")
        shown = map(escape_invisible, effect.recorded.preview.rstrip().splitlines())
        print_line("\n".join(f"   {line}" for line in shown))
    chosen = choose_effects(effects, options.only, options.drop)
    if not chosen:
        print_line("nothing is carried out")
        return SUCCESS
    folder = Path(library.get_summary(session_dir).folder)
    names = ", ".join(effect.call.name for effect in chosen)
    player = CallPlayer()
    session = await open_session(session_dir.name, folder, player)
    return await player.play(session, chosen, MESSAGE.format(calls=names))


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
    effects[at - 1] = Effect(call, recorded, old.new_id)


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


class CallPlayer:
    """Makes calls in a turn of a session: one each round, while all is as expected. The user has
    approved these calls, and no other one."""

    def __init__(self) -> None:
        self._effects: Sequence[Effect] = ()
        self.done = 0
        self.problem = ""

    def approve(self, approval: PendingApproval) -> bool | Denial:
        is_known = any(one.new_id == approval.call.id for one in self._effects)
        return (is_known and approval.kind == "approval") or Denial("this call was not approved")

    async def play(self, session: AgentSession, effects: Sequence[Effect], message: str) -> int:
        """Make the calls and close the session; returns the exit code."""
        self._effects = effects
        try:
            driver = session.start(message)
            try:
                turn = await session.agent.finish_turn(driver)
            finally:
                await driver.aclose()
        finally:
            await session.aclose()
        print_line(escape_invisible(turn.text or f"{turn.reason}: {turn.error or ''}"))
        return SUCCESS if self.done == len(effects) else ERROR

    def reply(self, request: ModelRequest) -> AssistantItem:
        from treadle.core.transcript.content import Text

        last = request.transcript[-1]
        if isinstance(last, ToolResultItem):
            if last.is_error:
                self.problem = f"{last.name}: {last.text.strip()}"
            else:
                self.done += 1
        if not self.problem and self.done < len(self._effects):
            effect = self._effects[self.done]
            if changed := _find_changed(effect.recorded):
                self.problem = f"{effect.call.name}: changed since the dry run: {changed}"
            else:
                call = msgspec.structs.replace(effect.call, id=effect.new_id)
                return AssistantItem((call,), "tool_use")
        text = f"{plural(self.done, 'call')} of {len(self._effects)} carried out."
        return AssistantItem((Text(f"{text} {self.problem}".strip()),))


def _find_changed(recorded: RecordedEffect) -> str:
    changed = [
        path for path, before in recorded.before.items() if hash_file(read_file(path)) != before
    ]
    return ", ".join(changed)


async def open_session(session_id: str, folder: Path, player: CallPlayer) -> AgentSession:
    """The session with the player in place of its model."""
    from treadle.apps.assembly import SessionOptions, build_agent
    from treadle.models.scripted import Scripted

    model = Scripted(player.reply, name=MODEL, card=ModelCard(MODEL, input_price=0, output_price=0))
    settings = load_settings(folder, {}, is_trusted=lambda: is_trusted(folder))
    options = SessionOptions(resume=session_id, model=model, checkpoints=True)
    return await build_agent(settings, folder, options, approve=player.approve, warn=print_error)

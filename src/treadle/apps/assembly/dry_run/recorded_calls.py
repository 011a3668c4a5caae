"""What a dry run recorded, and how it is carried out: chosen or edited calls, made in order.

CallPlayer takes the place of the model for one turn. So the policy, hooks, checkpoints and the log
are those of any call. Before each call its files have to be as the dry run left them; the first
that fails ends it, and can be tried again. One whose outcome is unknown is made again only if the
user names it. Used by `treadle apply`, `/apply` and `treadle undo --effects`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from treadle.apps.assembly.dry_run.dry_run import RecordedEffect, hash_file, read_file
from treadle.core.contracts.model import ModelRequest
from treadle.core.errors import ConfigError
from treadle.core.steps import Denial, PendingApproval
from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import NO_USAGE
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import plural
from treadle.tools.undo import DRY_RUN_KEY, UNDO_PREFIX, Tries, find_tries

if TYPE_CHECKING:
    from treadle.models.scripted import ScriptElement

CALL_PREFIX = "apply-"  # before the id of the recorded call
NO_CALL = "No call was made."
_STATES = {"failed": "failed before", "unknown": "outcome unknown"}


class Effect(msgspec.Struct):
    """A call to make, and the state of files that it needs. `title` is for the user and the log.
    `needs` are the numbers of calls that change the same files before it, by path."""

    call: ToolCall
    title: str
    recorded: RecordedEffect = RecordedEffect("")
    tries: Tries = Tries("")
    needs: dict[str, int] = {}


def list_effects(items: Sequence[Item]) -> list[Effect]:
    """What was recorded and not carried out since, in order."""
    calls = {
        call.id: call for item in items if isinstance(item, AssistantItem) for call in item.calls
    }
    results = {item.call_id: item for item in items if isinstance(item, ToolResultItem)}
    effects: list[Effect] = []
    numbers: dict[str, int] = {}  # of the last call that changes a file
    for call_id, item in results.items():
        if DRY_RUN_KEY not in (item.data or {}) or call_id not in calls:
            continue
        tries = find_tries(CALL_PREFIX, call_id, calls, results)
        if tries.state == "done":
            continue
        call = calls[call_id]
        recorded = msgspec.convert((item.data or {})[DRY_RUN_KEY], RecordedEffect)
        needs = {path: numbers[path] for path in recorded.before if path in numbers}
        to_make = msgspec.structs.replace(call, id=tries.next_id)
        effects.append(Effect(to_make, call.name, recorded, tries, needs))
        numbers |= dict.fromkeys(recorded.before, len(effects))
    return effects


def find_cut_off(items: Transcript) -> list[ToolCall]:
    """The calls of a player that have no result: the program was killed while one was made."""
    move = pending(items)
    calls = move.calls if isinstance(move, RunTools) else ()
    return [call for call in calls if call.id.startswith((CALL_PREFIX, UNDO_PREFIX))]


def format_effects(effects: Sequence[Effect]) -> str:
    """Each with its number and its preview, and what became of it before."""
    lines: list[str] = []
    for at, effect in enumerate(effects, 1):
        shown = [*effect.recorded.preview.rstrip().splitlines(), *format_tries(effect.tries)]
        lines.append(f"{at}. {escape_invisible(effect.title)}")
        lines += [f"   {escape_invisible(line)}" for line in shown]
    return "\n".join(lines)


def format_tries(tries: Tries) -> list[str]:
    if tries.state not in _STATES:
        return []
    first, *more = tries.text.splitlines() or ["it had no output"]
    return [f"{_STATES[tries.state]}: {first}", *(f"    {line}" for line in more)]


def format_message(effects: Sequence[Effect], chosen: Sequence[Effect]) -> str:
    """The message of the turn, which the model reads later."""
    ids = {one.call.id for one in chosen}
    left = ", ".join(one.title for one in effects if one.call.id not in ids)
    names = ", ".join(one.title for one in chosen)
    rest = f"\nNot to be carried out: {left}" if left else ""
    return f"Carry out these calls of the dry run: {names}{rest}"


def select_effects(effects: Sequence[Effect], numbers: str, drop: str = "") -> list[Effect]:
    """Those of `all`, or of `1,3`, without those of `drop`. One whose outcome is unknown has to be
    named: it may have had its effect."""
    if numbers in ("none", ""):
        return []
    wanted = set(range(1, len(effects) + 1)) if numbers == "all" else None
    chosen = (wanted or _parse_numbers(numbers, effects)) - _parse_numbers(drop, effects)
    selected = [(at, effect) for at, effect in enumerate(effects, 1) if at in chosen]
    unknown = [at for at, effect in selected if effect.tries.state == "unknown"]
    if wanted and unknown:
        raise ConfigError(
            f"call {unknown[0]}: outcome unknown: it may have had its effect. Look, then name the "
            f"calls to make by their numbers: with {unknown[0]} it is made again"
        )
    return [effect for _, effect in selected]


def edit_effect(effects: list[Effect], number: str, text: str) -> None:
    """Give a call other arguments, as JSON."""
    numbers = _parse_numbers(number, effects)
    if len(numbers) != 1:
        raise ConfigError(f"edit {number!r}: name one call")
    [at] = numbers
    try:
        is_object = isinstance(json.loads(text), dict)
    except ValueError:
        is_object = False
    if not is_object:
        raise ConfigError(f"edit {number}: the arguments must be a JSON object")
    old = effects[at - 1]
    call = msgspec.structs.replace(old.call, raw=text)
    recorded = RecordedEffect(f"edited: {text}", old.recorded.before)
    effects[at - 1] = msgspec.structs.replace(old, call=call, recorded=recorded)


def _parse_numbers(text: str, effects: Sequence[Effect]) -> set[int]:
    words = [one.strip() for one in text.split(",") if one.strip()]
    if any(not one.isdigit() or not 0 < int(one) <= len(effects) for one in words):
        raise ConfigError(f"{text!r} names no calls: their numbers are 1 to {len(effects)}")
    return {int(one) for one in words}


class CallPlayer:
    """Makes calls in a turn of a session: one each round, while all is as expected. The user has
    approved these calls, and no other one."""

    def __init__(self, effects: Sequence[Effect] = ()) -> None:
        self.effects = effects
        self.done = 0

    def has(self, call_id: str) -> bool:
        return any(one.call.id == call_id for one in self.effects)

    def approve(self, approval: PendingApproval) -> bool | Denial:
        is_known = self.has(approval.call.id)
        return (is_known and approval.kind == "approval") or Denial("this call was not approved")

    def reply(self, request: ModelRequest) -> ScriptElement:
        """The next call, or a report. It is no request of a model, so it counts as none."""
        from treadle.models.scripted import Say

        return self._find_reply(request), Say(usage=NO_USAGE)

    def _find_reply(self, request: ModelRequest) -> AssistantItem:
        items = request.transcript
        results = {one.call_id: one for one in items if isinstance(one, ToolResultItem)}
        self.done, problem = 0, ""
        for effect in self.effects:
            result = results.get(effect.call.id)
            if result is not None and result.is_error:
                problem = f"{result.name}: {result.text.strip()}"
            elif result is not None:
                self.done += 1
                continue
            elif changed := _find_changed(effect.recorded):
                problem = _describe_changed(effect, changed)
            else:
                return AssistantItem((effect.call,), "tool_use")
            break
        count = len(self.effects)
        text = f"{plural(self.done, 'call')} of {count} carried out." if count else NO_CALL
        return AssistantItem((Text(f"{text} {problem}".strip()),))


def _find_changed(recorded: RecordedEffect) -> list[str]:
    return [
        path for path, before in recorded.before.items() if hash_file(read_file(path)) != before
    ]


def _describe_changed(effect: Effect, changed: Sequence[str]) -> str:
    name, paths = effect.call.name, ", ".join(changed)
    needed = sorted({effect.needs[path] for path in changed if path in effect.needs})
    if needed:
        return f"{name}: it needs call {needed[0]}, which changes the same file before it: {paths}"
    return f"{name}: changed since the dry run: {paths}"

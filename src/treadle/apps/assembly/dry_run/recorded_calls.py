"""What a dry run recorded, and how it is carried out: chosen or edited calls, made in order.

CallPlayer takes the place of the model for one turn. So the policy, hooks, checkpoints and the log
are those of any call. Before each call its files have to be as the dry run left them; the first
that fails ends it. Used by `treadle apply`, `/apply` and `treadle undo --effects`.
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
from treadle.core.transcript.usage import NO_USAGE
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import plural
from treadle.tools.undo import DRY_RUN_KEY

if TYPE_CHECKING:
    from treadle.models.scripted import ScriptElement

CALL_PREFIX = "apply-"  # before the id of the recorded call


class Effect(msgspec.Struct):
    """A call to make, and the state of files that it needs. `title` is for the user and the log."""

    call: ToolCall
    title: str
    recorded: RecordedEffect = RecordedEffect("")


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


def format_effects(effects: Sequence[Effect]) -> str:
    """Each with its number and its preview."""
    lines: list[str] = []
    for at, effect in enumerate(effects, 1):
        lines.append(f"{at}. {escape_invisible(effect.title)}")
        shown = map(escape_invisible, effect.recorded.preview.rstrip().splitlines())
        lines += [f"   {line}" for line in shown]
    return "\n".join(lines)


def format_message(effects: Sequence[Effect], chosen: Sequence[Effect]) -> str:
    """The message of the turn, which the model reads later."""
    ids = {one.call.id for one in chosen}
    left = ", ".join(one.title for one in effects if one.call.id not in ids)
    names = ", ".join(one.title for one in chosen)
    rest = f"\nNot to be carried out: {left}" if left else ""
    return f"Carry out these calls of the dry run: {names}{rest}"


def select_effects(effects: Sequence[Effect], numbers: str, drop: str = "") -> list[Effect]:
    """Those of `all`, or of `1,3`, without those of `drop`."""
    if numbers in ("none", ""):
        return []
    wanted = set(range(1, len(effects) + 1)) if numbers == "all" else None
    chosen = (wanted or _parse_numbers(numbers, effects)) - _parse_numbers(drop, effects)
    return [effect for at, effect in enumerate(effects, 1) if at in chosen]


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
    effects[at - 1] = Effect(call, old.title, recorded)


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
                problem = f"{effect.call.name}: changed since the dry run: {changed}"
            else:
                return AssistantItem((effect.call,), "tool_use")
            break
        text = f"{plural(self.done, 'call')} of {len(self.effects)} carried out."
        return AssistantItem((Text(f"{text} {problem}".strip()),))


def _find_changed(recorded: RecordedEffect) -> str:
    changed = [
        path for path, before in recorded.before.items() if hash_file(read_file(path)) != before
    ]
    return ", ".join(changed)

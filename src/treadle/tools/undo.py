"""Which effects of a session can be taken back, and by which calls.

    @tool(undo=lambda arguments, result: ("close_ticket", {"id": result}))

A tool declares the inverse of its calls by `undo`; the inverse is a call like any other, which the
policy decides on and the log has. Files that a call changed are no part of it: see checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import msgspec

from treadle.core.contracts.tool import Tool, UndoAnswer
from treadle.core.errors import error_text
from treadle.core.transcript.content import Arguments, ToolCall, parse_arguments
from treadle.core.transcript.entries import Entry, Intent, ItemAdded, Rewound, TurnBegan
from treadle.core.transcript.items import AssistantItem, ToolResultItem

DRY_RUN_KEY = "dry_run"  # in the data of a result: the call was recorded, and not carried out
UNKNOWN_REASON = "it is not known whether it was done"
UNDO_PREFIX = "undo-"  # before the id of a call, in that of its inverse
MAYBE_DONE = ("unknown", "interrupted")  # outcomes of a call that may have had its effect


TryState = Literal["new", "failed", "unknown", "done"]
STOPPED = "it was running when the program stopped"


class Tries(msgspec.Struct, frozen=True):
    """The calls that were made so far in the place of one call, of which `text` is the last result.

    `state` is that of the last one; with `unknown` it may have had its effect. A call has an ID of
    its own, `next_id` for the next: no result of another one is taken for its own.
    """

    next_id: str
    state: TryState = "new"
    text: str = ""


def find_tries(
    prefix: str, call_id: str, made: Collection[str], results: Mapping[str, ToolResultItem]
) -> Tries:
    """`made` are the IDs of all calls, also of those without a result."""
    number, last = 1, ""
    while (try_id := f"{prefix}{number}-{call_id}" if number > 1 else prefix + call_id) in made:
        number, last = number + 1, try_id
    result = results.get(last)
    if result is None:
        return Tries(try_id, "unknown", STOPPED) if last else Tries(try_id)
    state: TryState = "done"
    if result.is_error:
        state = "unknown" if result.outcome in MAYBE_DONE else "failed"
    return Tries(try_id, state, result.text.strip())


class UndoStep(msgspec.Struct, frozen=True):
    """An effect of a turn. `tool` and `arguments` are the call that takes it back; without one,
    `reason` says why there is none. `tries` are the calls of `treadle undo --effects` for it."""

    call: ToolCall
    summary: str
    tool: str = ""
    arguments: Arguments = {}
    reason: str = ""
    tries: Tries = Tries("")

    def describe_inverse(self) -> str:
        """The call that takes it back; of a command, the command alone."""
        raw = msgspec.json.encode(self.arguments).decode()
        return f"{self.tool}: {self.arguments.get('command', raw)}"


def plan_undo(entries: Sequence[Entry], tools: Sequence[Tool]) -> list[UndoStep]:
    """The effects of the last turn that has some which are not taken back, the newest first."""
    known = {tool.spec.name: tool for tool in tools}
    calls: dict[str, ToolCall] = {}
    results: dict[str, ToolResultItem] = {}
    turns: list[list[Intent]] = [[]]
    for entry in entries:
        match entry:
            case TurnBegan(continues=False):
                turns.append([])
            case Rewound():  # what was done stays done
                pass
            case Intent(effect="irreversible", is_withdrawn=False):
                turns[-1].append(entry)
            case ItemAdded(item=AssistantItem() as reply):
                calls |= {call.id: call for call in reply.calls}
            case ItemAdded(item=ToolResultItem() as result):
                results[result.call_id] = result
            case _:
                pass
    for intents in reversed(turns):
        steps: list[UndoStep] = []
        for intent in reversed(intents):
            call_id = intent.call_id
            tries = find_tries(UNDO_PREFIX, call_id, calls, results)
            if tries.state == "done" or not _is_effect(call_id, calls, results):
                continue
            if step := _make_step(intent, calls[call_id], results.get(call_id), known):
                steps.append(msgspec.structs.replace(step, tries=tries))
        if steps:
            return steps
    return []


def _is_effect(
    call_id: str, calls: dict[str, ToolCall], results: dict[str, ToolResultItem]
) -> bool:
    result = results.get(call_id)
    if result is not None and DRY_RUN_KEY in (result.data or {}):
        return False
    return call_id in calls and not call_id.startswith(UNDO_PREFIX)


def _make_step(
    intent: Intent, call: ToolCall, result: ToolResultItem | None, known: dict[str, Tool]
) -> UndoStep | None:
    """None: it had no effect."""
    tool = known.get(intent.tool)
    arguments = call.arguments if intent.raw is None else parse_arguments(intent.raw)
    if tool is None or not isinstance(arguments, dict):
        return UndoStep(call, f"[{intent.tool}]", reason="the tool is not there any more")
    summary = tool.summary(arguments)
    if result is None:  # the process ended meanwhile
        result = ToolResultItem(call.id, call.name, (), is_error=True, outcome="unknown")
    is_known = result.outcome not in MAYBE_DONE
    try:
        answer = _ask_tool(tool, arguments, result)
    except Exception as error:  # noqa: BLE001 - the function is the program's
        problem = f"its `undo` failed: {error_text(error)}"
        return UndoStep(call, summary, reason=problem if is_known else UNKNOWN_REASON)
    if answer == "":
        return None
    if not is_known:
        return UndoStep(call, summary, reason=UNKNOWN_REASON)
    if isinstance(answer, tuple):
        name, inverse = answer
        if name not in known:
            reason = f"its `undo` names the tool {name!r:.80}, which is not there"
            return UndoStep(call, summary, reason=reason)
        return UndoStep(call, summary, name, inverse)
    return UndoStep(call, summary, reason=answer or f"{intent.tool} declares no inverse for it")


def _ask_tool(tool: Tool, arguments: Arguments, result: ToolResultItem) -> UndoAnswer:
    make: Callable[[Arguments, ToolResultItem], Any] | None = getattr(tool, "undo", None)
    answer = make(arguments, result) if make is not None else None
    if answer is None or isinstance(answer, str):
        return answer
    name, inverse = answer
    if not isinstance(name, str) or not isinstance(inverse, dict):
        raise TypeError(f"{answer!r:.80} is not the name of a tool and its arguments")
    return name, inverse

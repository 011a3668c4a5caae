"""Which effects of a session can be taken back, and by which calls.

    @tool(undo=lambda arguments, result: ("close_ticket", {"id": result}))

A tool declares the inverse of its calls by `undo`; the inverse is a call like any other, which the
policy decides on and the log has. Files that a call changed are no part of it: see checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from treadle.core.contracts.tool import Tool, UndoAnswer
from treadle.core.errors import error_text
from treadle.core.transcript.content import Arguments, ToolCall, parse_arguments
from treadle.core.transcript.entries import Entry, Intent, ItemAdded, Rewound, TurnBegan
from treadle.core.transcript.items import AssistantItem, ToolResultItem

DRY_RUN_KEY = "dry_run"  # in the data of a result: the call was recorded, and not carried out
UNKNOWN_REASON = "it is not known whether it was done"
UNDO_PREFIX = "undo-"  # before the id of a call, in that of its inverse


class UndoStep(msgspec.Struct, frozen=True):
    """An effect of a turn. `tool` and `arguments` are the call that takes it back; without one,
    `reason` says why there is none."""

    call: ToolCall
    summary: str
    tool: str = ""
    arguments: Arguments = {}
    reason: str = ""


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
        steps = [
            step
            for intent in reversed(intents)
            if _is_effect(intent.call_id, calls, results)
            and (
                step := _make_step(
                    intent, calls[intent.call_id], results.get(intent.call_id), known
                )
            )
        ]
        if steps:
            return steps
    return []


def _is_effect(
    call_id: str, calls: dict[str, ToolCall], results: dict[str, ToolResultItem]
) -> bool:
    undone, result = results.get(f"{UNDO_PREFIX}{call_id}"), results.get(call_id)
    if result is not None and DRY_RUN_KEY in (result.data or {}):
        return False
    is_open = undone is None or undone.is_error
    return call_id in calls and not call_id.startswith(UNDO_PREFIX) and is_open


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
    is_known = result.outcome not in ("unknown", "interrupted")
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

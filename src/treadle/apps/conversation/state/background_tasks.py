"""How a call that continues in the background is shown, and how its end is.

Used for events by reducer.py, for items of a transcript by from_transcript.py.
"""

from __future__ import annotations

import msgspec

from treadle.apps.conversation.state.blocks import (
    CallState,
    NoteBlock,
    TaskLine,
    Tone,
    ToolCallBlock,
)
from treadle.apps.conversation.state.view_state import ViewState, add_block, update_call

_replace = msgspec.structs.replace

# What a note says, its tone, and the state of the call.
_TASK_ENDS: dict[str, tuple[str, Tone, CallState]] = {
    "done": ("finished", "good", "done"),
    "failed": ("failed", "warning", "done"),
    "cancelled": ("was stopped", "warning", "stopped"),
    "lost": ("is lost: the program that ran it ended", "warning", "interrupted"),
}


def detach_call(view: ViewState, task: TaskLine) -> ViewState:
    """The call continues in the background."""

    def detach(call: ToolCallBlock) -> ToolCallBlock:
        return _replace(call, state="background", task_id=task.task_id)

    return _replace(update_call(view, task.call_id, detach), tasks=(*view.tasks, task))


def end_task(view: ViewState, task_id: str, state: str, name: str = "") -> ViewState:
    """A background task has ended; `state` is that of its notice."""
    ended = [task for task in view.tasks if task.task_id == task_id]
    text, tone, call_state = _TASK_ENDS.get(state, ("ended", "faint", "done"))

    def end(call: ToolCallBlock) -> ToolCallBlock:
        # An agent that is stopped has a result: what it has done until then.
        is_stopped = call_state == "stopped" and call.state == "done"
        is_open = call.state == "background" or is_stopped
        return _replace(call, state=call_state) if is_open else call

    for task in ended:
        view = update_call(view, task.call_id, end)
        name = task.summary
    title = f"task {task_id} ({name})" if name else f"task {task_id}"
    view = add_block(view, NoteBlock(f"{title} {text}", tone))
    calls = {task.call_id for task in ended}
    open_calls = {call: index for call, index in view.open_calls.items() if call not in calls}
    tasks = tuple(task for task in view.tasks if task not in ended)
    return _replace(view, tasks=tasks, open_calls=open_calls)

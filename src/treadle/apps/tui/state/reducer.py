"""What is on the screen, as a pure function of what happens: `step(view, event)`.

A step costs the same at the end of a long day as at its start. The loop's events come from below
through conversation.py; the whole answers to calls come as items (`settled`); a session that is
resumed is told by from_transcript.py. Above, the app and the plain mode show the view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.tui.state import markdown_stream
from treadle.apps.tui.state.blocks import (
    CallState,
    ChildProgress,
    CodeBlock,
    MarkdownBlock,
    NoteBlock,
    ShellBlock,
    TaskLine,
    ThinkingBlock,
    ToolCallBlock,
    UserMessageBlock,
)
from treadle.apps.tui.state.view_state import (
    ViewState,
    add_block,
    add_call,
    build_user_block,
    close_stream,
    iterate_blocks,
    open_stream,
    redact_own_secrets,
    replace_block,
    update_call,
    update_todos,
)
from treadle.core.events import (
    ApprovalRequired,
    ApprovalResolved,
    ChildEvent,
    Event,
    InputAccepted,
    ModelChanged,
    MutationFinished,
    MutationStarted,
    Notified,
    ReplyDiscarded,
    RequestStarted,
    RetryScheduled,
    RunFailed,
    TaskFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallBegan,
    ToolCallDelta,
    ToolCallRequested,
    ToolDetached,
    ToolFinished,
    ToolProgress,
    ToolsChanged,
    ToolStarted,
    TurnFinished,
    TurnResult,
    TurnStarted,
    UsageUpdated,
    WarningRaised,
)
from treadle.core.transcript.items import ToolResultItem
from treadle.core.transcript.usage import Usage

MAX_PROGRESS_CHARS = 4_000
MAX_CHILD_LINES = 40
_replace = msgspec.structs.replace

__all__ = ["ViewState", "apply_tool_result", "apply_event"]


def apply_event(view: ViewState, event: Event) -> ViewState:
    """The view after an event. Events of kinds that show nothing leave it as it is."""
    change = _REDUCERS.get(type(event))
    return view if change is None else change(view, event)


def apply_tool_result(view: ViewState, item: ToolResultItem) -> ViewState:
    """The whole answer to a call, where its event had only the beginning."""

    def settle(call: ToolCallBlock) -> ToolCallBlock:
        state: CallState = call.state
        if not call.is_finished and state != "background":
            state = "failed" if item.is_error else "done"
        return _replace(
            call,
            state=state,
            result=redact_for_display(item.text),
            display=redact_for_display(item.display),
            full_output=item.full_output,
            progress="",
        )

    view = update_call(view, item.call_id, settle)
    if any(task.call_id == item.call_id for task in view.tasks):
        return view
    calls = {call: place for call, place in view.open_calls.items() if call != item.call_id}
    return _replace(view, open_calls=calls)


def _turn_started(view: ViewState, event: TurnStarted) -> ViewState:
    return _replace(
        view, is_busy=True, activity="waiting", turn_usage=Usage(), turn_count=view.turn_count + 1
    )


def _input_accepted(view: ViewState, event: InputAccepted) -> ViewState:
    block, queue = build_user_block(event.item), list(view.queued_messages)
    if block.text in queue:
        queue.remove(block.text)
    return _replace(add_block(view, block), queued_messages=tuple(queue))


def _request_started(view: ViewState, event: RequestStarted) -> ViewState:
    view = close_stream(view)
    return _replace(view, reply_start=len(view.blocks), model=event.model, activity="waiting")


def _text_delta(view: ViewState, event: TextDelta) -> ViewState:
    view, last, place = open_stream(view, markdown_stream.start_block())
    assert isinstance(last, MarkdownBlock | CodeBlock), "text grows after text"
    pieces = markdown_stream.append_text(last, redact_own_secrets(event.text))
    blocks = view.blocks.set(place, pieces[0])
    for piece in pieces[1:]:
        blocks = blocks.append(piece)
    return _replace(view, blocks=blocks, stream_index=len(blocks) - 1, activity="writing")


def _thinking_delta(view: ViewState, event: ThinkingDelta) -> ViewState:
    view, last, place = open_stream(view, ThinkingBlock(""))
    assert isinstance(last, ThinkingBlock), "thinking grows after thinking"
    view = _replace(view, activity="thinking")
    if len(last.text) > markdown_stream.MAX_CHARS:
        blocks = view.blocks.append(ThinkingBlock(event.text, is_continuation=True))
        return _replace(view, blocks=blocks, stream_index=place + 1)
    return replace_block(view, place, ThinkingBlock(last.text + event.text, last.is_continuation))


def _tool_call_began(view: ViewState, event: ToolCallBegan) -> ViewState:
    view = add_call(view, ToolCallBlock(event.call_id, event.name))
    return _replace(view, activity=f"calling {event.name}")


def _tool_call_delta(view: ViewState, event: ToolCallDelta) -> ViewState:
    return update_call(
        view,
        event.call_id,
        lambda c: _replace(c, argument_chars=c.argument_chars + len(event.text)),
    )


def _tool_call_requested(view: ViewState, event: ToolCallRequested) -> ViewState:
    call = event.call
    view = add_call(view, ToolCallBlock(call.id, call.name))
    view = update_call(
        view,
        call.id,
        lambda c: _replace(c, raw=redact_for_display(call.raw), argument_chars=len(call.raw)),
    )
    return update_todos(view, call)


def _approval_required(view: ViewState, event: ApprovalRequired) -> ViewState:
    def ask(call: ToolCallBlock) -> ToolCallBlock:
        return _replace(
            call, state="asking", summary=redact_for_display(event.summary), reason=event.reason
        )

    return _replace(update_call(view, event.call.id, ask), activity="asking")


def _approval_resolved(view: ViewState, event: ApprovalResolved) -> ViewState:
    denied = event.decision == "deny"

    def resolve(call: ToolCallBlock) -> ToolCallBlock:
        return _replace(call, state="denied" if denied else "writing", reason=event.reason)

    return _replace(update_call(view, event.call_id, resolve), activity="working")


def _tool_started(view: ViewState, event: ToolStarted) -> ViewState:
    def start(call: ToolCallBlock) -> ToolCallBlock:
        return _replace(call, state="running", summary=redact_for_display(event.summary))

    view = add_call(view, ToolCallBlock(event.call_id, event.name))
    return _replace(update_call(view, event.call_id, start), activity=f"running {event.name}")


def _tool_progress(view: ViewState, event: ToolProgress) -> ViewState:
    def grow(call: ToolCallBlock) -> ToolCallBlock:
        return _replace(
            call, progress=redact_for_display(call.progress + event.text)[-MAX_PROGRESS_CHARS:]
        )

    return update_call(view, event.call_id, grow)


def _tool_finished(view: ViewState, event: ToolFinished) -> ViewState:
    """The beginning of the answer; the whole of it follows as an item."""

    def finish(call: ToolCallBlock) -> ToolCallBlock:
        ended: CallState = "failed" if event.is_error else "done"
        if call.state == "denied":
            ended = "denied"
        result, display = redact_for_display(event.result), redact_for_display(event.display)
        return _replace(call, state=ended, result=result, display=display, progress="")

    return _replace(update_call(view, event.call_id, finish), activity="working")


def _tool_detached(view: ViewState, event: ToolDetached) -> ViewState:
    place = view.open_calls.get(event.call_id)
    call = view.blocks[place] if place is not None else None
    summary = call.summary if isinstance(call, ToolCallBlock) else event.task_id

    def detach(call: ToolCallBlock) -> ToolCallBlock:
        return _replace(call, state="background", task_id=event.task_id)

    view = update_call(view, event.call_id, detach)
    return _replace(view, tasks=(*view.tasks, TaskLine(event.task_id, event.call_id, summary)))


def _task_finished(view: ViewState, event: TaskFinished) -> ViewState:
    left = tuple(task for task in view.tasks if task.task_id != event.task_id)
    how = "failed" if event.is_error else "is done"
    summary = next((t.summary for t in view.tasks if t.task_id == event.task_id), event.name)
    note = NoteBlock(
        f"task {event.task_id} {summary} {how}", "warning" if event.is_error else "good"
    )
    return _replace(add_block(view, note), tasks=left)


def _child_event(view: ViewState, event: ChildEvent) -> ViewState:
    return update_call(
        view, event.call_id, lambda c: _replace(c, child=_update_child(c.child, event.child))
    )


def _update_child(child: ChildProgress | None, event: Event) -> ChildProgress:
    child = child or ChildProgress()
    match event:
        case ToolStarted(summary=summary):
            now = redact_for_display(summary)
            recent = (*child.recent_calls, now)[-MAX_CHILD_LINES:]
            return _replace(child, calls=child.calls + 1, activity=now, recent_calls=recent)
        case UsageUpdated(turn=turn):
            return _replace(child, tokens=turn.total)
        case ThinkingDelta():
            return child if child.activity == "thinking" else _replace(child, activity="thinking")
        case TextDelta():
            return child if child.activity == "writing" else _replace(child, activity="writing")
        case ChildEvent(child=grandchild):
            return _replace(
                child, activity=_update_child(None, grandchild).activity or child.activity
            )
        case TurnFinished() | RunFailed():
            return _replace(child, activity="")
    return child


def _retry_scheduled(view: ViewState, event: RetryScheduled) -> ViewState:
    note = NoteBlock(f"{event.reason} · trying again in {event.delay:.0f} s", "warning")
    return _replace(add_block(view, note), activity="waiting to try again")


def _reply_discarded(view: ViewState, event: ReplyDiscarded) -> ViewState:
    """What the failed attempt said is void; what others said beside it stays."""
    blocks = view.blocks.truncate(view.reply_start)
    for block in iterate_blocks(view, view.reply_start):
        if isinstance(block, NoteBlock | ShellBlock | UserMessageBlock):
            blocks = blocks.append(block)
    calls = {call: place for call, place in view.open_calls.items() if place < view.reply_start}
    return _replace(view, blocks=blocks, stream_index=None, open_calls=calls)


def _model_changed(view: ViewState, event: ModelChanged) -> ViewState:
    text = f"{event.old} did not answer ({event.reason}); {event.new} takes over"
    return _replace(add_block(view, NoteBlock(text, "warning")), model=event.new)


def _usage_updated(view: ViewState, event: UsageUpdated) -> ViewState:
    """What filled the window is what was sent and what came back."""
    return _replace(
        view,
        model=event.model,
        context_tokens=event.last.total,
        usage=view.usage + event.last,
        turn_usage=event.turn,
    )


def _mutation_started(view: ViewState, event: MutationStarted) -> ViewState:
    return _replace(view, activity=event.mutator)


def _mutation_finished(view: ViewState, event: MutationFinished) -> ViewState:
    if not event.changed:
        return _replace(view, activity="working")
    note = NoteBlock(f"{event.mutator}: the model now sees a shorter history", "faint")
    return _replace(add_block(view, note), activity="working")


def _tools_changed(view: ViewState, event: ToolsChanged) -> ViewState:
    parts = [f"+{name}" for name in event.added] + [f"-{name}" for name in event.removed]
    return add_block(view, NoteBlock("tools: " + " ".join(parts)))


def _notified(view: ViewState, event: Notified) -> ViewState:
    return add_block(view, NoteBlock(event.text))


def _warning_raised(view: ViewState, event: WarningRaised) -> ViewState:
    return add_block(view, NoteBlock(event.text, "warning"))


def _run_failed(view: ViewState, event: RunFailed) -> ViewState:
    return _end_turn(view, event.result, NoteBlock(event.error, "error"))


_STOP_MESSAGES = {
    "max_turns": "stopped: the limit of tool rounds is reached; say go on to continue",
    "budget_exceeded": "stopped: the budget is spent",
    "goal_not_met": "stopped: the goal was not met",
    "refused": "the model refused to answer",
    "aborted": "interrupted",
}


def _turn_finished(view: ViewState, event: TurnFinished) -> ViewState:
    text = _STOP_MESSAGES.get(event.result.reason, "")
    if event.result.metadata.get("blocked"):
        text = ""  # a warning has said why
    return _end_turn(view, event.result, NoteBlock(text, "warning") if text else None)


def _end_turn(view: ViewState, result: TurnResult, note: NoteBlock | None) -> ViewState:
    """The turn is over: nothing runs any more but tasks in the background."""
    view = close_stream(view)
    for place in view.open_calls.values():
        call = view.blocks[place]
        if isinstance(call, ToolCallBlock) and not call.is_finished and call.state != "background":
            view = replace_block(view, place, _replace(call, state="stopped", progress=""))
    background = {task.call_id for task in view.tasks}
    calls = {call: place for call, place in view.open_calls.items() if call in background}
    if note is not None:
        view = add_block(view, note)
    return _replace(view, is_busy=False, activity="", open_calls=calls)


_REDUCERS: dict[type[Event], Callable[[ViewState, Any], ViewState]] = {
    TurnStarted: _turn_started,
    InputAccepted: _input_accepted,
    RequestStarted: _request_started,
    TextDelta: _text_delta,
    ThinkingDelta: _thinking_delta,
    ToolCallBegan: _tool_call_began,
    ToolCallDelta: _tool_call_delta,
    ToolCallRequested: _tool_call_requested,
    ApprovalRequired: _approval_required,
    ApprovalResolved: _approval_resolved,
    ToolStarted: _tool_started,
    ToolProgress: _tool_progress,
    ToolFinished: _tool_finished,
    ToolDetached: _tool_detached,
    TaskFinished: _task_finished,
    ChildEvent: _child_event,
    RetryScheduled: _retry_scheduled,
    ReplyDiscarded: _reply_discarded,
    ModelChanged: _model_changed,
    UsageUpdated: _usage_updated,
    MutationStarted: _mutation_started,
    MutationFinished: _mutation_finished,
    ToolsChanged: _tools_changed,
    Notified: _notified,
    WarningRaised: _warning_raised,
    RunFailed: _run_failed,
    TurnFinished: _turn_finished,
}

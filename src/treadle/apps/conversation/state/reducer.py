"""Applies events to the view: `apply_event(view, event) -> view`, a pure function.

The cost of an event does not grow with the length of the session. conversation.py passes the
events of the driver, and the complete tool results as items (`apply_tool_result`);
from_transcript.py does the same for resumed sessions. The frontends show the view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.conversation.state import markdown_stream
from treadle.apps.conversation.state.background_tasks import detach_call, end_task
from treadle.apps.conversation.state.blocks import (
    IDLE,
    THINKING,
    WAITING,
    WORKING,
    WRITING,
    Activity,
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
    strip_brackets,
)
from treadle.apps.conversation.state.view_state import (
    CHOSEN_BY_ENGINE,
    ViewState,
    add_block,
    add_call,
    build_engine_note,
    build_user_block,
    close_stream,
    finish_todos,
    iterate_blocks,
    open_stream,
    redact_own_secrets,
    replace_block,
    request_todos,
    update_call,
)
from treadle.core import events
from treadle.core.events import Event
from treadle.core.transcript.content import Image
from treadle.core.transcript.items import CallOutcome, ToolResultItem
from treadle.core.transcript.usage import REPLY_PURPOSES, Usage

MAX_PROGRESS_CHARS = 4_000
MAX_CHILD_LINES = 40
_replace = msgspec.structs.replace


def apply_event(view: ViewState, event: Event) -> ViewState:
    """The view after an event; events without a reducer change nothing."""
    change = _REDUCERS.get(type(event))
    return view if change is None else change(view, event)


def apply_tool_result(view: ViewState, item: ToolResultItem) -> ViewState:
    """The complete result of a call; its ToolFinished event has only the beginning."""

    def settle(call: ToolCallBlock) -> ToolCallBlock:
        state: CallState = call.state
        if not call.is_finished and state != "background":
            state = _final_state(item.outcome, item.is_error)
        text, edited = redact_for_display(item.user_text), item.edited_arguments
        display, progress = redact_for_display(item.display), ""
        if state == "stopped":  # what it has written is all that is left of it
            display, progress = "", call.progress or display[-MAX_PROGRESS_CHARS:]
        return _replace(
            call,
            raw=call.raw if edited is None else redact_for_display(edited),
            is_edited=edited is not None,
            state=state,
            reason=text if state == "denied" else call.reason,
            result=text,
            display=display,
            full_output=item.full_output,
            pictures=tuple(part for part in item.content if isinstance(part, Image)),
            progress=progress,
        )

    view = update_call(view, item.call_id, settle)
    if any(task.call_id == item.call_id for task in view.tasks):
        return view
    calls = {call: index for call, index in view.open_calls.items() if call != item.call_id}
    return _replace(view, open_calls=calls)


def _format_summary(summary: str) -> str:
    return redact_for_display(strip_brackets(summary))


def _final_state(outcome: CallOutcome, is_error: bool) -> CallState:
    if outcome == "denied":
        return "denied"
    if outcome == "interrupted":
        return "stopped"
    return "failed" if is_error else "done"


def _turn_started(view: ViewState, event: events.TurnStarted) -> ViewState:
    return _replace(view, is_busy=True, activity=WAITING, turn_usage=Usage())


def _input_accepted(view: ViewState, event: events.InputAccepted) -> ViewState:
    return add_block(view, build_user_block(event.item))


def _request_started(view: ViewState, event: events.RequestStarted) -> ViewState:
    view = close_stream(view)
    return _replace(view, reply_start=len(view.blocks), model=event.model, activity=WAITING)


def _text_delta(view: ViewState, event: events.TextDelta) -> ViewState:
    if event.by:
        return add_block(close_stream(view), build_engine_note(redact_own_secrets(event.text)))
    view, last, index = open_stream(view, markdown_stream.start_block())
    assert isinstance(last, MarkdownBlock | CodeBlock), "text grows after text"
    pieces = markdown_stream.append_text(last, redact_own_secrets(event.text))
    blocks = view.blocks.set(index, pieces[0])
    for piece in pieces[1:]:
        blocks = blocks.append(piece)
        index = len(blocks) - 1  # not before: a note may stand below the block that grows
    return _replace(view, blocks=blocks, stream_index=index, activity=WRITING)


def _thinking_delta(view: ViewState, event: events.ThinkingDelta) -> ViewState:
    view, last, index = open_stream(view, ThinkingBlock(""))
    assert isinstance(last, ThinkingBlock), "thinking grows after thinking"
    view = _replace(view, activity=THINKING)
    if len(last.text) > markdown_stream.MAX_CHARS:
        blocks = view.blocks.append(ThinkingBlock(event.text, is_continuation=True))
        return _replace(view, blocks=blocks, stream_index=len(blocks) - 1)
    return replace_block(view, index, _replace(last, text=last.text + event.text))


def _tool_call_began(view: ViewState, event: events.ToolCallBegan) -> ViewState:
    view = add_call(view, ToolCallBlock(event.call_id, event.name))
    return _replace(view, activity=Activity("calling", event.name))


def _tool_call_delta(view: ViewState, event: events.ToolCallDelta) -> ViewState:
    def grow(call: ToolCallBlock) -> ToolCallBlock:
        return _replace(call, argument_chars=call.argument_chars + len(event.text))

    return update_call(view, event.call_id, grow)


def _tool_call_requested(view: ViewState, event: events.ToolCallRequested) -> ViewState:
    call, raw = event.call, redact_for_display(event.call.raw)
    view = add_call(_adopt_written_call(view, call.id), ToolCallBlock(call.id, call.name))

    def fill(block: ToolCallBlock) -> ToolCallBlock:
        state: CallState = "waiting" if block.state == "writing" else block.state  # it may run
        return _replace(block, name=call.name, state=state, raw=raw, argument_chars=len(call.raw))

    view = update_call(view, call.id, fill)
    if call.by:
        view = add_block(view, build_engine_note(CHOSEN_BY_ENGINE))
    return request_todos(view, call)


def _adopt_written_call(view: ViewState, call_id: str) -> ViewState:
    """A call gets another id while it is written if its own is taken, or if it wraps others: its
    block is that of the first call that is still written."""
    if call_id in view.open_calls:
        return view
    for written, index in view.open_calls.items():
        block = view.blocks[index]
        if isinstance(block, ToolCallBlock) and block.state == "writing":
            calls = {one: place for one, place in view.open_calls.items() if one != written}
            view = replace_block(view, index, _replace(block, call_id=call_id))
            return _replace(view, open_calls={**calls, call_id: index})
    return view


def _approval_required(view: ViewState, event: events.ApprovalRequired) -> ViewState:
    summary = _format_summary(event.summary)

    def ask(call: ToolCallBlock) -> ToolCallBlock:
        return _replace(call, state="asking", summary=summary, reason=event.reason)

    return _replace(update_call(view, event.call.id, ask), activity=Activity("approval"))


def _approval_resolved(view: ViewState, event: events.ApprovalResolved) -> ViewState:
    denied = event.decision == "deny"

    def resolve(call: ToolCallBlock) -> ToolCallBlock:
        return _replace(call, state="denied" if denied else "waiting", reason=event.reason)

    view = update_call(view, event.call_id, resolve)
    return _replace(view, activity=_find_activity(view))


def _find_activity(view: ViewState) -> Activity:
    """What is left when something has ended: calls run when the last question is answered."""
    calls = (view.blocks[index] for index in view.open_calls.values())
    is_asking = any(isinstance(call, ToolCallBlock) and call.state == "asking" for call in calls)
    return Activity("approval") if is_asking else WORKING


def _tool_started(view: ViewState, event: events.ToolStarted) -> ViewState:
    def start(call: ToolCallBlock) -> ToolCallBlock:
        return _replace(call, state="running", summary=_format_summary(event.summary))

    view = add_call(view, ToolCallBlock(event.call_id, event.name))
    activity = Activity("running", event.name)
    return _replace(update_call(view, event.call_id, start), activity=activity)


def _tool_progress(view: ViewState, event: events.ToolProgress) -> ViewState:
    def grow(call: ToolCallBlock) -> ToolCallBlock:
        # Of a command that floods only the end is looked at.
        text = (call.progress + event.text)[-2 * MAX_PROGRESS_CHARS :]
        return _replace(call, progress=redact_for_display(text)[-MAX_PROGRESS_CHARS:])

    return update_call(view, event.call_id, grow)


def _tool_finished(view: ViewState, event: events.ToolFinished) -> ViewState:
    """The beginning of the result; all of it follows as an item."""

    def finish(call: ToolCallBlock) -> ToolCallBlock:
        state = _final_state(event.outcome, event.is_error)
        result, display = redact_for_display(event.result), redact_for_display(event.display)
        state = "denied" if call.state == "denied" else state
        progress = call.progress if state == "stopped" else ""  # all that is left of its output
        display = "" if state == "stopped" else display
        return _replace(call, state=state, result=result, display=display, progress=progress)

    view = finish_todos(view, event.call_id, is_error=event.is_error)
    view = update_call(view, event.call_id, finish)
    return _replace(view, activity=_find_activity(view))


def _tool_detached(view: ViewState, event: events.ToolDetached) -> ViewState:
    index = view.open_calls.get(event.call_id)
    call = view.blocks[index] if index is not None else None
    summary = call.summary if isinstance(call, ToolCallBlock) else event.task_id
    return detach_call(view, TaskLine(event.task_id, event.call_id, summary))


def _task_finished(view: ViewState, event: events.TaskFinished) -> ViewState:
    state = "cancelled" if event.is_cancelled else "failed" if event.is_error else "done"
    return end_task(view, event.task_id, state, event.name)


def _child_event(view: ViewState, event: events.ChildEvent) -> ViewState:
    def update(call: ToolCallBlock) -> ToolCallBlock:
        return _replace(call, child=_update_child(call.child, event.child))

    view = update_call(view, event.call_id, update)
    inner = events.unwrap(event)
    if isinstance(inner, events.UsageUpdated):  # its cost is a cost of this session
        view = _replace(view, usage=view.usage + inner.last)
    return view


def _update_child(child: ChildProgress | None, event: Event) -> ChildProgress:
    child = child or ChildProgress()
    match event:
        case events.ToolStarted():
            summary = _format_summary(event.summary)
            children = child.children
            if event.kind == "agent":
                children = {**children, event.call_id: ChildProgress(title=summary)}
            return _replace(
                child,
                calls=child.calls + 1,
                activity=Activity("running", summary),
                recent_calls=(*child.recent_calls, summary)[-MAX_CHILD_LINES:],
                children=children,
            )
        case events.UsageUpdated(turn=turn):
            return _replace(child, tokens=turn.total)
        case events.ThinkingDelta():
            return child if child.activity is THINKING else _replace(child, activity=THINKING)
        case events.TextDelta():
            return child if child.activity is WRITING else _replace(child, activity=WRITING)
        case events.ChildEvent(call_id=call_id, child=inner):
            grandchild = _update_child(child.children.get(call_id), inner)
            if grandchild is child.children.get(call_id):
                return child
            activity = child.activity if grandchild.activity is IDLE else grandchild.activity
            children = {**child.children, call_id: grandchild}
            return _replace(child, activity=activity, children=children)
        case events.TurnFinished() | events.RunFailed():
            return _replace(child, activity=IDLE)
    return child


def _retry_scheduled(view: ViewState, event: events.RetryScheduled) -> ViewState:
    """All retries of a call are one line: that of the last one."""
    tried = f"attempt {event.attempt} failed · " if event.attempt > 1 else ""
    text = f"{event.reason} · {tried}retry in {event.delay:.0f} s"
    note, before = NoteBlock(text, "warning", event.attempt), view.reply_start - 1
    last = view.blocks[before] if 0 <= before < len(view.blocks) else None
    if tried and isinstance(last, NoteBlock) and last.attempt:
        view = replace_block(view, before, note)
    else:
        view = add_block(view, note)
    return _replace(view, activity=Activity("retrying"))


def _reply_discarded(view: ViewState, event: events.ReplyDiscarded) -> ViewState:
    """Remove the blocks of the failed attempt; notes, shell output and user messages stay."""
    blocks = view.blocks.truncate(view.reply_start)
    for block in iterate_blocks(view, view.reply_start):
        if isinstance(block, NoteBlock | ShellBlock | UserMessageBlock):
            blocks = blocks.append(block)
    calls = {call: index for call, index in view.open_calls.items() if index < view.reply_start}
    return _replace(view, blocks=blocks, stream_index=None, open_calls=calls)


def _model_changed(view: ViewState, event: events.ModelChanged) -> ViewState:
    if event.is_choice:  # who chose it was told
        return _replace(view, model=event.new)
    text = f"{event.old} failed ({event.reason}); continuing with {event.new}"
    return _replace(add_block(view, NoteBlock(text, "warning")), model=event.new)


def _usage_updated(view: ViewState, event: events.UsageUpdated) -> ViewState:
    """The context holds the input and the output of the last request of a turn."""
    turn_usage = event.turn if view.is_busy else view.turn_usage
    view = _replace(view, usage=view.usage + event.last, turn_usage=turn_usage)
    if event.purpose not in REPLY_PURPOSES:
        return view
    return _replace(view, model=event.model, context_tokens=event.last.total)


def _mutation_started(view: ViewState, event: events.MutationStarted) -> ViewState:
    return _replace(view, activity=Activity("mutating", event.mutator))


def _mutation_finished(view: ViewState, event: events.MutationFinished) -> ViewState:
    """What a mutator did, it tells itself (Notified)."""
    return _replace(view, activity=_find_activity(view))


def _tools_changed(view: ViewState, event: events.ToolsChanged) -> ViewState:
    parts = [f"+{name}" for name in event.added] + [f"-{name}" for name in event.removed]
    return add_block(view, NoteBlock("tools: " + " ".join(parts)))


def _notified(view: ViewState, event: events.Notified | events.ToolsSummarized) -> ViewState:
    return add_block(view, NoteBlock(event.text))


def _warning_raised(view: ViewState, event: events.WarningRaised) -> ViewState:
    return add_block(view, NoteBlock(event.text, "warning"))


def _run_failed(view: ViewState, event: events.RunFailed) -> ViewState:
    return _end_turn(view, NoteBlock(event.error, "error"))


_STOP_MESSAGES = {
    "max_turns": "stopped: the limit of tool rounds is reached; send a message to continue",
    "budget_exceeded": "stopped: the budget is used up",
    "repetition": "stopped: the model repeats itself",
    "goal_not_met": "stopped: the goal is not met",
    "refused": "the model refused to answer",
    "aborted": "interrupted",
}


def _turn_finished(view: ViewState, event: events.TurnFinished) -> ViewState:
    text, detail = _STOP_MESSAGES.get(event.result.reason, ""), event.result.metadata.get("detail")
    if event.result.reason in ("budget_exceeded", "repetition") and detail:
        text = f"stopped: {detail}"
    if event.result.reason == "refused" and detail:
        text = str(detail)
    if event.result.reason == "repetition":
        text += "; send a message that says what to do instead"
    if event.result.reason == "goal_not_met":
        failure = f": {detail}" if detail else ""
        text = f"{text}{failure}\nsend a message to try again; /goal off removes the goal"
    if event.result.metadata.get("blocked"):
        text = ""  # a warning gave the reason
    return _end_turn(view, NoteBlock(text, "warning") if text else None)


def _end_turn(view: ViewState, note: NoteBlock | None) -> ViewState:
    """Only tasks in the background keep running."""
    view = close_stream(view)
    for index in view.open_calls.values():
        call = view.blocks[index]
        if isinstance(call, ToolCallBlock) and not call.is_finished and call.state != "background":
            view = replace_block(view, index, _replace(call, state="stopped"))
    background = {task.call_id for task in view.tasks}
    calls = {call: index for call, index in view.open_calls.items() if call in background}
    if note is not None:
        view = add_block(view, note)
    return _replace(view, is_busy=False, activity=IDLE, open_calls=calls)


_REDUCERS: dict[type[Event], Callable[[ViewState, Any], ViewState]] = {
    events.TurnStarted: _turn_started,
    events.InputAccepted: _input_accepted,
    events.RequestStarted: _request_started,
    events.TextDelta: _text_delta,
    events.ThinkingDelta: _thinking_delta,
    events.ToolCallBegan: _tool_call_began,
    events.ToolCallDelta: _tool_call_delta,
    events.ToolCallRequested: _tool_call_requested,
    events.ApprovalRequired: _approval_required,
    events.ApprovalResolved: _approval_resolved,
    events.ToolStarted: _tool_started,
    events.ToolProgress: _tool_progress,
    events.ToolFinished: _tool_finished,
    events.ToolDetached: _tool_detached,
    events.TaskFinished: _task_finished,
    events.ChildEvent: _child_event,
    events.RetryScheduled: _retry_scheduled,
    events.ReplyDiscarded: _reply_discarded,
    events.ModelChanged: _model_changed,
    events.UsageUpdated: _usage_updated,
    events.MutationStarted: _mutation_started,
    events.MutationFinished: _mutation_finished,
    events.ToolsChanged: _tools_changed,
    events.Notified: _notified,
    events.ToolsSummarized: _notified,
    events.WarningRaised: _warning_raised,
    events.RunFailed: _run_failed,
    events.TurnFinished: _turn_finished,
}

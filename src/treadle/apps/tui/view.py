"""What is on the screen, as a pure function of what happens: `step(view, event)`.

A step costs the same at the end of a long day as at its start. The loop's events come from below
through conversation.py; the whole answers to calls come as items (`settled`); a session that is
resumed is told by recall.py. Above, the app and the plain mode show the view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from treadle.apps.tui import prose
from treadle.apps.tui.blocks import (
    Call,
    CallState,
    Child,
    Code,
    Note,
    Said,
    Shell,
    TaskLine,
    Thought,
    Words,
)
from treadle.apps.tui.scene import (
    View,
    added,
    closed,
    growing,
    on_call,
    own_words,
    replaced,
    said,
    since,
    with_call,
    with_todos,
)
from treadle.apps.wiring.discretion import shown
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
    Warning,
)
from treadle.core.transcript.items import ToolResultItem
from treadle.core.transcript.usage import Usage

KEPT_PROGRESS = 4_000
KEPT_CHILD_LINES = 40
_replace = msgspec.structs.replace

__all__ = ["View", "settled", "step"]


def step(view: View, event: Event) -> View:
    """The view after an event. Events of kinds that show nothing leave it as it is."""
    change = _STEPS.get(type(event))
    return view if change is None else change(view, event)


def settled(view: View, item: ToolResultItem) -> View:
    """The whole answer to a call, where its event had only the beginning."""

    def settle(call: Call) -> Call:
        state: CallState = call.state
        if not call.is_over and state != "background":
            state = "failed" if item.is_error else "done"
        return _replace(
            call,
            state=state,
            result=shown(item.text),
            display=shown(item.display),
            full_output=item.full_output,
            progress="",
        )

    view = on_call(view, item.call_id, settle)
    if any(task.call_id == item.call_id for task in view.tasks):
        return view
    calls = {call: place for call, place in view.calls.items() if call != item.call_id}
    return _replace(view, calls=calls)


def _turn_started(view: View, event: TurnStarted) -> View:
    return _replace(view, is_busy=True, activity="waiting", turn=Usage(), turns=view.turns + 1)


def _input_accepted(view: View, event: InputAccepted) -> View:
    block, queue = said(event.item), list(view.queue)
    if block.text in queue:
        queue.remove(block.text)
    return _replace(added(view, block), queue=tuple(queue))


def _request_started(view: View, event: RequestStarted) -> View:
    view = closed(view)
    return _replace(view, mark=len(view.blocks), model=event.model, activity="waiting")


def _text(view: View, event: TextDelta) -> View:
    view, last, place = growing(view, prose.begun())
    assert isinstance(last, Words | Code), "text grows after text"
    pieces = prose.grown(last, own_words(event.text))
    blocks = view.blocks.put(place, pieces[0])
    for piece in pieces[1:]:
        blocks = blocks.add(piece)
    return _replace(view, blocks=blocks, stream=len(blocks) - 1, activity="writing")


def _thinking(view: View, event: ThinkingDelta) -> View:
    view, last, place = growing(view, Thought(""))
    assert isinstance(last, Thought), "thinking grows after thinking"
    view = _replace(view, activity="thinking")
    if len(last.text) > prose.MOST_CHARS:
        blocks = view.blocks.add(Thought(event.text, tight=True))
        return _replace(view, blocks=blocks, stream=place + 1)
    return replaced(view, place, Thought(last.text + event.text, last.tight))


def _call_began(view: View, event: ToolCallBegan) -> View:
    view = with_call(view, Call(event.call_id, event.name))
    return _replace(view, activity=f"calling {event.name}")


def _call_grew(view: View, event: ToolCallDelta) -> View:
    return on_call(view, event.call_id, lambda c: _replace(c, size=c.size + len(event.text)))


def _call_requested(view: View, event: ToolCallRequested) -> View:
    call = event.call
    view = with_call(view, Call(call.id, call.name))
    view = on_call(view, call.id, lambda c: _replace(c, raw=shown(call.raw), size=len(call.raw)))
    return with_todos(view, call)


def _approval_required(view: View, event: ApprovalRequired) -> View:
    def ask(call: Call) -> Call:
        return _replace(call, state="asking", summary=shown(event.summary), reason=event.reason)

    return _replace(on_call(view, event.call.id, ask), activity="asking")


def _approval_resolved(view: View, event: ApprovalResolved) -> View:
    denied = event.decision == "deny"

    def resolve(call: Call) -> Call:
        return _replace(call, state="denied" if denied else "writing", reason=event.reason)

    return _replace(on_call(view, event.call_id, resolve), activity="working")


def _tool_started(view: View, event: ToolStarted) -> View:
    def start(call: Call) -> Call:
        return _replace(call, state="running", summary=shown(event.summary))

    view = with_call(view, Call(event.call_id, event.name))
    return _replace(on_call(view, event.call_id, start), activity=f"running {event.name}")


def _tool_progress(view: View, event: ToolProgress) -> View:
    def grow(call: Call) -> Call:
        return _replace(call, progress=shown(call.progress + event.text)[-KEPT_PROGRESS:])

    return on_call(view, event.call_id, grow)


def _tool_finished(view: View, event: ToolFinished) -> View:
    """The beginning of the answer; the whole of it follows as an item."""

    def finish(call: Call) -> Call:
        ended: CallState = "failed" if event.is_error else "done"
        if call.state == "denied":
            ended = "denied"
        result, display = shown(event.result), shown(event.display)
        return _replace(call, state=ended, result=result, display=display, progress="")

    return _replace(on_call(view, event.call_id, finish), activity="working")


def _tool_detached(view: View, event: ToolDetached) -> View:
    place = view.calls.get(event.call_id)
    call = view.blocks[place] if place is not None else None
    summary = call.summary if isinstance(call, Call) else event.task_id

    def detach(call: Call) -> Call:
        return _replace(call, state="background", task_id=event.task_id)

    view = on_call(view, event.call_id, detach)
    return _replace(view, tasks=(*view.tasks, TaskLine(event.task_id, event.call_id, summary)))


def _task_finished(view: View, event: TaskFinished) -> View:
    left = tuple(task for task in view.tasks if task.task_id != event.task_id)
    how = "failed" if event.is_error else "is done"
    summary = next((t.summary for t in view.tasks if t.task_id == event.task_id), event.name)
    note = Note(f"task {event.task_id} {summary} {how}", "warning" if event.is_error else "good")
    return _replace(added(view, note), tasks=left)


def _child_event(view: View, event: ChildEvent) -> View:
    return on_call(view, event.call_id, lambda c: _replace(c, child=_child(c.child, event.child)))


def _child(child: Child | None, event: Event) -> Child:
    child = child or Child()
    match event:
        case ToolStarted(summary=summary):
            now = shown(summary)
            recent = (*child.recent, now)[-KEPT_CHILD_LINES:]
            return _replace(child, calls=child.calls + 1, now=now, recent=recent)
        case UsageUpdated(turn=turn):
            return _replace(child, tokens=turn.total)
        case ThinkingDelta():
            return child if child.now == "thinking" else _replace(child, now="thinking")
        case TextDelta():
            return child if child.now == "writing" else _replace(child, now="writing")
        case ChildEvent(child=grandchild):
            return _replace(child, now=_child(None, grandchild).now or child.now)
        case TurnFinished() | RunFailed():
            return _replace(child, now="")
    return child


def _retry(view: View, event: RetryScheduled) -> View:
    note = Note(f"{event.reason} · trying again in {event.delay:.0f} s", "warning")
    return _replace(added(view, note), activity="waiting to try again")


def _discarded(view: View, event: ReplyDiscarded) -> View:
    """What the failed attempt said is void; what others said beside it stays."""
    blocks = view.blocks.first(view.mark)
    for block in since(view, view.mark):
        if isinstance(block, Note | Shell | Said):
            blocks = blocks.add(block)
    calls = {call: place for call, place in view.calls.items() if place < view.mark}
    return _replace(view, blocks=blocks, stream=None, calls=calls)


def _model_changed(view: View, event: ModelChanged) -> View:
    text = f"{event.old} did not answer ({event.reason}); {event.new} takes over"
    return _replace(added(view, Note(text, "warning")), model=event.new)


def _usage(view: View, event: UsageUpdated) -> View:
    """What filled the window is what was sent and what came back."""
    return _replace(
        view,
        model=event.model,
        context=event.last.total,
        usage=view.usage + event.last,
        turn=event.turn,
    )


def _mutation_started(view: View, event: MutationStarted) -> View:
    return _replace(view, activity=event.mutator)


def _mutation_finished(view: View, event: MutationFinished) -> View:
    if not event.dirty:
        return _replace(view, activity="working")
    note = Note(f"{event.mutator}: the model now sees a shorter history", "faint")
    return _replace(added(view, note), activity="working")


def _tools_changed(view: View, event: ToolsChanged) -> View:
    parts = [f"+{name}" for name in event.added] + [f"-{name}" for name in event.removed]
    return added(view, Note("tools: " + " ".join(parts)))


def _notified(view: View, event: Notified) -> View:
    return added(view, Note(event.text))


def _warned(view: View, event: Warning) -> View:
    return added(view, Note(event.text, "warning"))


def _failed(view: View, event: RunFailed) -> View:
    return _ended(view, event.result, Note(event.error, "error"))


_ENDINGS = {
    "max_turns": "stopped: the limit of tool rounds is reached; say go on to continue",
    "budget_exceeded": "stopped: the budget is spent",
    "goal_not_met": "stopped: the goal was not met",
    "refused": "the model refused to answer",
    "aborted": "interrupted",
}


def _finished(view: View, event: TurnFinished) -> View:
    text = _ENDINGS.get(event.result.reason, "")
    if event.result.metadata.get("blocked"):
        text = ""  # a warning has said why
    return _ended(view, event.result, Note(text, "warning") if text else None)


def _ended(view: View, result: TurnResult, note: Note | None) -> View:
    """The turn is over: nothing runs any more but tasks in the background."""
    view = closed(view)
    for place in view.calls.values():
        call = view.blocks[place]
        if isinstance(call, Call) and not call.is_over and call.state != "background":
            view = replaced(view, place, _replace(call, state="stopped", progress=""))
    background = {task.call_id for task in view.tasks}
    calls = {call: place for call, place in view.calls.items() if call in background}
    if note is not None:
        view = added(view, note)
    return _replace(view, is_busy=False, activity="", calls=calls)


_STEPS: dict[type[Event], Callable[[View, Any], View]] = {
    TurnStarted: _turn_started,
    InputAccepted: _input_accepted,
    RequestStarted: _request_started,
    TextDelta: _text,
    ThinkingDelta: _thinking,
    ToolCallBegan: _call_began,
    ToolCallDelta: _call_grew,
    ToolCallRequested: _call_requested,
    ApprovalRequired: _approval_required,
    ApprovalResolved: _approval_resolved,
    ToolStarted: _tool_started,
    ToolProgress: _tool_progress,
    ToolFinished: _tool_finished,
    ToolDetached: _tool_detached,
    TaskFinished: _task_finished,
    ChildEvent: _child_event,
    RetryScheduled: _retry,
    ReplyDiscarded: _discarded,
    ModelChanged: _model_changed,
    UsageUpdated: _usage,
    MutationStarted: _mutation_started,
    MutationFinished: _mutation_finished,
    ToolsChanged: _tools_changed,
    Notified: _notified,
    Warning: _warned,
    RunFailed: _failed,
    TurnFinished: _finished,
}

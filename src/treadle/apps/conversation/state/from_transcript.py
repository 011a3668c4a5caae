"""The view of a resumed session: the same blocks, built from the items of its transcript."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.conversation.state import markdown_stream, view_state
from treadle.apps.conversation.state.background_tasks import detach_call, end_task
from treadle.apps.conversation.state.blocks import (
    CallState,
    NoteBlock,
    TaskLine,
    ThinkingBlock,
    ToolCallBlock,
    strip_brackets,
)
from treadle.apps.conversation.state.reducer import apply_tool_result
from treadle.apps.conversation.state.view_state import ViewState, add_block, add_call, update_call
from treadle.core.transcript.content import Text, Thinking, ToolCall
from treadle.core.transcript.items import (
    AssistantItem,
    Item,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
    UserItem,
)
from treadle.lib.text.text import plural

_replace = msgspec.structs.replace


def build_view(items: Iterable[Item], view: ViewState | None = None) -> ViewState:
    """The view of a whole transcript."""
    view = view or ViewState()
    for item in items:
        view = apply_item(view, item)
    return finish_view(view)


def finish_view(
    view: ViewState, find_state: Callable[[str], CallState] = lambda call_id: "interrupted"
) -> ViewState:
    """The view after the last item: calls without a result were interrupted, or have the state
    that `find_state` knows."""
    running = {task.call_id for task in view.tasks}
    for call_id in view.open_calls.keys() - running:
        view = update_call(view, call_id, partial(_replace, state=find_state(call_id)))
    return view


def apply_item(view: ViewState, item: Item) -> ViewState:
    """The view after an item that an earlier process recorded."""
    match item:
        case UserItem():
            return add_block(view, view_state.build_user_block(item))
        case AssistantItem():
            return _apply_reply(view, item)
        case ToolResultItem():
            view = view_state.finish_todos(view, item.call_id, is_error=item.is_error)
            return apply_tool_result(_apply_detached(view, item), item)
        case SummaryItem():
            items = plural(item.replaces, "earlier item")
            return add_block(view, NoteBlock(f"{items} replaced by a summary for the model"))
        case NoticeItem(kind="interrupted"):
            return add_block(view, NoteBlock("interrupted", "warning"))
        case NoticeItem(kind="task", data={"task_id": str(task_id), **more}):
            return end_task(view, task_id, str(more.get("state", "")))
        case NoticeItem():
            return view


def _apply_detached(view: ViewState, item: ToolResultItem) -> ViewState:
    """The result of a call that continued in the background names its task."""
    match item.data:
        case {"task_id": str(task_id), "summary": str(summary)} if task_id:
            title = redact_for_display(strip_brackets(summary))
            return detach_call(view, TaskLine(task_id, item.call_id, title))
    return view


def _apply_reply(view: ViewState, item: AssistantItem) -> ViewState:
    for part in item.content:
        match part:
            case Text(text=text, by=by) if by:
                note = view_state.build_engine_note(view_state.redact_own_secrets(text))
                view = add_block(view, note)
            case Text(text=text):
                for piece in markdown_stream.split_markdown(view_state.redact_own_secrets(text)):
                    view = add_block(view, piece)
            case Thinking(text=text) if text.strip():
                view = add_block(view, ThinkingBlock(text, words=len(text.split())))
            case ToolCall():
                raw, chars = redact_for_display(part.raw), len(part.raw)
                call = ToolCallBlock(part.id, part.name, raw=raw, argument_chars=chars)
                view = view_state.request_todos(add_call(view, call), part)
                if part.by:
                    note = view_state.build_engine_note(view_state.CHOSEN_BY_ENGINE)
                    view = add_block(view, note)
            case _:
                pass
    tokens = item.usage.total or view.context_tokens
    return _replace(view, context_tokens=tokens)

"""The view of a session that is resumed: the same blocks, from the items of its transcript."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from treadle.apps.tui import prose
from treadle.apps.tui.blocks import ToolCallBlock, NoteBlock, ThinkingBlock
from treadle.apps.tui.scene import (
    ViewState,
    add_block,
    redact_own_secrets,
    build_user_block,
    add_call,
    update_todos,
)
from treadle.apps.tui.view import apply_tool_result
from treadle.apps.wiring.discretion import redact_for_display
from treadle.core.transcript.content import Opaque, Text, Thinking, ToolCall
from treadle.core.transcript.items import (
    AssistantItem,
    Item,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
    UserItem,
)

_replace = msgspec.structs.replace


def build_view(items: Iterable[Item], view: ViewState | None = None) -> ViewState:
    """The view of a whole transcript."""
    view = view or ViewState()
    for item in items:
        view = apply_item(view, item)
    return view


def apply_item(view: ViewState, item: Item) -> ViewState:
    """The view after an item that an earlier process wrote down."""
    match item:
        case UserItem():
            return add_block(view, build_user_block(item))
        case AssistantItem():
            return _apply_reply(view, item)
        case ToolResultItem():
            return apply_tool_result(view, item)
        case SummaryItem():
            text = f"{item.replaces} earlier items are summarised for the model"
            return add_block(view, NoteBlock(text))
        case NoticeItem(kind="interrupted"):
            return add_block(view, NoteBlock("interrupted", "warning"))
        case NoticeItem():
            return view


def _apply_reply(view: ViewState, item: AssistantItem) -> ViewState:
    for part in item.content:
        match part:
            case Text(text=text):
                for piece in prose.split_markdown(redact_own_secrets(text)):
                    view = add_block(view, piece)
            case Thinking(text=text) if text.strip():
                view = add_block(view, ThinkingBlock(text))
            case ToolCall():
                call = ToolCallBlock(
                    part.id,
                    part.name,
                    raw=redact_for_display(part.raw),
                    argument_chars=len(part.raw),
                )
                view = update_todos(add_call(view, call), part)
            case Opaque(label=label) if label:
                view = add_block(view, NoteBlock(label))
            case _:
                pass
    return _replace(
        view, model=item.model or view.model, context_tokens=item.usage.total or view.context_tokens
    )

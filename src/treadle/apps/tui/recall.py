"""The view of a session that is resumed: the same blocks, from the items of its transcript."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from treadle.apps.tui import prose
from treadle.apps.tui.blocks import Call, Note, Thought
from treadle.apps.tui.scene import View, added, own_words, said, with_call, with_todos
from treadle.apps.tui.view import settled
from treadle.apps.wiring.discretion import shown
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


def recalled(items: Iterable[Item], view: View | None = None) -> View:
    """The view of a whole transcript."""
    view = view or View()
    for item in items:
        view = recall(view, item)
    return view


def recall(view: View, item: Item) -> View:
    """The view after an item that an earlier process wrote down."""
    match item:
        case UserItem():
            return added(view, said(item))
        case AssistantItem():
            return _reply(view, item)
        case ToolResultItem():
            return settled(view, item)
        case SummaryItem():
            text = f"{item.replaces} earlier items are summarised for the model"
            return added(view, Note(text))
        case NoticeItem(kind="interrupted"):
            return added(view, Note("interrupted", "warning"))
        case NoticeItem():
            return view


def _reply(view: View, item: AssistantItem) -> View:
    for part in item.content:
        match part:
            case Text(text=text):
                for piece in prose.whole(own_words(text)):
                    view = added(view, piece)
            case Thinking(text=text) if text.strip():
                view = added(view, Thought(text))
            case ToolCall():
                call = Call(part.id, part.name, raw=shown(part.raw), size=len(part.raw))
                view = with_todos(with_call(view, call), part)
            case Opaque(label=label) if label:
                view = added(view, Note(label))
            case _:
                pass
    return _replace(view, model=item.model or view.model, context=item.usage.total or view.context)

"""The View: everything that can be seen of a session, and the small changes it is made by.

Values only; what an event means is reducer.py's business, what an old item means from_transcript.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from treadle.apps.assembly.redaction import find_environment_secrets, redact, redact_for_display
from treadle.apps.tui.state import markdown_stream
from treadle.apps.tui.state.blocks import (
    CodeBlock,
    MarkdownBlock,
    NoteBlock,
    ShellBlock,
    TaskLine,
    ThinkingBlock,
    TodoLine,
    ToolCallBlock,
    UserMessageBlock,
    ViewBlock,
)
from treadle.apps.tui.state.persistent_list import PersistentList
from treadle.context.compaction.pins import TODO_TOOLS
from treadle.core.transcript.content import Document, Image, Text, ToolCall
from treadle.core.transcript.items import UserItem
from treadle.core.transcript.usage import Usage

_replace = msgspec.structs.replace


class ViewState(msgspec.Struct, frozen=True):
    """All that can be seen. `stream` is the place of the block that grows, `mark` the place where
    the present attempt at a reply began, `calls` where the calls are that are not over yet."""

    blocks: PersistentList[ViewBlock] = msgspec.field(default_factory=PersistentList)
    stream_index: int | None = None
    reply_start: int = 0
    open_calls: dict[str, int] = {}
    queued_messages: tuple[str, ...] = ()
    todos: tuple[TodoLine, ...] = ()
    tasks: tuple[TaskLine, ...] = ()
    is_busy: bool = False
    activity: str = ""
    model: str = ""
    context_tokens: int = 0
    usage: Usage = Usage()
    turn_usage: Usage = Usage()
    turn_count: int = 0


# ------------------------------------------------------------------ blocks


def add_block(view: ViewState, block: ViewBlock) -> ViewState:
    """One more block; whatever grew before is closed."""
    view = close_stream(view)
    return _replace(view, blocks=view.blocks.append(_redact_block(block)))


def replace_block(view: ViewState, index: int, block: ViewBlock) -> ViewState:
    return _replace(view, blocks=view.blocks.set(index, _redact_block(block)))


def _redact_block(block: ViewBlock) -> ViewBlock:
    """What the program says shows no keys. (A call's texts are looked through as they come.)"""
    match block:
        case NoteBlock(text=text):
            return _replace(block, text=redact_for_display(text))
        case ShellBlock(output=output):
            return _replace(block, output=redact_for_display(output))
    return block


def queue_message(view: ViewState, item: UserItem) -> ViewState:
    """The person spoke while the agent works: shown as waiting until it is taken."""
    return _replace(view, queued_messages=(*view.queued_messages, build_user_block(item).text))


def close_stream(view: ViewState) -> ViewState:
    """Nothing grows any more. A block that never got a word disappears."""
    if view.stream_index is None:
        return view
    last = view.blocks[view.stream_index]
    blocks = view.blocks
    if isinstance(last, MarkdownBlock | CodeBlock) and markdown_stream.is_empty(last):
        blocks = blocks.truncate(view.stream_index)
    return _replace(view, blocks=blocks, stream_index=None)


def open_stream(view: ViewState, first: ViewBlock) -> tuple[ViewState, ViewBlock, int]:
    """The block that grows, if it is of the same sort as `first`; otherwise `first` begins."""
    if view.stream_index is not None:
        last = view.blocks[view.stream_index]
        if isinstance(last, ThinkingBlock) == isinstance(first, ThinkingBlock):
            return view, last, view.stream_index
    view = add_block(view, first)
    place = len(view.blocks) - 1
    return _replace(view, stream_index=place), first, place


def iterate_blocks(view: ViewState, start: int) -> Iterator[ViewBlock]:
    for index in range(start, len(view.blocks)):
        yield view.blocks[index]


def redact_own_secrets(text: str) -> str:
    """What the model says is shown as it is, but for keys of this process."""
    return redact(_own_secrets(), text)


@lru_cache(maxsize=1)
def _own_secrets() -> tuple[str, ...]:
    return find_environment_secrets()


# ------------------------------------------------------------------ calls


def add_call(view: ViewState, call: ToolCallBlock) -> ViewState:
    """A call begins, unless it is known already."""
    if call.call_id in view.open_calls:
        return view
    view = add_block(view, call)
    return _replace(view, open_calls={**view.open_calls, call.call_id: len(view.blocks) - 1})


def update_call(
    view: ViewState, call_id: str, change: Callable[[ToolCallBlock], ToolCallBlock]
) -> ViewState:
    """The view with one call changed; one that is not known, or is over, changes nothing."""
    place = view.open_calls.get(call_id)
    if place is None:
        return view
    call = view.blocks[place]
    assert isinstance(call, ToolCallBlock), "view.calls holds the places of calls"
    return replace_block(view, place, change(call))


def update_todos(view: ViewState, call: ToolCall) -> ViewState:
    """The todo list is what the model last wrote down as such."""
    if call.name.lower() not in TODO_TOOLS or not call.arguments:
        return view
    given = call.arguments.get("todos", call.arguments.get("items"))
    if not isinstance(given, list):
        return view
    return _replace(view, todos=tuple(_parse_todo(one) for one in given))


def _parse_todo(value: Any) -> TodoLine:
    if not isinstance(value, dict):
        return TodoLine(str(value))
    text = value.get("content", value.get("text", value.get("task", "")))
    match str(value.get("status", value.get("state", ""))).lower():
        case "done" | "completed" | "cancelled":
            return TodoLine(str(text), "done")
        case "in_progress" | "active" | "doing":
            return TodoLine(str(text), "active")
    return TodoLine(str(text))


def build_user_block(item: UserItem) -> UserMessageBlock:
    """A person's message as a block: the words, and the names of what goes with them."""
    texts = [part.text for part in item.content if isinstance(part, Text)]
    names = [f"text, {len(text):,} characters" for text in texts[1:]]
    for part in item.content:
        if isinstance(part, Image):
            names.append(part.url or f"{part.media_type}, {len(part.data):,} bytes")
        elif isinstance(part, Document):
            names.append(part.title or part.url or part.media_type)
    return UserMessageBlock(texts[0] if texts else "", item.steered, tuple(names))

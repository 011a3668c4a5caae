"""ViewState: everything that the user sees of a session, and the functions that change it.

Values only. reducer.py applies events with these functions, from_transcript.py applies items.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from treadle.apps.assembly.redaction import find_environment_secrets, redact, redact_for_display
from treadle.apps.conversation.state import markdown_stream
from treadle.apps.conversation.state.blocks import (
    IDLE,
    Activity,
    CodeBlock,
    MarkdownBlock,
    NoteBlock,
    ShellBlock,
    TaskLine,
    ThinkingBlock,
    ToolCallBlock,
    UserMessageBlock,
    ViewBlock,
)
from treadle.apps.conversation.state.persistent_list import PersistentList
from treadle.apps.conversation.tool_kinds import get_tool_kind
from treadle.core.transcript import Document, Image, Text, ToolCall, Usage, UserItem
from treadle.lib.text.text import plural

if TYPE_CHECKING:
    from treadle.tools.builtin.conversation.todo import TodoItem

MAX_NAME_CHARS = 60  # of an attached text
_FILE_HEAD = re.compile(r'<file path="([^"]+)">')  # as attachments.py and editors begin a file
CHOSEN_BY_ENGINE = "this call was chosen by the engine, not by the model"
_replace = msgspec.structs.replace


class ViewState(msgspec.Struct, frozen=True):
    """`stream_index` is the block that grows, `reply_start` the first block of the current attempt
    at a reply, `open_calls` the blocks of unfinished calls by call id."""

    blocks: PersistentList[ViewBlock] = msgspec.field(default_factory=PersistentList)
    stream_index: int | None = None
    reply_start: int = 0
    open_calls: dict[str, int] = {}
    queued_messages: tuple[str, ...] = ()
    todos: tuple[TodoItem, ...] = ()
    requested_todos: dict[str, tuple[TodoItem, ...]] = {}  # of calls without a result, by call id
    tasks: tuple[TaskLine, ...] = ()
    is_busy: bool = False
    activity: Activity = IDLE
    model: str = ""
    context_tokens: int = 0
    usage: Usage = Usage()
    turn_usage: Usage = Usage()


# ------------------------------------------------------------------ blocks


def add_block(view: ViewState, block: ViewBlock) -> ViewState:
    """One more block; the stream is closed, unless the block comes from beside the reply: the text
    above it grows to its end."""
    if view.stream_index is None or not _is_beside_reply(view.blocks[view.stream_index], block):
        view = close_stream(view)
    return _replace(view, blocks=view.blocks.append(_redact_block(block)))


def _is_beside_reply(growing: ViewBlock, block: ViewBlock) -> bool:
    if isinstance(growing, MarkdownBlock | CodeBlock) and markdown_stream.is_empty(growing):
        return False
    return isinstance(block, NoteBlock | ShellBlock)


def replace_block(view: ViewState, index: int, block: ViewBlock) -> ViewState:
    return _replace(view, blocks=view.blocks.set(index, _redact_block(block)))


def _redact_block(block: ViewBlock) -> ViewBlock:
    """Without secrets, in notes and shell output. (The reducer redacts the texts of calls.)"""
    match block:
        case NoteBlock(text=text):
            return _replace(block, text=redact_for_display(text))
        case ShellBlock(output=output):
            return _replace(block, output=redact_for_display(output))
    return block


def set_queued_messages(view: ViewState, items: Iterable[UserItem]) -> ViewState:
    """The messages that wait until the driver can accept them."""
    queued = tuple(build_user_block(item).text for item in items)
    return view if queued == view.queued_messages else _replace(view, queued_messages=queued)


def close_stream(view: ViewState) -> ViewState:
    """No block grows any more. An empty one is removed."""
    if view.stream_index is None:
        return view
    last = view.blocks[view.stream_index]
    blocks = view.blocks
    if isinstance(last, MarkdownBlock | CodeBlock) and markdown_stream.is_empty(last):
        blocks = blocks.truncate(view.stream_index)
    elif isinstance(last, CodeBlock) and not last.text.endswith("\n"):
        # The text may end with the closing fence, without the end of its line.
        blocks = blocks.set(view.stream_index, markdown_stream.append_text(last, "\n")[0])
    return _replace(view, blocks=blocks, stream_index=None)


def open_stream(view: ViewState, first: ViewBlock) -> tuple[ViewState, ViewBlock, int]:
    """The growing block and its index, if it is of the same kind as `first`; else `first` is added
    as the growing block."""
    if view.stream_index is not None:
        last = view.blocks[view.stream_index]
        if isinstance(last, ThinkingBlock) == isinstance(first, ThinkingBlock):
            return view, last, view.stream_index
    view = add_block(view, first)
    index = len(view.blocks) - 1
    return _replace(view, stream_index=index), first, index


def iterate_blocks(view: ViewState, start: int) -> Iterator[ViewBlock]:
    for index in range(start, len(view.blocks)):
        yield view.blocks[index]


def redact_own_secrets(text: str) -> str:
    """The model's text without the secrets in the environment of this process."""
    return redact(_own_secrets(), text)


@lru_cache(maxsize=1)
def _own_secrets() -> tuple[str, ...]:
    return find_environment_secrets()


# ------------------------------------------------------------------ calls


def add_call(view: ViewState, call: ToolCallBlock) -> ViewState:
    """Add the block of a call, unless it is there already."""
    if call.call_id in view.open_calls:
        return view
    view = add_block(view, call)
    return _replace(view, open_calls={**view.open_calls, call.call_id: len(view.blocks) - 1})


CallChange = Callable[[ToolCallBlock], ToolCallBlock]


def update_call(view: ViewState, call_id: str, change: CallChange) -> ViewState:
    """The view with one open call changed; an unknown or finished call changes nothing."""
    index = view.open_calls.get(call_id)
    if index is None:
        return view
    call = view.blocks[index]
    assert isinstance(call, ToolCallBlock), "open_calls holds the indexes of calls"
    return replace_block(view, index, change(call))


def request_todos(view: ViewState, call: ToolCall) -> ViewState:
    """Remember the list of a todo call until its result is known."""
    if get_tool_kind(call.name) != "plan" or not call.arguments:
        return view
    from treadle.tools.builtin.conversation.todo import TodoItem

    try:
        todos = msgspec.convert(call.arguments.get("todos"), tuple[TodoItem, ...], strict=False)
    except msgspec.ValidationError:
        return view  # the tool rejects it, too
    return _replace(view, requested_todos={**view.requested_todos, call.id: todos})


def finish_todos(view: ViewState, call_id: str, *, is_error: bool) -> ViewState:
    """The todo list is the one of the last call that was not refused."""
    if call_id not in view.requested_todos:
        return view
    waiting = dict(view.requested_todos)
    todos = waiting.pop(call_id)
    return _replace(view, requested_todos=waiting, todos=view.todos if is_error else todos)


def _name_text(text: str) -> str:
    """The name of an attached file, or the first line of a text; and how long it is."""
    first, _, rest = text.strip().partition("\n")
    if file := _FILE_HEAD.fullmatch(first):
        return f"{file[1]} ({plural(len(text), 'character')})"
    cut = "…" if rest or len(first) > MAX_NAME_CHARS else ""
    return f"{first[:MAX_NAME_CHARS]}{cut} ({plural(len(text), 'character')})"


def build_engine_note(text: str) -> NoteBlock:
    """What the engine wrote or did in a reply: never shown as the words of the model."""
    return NoteBlock(f"engine: {text}")


def build_user_block(item: UserItem) -> UserMessageBlock:
    """A user message as a block: its text, and the names of its attachments."""
    texts = [part.text for part in item.content if isinstance(part, Text)]
    names = [_name_text(text) for text in texts[1:]]
    for part in item.content:
        if isinstance(part, Image):
            names.append(part.url or f"{part.media_type}, {plural(len(part.data), 'byte')}")
        elif isinstance(part, Document):
            names.append(part.title or part.url or part.media_type)
    pictures = tuple(part for part in item.content if isinstance(part, Image))
    return UserMessageBlock(texts[0] if texts else "", item.steered, tuple(names), pictures)

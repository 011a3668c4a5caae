"""The View: everything that can be seen of a session, and the small changes it is made by.

Values only; what an event means is view.py's business, what an old item means recall.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from treadle.apps.tui import prose
from treadle.apps.tui.blocks import (
    Block,
    Call,
    Code,
    Note,
    Said,
    Shell,
    TaskLine,
    Thought,
    Todo,
    Words,
)
from treadle.apps.tui.shelf import Shelf
from treadle.apps.wiring.discretion import own_secrets, shown, without
from treadle.context.compaction.pins import TODO_TOOLS
from treadle.core.transcript.content import Document, Image, Text, ToolCall
from treadle.core.transcript.items import UserItem
from treadle.core.transcript.usage import Usage

_replace = msgspec.structs.replace


class View(msgspec.Struct, frozen=True):
    """All that can be seen. `stream` is the place of the block that grows, `mark` the place where
    the present attempt at a reply began, `calls` where the calls are that are not over yet."""

    blocks: Shelf[Block] = msgspec.field(default_factory=Shelf)
    stream: int | None = None
    mark: int = 0
    calls: dict[str, int] = {}
    queue: tuple[str, ...] = ()
    todos: tuple[Todo, ...] = ()
    tasks: tuple[TaskLine, ...] = ()
    is_busy: bool = False
    activity: str = ""
    model: str = ""
    context: int = 0
    usage: Usage = Usage()
    turn: Usage = Usage()
    turns: int = 0


# ------------------------------------------------------------------ blocks


def added(view: View, block: Block) -> View:
    """One more block; whatever grew before is closed."""
    view = closed(view)
    return _replace(view, blocks=view.blocks.add(_discreet(block)))


def replaced(view: View, place: int, block: Block) -> View:
    return _replace(view, blocks=view.blocks.put(place, _discreet(block)))


def _discreet(block: Block) -> Block:
    """What the program says shows no keys. (A call's texts are looked through as they come.)"""
    match block:
        case Note(text=text):
            return _replace(block, text=shown(text))
        case Shell(output=output):
            return _replace(block, output=shown(output))
    return block


def queued(view: View, item: UserItem) -> View:
    """The person spoke while the agent works: shown as waiting until it is taken."""
    return _replace(view, queue=(*view.queue, said(item).text))


def closed(view: View) -> View:
    """Nothing grows any more. A block that never got a word disappears."""
    if view.stream is None:
        return view
    last = view.blocks[view.stream]
    blocks = view.blocks
    if isinstance(last, Words | Code) and prose.is_empty(last):
        blocks = blocks.first(view.stream)
    return _replace(view, blocks=blocks, stream=None)


def growing(view: View, first: Block) -> tuple[View, Block, int]:
    """The block that grows, if it is of the same sort as `first`; otherwise `first` begins."""
    if view.stream is not None:
        last = view.blocks[view.stream]
        if isinstance(last, Thought) == isinstance(first, Thought):
            return view, last, view.stream
    view = added(view, first)
    place = len(view.blocks) - 1
    return _replace(view, stream=place), first, place


def since(view: View, place: int) -> Iterator[Block]:
    for index in range(place, len(view.blocks)):
        yield view.blocks[index]


def own_words(text: str) -> str:
    """What the model says is shown as it is, but for keys of this process."""
    return without(_own_secrets(), text)


@lru_cache(maxsize=1)
def _own_secrets() -> tuple[str, ...]:
    return own_secrets()


# ------------------------------------------------------------------ calls


def with_call(view: View, call: Call) -> View:
    """A call begins, unless it is known already."""
    if call.call_id in view.calls:
        return view
    view = added(view, call)
    return _replace(view, calls={**view.calls, call.call_id: len(view.blocks) - 1})


def on_call(view: View, call_id: str, change: Callable[[Call], Call]) -> View:
    """The view with one call changed; one that is not known, or is over, changes nothing."""
    place = view.calls.get(call_id)
    if place is None:
        return view
    call = view.blocks[place]
    assert isinstance(call, Call), "view.calls holds the places of calls"
    return replaced(view, place, change(call))


def with_todos(view: View, call: ToolCall) -> View:
    """The todo list is what the model last wrote down as such."""
    if call.name.lower() not in TODO_TOOLS or not call.arguments:
        return view
    given = call.arguments.get("todos", call.arguments.get("items"))
    if not isinstance(given, list):
        return view
    return _replace(view, todos=tuple(_todo(one) for one in given))


def _todo(given: Any) -> Todo:
    if not isinstance(given, dict):
        return Todo(str(given))
    text = given.get("content", given.get("text", given.get("task", "")))
    match str(given.get("status", given.get("state", ""))).lower():
        case "done" | "completed" | "cancelled":
            return Todo(str(text), "done")
        case "in_progress" | "active" | "doing":
            return Todo(str(text), "active")
    return Todo(str(text))


def said(item: UserItem) -> Said:
    """A person's message as a block: the words, and the names of what goes with them."""
    texts = [part.text for part in item.content if isinstance(part, Text)]
    names = [f"text, {len(text):,} characters" for text in texts[1:]]
    for part in item.content:
        if isinstance(part, Image):
            names.append(part.url or f"{part.media_type}, {len(part.data):,} bytes")
        elif isinstance(part, Document):
            names.append(part.title or part.url or part.media_type)
    return Said(texts[0] if texts else "", item.steered, tuple(names))

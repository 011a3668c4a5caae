"""A session for people: Markdown and JSON; page.py makes one HTML page of it.

All of the log is shown as it was said, also what was compacted away or gone back from; those
places are marked. Nothing is opened for writing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from treadle.core.transcript.content import Document, Image, Text, Thinking, ToolCall
from treadle.core.transcript.entries import Entry, ItemAdded, Rewound, Rewritten, TurnEnded
from treadle.core.transcript.items import (
    AssistantItem,
    Item,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
)
from treadle.sessions.journal import read_numbered
from treadle.sessions.lines import to_json
from treadle.sessions.summary import Summary


class Block(msgspec.Struct, frozen=True):
    """One piece of a page: who speaks, a heading, a text, and what kind of text that is."""

    who: str
    title: str
    text: str
    kind: Literal["prose", "code", "diff", "error", "picture"] = "prose"
    picture: Image | None = None


def blocks(place: Path) -> list[Block]:
    """What happened, in order."""
    found: list[Block] = []
    for _, entry in read_numbered(place):
        found += _blocks(entry)
    return found


def _blocks(entry: Entry) -> list[Block]:
    match entry:
        case ItemAdded(item=item):
            return _item(item)
        case Rewritten(mutator=mutator, start=start, stop=stop):
            return [Block("engine", "", f"{mutator}: items {start} to {stop} left the view")]
        case Rewound(turn_id=turn_id):
            return [Block("engine", "", f"went back to before {turn_id}")]
        case TurnEnded(reason=reason, detail=detail) if reason != "end_turn":
            return [Block("engine", "", f"the turn ended: {reason} {detail}".strip())]
        case _:
            return []


def _item(item: Item) -> list[Block]:
    if isinstance(item, (NoticeItem, SummaryItem)):
        return [Block("engine", "", item.text)]
    if isinstance(item, ToolResultItem):
        return _result(item)
    who = "assistant" if isinstance(item, AssistantItem) else "user"
    found: list[Block] = []
    for part in item.content:
        match part:
            case Text(text=text) if text:
                found.append(Block(who, "", text))
            case Thinking(text=text) if text:
                found.append(Block(who, "thinking", text))
            case ToolCall(name=name, raw=raw):
                found.append(Block("call", name, raw, "code"))
            case Image() as image:
                found.append(_picture(who, image))
            case Document(media_type=kind, title=title):
                found.append(Block(who, "", f"[{kind}] {title}".strip()))
            case _:
                pass
    return found


def _result(item: ToolResultItem) -> list[Block]:
    """What a tool gave; of a change to files the difference, which the model is not told."""
    if item.is_error:
        return [Block("tool", f"{item.name}: error", item.text, "error")]
    title = f"{item.name}: result"
    if item.display.startswith("--- ") and "\n+++ " in item.display:
        return [Block("tool", title, item.display, "diff")]
    pictures = [_picture("tool", part) for part in item.content if isinstance(part, Image)]
    return [Block("tool", title, item.text, "code"), *pictures]


def _picture(who: str, image: Image) -> Block:
    return Block(who, "", f"[{image.media_type}] {image.url}".strip(), "picture", image)


def markdown(summary: Summary, shown: Sequence[Block]) -> str:
    parts = [f"# {summary.title or summary.id}", about(summary)]
    names = {"user": "## You", "assistant": "## Agent", "engine": "", "call": "", "tool": ""}
    last = ""
    for block in shown:
        if names[block.who] and block.who != last:
            parts.append(names[block.who])
        last = block.who if names[block.who] else last
        if block.kind in ("code", "diff", "error"):
            language = "diff" if block.kind == "diff" else ""
            parts.append(f"**{block.title}**\n\n{_fenced(block.text, language)}")
        elif block.who == "engine":
            parts.append(f"> {block.text}".replace("\n", "\n> "))
        else:
            parts.append(f"*{block.title}*\n\n{block.text}" if block.title else block.text)
    return "\n\n".join(parts) + "\n"


def _fenced(text: str, language: str = "") -> str:
    longest = run = 0
    for char in text:
        run = run + 1 if char == "`" else 0
        longest = max(longest, run)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def about(summary: Summary) -> str:
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.created))
    cost = "" if summary.usage.cost is None else f" · ${summary.usage.cost:.4f}"
    turns = f"{summary.turns} turn{'s' if summary.turns != 1 else ''}"
    return f"Session {summary.id} · {summary.folder} · {at} · {turns}{cost}"


def as_json(summary: Summary, place: Path) -> bytes:
    """The whole log as one JSON document: numbers, times, entries with their content."""
    entries = [
        b'{"n":%d,"t":%.3f,"entry":%b}' % (line.seq, line.time, to_json(entry))
        for line, entry in read_numbered(place)
    ]
    head = to_json(msgspec.structs.replace(summary, mark=type(summary.mark)()))
    return b'{"session":%b,"entries":[%b]}\n' % (head, b",\n".join(entries))

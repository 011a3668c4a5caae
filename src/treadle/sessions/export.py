"""A session for people: Markdown, one HTML page, JSON.

All of the log is shown as it was said, also what was compacted away or gone back from; those
places are marked. Nothing is opened for writing.
"""

from __future__ import annotations

import html
import time
from collections.abc import Sequence
from pathlib import Path

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
    """One piece of a page: who speaks, a heading, a text, and whether it is code."""

    who: str
    title: str
    text: str
    is_code: bool = False


def blocks(place: Path) -> list[Block]:
    """What happened, in order."""
    found: list[Block] = []
    for _, entry in read_numbered(place):
        found += _blocks(entry)
    return found


def blocks_of(items: Sequence[Item]) -> list[Block]:
    """The same of a history that is only in memory."""
    return [block for item in items for block in _item(item)]


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
        title = f"{item.name}: {'error' if item.is_error else 'result'}"
        return [Block("tool", title, item.text, is_code=True)]
    who = "assistant" if isinstance(item, AssistantItem) else "user"
    found: list[Block] = []
    for part in item.content:
        match part:
            case Text(text=text) if text:
                found.append(Block(who, "", text))
            case Thinking(text=text) if text:
                found.append(Block(who, "thinking", text))
            case ToolCall(name=name, raw=raw):
                found.append(Block("call", name, raw, is_code=True))
            case Image(media_type=kind) | Document(media_type=kind):
                found.append(Block(who, "", f"[{kind}]"))
            case _:
                pass
    return found


def markdown(summary: Summary, shown: Sequence[Block]) -> str:
    parts = [f"# {summary.title or summary.id}", _about(summary)]
    names = {"user": "## You", "assistant": "## Agent", "engine": "", "call": "", "tool": ""}
    last = ""
    for block in shown:
        if names[block.who] and block.who != last:
            parts.append(names[block.who])
        last = block.who if names[block.who] else last
        if block.is_code:
            parts.append(f"**{block.title}**\n\n{_fenced(block.text)}")
        elif block.who == "engine":
            parts.append(f"> {block.text}".replace("\n", "\n> "))
        else:
            parts.append(f"*{block.title}*\n\n{block.text}" if block.title else block.text)
    return "\n\n".join(parts) + "\n"


def _fenced(text: str) -> str:
    longest = run = 0
    for char in text:
        run = run + 1 if char == "`" else 0
        longest = max(longest, run)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _about(summary: Summary) -> str:
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.created))
    cost = "" if summary.usage.cost is None else f" · ${summary.usage.cost:.4f}"
    return f"Session {summary.id} · {summary.folder} · {at} · {summary.turns} turns{cost}"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }}
body {{ max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }}
section {{ margin: 1rem 0; padding: .5rem 1rem; border-left: .25rem solid #8886; }}
.user {{ border-color: #36c; }} .assistant {{ border-color: #383; }}
.engine {{ font-style: italic; opacity: .8; }}
pre, p {{ white-space: pre-wrap; overflow-wrap: anywhere; margin: .25rem 0; }}
pre {{ font: .85rem/1.4 ui-monospace, monospace; }} h2 {{ font-size: .9rem; margin: 0; }}
</style></head><body><h1>{title}</h1><p>{about}</p>
{body}
</body></html>
"""


def page(summary: Summary, shown: Sequence[Block]) -> str:
    """One page without scripts and without anything from elsewhere."""
    body = []
    for block in shown:
        heading = f"<h2>{html.escape(block.title or block.who)}</h2>"
        text = html.escape(block.text)
        if block.is_code:
            inner = f"<details><summary>{html.escape(block.title)}</summary><pre>{text}</pre>"
            inner += "</details>"
        else:
            inner = f"{heading}<p>{text}</p>"
        body.append(f'<section class="{block.who}">{inner}</section>')
    return _PAGE.format(
        title=html.escape(summary.title or summary.id),
        about=html.escape(_about(summary)),
        body="\n".join(body),
    )


def as_json(summary: Summary, place: Path) -> bytes:
    """The whole log as one JSON document: numbers, times, entries with their content."""
    entries = [
        b'{"n":%d,"t":%.3f,"entry":%b}' % (line.seq, line.time, to_json(entry))
        for line, entry in read_numbered(place)
    ]
    head = to_json(msgspec.structs.replace(summary, mark=type(summary.mark)()))
    return b'{"session":%b,"entries":[%b]}\n' % (head, b",\n".join(entries))

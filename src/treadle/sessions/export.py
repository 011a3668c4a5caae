"""A session as Markdown or JSON (apps/pages/session_html.py: as one HTML page).

The whole log is exported, with the items that a compaction or a rewind removed from the view; these
points are marked. Nothing is opened for writing.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from treadle.core.transcript import AssistantItem, Item, NoticeItem, SummaryItem, ToolResultItem
from treadle.core.transcript.content import Document, Image, Text, Thinking, ToolCall
from treadle.core.transcript.entries import Entry, ItemAdded, Rewound, TurnEnded, ViewRewritten
from treadle.core.transcript.entry_json import to_json
from treadle.lib.text.redaction import find_secrets, redact
from treadle.lib.text.text import format_cost, plural
from treadle.sessions.log.entry_redaction import EntryRedactor
from treadle.sessions.log.journal import read_records
from treadle.sessions.log.records import Record
from treadle.sessions.log_cache import ReadPosition
from treadle.sessions.summaries import SessionSummary


class ExportBlock(msgspec.Struct, frozen=True):
    """One part of an exported session: the role, a heading, the text and its kind."""

    role: str
    title: str
    text: str
    kind: Literal["prose", "code", "diff", "error", "picture"] = "prose"
    image: Image | None = None


def read_blocks(session_dir: Path) -> list[ExportBlock]:
    """All blocks of a session, in order."""
    return list_blocks(entry for _, entry in read_redacted(session_dir))


def list_blocks(entries: Iterable[Entry]) -> list[ExportBlock]:
    return [block for entry in entries for block in _entry_blocks(entry)]


def read_redacted(session_dir: Path) -> Iterator[tuple[Record, Entry]]:
    """Every entry without secrets of this process: earlier versions wrote what the user typed."""
    pairs = read_records(session_dir)
    redacted = redact_entries(entry for _, entry in pairs)
    for (record, _), entry in zip(pairs, redacted, strict=True):
        yield record, entry


def redact_entries(entries: Iterable[Entry]) -> Iterator[Entry]:
    redactor = EntryRedactor(find_secrets(os.environ))
    for entry in entries:
        yield redactor.redact(entry) if redactor.finds_secret(to_json(entry)) else entry


def _entry_blocks(entry: Entry) -> list[ExportBlock]:
    match entry:
        case ItemAdded(item=item):
            return _item_blocks(item)
        case _:
            text = describe_entry(entry)
            return [ExportBlock("engine", "", text)] if text else []


def describe_entry(entry: Entry) -> str:
    """What an entry that is no item did to the view; "" if a reader need not know."""
    match entry:
        case ViewRewritten(mutator=mutator, start=start, stop=stop) if start < stop:
            return f"{mutator}: items {start} to {stop} left the view"
        case ViewRewritten(items=items):  # only added
            texts = [item.text for item in items if isinstance(item, NoticeItem)]
            return "\n".join(texts)
        case Rewound(turn_id=turn_id):
            return f"rewound to before {turn_id.replace('-', ' ')}"
        case TurnEnded(reason=reason, detail=detail) if reason != "end_turn":
            return f"the turn ended: {reason} {detail}".strip()
        case _:
            return ""


def _item_blocks(item: Item) -> list[ExportBlock]:
    if isinstance(item, (NoticeItem, SummaryItem)):
        return [ExportBlock("engine", "", item.text)]
    if isinstance(item, ToolResultItem):
        return _result_blocks(item)
    role = "assistant" if isinstance(item, AssistantItem) else "user"
    blocks: list[ExportBlock] = []
    for part in item.content:
        match part:
            case Text(text=text, by=by) if text:
                blocks.append(ExportBlock("engine" if by else role, "", text))
            case Thinking(text=text) if text:
                blocks.append(ExportBlock(role, "thinking", text))
            case ToolCall(name=name, raw=raw, by=by):
                title = f"{name} (chosen by the engine)" if by else name
                blocks.append(ExportBlock("call", title, raw, "code"))
            case Image() as image:
                blocks.append(_image_block(role, image))
            case Document(media_type=kind, title=title):
                blocks.append(ExportBlock(role, "", f"[{kind}] {title}".strip()))
            case _:
                pass
    return blocks


def _result_blocks(item: ToolResultItem) -> list[ExportBlock]:
    """The result of a call; for an edit its diff, which only the user sees."""
    if item.is_error:
        return [ExportBlock("tool", f"{item.name}: error", item.user_text, "error")]
    title = f"{item.name}: result"
    if item.display.startswith("--- ") and "\n+++ " in item.display:
        return [ExportBlock("tool", title, item.display, "diff")]
    images = [_image_block("tool", part) for part in item.content if isinstance(part, Image)]
    return [ExportBlock("tool", title, item.user_text, "code"), *images]


def _image_block(role: str, image: Image) -> ExportBlock:
    return ExportBlock(role, "", f"[{image.media_type}] {image.url}".strip(), "picture", image)


def render_markdown(summary: SessionSummary, blocks: Sequence[ExportBlock]) -> str:
    parts = [f"# {get_title(summary)}", describe_session(summary)]
    names = {"user": "## You", "assistant": "## Agent", "engine": "", "call": "", "tool": ""}
    last = ""
    for block in blocks:
        if names[block.role] and block.role != last:
            parts.append(names[block.role])
        last = block.role if names[block.role] else last
        if block.kind in ("code", "diff", "error"):
            language = "diff" if block.kind == "diff" else ""
            parts.append(f"**{block.title}**\n\n{_fence_code(block.text, language)}")
        elif block.role == "engine":
            parts.append(f"> {block.text}".replace("\n", "\n> "))
        else:
            parts.append(f"*{block.title}*\n\n{block.text}" if block.title else block.text)
    return "\n\n".join(parts) + "\n"


def _fence_code(text: str, language: str = "") -> str:
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def get_title(summary: SessionSummary) -> str:
    """The title without secrets of this process; the id if there is none."""
    return redact(find_secrets(os.environ), summary.title) or summary.id


def describe_session(summary: SessionSummary) -> str:
    created = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.created))
    used = summary.usage
    is_known = used.cost is not None or used.known_cost > 0
    cost = f" · {format_cost(used.cost, used.known_cost)}" if is_known else ""
    parts = [f"Session {summary.id}", summary.folder, created, plural(summary.turns, "turn")]
    return " · ".join(part for part in parts if part) + cost


def render_json(summary: SessionSummary, session_dir: Path) -> bytes:
    """The whole log as one JSON document: numbers, times, entries with their content."""
    return _join_json(
        summary,
        [
            b'{"n":%d,"t":%.3f,"entry":%b}' % (line.seq, line.time, to_json(entry))
            for line, entry in read_redacted(session_dir)
        ],
    )


def render_entries(
    summary: SessionSummary, entries: Iterable[Entry], kind: Literal["markdown", "json"]
) -> str:
    """The same of entries without their times."""
    redacted = redact_entries(entries)
    if kind == "markdown":
        return render_markdown(summary, list_blocks(redacted))
    lines = [b'{"n":%d,"entry":%b}' % (n, to_json(one)) for n, one in enumerate(redacted, 1)]
    return _join_json(summary, lines).decode()


def _join_json(summary: SessionSummary, entries: Sequence[bytes]) -> bytes:
    title = get_title(summary) if summary.title else ""
    head = to_json(msgspec.structs.replace(summary, title=title, read_position=ReadPosition()))
    return b'{"session":%b,"entries":[%b]}\n' % (head, b",\n".join(entries))

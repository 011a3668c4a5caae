"""One line of a journal: encodes an entry, and decodes it.

    {"c":"5d41402a","n":12,"e":1,"t":1767225600.250,"kind":"item","item":{…}}
      checksum      number epoch time               the entry, as entries.py names it

The checksum is the CRC-32 of everything after it, so each line can be verified alone. `n` numbers
and orders the entries (the time is only for display); `e` counts the writers of the session.
Content above 64 KiB is stored as a blob beside the journal, and the line names it. Values and bytes
only; journal.py and reader.py handle the files.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

from treadle.core.transcript.content import Text
from treadle.core.transcript.entries import EarlyResult, Entry, InputQueued, ItemAdded
from treadle.core.transcript.entry_json import to_json
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem, UserItem
from treadle.lib.text.text import plural

FORMAT_VERSION = 1
BLOB_THRESHOLD_BYTES = 64 * 1024
MAX_BYTES_PER_CHAR = 6  # a control character, as an escape

_CHECKSUMMED_FROM = 15  # after {"c":"5d41402a"
_NEWLINE = 10
_KINDS = {b"item": "item", b"turn": "turn", b"end": "end", b"usage": "usage"}
_RECORD_PREFIX = re.compile(
    rb'\{"c":"([0-9a-f]{8})","n":(\d+),"e":(\d+),"t":(-?\d+\.\d+),'
    rb'(?:"blob":"([0-9a-f]{64})","bytes":(\d+),)?"kind":"(\w+)"'
)


class ForkPoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """The parent of a fork, and the last entry that the fork has from it, with its hash."""

    session: str
    seq: int
    head: str = ""


class JournalHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line of each file of a journal."""

    format: int
    session: str
    created: float
    folder: str = ""
    parent: ForkPoint | None = None
    segment: int = 1
    writer: str = ""
    origin: str = ""  # "print": a run of `treadle -p`


class WriterOpened(msgspec.Struct, frozen=True, tag="opened", tag_field="kind"):
    """A new writer opened the session. Not an entry: it has the number of the last one."""

    pid: int
    host: str
    version: str = ""


class Record(msgspec.Struct, frozen=True, gc=False):
    """The metadata of a line; `raw` is the whole line."""

    seq: int
    epoch: int
    time: float
    kind: str
    raw: bytes
    blob: str = ""
    blob_bytes: int = 0


ContentItem = AssistantItem | UserItem | ToolResultItem  # the items whose content may be a blob


def add_checksum(body: bytes) -> bytes:
    """A whole line: the checksum, the body, the line end."""
    rest = b"," + body
    return b'{"c":"%08x"%b\n' % (zlib.crc32(rest), rest)


def has_valid_checksum(raw: bytes) -> bool:
    """Whether a line, with or without its end, matches its checksum."""
    if raw[:6] != b'{"c":"' or raw[14:16] != b'",':
        return False
    end = -1 if raw[-1:] == b"\n" else None
    try:
        return int(raw[6:14], 16) == zlib.crc32(raw[_CHECKSUMMED_FROM:end])
    except ValueError:
        return False


def encode_record(entry: Entry | WriterOpened, seq: int, epoch: int, time: float) -> bytes:
    """The line of an entry without a blob."""
    return format_record(to_json(entry), seq, epoch, time)


def encode_with_content(entry: Entry) -> tuple[bytes, bytes | None]:
    """The entry as JSON, and the content of its item beside it if that is too long for a line."""
    content = encode_large_content(entry)
    return to_json(entry if content is None else without_content(entry)), content


def format_record(
    body: bytes, seq: int, epoch: int, time: float, blob_reference: str = ""
) -> bytes:
    """The line of an encoded entry. `blob_reference` names content that is stored as a blob."""
    blob = blob_reference.encode()
    return add_checksum(b'"n":%d,"e":%d,"t":%.3f,%b%b' % (seq, epoch, time, blob, body[1:]))


def encode_header(header: JournalHeader) -> bytes:
    return add_checksum(b'"treadle":"session",' + to_json(header)[1:])


def decode_header(raw: bytes) -> JournalHeader | None:
    if b'"treadle":"session"' not in raw[:60] or not has_valid_checksum(raw):
        return None
    try:
        return msgspec.json.decode(raw, type=JournalHeader)
    except msgspec.DecodeError:
        return None


def parse_record(raw: bytes) -> Record | None:
    """The record of a line; None if it is not a valid line of a journal."""
    head = _RECORD_PREFIX.match(raw)
    if head is None:
        return None
    crc, seq, epoch, time, blob, size, kind = head.groups()
    end = -1 if raw[-1] == _NEWLINE else None
    if int(crc, 16) != zlib.crc32(raw[_CHECKSUMMED_FROM:end]):
        return None
    if blob is None:
        return Record(int(seq), int(epoch), float(time), _KINDS.get(kind) or kind.decode(), raw)
    return Record(int(seq), int(epoch), float(time), kind.decode(), raw, blob.decode(), int(size))


# --- content in blobs ----------------------------------------------------------------------


def encode_large_content(entry: Entry | WriterOpened) -> bytes | None:
    """The content of the entry's item as JSON, if it is too long for a line."""
    item = _content_item(entry)
    if item is None or _content_size(item) * MAX_BYTES_PER_CHAR < BLOB_THRESHOLD_BYTES:
        return None
    content = to_json(item.content)
    return content if len(content) > BLOB_THRESHOLD_BYTES else None


def without_content(entry: Entry | WriterOpened) -> Entry:
    """The entry as in the line when its content is a blob."""
    return with_content(entry, ())


def with_content(entry: Entry | WriterOpened, content: tuple[Any, ...]) -> Entry:
    item = _content_item(entry)
    assert item is not None, "only an item has content"
    changed = msgspec.structs.replace(item, content=content)
    name = "result" if isinstance(entry, EarlyResult) else "item"
    return msgspec.structs.replace(entry, **{name: changed})  # type: ignore[return-value]


def decode_content(entry: Entry, data: bytes) -> tuple[Any, ...]:
    item = _content_item(entry)
    assert item is not None, "only an item has content"
    content_type = _get_content_type(type(item))
    try:
        content = msgspec.json.decode(data, type=content_type)
    except msgspec.DecodeError:
        import json

        content = msgspec.convert(json.loads(data), content_type)
    return tuple(content)


@cache
def _get_content_type(item_type: type[msgspec.Struct]) -> Any:
    return next(f.type for f in msgspec.structs.fields(item_type) if f.name == "content")


def format_blob_reference(name: str, size: int) -> str:
    return f'"blob":"{name}","bytes":{size},'


def _content_item(entry: Entry | WriterOpened) -> ContentItem | None:
    item: Item | None = None
    if type(entry) is ItemAdded or type(entry) is InputQueued:
        item = entry.item
    elif type(entry) is EarlyResult:
        item = entry.result
    return item if isinstance(item, (AssistantItem, UserItem, ToolResultItem)) else None


def _content_size(item: ContentItem) -> int:
    """Characters and bytes of an item; cheaper than encoding it."""
    total = 0
    for part in item.content:
        if type(part) is Text:
            total += len(part.text)
        else:
            total += len(getattr(part, "data", b"")) + len(getattr(part, "raw", ""))
            total += len(getattr(part, "text", "")) + len(getattr(part, "json", ""))
    return total


def warn_of_losses(problems: Iterable[object], unknown_kinds: Mapping[str, int]) -> list[str]:
    """Lines for the user: what of a log cannot be read, and what only a newer version knows."""
    lines = [f"the session log is damaged: {problem}" for problem in problems]
    for kind, count in unknown_kinds.items():
        entries = plural(count, "entry", "entries")
        lines.append(f"ignored {entries} of the unknown kind {kind!r}")
    return lines

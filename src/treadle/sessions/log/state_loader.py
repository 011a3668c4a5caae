"""Loads the view that a driver continues from, without holding the whole log in memory.

Of a log of more than MAX_VIEW_BYTES, and where the content is in a blob, the fold of the core gets
placeholders for the items: such a line is decoded only if its item is still in the view at the end
of the log. A compacted session of a gigabyte needs as much memory as its view. In a view of more
than MAX_VIEW_BYTES, which is too large for any model, only the newest items are whole; older ones
are truncated. The log keeps all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.entries import Entry, InputQueued, ItemAdded, ViewRewritten
from treadle.core.transcript.entry_json import decode_entry, find_unknown_kind, make_decoder
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem, UserItem
from treadle.core.transcript.recover import recover
from treadle.core.transcript.state import SessionState, fold_entries
from treadle.core.transcript.transcript import Transcript
from treadle.lib.files.blobs import Blobs
from treadle.lib.files.file_system import LocalFiles
from treadle.lib.garbage import paused_collector
from treadle.sessions.log.entry_outline import outline_entry
from treadle.sessions.log.reader import JournalReader, list_segments, measure_log, open_segment
from treadle.sessions.log.records import (
    Record,
    decode_content,
    parse_record,
    with_content,
)

MAX_VIEW_BYTES = 96 << 20
PREVIEW_CHARS = 400
_MIN_DEFERRED_BYTES = 1024  # shorter lines are decoded at once


class _DeferredItem:
    """A long line whose item may be needed: its bytes, or its number to read it again."""

    __slots__ = ("blob", "kind", "preview", "raw", "seq", "session_dir", "size")

    def __init__(self, line: Record, session_dir: Path, kind: type[Item]) -> None:
        self.seq = line.seq
        self.kind = kind
        self.size = len(line.raw) + line.blob_bytes
        self.raw: bytes | None = line.raw
        self.preview: Item | None = None
        self.blob = line.blob
        self.session_dir = session_dir


class StateLoader:
    """One fold over the lines of a session."""

    def __init__(self, reader: JournalReader, max_bytes: int = MAX_VIEW_BYTES) -> None:
        self._reader = reader
        self._max_bytes = max_bytes
        self._is_long = False
        self._has_placeholders = False
        self._recent: deque[_DeferredItem] = deque()
        self._recent_bytes = 0
        self._has_nameless_messages = False  # queued by an earlier version
        self._remaining_bytes = max_bytes
        self._items: dict[int, Item] = {}  # the real items of placeholders, by number
        self._reread: dict[int, type[Item]] = {}  # items to read again, by number
        self.unknown_kinds: dict[str, int] = {}  # of a newer version, with counts
        self.lost_blobs: list[str] = []
        self.truncated_count = 0
        self.last_reply_seq = 0
        self._last_repair_seq = -1

    def load(self) -> SessionState:
        """The view of the session."""
        with paused_collector():
            return self._load()

    def load_recovered(self) -> tuple[SessionState, list[Entry]]:
        """The state with which the session is continued, and the entries that lead to it, for the
        log."""
        state, reader = self.load(), self._reader
        is_damaged = bool(reader.damage or self.lost_blobs)
        entries = recover(
            state,
            lacks_items=is_damaged and reader.damaged_after > self._last_repair_seq,
            lacks_intents=is_damaged and reader.damaged_after >= self.last_reply_seq,
        )
        return fold_entries(entries, state), entries

    def _load(self) -> SessionState:
        self._is_long = measure_log(self._reader.session_dir) > self._max_bytes
        folded = fold_entries(self._read_entries(self._reader.records()))
        if not self._has_placeholders:
            return folded
        self._recent.clear()
        transcripts = [folded.transcript, folded.history]
        for start in reversed(folded.turn_starts):
            transcripts += [start.transcript, start.history]
        longest: dict[int, Transcript] = {}  # one on each list of items
        for transcript in transcripts:
            if transcript is not None:
                known = longest.setdefault(transcript.list_id, transcript)
                if len(transcript) > len(known):
                    longest[transcript.list_id] = transcript
        for transcript in longest.values():
            self._resolve_placeholders(transcript)
        if self._reread:
            self._reread_items()
        for transcript in longest.values():
            transcript.replace_in_place(self._get_resolved)
        return folded

    def _resolve_placeholders(self, transcript: Transcript) -> None:
        """Find the item of each placeholder, the newest first; whole while there is room."""
        for position in range(len(transcript) - 1, -1, -1):
            deferred = _deferred_item(transcript[position])
            if deferred is not None and deferred.seq not in self._items:
                self._remaining_bytes -= deferred.size
                item, fits = transcript[position], self._remaining_bytes >= 0
                self._items[deferred.seq] = self._resolve_item(item, deferred, fits)

    def _get_resolved(self, item: Item) -> Item:
        """The same object for one item, in all transcripts."""
        deferred = _deferred_item(item)
        return item if deferred is None else self._items.get(deferred.seq, item)

    # --- while the log is read ---------------------------------------------------------------

    def _read_entries(self, lines: Iterable[tuple[Record, Path]]) -> Iterator[Entry]:
        decode = make_decoder(Entry).decode
        for line, session_dir in lines:
            is_long = self._is_long and len(line.raw) > _MIN_DEFERRED_BYTES
            if line.kind == "item" and (is_long or line.blob):
                entry = self._make_placeholder(line, session_dir)
            elif line.blob:
                entry = self._decode_entry(line, session_dir)
            else:
                try:
                    entry = decode(line.raw)
                except msgspec.DecodeError:
                    entry = self._decode_entry(line, session_dir)
            if entry is None:
                continue
            if type(entry) is ItemAdded:
                if type(entry.item) is AssistantItem:
                    self.last_reply_seq = line.seq
            elif type(entry) is InputQueued:
                self._has_nameless_messages |= not entry.message_id
            elif type(entry) is ViewRewritten and entry.is_repair:
                self._last_repair_seq = line.seq
            yield entry

    def _make_placeholder(self, line: Record, session_dir: Path) -> Entry | None:
        """An entry that the fold treats like the real one."""
        entry = outline_entry(line.raw)
        item = entry.item if entry is not None else None
        if entry is None or (type(item) is UserItem and self._has_nameless_messages):
            # The fold compares a message without an id by its value, which a placeholder has not.
            return self._decode_entry(line, session_dir)
        if type(item) is AssistantItem and line.blob:
            item = msgspec.structs.replace(item, content=self._find_calls(line, session_dir))
            entry = ItemAdded(item, entry.message_id)
        deferred = _DeferredItem(line, session_dir, type(entry.item))
        vars(entry.item)["deferred"] = deferred
        self._has_placeholders = True
        self._recent.append(deferred)
        self._recent_bytes += len(line.raw)
        while self._recent_bytes > self._max_bytes:
            self._release_bytes(self._recent.popleft())
        return entry

    def _find_calls(self, line: Record, session_dir: Path) -> tuple[ToolCall, ...]:
        """The calls of a reply whose content is in a blob."""
        entry = load_content(decode_entry(line.raw), line.blob, session_dir)
        item = entry.item if isinstance(entry, ItemAdded) else None
        return item.calls if isinstance(item, AssistantItem) else ()

    def _decode_entry(self, line: Record, session_dir: Path) -> Entry | None:
        try:
            return self._load_content(decode_entry(line.raw), line.blob, session_dir)
        except msgspec.DecodeError as error:
            if find_unknown_kind(line.raw):
                self.unknown_kinds[line.kind] = self.unknown_kinds.get(line.kind, 0) + 1
            else:
                self._report_undecodable(session_dir, line.seq, len(line.raw), error)
            return None

    def _report_undecodable(
        self, session_dir: Path, seq: int, size: int, error: msgspec.DecodeError
    ) -> None:
        """The line is intact, but what was written is not an entry."""
        self._reader.add_damage(session_dir, 0, size, f"entry {seq} cannot be decoded: {error}")

    # --- when it has been read ---------------------------------------------------------------

    def _release_bytes(self, deferred: _DeferredItem) -> None:
        """Keep only the preview of a line."""
        raw, deferred.raw = deferred.raw, None
        if raw is None:
            return
        self._recent_bytes -= len(raw)
        if deferred.kind is not ToolResultItem:
            deferred.preview = self._truncate_item(self._decode_item(raw, deferred, whole=False))

    def _resolve_item(self, placeholder: Item, deferred: _DeferredItem, whole: bool) -> Item:
        if not whole:
            self.truncated_count += 1
            return self._make_preview(placeholder, deferred)
        if deferred.raw is None:
            self._reread[deferred.seq] = deferred.kind
            return placeholder
        return self._decode_item(deferred.raw, deferred, whole=True)

    def _make_preview(self, placeholder: Item, deferred: _DeferredItem) -> Item:
        if deferred.preview is not None:
            return deferred.preview
        if deferred.raw is not None and not isinstance(placeholder, ToolResultItem):
            return self._truncate_item(self._decode_item(deferred.raw, deferred, whole=False))
        assert isinstance(placeholder, ToolResultItem), "other items have a preview"
        text = f"[{deferred.size} bytes of an old result are left out; the session log has them.]"
        call_id, name = placeholder.call_id, placeholder.name
        return ToolResultItem(call_id, name, (Text(text),), is_truncated=True)

    def _reread_items(self) -> None:
        for line, session_dir in JournalReader(self._reader.session_dir).records():
            if line.seq in self._reread:
                deferred = _DeferredItem(line, session_dir, self._reread[line.seq])
                self._items[line.seq] = self._decode_item(line.raw, deferred, whole=True)

    def _decode_item(self, raw: bytes, deferred: _DeferredItem, *, whole: bool) -> Item:
        try:
            entry = decode_entry(raw)
            # A reply needs its calls, even if its text is truncated.
            if whole or deferred.kind is AssistantItem:
                entry = self._load_content(entry, deferred.blob, deferred.session_dir)
        except msgspec.DecodeError as error:
            self._report_undecodable(deferred.session_dir, deferred.seq, len(raw), error)
            return _make_undecodable_item(raw)
        assert isinstance(entry, ItemAdded), "only items have placeholders"
        return entry.item

    def _load_content(self, entry: Entry, blob: str, session_dir: Path) -> Entry:
        whole = load_content(entry, blob, session_dir)
        if whole is None:
            self.lost_blobs.append(blob)
            return _mark_lost_content(entry, blob)
        return whole

    @staticmethod
    def _truncate_item(item: Item) -> Item:
        if not isinstance(item, (UserItem, AssistantItem, ToolResultItem)):
            return item
        content = [Text(_truncate_text(p.text)) if type(p) is Text else p for p in item.content]
        if not content:  # it is in a blob
            content = [Text("[Left out; the session log has it.]")]
        return msgspec.structs.replace(item, content=tuple(content))


def read_entry(record: Record, session_dir: Path) -> Entry | None:
    """The entry of a line, with its content; None if only a newer version knows its kind."""
    try:
        entry = decode_entry(record.raw)
    except msgspec.DecodeError:
        return None
    return load_content(entry, record.blob, session_dir) or _mark_lost_content(entry, record.blob)


def load_content(entry: Entry, blob: str, session_dir: Path) -> Entry | None:
    """The entry with its content from the blob; None if that is lost."""
    if not blob:
        return entry
    data = Blobs(session_dir / "blobs", LocalFiles()).get(blob)
    return None if data is None else with_content(entry, decode_content(entry, data))


def _mark_lost_content(entry: Entry, blob: str) -> Entry:
    """The entry with a note in place of its content."""
    return with_content(entry, (Text(f"[This content is lost: blob {blob}.]"),))


def _make_undecodable_item(raw: bytes) -> Item:
    content = (Text("[This content cannot be read; the session log has it.]"),)
    entry = outline_entry(raw)
    item = entry.item if entry is not None else None
    if isinstance(item, (AssistantItem, ToolResultItem)):
        return msgspec.structs.replace(item, content=content)
    return UserItem(content)


def _deferred_item(item: Item) -> _DeferredItem | None:
    deferred = vars(item).get("deferred")
    return deferred if isinstance(deferred, _DeferredItem) else None


def _truncate_text(text: str) -> str:
    if len(text) <= _MIN_DEFERRED_BYTES:
        return text
    left = len(text) - PREVIEW_CHARS
    return f"{text[:PREVIEW_CHARS]}… [{left} more characters are in the session log]"


class JournalFollower:
    def __init__(self, session_dir: Path) -> None:
        self._session_dir = session_dir
        self._segment, self._end, self._seq = 1, 0, 0

    def load(self) -> SessionState:
        """The state now; `read_new` continues from here."""
        reader = JournalReader(self._session_dir)
        state = StateLoader(reader).load()
        self._segment, self._end, self._seq = reader.tail.segment, reader.tail.end, reader.seq
        return state

    def has_new(self) -> bool:
        segments = list_segments(self._session_dir)
        return len(segments) > self._segment or segments[-1].stat().st_size > self._end

    def read_new(self) -> list[Entry] | None:
        """The entries since the last time; None if some are missing: then `load` reads them all."""
        entries: list[Entry] = []
        for path in list_segments(self._session_dir)[self._segment - 1 :]:
            with open_segment(path) as file:
                file.seek(self._end)
                lines = file.read().split(b"\n")
            for line in lines[:-1]:  # the last one is not complete yet
                self._end += len(line) + 1
                record = parse_record(line)
                if record is None or record.kind == "opened" or record.seq <= self._seq:
                    continue
                if record.seq > self._seq + 1:
                    return None
                self._seq = record.seq
                entry = read_entry(record, self._session_dir)
                entries += [] if entry is None else [entry]
            if path.name != list_segments(self._session_dir)[-1].name:
                self._segment, self._end = self._segment + 1, 0
        return entries

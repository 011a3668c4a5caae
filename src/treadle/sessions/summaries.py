"""Summaries of sessions for lists, read from the logs and cached in one index file.

Most lines of a log are not decoded. log_cache.py keeps the summaries; used by library.py,
children.py and session_place.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from treadle.core.errors import SessionNotFound, StoreError
from treadle.core.transcript.entries import (
    ChildUsageRecorded,
    Entry,
    InputQueued,
    ItemAdded,
    Suspended,
    TurnEnded,
    UsageRecorded,
)
from treadle.core.transcript.entry_json import decode_entry
from treadle.core.transcript.items import CALL_KEY, UserItem
from treadle.core.transcript.usage import Usage
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.sessions.log.reader import list_lineage, list_segments, open_segment, read_header
from treadle.sessions.log.records import (
    ForkPoint,
    JournalHeader,
    has_valid_checksum,
    parse_record,
)
from treadle.sessions.log_cache import LogCache, ReadPosition

INDEX_NAME = "index.jsonl"
NAME_FILE = "name"  # in the folder of a session that the user named
TITLE_CHARS = 80
UNREADABLE = "unreadable"  # the log cannot be opened
# What lists call a state, if that is not its name.
STATE_LABELS = {
    "open": "open elsewhere",
    "aborted": "interrupted",
    "error": "failed",
    "max_turns": "stopped at a limit",
    "budget_exceeded": "stopped at a limit",
    "repetition": "stopped, it repeated itself",
    "goal_not_met": "goal not met",
}
_KIND_PATTERN = compile_lazily(
    rb'\{"c":"[0-9a-f]{8}","n":(\d+),"e":\d+,"t":(-?[\d.]+),[^{]{0,120}?"kind":"(\w+)"'
)
_SUMMARY_KINDS = {
    *(b"turn", b"usage", b"child_usage", b"end", b"parked", b"item", b"queued", b"rewind")
}
_BODY_PATTERN = compile_lazily(rb'\{"kind":"(\w+)"')


class SessionSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """One session. `state` is empty, open, done, unreadable, or the reason why the last turn
    ended. `turns` and `state` of a fork include what it has from its parent; its usage does
    not. `child_usage` is that of child agents, None in an index of an earlier version. `origin` is
    that of the journal's header; `is_child`: it is that of a child agent."""

    id: str
    project: str
    folder: str = ""
    title: str = ""
    created: float = 0.0
    updated: float = 0.0
    turns: int = 0
    entries: int = 0
    usage: Usage = Usage()
    child_usage: Usage | None = None
    state: str = "empty"
    suspended: Suspended | None = msgspec.field(default=None, name="parked")
    parent: ForkPoint | None = None
    format: int = 1
    has_lost_lines: bool = False
    has_inherited: bool = False
    origin: str = ""
    lacks_reply: bool = False
    is_child: bool = False
    read_position: ReadPosition = msgspec.field(default=ReadPosition(), name="mark")

    @property
    def key(self) -> str:
        return f"{self.project}/{self.id}"

    @property
    def has_failed(self) -> bool:
        """Whether it ended with an error before its first reply."""
        return self.lacks_reply and self.state == "error"

    @property
    def total_usage(self) -> Usage:
        return self.usage if self.child_usage is None else self.usage + self.child_usage

    @property
    def is_outdated(self) -> bool:
        """Whether an earlier version did not count the turns that a fork has from its parent, or
        what child agents used."""
        lacks_turns = self.parent is not None and not self.has_inherited
        return lacks_turns or self.child_usage is None

    @property
    def is_damaged(self) -> bool:
        """Whether lines of the log are unreadable or missing, or the last one is incomplete."""
        return self.has_lost_lines or self.read_position.offset < self.read_position.bytes


def summarize_session(
    session_dir: Path, previous: SessionSummary | None = None, project: str = ""
) -> SessionSummary:
    """The summary of a log; `previous` is an earlier one, which saves reading it all again."""
    files = list_segments(session_dir)
    status = files[-1].stat()
    is_current = previous is not None and previous.read_position.is_valid(len(files), status)
    if previous is None or not is_current or previous.is_outdated:
        found = read_header(session_dir)
        header = found or JournalHeader(0, session_dir.name, 0.0)
        inherited = _read_inherited(session_dir)
        previous = SessionSummary(
            session_dir.name,
            project or session_dir.parent.name,
            header.folder,
            created=header.created,
            turns=inherited.turns,
            state=inherited.state,
            entries=header.parent.seq if header.parent is not None else 0,
            parent=header.parent,
            format=header.format,
            has_lost_lines=found is None,
            has_inherited=True,
            origin=header.origin,
        )
    builder = _SummaryBuilder(previous)
    offset = previous.read_position.offset
    for path, start in previous.read_position.unread_files(files):
        offset = builder.read_file(path, start)
    position = ReadPosition(len(files), offset, status.st_size, status.st_mtime_ns)
    return builder.build(max(previous.updated, status.st_mtime_ns / 1e9), position)


def summarize_entries(summary: SessionSummary, bodies: Iterable[bytes]) -> SessionSummary:
    """The same of a session in a database, of the entries that a summary needs."""
    builder = _SummaryBuilder(summary)
    for body in bodies:
        builder.add_body(body)
    return builder.build(summary.updated, ReadPosition())


def _read_inherited(session_dir: Path) -> SessionSummary:
    """The parts of the logs of its parents that a fork has."""
    summary = SessionSummary("", "")
    try:
        parents = list_lineage(session_dir)[:-1]
    except StoreError:
        return summary  # a parent is missing; who opens the session is told
    for parent_dir, last_seq in parents:
        builder = _SummaryBuilder(summary, last_seq)
        for path in list_segments(parent_dir):
            builder.read_file(path, 0)
        summary = builder.build(0.0, ReadPosition())
    return summary


class _SummaryBuilder:
    """Updates a summary line by line, up to the entry `last_seq`."""

    def __init__(self, previous: SessionSummary, last_seq: int | None = None) -> None:
        self._previous = previous
        self._last_seq = last_seq
        self._title = previous.title
        self._turns = previous.turns
        self._entries = previous.entries
        self._usage = previous.usage
        self._child_usage = previous.child_usage or Usage()
        self._state = previous.state
        self._suspended = previous.suspended
        self._has_lost_lines = previous.has_lost_lines
        self._lacks_reply = previous.lacks_reply
        self._is_child = previous.is_child

    def add_body(self, body: bytes) -> None:
        head = _BODY_PATTERN.match(body)
        if head is not None and head[1] in _SUMMARY_KINDS:
            self._add_entry(head[1], body, _decode)

    def read_file(self, path: Path, offset: int) -> int:
        """Add the complete lines after `offset`; returns where the last of them ends."""
        session_dir = path.parent
        with open_segment(path) as file:
            file.seek(offset)
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                offset += len(raw)
                self._read_line(raw, session_dir)
        return offset

    def _read_line(self, raw: bytes, session_dir: Path) -> None:
        if not has_valid_checksum(raw):
            self._has_lost_lines = True
            return
        head = _KIND_PATTERN.match(raw)
        if head is None or (seq := int(head[1])) <= self._entries:
            return  # a header, a new writer, or a line that a new file repeats after a failed sync
        if self._last_seq is not None and seq > self._last_seq:
            return
        self._has_lost_lines |= seq > self._entries + 1
        self._entries = seq
        if head[3] in _SUMMARY_KINDS:
            self._add_entry(head[3], raw, lambda raw: _read_line(raw, session_dir))

    def _add_entry(self, kind: bytes, raw: bytes, decode: Callable[[bytes], Entry | None]) -> None:
        if kind in (b"item", b"queued"):
            if kind == b"item":
                self._suspended = None
            if self._lacks_reply:
                self._lacks_reply = raw.find(b'"item":{"type":"assistant"', 0, 400) < 0
            if not self._title and raw.find(b'"item":{"type":"user"', 0, 400) >= 0:
                self._begin(decode(raw))
            return
        if kind == b"turn":
            self._lacks_reply |= not self._turns
            self._turns += b'"continues":true' not in raw
            self._is_child |= b'"is_child":true' in raw
            self._state, self._suspended = "open", None
            return
        entry = _decode(raw)
        if isinstance(entry, UsageRecorded):
            self._usage = self._usage + entry.usage
        elif isinstance(entry, ChildUsageRecorded):
            self._child_usage = self._child_usage + entry.usage
        elif isinstance(entry, TurnEnded):
            self._state = "done" if entry.reason == "end_turn" else entry.reason
            self._suspended = None
        elif isinstance(entry, Suspended):
            self._suspended = entry

    def _begin(self, entry: Entry | None) -> None:
        item = entry.item if isinstance(entry, (ItemAdded, InputQueued)) else None
        if isinstance(item, UserItem):
            self._title = make_title(item.first_text)
            self._is_child |= CALL_KEY in (item.metadata or {})

    def build(self, updated: float, read_position: ReadPosition) -> SessionSummary:
        return msgspec.structs.replace(
            self._previous,
            title=self._title,
            turns=self._turns,
            entries=self._entries,
            usage=self._usage,
            child_usage=self._child_usage,
            state=self._state,
            suspended=self._suspended,
            has_lost_lines=self._has_lost_lines,
            lacks_reply=self._lacks_reply,
            is_child=self._is_child,
            updated=updated,
            read_position=read_position,
        )


def _decode(raw: bytes) -> Entry | None:
    try:
        return decode_entry(raw)
    except msgspec.DecodeError:
        return None


def _read_line(raw: bytes, session_dir: Path) -> Entry | None:
    """An entry with its long content, which has a file of its own."""
    from treadle.sessions.log.state_loader import read_entry

    record = parse_record(raw)
    return None if record is None else read_entry(record, session_dir)


def make_title(text: str) -> str:
    """The title of a session that begins with this message, or has this name."""
    line = " ".join(text.split())
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1] + "…"


def read_name(session_dir: Path) -> str:
    """The name that the user gave a session; "" if there is none."""
    try:
        return (session_dir / NAME_FILE).read_text(errors="replace")
    except OSError:
        return ""


def _with_name(session_dir: Path, summary: SessionSummary) -> SessionSummary:
    name = read_name(session_dir)
    return msgspec.structs.replace(summary, title=name) if name else summary


class SessionIndex(LogCache[SessionSummary]):
    """The cached summaries. Sessions of child agents have an index file of their own."""

    def __init__(self, root: Path, name: str = INDEX_NAME) -> None:
        super().__init__(root, name, SessionSummary)

    def get_unchanged(self, session_dir: Path, status: os.stat_result) -> SessionSummary | None:
        """The cached summary, if the log is one file and has not changed since."""
        summary = self.records.get(self.key(session_dir))
        if summary is None or not summary.read_position.is_current(1, status):
            return None
        if summary.is_outdated:
            return None
        return _with_name(session_dir, summary)

    def get(self, session_dir: Path) -> SessionSummary:
        """The current summary; reads only what the cache does not know."""
        key = self.key(session_dir)
        project = key.rpartition("/")[0]
        try:
            summary = summarize_session(session_dir, self.records.get(key), project)
            return _with_name(session_dir, summary)
        except SessionNotFound:
            raise
        except (OSError, StoreError):
            updated = session_dir.stat().st_mtime
            return SessionSummary(
                session_dir.name, project, updated=updated, state=UNREADABLE, has_lost_lines=True
            )

    def save(self, records: Iterable[SessionSummary]) -> None:
        super().save(one for one in records if one.state != UNREADABLE)

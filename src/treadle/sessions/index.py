"""What a list of sessions shows, gathered from the journals and remembered in one index file.

A summary is read off the lines without decoding most of them, and goes on where it stopped when
the journal has grown. The index is only a memory of that: what it says is believed while the
journal has the length and the time that it had, and it can be deleted at any moment.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from treadle.core.transcript.entries import ItemAdded, Suspended, TurnEnded, UsageRecorded
from treadle.core.transcript.items import UserItem
from treadle.core.transcript.usage import Usage
from treadle.sessions.log.files import LocalFiles
from treadle.sessions.log.reader import FIRST_SEGMENT, list_segments, read_header
from treadle.sessions.log.records import ForkPoint, JournalHeader, decode_entry, parse_record

INDEX_NAME = "index.jsonl"
TITLE_CHARS = 80
_KIND_PATTERN = re.compile(
    rb'\{"c":"[0-9a-f]{8}","n":(\d+),"e":\d+,"t":(-?[\d.]+),[^{]{0,120}?"kind":"(\w+)"'
)
_SUMMARY_KINDS = {b"turn", b"usage", b"end", b"parked", b"item", b"rewind"}


class ReadPosition(msgspec.Struct, frozen=True):
    """How far a journal has been read, and how to know that it is still the same."""

    segment: int = 0
    offset: int = 0
    bytes: int = -1
    modified: int = -1


class SessionSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """One session, in a line. `state` is what its log says: done, open, parked, or why it ended."""

    id: str
    project: str
    folder: str = ""
    title: str = ""
    created: float = 0.0
    updated: float = 0.0
    turns: int = 0
    entries: int = 0
    usage: Usage = Usage()
    state: str = "empty"
    suspended: Suspended | None = msgspec.field(default=None, name="parked")
    parent: ForkPoint | None = None
    format: int = 1
    read_position: ReadPosition = msgspec.field(default=ReadPosition(), name="mark")

    @property
    def key(self) -> str:
        return f"{self.project}/{self.id}"


def summarize_session(
    session_dir: Path, previous: SessionSummary | None = None, project: str = ""
) -> SessionSummary:
    """What is in a journal; `known` is what an earlier look gave, and saves reading it again."""
    files = list_segments(session_dir)
    status = files[-1].stat()
    if previous is not None and previous.read_position.segment == len(files):
        previous = (
            previous if previous.read_position.offset <= status.st_size else None
        )  # cut since then
    if previous is None or previous.read_position.segment > len(files):
        header = read_header(session_dir) or JournalHeader(0, session_dir.name, 0.0)
        previous = SessionSummary(
            session_dir.name,
            project or session_dir.parent.name,
            header.folder,
            created=header.created,
            parent=header.parent,
            format=header.format,
        )
    gathered = _SummaryBuilder(previous)
    offset = previous.read_position.offset
    for number in range(max(previous.read_position.segment, 1), len(files) + 1):
        offset = gathered.read_file(
            files[number - 1], offset if number == previous.read_position.segment else 0
        )
    mark = ReadPosition(len(files), offset, status.st_size, status.st_mtime_ns)
    return gathered.build(max(previous.updated, status.st_mtime_ns / 1e9), mark)


class _SummaryBuilder:
    """A summary that grows line by line."""

    def __init__(self, previous: SessionSummary) -> None:
        self._previous = previous
        self._title = previous.title
        self._turns = previous.turns
        self._entries = previous.entries
        self._usage = previous.usage
        self._state = previous.state
        self._suspended = previous.suspended

    def read_file(self, path: Path, offset: int) -> int:
        """Take in the whole lines behind `offset`; where the last of them ends."""
        with path.open("rb", buffering=1 << 20) as file:
            file.seek(offset)
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                offset += len(raw)
                head = _KIND_PATTERN.match(raw)
                if head is None or head[3] not in _SUMMARY_KINDS:
                    continue
                self._entries = max(self._entries, int(head[1]))
                self._add_entry(head[3], raw, path.parent)
        return offset

    def _add_entry(self, kind: bytes, raw: bytes, session_dir: Path) -> None:
        if kind == b"item":
            self._suspended = None
            if not self._title and b'"item":{"type":"user"' in raw[:400]:
                self._title = _make_title(raw, session_dir)
            return
        if kind == b"turn":
            self._turns, self._state, self._suspended = self._turns + 1, "open", None
            return
        try:
            entry = decode_entry(raw)
        except msgspec.DecodeError:
            return
        if isinstance(entry, UsageRecorded):
            self._usage = self._usage + entry.usage
        elif isinstance(entry, TurnEnded):
            self._state = "done" if entry.reason == "end_turn" else entry.reason
            self._suspended = None
        elif isinstance(entry, Suspended):
            self._suspended = entry

    def build(self, updated: float, read_position: ReadPosition) -> SessionSummary:
        return msgspec.structs.replace(
            self._previous,
            title=self._title,
            turns=self._turns,
            entries=self._entries,
            usage=self._usage,
            state=self._state,
            suspended=self._suspended,
            updated=updated,
            read_position=read_position,
        )


def _make_title(raw: bytes, session_dir: Path) -> str:
    from treadle.sessions.log.view_loader import load_content

    whole = parse_record(raw)
    try:
        entry = load_content(
            decode_entry(raw), whole.blob if whole is not None else "", session_dir
        )
    except msgspec.DecodeError:
        return ""
    if not isinstance(entry, ItemAdded) or not isinstance(entry.item, UserItem):
        return ""
    line = " ".join(entry.item.text.split())
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1] + "…"


class SessionIndex:
    """The memory of summaries: a file of lines, the last one of a session counts.

    Child agents' sessions are remembered in another file than those that people look for first.
    """

    def __init__(self, root: Path, name: str = INDEX_NAME) -> None:
        self._root = root
        self._path = root / name
        self._line_count = 0
        self.summaries: dict[str, SessionSummary] = self._load()

    def get_unchanged(self, session_dir: Path, status: os.stat_result) -> SessionSummary | None:
        """What is known of this journal, if it has not changed since."""
        known = self.summaries.get(self._key(session_dir))
        if known is None or known.read_position.segment != 1:
            return None
        same = (known.read_position.bytes, known.read_position.modified) == (
            status.st_size,
            status.st_mtime_ns,
        )
        return known if same else None

    def get(self, session_dir: Path) -> SessionSummary:
        """The summary as of now, from memory where that is right."""
        key = self._key(session_dir)
        return summarize_session(session_dir, self.summaries.get(key), key.rpartition("/")[0])

    def _key(self, session_dir: Path) -> str:
        return str(session_dir)[len(str(self._root)) + 1 :]

    def save(self, summaries: Iterable[SessionSummary]) -> None:
        """Add these; a disk that takes no more costs only the memory."""
        new = [summary for summary in summaries if self.summaries.get(summary.key) != summary]
        if not new:
            return
        self.summaries.update({summary.key: summary for summary in new})
        try:
            if self._line_count > 2 * len(self.summaries) + 1000:
                self._rewrite()
            else:
                self._append(new)
        except OSError:
            return

    def _append(self, new: list[SessionSummary]) -> None:
        files = LocalFiles()
        files.make_folder(self._root)
        fd = files.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.write(fd, b"".join([msgspec.json.encode(summary) + b"\n" for summary in new]))
        finally:
            os.close(fd)
        self._line_count += len(new)

    def _rewrite(self) -> None:
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        fd = LocalFiles().open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with os.fdopen(fd, "wb") as file:
            for key, summary in self.summaries.items():
                if (self._root / key / FIRST_SEGMENT).exists():
                    file.write(msgspec.json.encode(summary) + b"\n")
        draft.replace(self._path)

    def _load(self) -> dict[str, SessionSummary]:
        found: dict[str, SessionSummary] = {}
        decoder = msgspec.json.Decoder(SessionSummary)
        try:
            data = self._path.read_bytes()
        except OSError:
            return found
        for line in data.split(b"\n"):
            if not line:
                continue
            self._line_count += 1
            try:
                summary = decoder.decode(line)
            except msgspec.DecodeError:
                continue
            found[summary.key] = summary
        return found

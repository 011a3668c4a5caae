"""Cached facts about session logs: one file of JSON lines beside the sessions.

A cached record says how far its log was read. It is used unchanged while the log has the same
length and time, and updated from there when the log has grown. The file may be deleted at any time.
Used by summaries.py and cost.py (usage).
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from treadle.lib.files.file_system import LocalFiles, write_all
from treadle.lib.files.private_files import write_private_file
from treadle.sessions.log.reader import FIRST_SEGMENT

WORD = re.compile(rb"[0-9A-Za-z._@:+-]+")  # an id is one
MAX_STALE_LINES = 1_000  # beyond one per record; then the file is rewritten


class ReadPosition(msgspec.Struct, frozen=True):
    """How far a log was read, and the length and time that its last file had then."""

    segment: int = 0
    offset: int = 0
    bytes: int = -1
    modified: int = -1

    def is_current(self, segments: int, status: os.stat_result) -> bool:
        """Whether the log is unchanged since."""
        size, modified = status.st_size, status.st_mtime_ns
        return (self.segment, self.bytes, self.modified) == (segments, size, modified)

    def is_valid(self, segments: int, status: os.stat_result) -> bool:
        """Whether reading can continue here: the log has only grown since."""
        if self.segment < segments:
            return True
        is_unchanged = self.modified == status.st_mtime_ns and self.bytes == status.st_size
        return self.segment == segments and (is_unchanged or self.bytes < status.st_size)

    def unread_files(self, files: Sequence[Path]) -> Iterator[tuple[Path, int]]:
        """The files after this position, each with the offset to read from."""
        first = max(self.segment, 1)
        for number, path in enumerate(files[first - 1 :], start=first):
            yield path, self.offset if number == self.segment else 0


class CachedRecord(Protocol):
    @property
    def key(self) -> str:
        """The session's folder, relative to the root of all sessions."""


RecordT = TypeVar("RecordT", bound=CachedRecord)


class LogCache(Generic[RecordT]):
    """The records of one cache file by key; the last line of a key counts."""

    def __init__(self, root: Path, name: str, record_type: type[RecordT]) -> None:
        self._root = root
        self._path = root / name
        self._line_count = 0
        self.records: dict[str, RecordT] = self._load(record_type)

    def key(self, session_dir: Path) -> str:
        return str(session_dir)[len(str(self._root)) + 1 :]

    def save(self, records: Iterable[RecordT]) -> None:
        """Add or replace these; if the disk refuses them, only the cache is lost."""
        changed = [record for record in records if self.records.get(record.key) != record]
        if not changed:
            return
        self.records.update({record.key: record for record in changed})
        try:
            if self._line_count > 2 * len(self.records) + MAX_STALE_LINES:
                self._rewrite()
            else:
                self._append(changed)
        except OSError:
            return

    def _append(self, records: list[RecordT]) -> None:
        files = LocalFiles()
        files.make_folder(self._root)
        fd = files.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            write_all(files, fd, _encode_lines(records))
        finally:
            os.close(fd)
        self._line_count += len(records)

    def _rewrite(self) -> None:
        root, records = self._root, self.records.values()
        existing = [one for one in records if (root / one.key / FIRST_SEGMENT).exists()]
        write_private_file(self._path, _encode_lines(existing))

    def _load(self, record_type: type[RecordT]) -> dict[str, RecordT]:
        records: dict[str, RecordT] = {}
        decoder = msgspec.json.Decoder(record_type)
        try:
            data = self._path.read_bytes()
        except OSError:
            return records
        for line in data.splitlines():
            self._line_count += 1
            try:
                record = decoder.decode(line)
            except msgspec.DecodeError:
                continue  # torn, or of another version
            records[record.key] = record
        return records


def forget_sessions(root: Path, ids: Iterable[str]) -> None:
    """Take these sessions out of every cache file: a record has the title, and the cost."""
    gone = {one.encode() for one in ids}
    for path in root.glob("*.jsonl") if gone else ():
        lines = path.read_bytes().splitlines(keepends=True)
        kept = [line for line in lines if gone.isdisjoint(WORD.findall(line))]
        if len(kept) < len(lines):
            write_private_file(path, b"".join(kept))


def _encode_lines(records: Iterable[CachedRecord]) -> bytes:
    return b"".join([msgspec.json.encode(record) + b"\n" for record in records])

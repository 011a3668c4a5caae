"""Follows the log of a session that another program writes: each time only what is new is read.

Reads and never writes; the first pass is state_loader.py. Used by the page.
"""

from __future__ import annotations

from pathlib import Path

from treadle.core.transcript.entries import Entry
from treadle.core.transcript.state import SessionState
from treadle.sessions.log.reader import JournalReader, list_segments, open_segment
from treadle.sessions.log.records import parse_record
from treadle.sessions.log.state_loader import StateLoader, read_entry


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

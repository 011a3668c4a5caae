"""Messages that the user typed before, across sessions: one JSON string a line, in a file.

The file keeps the beginning of a long entry and says how much is missing; this process has all of
it. If the file cannot be written, the history lasts for this process only.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from treadle.apps.assembly.redaction import redact_for_display
from treadle.lib.files.flock import hold_lock
from treadle.lib.files.private_files import locked_update, make_private_folder

MAX_LINES = 500
MAX_ENTRY_CHARS = 100_000  # in the file
MAX_FILE_BYTES = 10_000_000  # a larger file is made smaller at the start: the oldest entries go


class PromptHistory:
    """Browsed with up and down; the draft is kept meanwhile, and becomes an entry if an earlier one
    is sent or cleared instead."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._lines = _read_lines(file)
        self._position = len(self._lines)
        self._draft = ""

    def add(self, text: str) -> None:
        for line in (self._draft.strip(), text.strip()):
            if line and (not self._lines or self._lines[-1] != line):
                self._lines.append(line)
                self._append_to_file(line)
        self._position = len(self._lines)
        self._draft = ""

    def previous(self, current: str) -> str | None:
        """The entry before the current one, or None at the beginning."""
        if self._position == 0:
            return None
        if self._position == len(self._lines):
            self._draft = current
        self._position -= 1
        return self._lines[self._position]

    def next(self) -> str | None:
        if self._position >= len(self._lines):
            return None
        self._position += 1
        if self._position < len(self._lines):
            return self._lines[self._position]
        draft, self._draft = self._draft, ""
        return draft

    @property
    def lines(self) -> tuple[str, ...]:
        """Every entry, the oldest first."""
        return tuple(self._lines)

    @property
    def is_browsing(self) -> bool:
        return self._position < len(self._lines)

    def stop_browsing(self) -> None:
        self._position, self._draft = len(self._lines), ""

    def find_draft(self, shown: str) -> str:
        """What the user has typed and not sent: the text that is shown, unless it is an entry."""
        return self._draft if self.is_browsing and shown == self._lines[self._position] else shown

    def _append_to_file(self, text: str) -> None:
        if self._file is None:
            return
        try:
            make_private_folder(self._file.parent)
            with hold_lock(self._file.parent):  # another program may shorten the file
                _append_line(self._file, _encode_line(text))
            self._file.chmod(0o600)
            if len(self._lines) > 2 * MAX_LINES:
                self._lines = self._lines[-MAX_LINES:]
                _shorten(self._file)
        except OSError:
            self._file = None


def _append_line(file: Path, line: bytes) -> None:
    """Append a line, whole or not at all: the disk may be full."""
    with file.open("ab", buffering=0) as out:
        size = out.tell()
        try:
            is_whole = out.write(line) == len(line)
        except OSError:
            is_whole = False
        if not is_whole:
            out.truncate(size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _encode_line(text: str) -> bytes:
    """A line of the file; a key that the user typed is not in it."""
    missing = len(text) - MAX_ENTRY_CHARS
    if missing > 0:
        text = f"{text[:MAX_ENTRY_CHARS]}\n[{missing:,} more characters are not in the history]"
    return msgspec.json.encode(redact_for_display(text)) + b"\n"


def _read_lines(file: Path | None) -> list[str]:
    if file is None:
        return []
    try:
        size = file.stat().st_size
        lines = _read_newest(file)
    except OSError:
        return []
    if size > MAX_FILE_BYTES:
        _shorten(file)
    return lines


def _read_newest(file: Path) -> list[str]:
    lines: list[str] = []
    for row in file.read_bytes().splitlines()[-MAX_LINES:]:
        try:
            lines.append(msgspec.json.decode(row, type=str))
        except msgspec.DecodeError:
            continue
    return lines


def _shorten(file: Path) -> None:
    """Keep the newest lines of all programs, up to half of MAX_FILE_BYTES."""

    def keep_newest() -> bytes:
        kept: list[bytes] = []
        room = MAX_FILE_BYTES // 2
        for line in reversed(_read_newest(file)):
            encoded = _encode_line(line)
            room -= len(encoded)
            if room < 0:
                break
            kept.append(encoded)
        return b"".join(reversed(kept))

    with suppress(OSError):
        locked_update(file, keep_newest)


class HistorySearch:
    """Finds the newest line with the query first; `find_older` goes on from there. `draft` is what
    the prompt held before."""

    def __init__(self, lines: Sequence[str], draft: str) -> None:
        self.draft = draft
        self.query = ""
        self.is_failed = False  # no (other) line has the query
        self._lines = lines
        self._position = len(lines)

    @property
    def match(self) -> str | None:
        """The line that was found."""
        return self._lines[self._position] if self._position < len(self._lines) else None

    def extend(self, text: str) -> None:
        """Search for more text; a match that has it stays."""
        self.query += text
        self._search(self._position)

    def shorten(self) -> None:
        """Remove the last character of the query, and begin at the newest line again."""
        self.query = self.query[:-1]
        self._position = len(self._lines)
        if self.query:
            self._search(len(self._lines) - 1)
        else:
            self.is_failed = False

    def find_older(self) -> None:
        if self.query:
            self._search(self._position - 1, unlike=self.match)

    def _search(self, first: int, unlike: str | None = None) -> None:
        wanted = self.query.lower()
        for position in range(min(first, len(self._lines) - 1), -1, -1):
            line = self._lines[position]
            if wanted in line.lower() and line != unlike:
                self._position, self.is_failed = position, False
                return
        self.is_failed = True

"""The file that a journal appends to: all lines of a batch durably, or none.

A partial batch is truncated again. A file whose sync failed is not used again: the kernel may have
dropped the data, so the same lines are written to a new file, and a reader skips duplicates.
Blocking calls; journal.py runs them off the event loop.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from treadle.core.errors import SessionBusy, StoreError, StoreFull
from treadle.lib.files.file_system import Files, write_all
from treadle.sessions.log.reader import FIRST_SEGMENT, JournalTail
from treadle.sessions.log.records import JournalHeader, encode_header

_DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_WRITABLE_ERRNOS = {errno.EROFS, errno.EACCES, errno.EPERM}


class Segment:
    """The last file of a journal, open for appending."""

    def __init__(
        self,
        session_dir: Path,
        header: JournalHeader,
        files: Files,
        tail: JournalTail | None,
        unsynced_folders: Sequence[Path] = (),
    ) -> None:
        self._session_dir = session_dir
        self._unsynced_folders = unsynced_folders  # where new folders above the session have names
        self._header = header
        self._files = files
        self._fd = -1
        self._end = tail.end if tail is not None else 0
        self._number = tail.segment if tail is not None else 1
        self._is_new = tail is None
        self._partial_bytes = 0  # bytes after `_end` of an incomplete batch
        self.sync_count = 0
        if tail is not None:
            self._repair_tail(tail)

    @property
    def path(self) -> Path:
        number = self._number
        return self._session_dir / (FIRST_SEGMENT if number == 1 else f"journal-{number}.jsonl")

    def append(self, lines: bytes) -> None:
        """Write these lines durably, or raise a StoreError and write none."""
        try:
            self._write(lines)
        except OSError as error:
            raise to_store_error(error, self.path) from error

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._files.close(fd)

    def _write(self, lines: bytes) -> None:
        if self._is_new:
            self._create_file(lines)
            return
        if self._fd < 0:
            self._fd = self._files.open(self.path, os.O_RDWR | os.O_APPEND)
        self._truncate_partial()
        self._check_ownership()
        rest = memoryview(lines)
        try:
            while rest:
                written = self._files.write(self._fd, rest)
                self._partial_bytes += written
                rest = rest[written:]
        except OSError:
            self._try_truncate_partial()
            raise
        try:
            self._files.sync(self._fd)
            self.sync_count += 1
        except OSError:
            self.close()
            self._number += 1
            self._end, self._partial_bytes, self._is_new = 0, 0, True
            self._create_file(lines)
            return
        self._end, self._partial_bytes = self._end + self._partial_bytes, 0
        # A writer that took over between the check and the write has not seen these lines.
        self._check_ownership()

    def _create_file(self, lines: bytes) -> None:
        """A new file with the header and the first lines; it gets its name when it is complete."""
        files, path = self._files, self.path
        header = msgspec.structs.replace(self._header, segment=self._number)
        data = encode_header(header) + lines
        files.make_folder(self._session_dir)
        draft = path.with_name(f".{path.name}.new")
        files.unlink(draft)
        fd = files.open(draft, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)
        try:
            write_all(files, fd, data)
            files.sync(fd)
            files.rename(draft, path)
            files.sync_folder(self._session_dir)
            if self._number == 1:
                for folder in (self._session_dir.parent, *self._unsynced_folders):
                    files.sync_folder(folder)
        except BaseException:
            files.close(fd)
            raise
        self.sync_count += 1
        self._fd, self._end, self._partial_bytes, self._is_new = fd, len(data), 0, False

    def _check_ownership(self) -> None:
        size, is_named = self._files.size(self._fd)
        if not is_named:
            raise StoreError(
                f"{self.path} was deleted while the session was open. What is not written yet is "
                "only in memory."
            ) from FileNotFoundError(errno.ENOENT, "the journal was deleted")
        if size < self._end:
            raise StoreError(
                f"{self.path} is shorter than what was written to it: another program has changed "
                "it, or the disk lost a write. What is not written yet is only in memory."
            ) from OSError(errno.EIO, "the journal became shorter")
        if size != self._end:
            name = self._session_dir.name
            raise SessionBusy(f"session {name} was taken over by another process; this one stops")

    def _truncate_partial(self) -> None:
        """Remove an incomplete batch, if no other process wrote after it."""
        if self._partial_bytes and self._files.size(self._fd)[0] == self._end + self._partial_bytes:
            self._files.truncate(self._fd, self._end)
        self._partial_bytes = 0

    def _try_truncate_partial(self) -> None:
        partial_bytes = self._partial_bytes
        try:
            self._truncate_partial()
        except OSError:
            self._partial_bytes = partial_bytes  # tried again before the next write

    def _repair_tail(self, tail: JournalTail) -> None:
        """Move the bytes after the last complete line to another file."""
        if tail.end and not tail.torn_bytes and not tail.lacks_newline:
            return
        try:
            self._fd = self._files.open(self.path, os.O_RDWR | os.O_APPEND)
            if tail.torn_bytes:
                self._save_torn_bytes(tail)
                self._files.truncate(self._fd, tail.end)
            if not tail.end:
                self.close()
                self._is_new = True  # not even the header is left
                return
            if tail.lacks_newline:
                write_all(self._files, self._fd, b"\n")
                self._end += 1
            self._files.sync(self._fd)
        except OSError as error:
            self.close()
            raise to_store_error(error, self.path) from error

    def _save_torn_bytes(self, tail: JournalTail) -> None:
        torn = os.pread(self._fd, tail.torn_bytes, tail.end)
        path = self.path.with_name(self.path.name + ".corrupt")
        fd = self._files.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            write_all(self._files, fd, torn + b"\n")
            self._files.sync(fd)
        finally:
            self._files.close(fd)


def to_store_error(error: OSError, path: Path) -> StoreError:
    """A system error as a StoreError that says what to do."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in _DISK_FULL_ERRNOS:
        return StoreFull(f"cannot write {path}: {reason}. Free some space, then continue.")
    if error.errno in _NOT_WRITABLE_ERRNOS:
        advice = "Make it writable, or set XDG_DATA_HOME to a folder that is."
    else:
        advice = "What is not written yet is only in memory."
    return StoreError(f"cannot write {path}: {reason}. {advice}")

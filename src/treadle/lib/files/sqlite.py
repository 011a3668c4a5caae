"""Opens a SQLite file that several programs and threads write: what is committed is on the disk.

Used by sessions/sqlite_store.py and, through it, by apps/fleet.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from contextlib import suppress
from pathlib import Path

AGAIN_SECONDS = 0.01


class SqliteFile(sqlite3.Connection):
    """A connection to a file, which another program may remove or replace."""

    path: Path
    file_id: tuple[int, int]

    def check_file(self) -> None:
        """sqlite3.OperationalError if the file is not there any more. SQLite would go on without
        it, and what it writes then is lost."""
        if find_file_id(self.path) != self.file_id:
            raise sqlite3.OperationalError("it was removed or replaced while it was open")


def find_file_id(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _make_private_file(path: Path) -> None:
    """Make an empty file that only its owner can read, unless there is a file.

    A file that is there is not opened: when a process closes any descriptor of a file, the kernel
    drops all the locks that SQLite has on it in this process, and another process may then write
    at the same time. So the new file is made under another name.
    """
    if path.exists():
        return
    number, draft = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(number)
    try:
        os.link(draft, path)
    except FileExistsError:
        pass  # another one was faster
    except OSError:  # a file system without hard links
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    finally:
        Path(draft).unlink()


def open_sqlite(path: Path, busy_seconds: float) -> SqliteFile:
    """A connection that may be used in any thread, by one at a time. What another program holds is
    waited for so long. A new file can be read by its owner only. Raises sqlite3.Error, OSError."""
    _make_private_file(path)
    database = sqlite3.connect(
        path, timeout=busy_seconds, check_same_thread=False, factory=SqliteFile
    )
    try:
        database.path, database.file_id = path, find_file_id(path) or (0, 0)
        _use_write_ahead_log(database, busy_seconds)
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA fullfsync = ON")  # macOS: also out of the cache of the disk
    except BaseException:
        database.close()
        raise
    return database


def _use_write_ahead_log(database: sqlite3.Connection, busy_seconds: float) -> None:
    """SQLite does not wait by itself when two do this at once with a new file."""
    end = time.monotonic() + busy_seconds
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not is_busy or time.monotonic() > end:
                raise
        time.sleep(AGAIN_SECONDS)

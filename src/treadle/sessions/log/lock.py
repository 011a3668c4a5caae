"""One writer per session: a lock on the file `lock` beside the journal.

What the file says is shown to a user who finds the session open elsewhere. Uses lib/files/locks.py;
used by journal.py and library.py.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from treadle.core.errors import SessionBusy
from treadle.lib.files.file_system import Files
from treadle.lib.files.locks import LockHolder, is_file_locked, lock_file, read_holder

LOCK_NAME = "lock"
BACKGROUND_PROGRAM = "treadle --bg"  # the name of a run in the background (background.py)
SENDING_FILE = "sending.json"  # of a session that is being moved to another machine (transfer.py)


def acquire_lock(session_dir: Path, files: Files, *, take_over: bool = False) -> int:
    """The lock of a session, as a descriptor to close; SessionBusy if another process has it."""
    path = session_dir / LOCK_NAME
    if (session_dir / SENDING_FILE).exists():
        raise SessionBusy(
            f"session {session_dir.name} is being sent to another machine, which may have it: "
            f"`treadle send {session_dir.name} HOST` finishes that"
        )
    if take_over:
        # The old holder keeps a lock on the unlinked file; the new epoch in the journal stops it.
        path.unlink(missing_ok=True)
    lock = lock_file(path, files)
    if lock is not None:
        return lock
    holder = read_holder(path)
    if holder is not None and (holder.pid, holder.host) == (os.getpid(), socket.gethostname()):
        raise SessionBusy(
            f"session {session_dir.name} is open in another run of this process "
            f"(pid {holder.pid}); close it there"
        )
    if holder is not None and holder.program == BACKGROUND_PROGRAM:
        raise SessionBusy(
            f"session {session_dir.name} works in the background (pid {holder.pid}): "
            f"`treadle attach {session_dir.name}` brings it here"
        )
    raise SessionBusy(
        f"session {session_dir.name} is open in {holder or 'another process'}. "
        "Close it there, or end that process, or read it with `treadle sessions show`."
    )


def read_lock_holder(session_dir: Path) -> LockHolder | None:
    return read_holder(session_dir / LOCK_NAME)


def is_locked(session_dir: Path) -> bool:
    """Whether a process has the session open now."""
    return is_file_locked(session_dir / LOCK_NAME)

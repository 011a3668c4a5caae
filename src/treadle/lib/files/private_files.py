"""Files and folders for this user alone, which several programs of the user may change.

make_private_folder   with mode 0700
write_private_file    replaced atomically, with mode 0600
locked_update         read, change and write while no other program does so
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def make_private_folder(path: Path) -> None:
    """Make the folder and its missing parents with mode 0700; existing ones stay as they are."""
    if path.is_dir():
        return
    if path.parent != path:
        make_private_folder(path.parent)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise


def write_private_file(file: Path, content: bytes) -> None:
    """Replace a file atomically and durably, readable by its owner only."""
    make_private_folder(file.parent)
    descriptor, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        Path(draft).replace(file)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def locked_update(file: Path, change: Callable[[bytes | None], bytes | None]) -> None:
    """Give `change` the content of the file (None: there is none) and write what it returns (None:
    nothing). Other programs that do the same wait meanwhile; a lock is beside the file."""
    make_private_folder(file.parent)
    lock = os.open(file.with_name(f".{file.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            before: bytes | None = file.read_bytes()
        except FileNotFoundError:
            before = None
        after = change(before)
        if after is not None and after != before:
            write_private_file(file, after)
    finally:
        os.close(lock)


def find_state_dir() -> Path:
    """The agent's own folder for what must survive a crash."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state", "treadle")

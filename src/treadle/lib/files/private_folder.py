"""Folders and files for this user alone: sessions, outputs, checkpoints, settings."""

from __future__ import annotations

import os
import tempfile
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


def find_state_dir() -> Path:
    """The agent's own folder for what must survive a crash."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state", "treadle")


def write_private_file(file: Path, content: bytes) -> None:
    """Replace a file atomically, readable by its owner only."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

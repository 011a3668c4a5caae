"""Folders for this user alone: those of sessions, outputs and checkpoints."""

from __future__ import annotations

import os
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

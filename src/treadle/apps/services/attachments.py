"""Where a path that a prompt names with @ leads.

Whoever wrote the folder chose what its names stand for: a link may lead to a file that the person
would never send. A path that leaves the folder by itself, whole or with `..`, is the person's word.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path


def find_outside_target(
    name: str, folder: Path, get_added_folders: Callable[[], Sequence[Path]]
) -> Path | None:
    """Where a name of this folder leads by a link, if that is neither here nor in one `added`."""
    if Path(name).is_absolute() or not _is_inside(os.path.normpath(folder / name), folder):
        return None
    real = Path(os.path.realpath(folder / name))
    if any(_is_inside(real, Path(os.path.realpath(one))) for one in (folder, *get_added_folders())):
        return None
    return real


def format_symlink_refusal(name: str, target: Path) -> str:
    return f"{name} is a link out of the folder, to {target}: it is not attached; name that path"


def _is_inside(path: str | Path, folder: Path) -> bool:
    return Path(path).is_relative_to(folder)
